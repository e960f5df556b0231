#include "labs/course/grade/lab.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"

/* Cuts the next word off; "" at the end of the line. */
static char *take_word(char **rest) {
    char *word = *rest + strspn(*rest, " "), *end = word + strcspn(word, " ");
    *rest = *end ? end + 1 + strspn(end + 1, " ") : end;
    *end = '\0';
    return word;
}

static lab_check *find_check(lab *l, const char *name) {
    for (int i = 0; i < l->check_count; i++)
        if (strcmp(l->checks[i].name, name) == 0) return &l->checks[i];
    return NULL;
}

static const char *take_check(lab *l, char *rest) {
    lab_check check = {.name = take_word(&rest)};
    char *end, *points = take_word(&rest);
    check.points = (int)strtol(points, &end, 10);
    check.invariant = check.words = rest;
    if (l->check_count == LAB_MOST_CHECKS) return "too many checks";
    if (*end || end == points || check.points < 1 || check.points > 100) return "a check has 1 to 100 points";
    if (!*rest) return "a check says in words what must hold";
    if (find_check(l, check.name)) return "there is a check of that name";
    l->checks[l->check_count++] = check;
    return NULL;
}

/* The sign of a hint for that check, "" if it is for every failure. NULL: it is for another check. */
static const char *sign_of(const char *hint, const char *check) {
    size_t length = strlen(check);
    if (strncmp(hint, check, length) != 0) return NULL;
    return hint[length] == ':' ? hint + length + 1 : hint[length] ? NULL : hint + length;
}

static const char *take_hint(lab *l, char *rest) {
    lab_hint hint = {.name = take_word(&rest), .words = rest};
    bool follows = false;
    for (int i = 0; i < l->check_count; i++) follows = follows || sign_of(hint.name, l->checks[i].name);
    if (!follows) return "a hint follows its check";
    if (l->hint_count == LAB_MOST_HINTS) return "too many hints";
    l->hints[l->hint_count++] = hint;
    return NULL;
}

static const char *take_hint_words(lab *l, char *rest) {
    const char *name = take_word(&rest);
    for (int i = 0; i < l->hint_count; i++)
        if (strcmp(l->hints[i].name, name) == 0) {
            l->hints[i].words = rest;
            return NULL;
        }
    return "lab.conf has no hint of that name";
}

/* Whether the text has the sign, in which "_" stands for a blank. */
static bool has(const char *text, const char *sign) {
    for (; *text; text++) {
        size_t i = 0;
        while (sign[i] && (text[i] == sign[i] || (text[i] == ' ' && sign[i] == '_'))) i++;
        if (!sign[i]) return true;
    }
    return false;
}

const char *lab_find_hint(const lab *l, const char *check, const char *why) {
    const char *general = NULL;
    for (int i = 0; i < l->hint_count; i++) {
        const char *sign = sign_of(l->hints[i].name, check);
        if (sign && !*sign) general = l->hints[i].words;
        if (sign && *sign && has(why, sign)) return l->hints[i].words;
    }
    return general;
}

/* NULL, or the error in the line. */
static const char *take_line(lab *l, char *line) {
    char *rest = line, *key = take_word(&rest);
    if (strcmp(key, "title") == 0) l->title = rest;
    if (strcmp(key, "check") == 0) return take_check(l, rest);
    if (strcmp(key, "hint") == 0) return take_hint(l, rest);
    return NULL;
}

/* The same for lab.zh.conf. */
static const char *take_words(lab *l, char *line) {
    char *rest = line, *key = take_word(&rest);
    if (strcmp(key, "title") == 0) l->title = rest;
    if (strcmp(key, "hint") == 0) return take_hint_words(l, rest);
    if (strcmp(key, "check") != 0) return NULL;
    lab_check *check = find_check(l, take_word(&rest));
    if (check) check->words = rest;
    return check ? NULL : "lab.conf has no check of that name";
}

static ls_status take_lines(lab *l, const char *path, char *text, const char *(*take)(lab *, char *)) {
    int number = 1;
    for (char *line = text, *next; line && *line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        const char *wrong = *line == '#' ? NULL : take(l, line);
        if (wrong) return ls_fail(LS_ERR_INVALID, "%s:%d: %s", path, number, wrong);
    }
    return LS_OK;
}

enum { MOST_BYTES = 1 << 16 };

static ls_status take_chinese(lab *l, const char *folder) {
    char path[PATH_MAX];
    size_t nbytes;
    snprintf(path, sizeof path, "%s/lab.zh.conf", folder);
    if (access(path, F_OK) != 0) return LS_OK;
    ls_status status = ls_file_read(path, MOST_BYTES, &l->words, &nbytes);
    return status == LS_OK ? take_lines(l, path, l->words, take_words) : status;
}

/* "labs/03-allreduce" -> "03" */
static const char *find_number(char *copy, const char *folder) {
    const char *slash = strrchr(folder, '/');
    snprintf(copy, 3, "%s", slash ? slash + 1 : folder);
    return copy;
}

ls_status lab_open(lab *out, const char *folder, words_language language) {
    enum { NUMBER = 3 };
    *out = (lab){.title = ""};
    char path[PATH_MAX];
    size_t nbytes;
    snprintf(path, sizeof path, "%s/lab.conf", folder);
    ls_status status = ls_file_read(path, MOST_BYTES, &out->text, &nbytes);
    if (status != LS_OK) return status;
    char *text = realloc(out->text, nbytes + 1 + NUMBER);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %s", path);
    out->text = text;
    out->number = find_number(text + nbytes + 1, folder);
    status = take_lines(out, path, text, take_line);
    if (status == LS_OK && out->check_count == 0) status = ls_fail(LS_ERR_INVALID, "%s has no checks", path);
    return status == LS_OK && language == WORDS_CHINESE ? take_chinese(out, folder) : status;
}

void lab_close(lab *l) {
    free(l->text);
    free(l->words);
    *l = (lab){0};
}
