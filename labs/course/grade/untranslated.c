#define _DEFAULT_SOURCE
#include "labs/course/grade/untranslated.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "labs/course/grade/attempt.h"

#define DEADLINE_S 60.0

/* The number of lower-case letters at `text`. */
static size_t letters_at(const char *text) {
    size_t count = 0;
    while (islower((unsigned char)text[count])) count++;
    return count;
}

static bool is_word_at(const char *text, size_t at, size_t letters) {
    return letters_at(text + at) >= letters &&
           (at == 0 || (!isalnum((unsigned char)text[at - 1]) && text[at - 1] != '-'));
}

static bool has_word(const char *text) {
    for (size_t i = 0; text[i]; i++)
        if (is_word_at(text, i, 3)) return true;
    return false;
}

/* Ignores text in quotation marks, which is a program's output. */
static bool has_two_words(const char *text) {
    bool quoted = false;
    for (size_t i = 0; text[i]; i++) {
        quoted ^= text[i] == '"';
        if (quoted) continue;
        size_t next = i + letters_at(text + i);
        if (is_word_at(text, i, 2) && text[next] == ' ' && is_word_at(text, next + 1, 2)) return true;
    }
    return false;
}

static bool is_untranslated(const phrases *rules, const char *text) {
    char chinese[1024];
    bool found = phrases_translate(rules, chinese, sizeof chinese, text, strlen(text));
    return (!found && has_word(text)) || has_two_words(chinese);
}

static bool print_of(const phrases *rules, char *seen) {
    bool all = true;
    for (char *rest = seen, *line; (line = strsep(&rest, "\n"));) {
        char *kind = strsep(&line, "\t"), *text = strsep(&line, "\t");
        if (!text || (strcmp(kind, "case") != 0 && strcmp(kind, "see") != 0) || !is_untranslated(rules, text)) continue;
        puts(text);
        all = false;
    }
    return all;
}

ls_status untranslated_print(const lab *l, const phrases *rules, const char *probe, int64_t seed) {
    bool all = true;
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < l->check_count; i++) {
        if (strcmp(l->checks[i].name, LAB_MEMORY_CHECK) == 0) continue;
        attempt a;
        attempt_request request = {
            .program = probe, .check = l->checks[i].name, .seed = seed, .deadline_s = DEADLINE_S};
        status = attempt_run(&a, &request);
        if (status == LS_OK && a.seen) all = print_of(rules, a.seen) && all;
        attempt_close(&a);
    }
    return status == LS_OK && !all ? LS_ERR_INVALID : status;
}
