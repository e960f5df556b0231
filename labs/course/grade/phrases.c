/* phrases — translates by rules with gaps.
 *   idea  : a rule's English is literal text with gaps, {}. It matches if the literals occur in order, the first at the
 *           beginning and the last at the end; each gap matches as little as possible. The gaps' texts are translated
 *           in turn, so a rule for "{}, reversed" applies to every text with that end
 *   cost  : rules x length for a text, more only if a literal occurs often; a text is a line, and there are about fifty
 *           rules */
#define _GNU_SOURCE
#include "labs/course/grade/phrases.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "labs/course/grade/words.h"

enum { MOST_RULES = 256, MOST_GAPS = 9, MOST_DEPTH = 6, MOST_BYTES = 1 << 16, FILES = 2 };

typedef struct rule {
    const char *english, *chinese;
} rule;

struct phrases {
    char *text[FILES]; /* own the rules' strings */
    rule rules[MOST_RULES];
    int count;
};

typedef struct span {
    const char *at;
    size_t length;
} span;

/* Whether the text has this form; gaps[] is set to the text of each {}. */
static bool matches(const char *form, span text, span *gaps, int gap) {
    const char *hole = strstr(form, "{}");
    size_t literal = hole ? (size_t)(hole - form) : strlen(form);
    if (literal > text.length || memcmp(form, text.at, literal) != 0) return false;
    if (!hole) return literal == text.length;
    for (size_t taken = 1; literal + taken <= text.length; taken++) {
        span rest = {text.at + literal + taken, text.length - literal - taken};
        gaps[gap] = (span){text.at + literal, taken};
        if (matches(hole + 2, rest, gaps, gap + 1)) return true;
    }
    return false;
}

typedef struct writer {
    char *out;
    size_t capacity, length;
} writer;

static void put(writer *w, const char *text, size_t length) {
    if (length > w->capacity - 1 - w->length) length = w->capacity - 1 - w->length;
    memcpy(w->out + w->length, text, length);
    w->length += length;
}

static bool translate(const phrases *p, writer *w, span text, int depth) {
    span gaps[MOST_GAPS];
    const rule *found = p->rules, *end = p->rules + p->count;
    while (found < end && !matches(found->english, text, gaps, 0)) found++;
    if (found == end || depth == MOST_DEPTH) {
        put(w, text.at, text.length);
        return false;
    }
    for (const char *at = found->chinese; *at; at++) {
        bool is_gap = at[0] == '{' && at[1] >= '1' && at[1] <= '9' && at[2] == '}';
        if (is_gap) {
            span gap = gaps[at[1] - '1'];
            if (at > found->chinese && at[-1] == '"')
                put(w, gap.at, gap.length);
            else
                translate(p, w, gap, depth + 1);
            at += 2;
        } else {
            put(w, at, 1);
        }
    }
    return true;
}

bool phrases_translate(const phrases *p, char *out, size_t capacity, const char *text, size_t length) {
    static const phrases none;
    writer w = {.out = out, .capacity = capacity};
    bool found = translate(p ? p : &none, &w, (span){text, length}, 0);
    out[w.length] = '\0';
    if (w.length + 1 == capacity) words_end_whole(out);
    return found;
}

/* --- reading the rules -------------------------------------------------------------------------------------------- */

static int gaps_in(const char *english) {
    int count = 0;
    for (const char *at = strstr(english, "{}"); at; at = strstr(at + 2, "{}")) count++;
    return count;
}

/* NULL, or the error in the line. Cuts the line at the bar. */
static const char *take_rule(phrases *p, char *line) {
    char *bar = strstr(line, " | ");
    if (!bar) return "a rule is ENGLISH | CHINESE";
    *bar = '\0';
    const char *chinese = bar + 3;
    int gaps = gaps_in(line);
    if (gaps > MOST_GAPS) return "a rule has at most nine gaps";
    for (const char *at = strchr(chinese, '{'); at; at = strchr(at + 1, '{'))
        if (at[1] < '1' || at[1] > '0' + gaps || at[2] != '}')
            return "the Chinese names a gap that the English does not have";
    if (p->count == MOST_RULES) return "too many rules";
    p->rules[p->count++] = (rule){line, chinese};
    return NULL;
}

static ls_status read_rules(phrases *p, int file, const char *path) {
    size_t nbytes;
    if (access(path, F_OK) != 0) return LS_OK;
    ls_status status = ls_file_read(path, MOST_BYTES, &p->text[file], &nbytes);
    int number = 1;
    for (char *line = p->text[file], *next; status == LS_OK && line && *line; line = next, number++) {
        next = strchrnul(line, '\n');
        if (*next) *next++ = '\0';
        const char *wrong = *line == '#' || !*line ? NULL : take_rule(p, line);
        if (wrong) status = ls_fail(LS_ERR_INVALID, "%s:%d: %s", path, number, wrong);
    }
    return status;
}

ls_status phrases_open(phrases **out, const char *folder) {
    char path[FILES][PATH_MAX];
    phrases *p = *out = calloc(1, sizeof *p);
    if (!p) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the Chinese of %s", folder);
    snprintf(path[0], sizeof path[0], "%s/cases.zh.txt", folder);
    snprintf(path[1], sizeof path[1], "%s/../course/cases.zh.txt", folder);
    ls_status status = LS_OK;
    for (int file = 0; status == LS_OK && file < FILES; file++) status = read_rules(p, file, path[file]);
    if (status == LS_OK) return LS_OK;
    phrases_close(p);
    *out = NULL;
    return status;
}

void phrases_close(phrases *p) {
    if (!p) return;
    for (int file = 0; file < FILES; file++) free(p->text[file]);
    free(p);
}
