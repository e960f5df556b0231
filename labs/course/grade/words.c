/* words — the grader's texts, in two languages.
 *   idea  : each text is written in both, since grade.json, which programs read, stays English whatever a student
 *           reads. UTF-8 is copied byte by byte, so that no locale is needed */
#include "labs/course/grade/words.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool begins(const char *text, const char *word) { return strncmp(text, word, strlen(word)) == 0; }

words_language words_language_of(const char *ls_lang) {
    if (!ls_lang || !*ls_lang || begins(ls_lang, "en")) return WORDS_ENGLISH;
    if (begins(ls_lang, "zh")) return WORDS_CHINESE;
    ls_warn("LS_LANG is '%s', which is unknown: the output is English; LS_LANG=zh is Chinese", ls_lang);
    return WORDS_ENGLISH;
}

const char *words_in(words_language language, const char *english, const char *chinese) {
    return language == WORDS_CHINESE ? chinese : english;
}

void words_end_whole(char *text) {
    size_t length = strlen(text), begin = length;
    while (begin > 0 && ((unsigned char)text[begin - 1] & 0xC0) == 0x80) begin--; /* continuation bytes */
    if (begin == 0) return;
    unsigned char first = (unsigned char)text[begin - 1];
    size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
    if (begin - 1 + bytes > length) text[begin - 1] = '\0';
}

static void add(char *text, size_t capacity, const char *format, va_list arguments) LS_PRINTF(3, 0);
static void add(char *text, size_t capacity, const char *format, va_list arguments) {
    size_t length = strlen(text);
    int wanted = vsnprintf(text + length, capacity - length, format, arguments);
    if (wanted >= (int)(capacity - length)) words_end_whole(text);
}

void words_add(told *out, const char *english, const char *chinese, ...) {
    va_list arguments;
    va_start(arguments, chinese);
    add(out->text[WORDS_ENGLISH], sizeof out->text[WORDS_ENGLISH], english, arguments);
    va_end(arguments);
    va_start(arguments, chinese);
    add(out->text[WORDS_CHINESE], sizeof out->text[WORDS_CHINESE], chinese, arguments);
    va_end(arguments);
}

void words_add_in(told *out, words_language language, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add(out->text[language], sizeof out->text[language], format, arguments);
    va_end(arguments);
}
