/* verdict — compares the observations of two probes, line by line.
 *   idea  : the reference's lines are the right ones. The first line that is missing or different in the student's run
 *           is the smallest failing case: probes go from small to large. If the student's lines end there, the reason
 *           is how the run ended
 *   near  : a number that depends on the order of its operations has a bound, and is compared as a number: two right
 *           sums may round to different digits */
#define _GNU_SOURCE
#include "labs/course/grade/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/todo.h"

const char *verdict_name(verdict v, words_language language) {
    static const char *const names[][WORDS_LANGUAGES] = {{WORDS_HELD},      {WORDS_BROKEN},      {WORDS_HUNG},
                                                         {WORDS_FORBIDDEN}, {WORDS_NOT_WRITTEN}, {WORDS_NOT_RUN}};
    return names[v][language];
}

typedef struct line {
    const char *text;
    int length;
} line;

/* Reads the line at *at, and moves *at past it; false: there is no complete line. */
static bool next_line(const char **at, line *out) {
    const char *end = strchr(*at, '\n');
    if (!end) return false;
    *out = (line){*at, (int)(end - *at)};
    *at = end + 1;
    return true;
}

static bool begins(line l, const char *word) { return strncmp(l.text, word, strlen(word)) == 0; }

static bool same(line a, line b) { return a.length == b.length && memcmp(a.text, b.text, (size_t)a.length) == 0; }

/* The n-th field, counted from 0. */
static line field(line l, int n) {
    const char *at = l.text, *end = l.text + l.length;
    for (; n > 0 && at < end; n--) {
        const char *tab = memchr(at, '\t', (size_t)(end - at));
        at = tab ? tab + 1 : end;
    }
    const char *tab = memchr(at, '\t', (size_t)(end - at));
    return (line){at, (int)((tab ? tab : end) - at)};
}

/* Whether both lines have the same observation: the same text, or numbers within the bound that the reference's line
 * gives (probe_see_near). The fields are "see", what, the number in short, the number, the bound. */
static bool agree(line is, line should) {
    line bound = field(should, 4);
    if (same(is, should) || !bound.length) return same(is, should);
    if (!same(field(is, 0), field(should, 0)) || !same(field(is, 1), field(should, 1)) || !field(is, 4).length)
        return false;
    double mine = strtod(field(is, 3).text, NULL), theirs = strtod(field(should, 3).text, NULL);
    if (!isfinite(theirs)) return isnan(theirs) ? isnan(mine) : mine == theirs;
    return fabs(mine - theirs) <= strtod(bound.text, NULL);
}

enum { MOST_TEXTS = 3 };

/* Adds a sentence about texts of the probe, which are translated for the Chinese one; both formats use all of them. */
static void add_about(told *why, const phrases *rules, const char *english, const char *chinese,
                      const line texts[MOST_TEXTS]) LS_PRINTF(3, 0) LS_PRINTF(4, 0);
static void add_about(told *why, const phrases *rules, const char *english, const char *chinese,
                      const line texts[MOST_TEXTS]) {
    char translated[MOST_TEXTS][512];
    const line *t = texts;
    words_add_in(why, WORDS_ENGLISH, english, t[0].length, t[0].text, t[1].length, t[1].text, t[2].length, t[2].text);
    line z[MOST_TEXTS];
    for (int i = 0; i < MOST_TEXTS; i++) {
        phrases_translate(rules, translated[i], sizeof translated[i], t[i].text ? t[i].text : "", (size_t)t[i].length);
        z[i] = (line){translated[i], (int)strlen(translated[i])};
    }
    words_add_in(why, WORDS_CHINESE, chinese, z[0].length, z[0].text, z[1].length, z[1].text, z[2].length, z[2].text);
}

/* The last line of the output. */
static line last_said(const attempt *a) {
    size_t length = strlen(a->said);
    while (length > 0 && a->said[length - 1] == '\n') length--;
    size_t begin = length;
    while (begin > 0 && a->said[begin - 1] != '\n') begin--;
    return (line){a->said + begin, (int)(length - begin)};
}

/* Whether the line is ls_todo_at's (common/base/todo.h); `why` then has the same text. */
static bool tell_unwritten(told *why, line said) {
    char text[512], lab[8], function[128], file[256];
    snprintf(text, sizeof text, "%.*s", said.length, said.text);
    if (sscanf(text, "lab %7[^:]: %127s is not written yet (%255[^)])", lab, function, file) != 3) return false;
    words_add(why, WORDS_UNWRITTEN, lab, function, file);
    return true;
}

/* Describes the end of an incomplete run. */
static void tell_end(told *why, const attempt *a) {
    line said = last_said(a);
    if (a->timed_out) {
        words_add(why, WORDS_DID_NOT_END);
    } else if (a->signal) {
        words_add(why, WORDS_SIGNAL, a->signal, strsignal(a->signal));
    } else if (a->exit_status == 0) {
        words_add(why, WORDS_TOO_EARLY);
    } else {
        words_add(why, WORDS_STATUS, a->exit_status);
        if (said.length) words_add(why, WORDS_SAID, said.length, said.text);
    }
}

/* The student's lines have ended; `why` has the case. */
static verdict judge_end(told *why, const attempt *a) {
    if (a->exit_status == LS_TODO_EXIT && !a->signal && !a->timed_out) {
        line said = last_said(a);
        *why = (told){0};
        if (!tell_unwritten(why, said)) words_add(why, WORDS_AS_IT_IS, said.length, said.text);
        return VERDICT_NOT_WRITTEN;
    }
    tell_end(why, a);
    return a->timed_out ? VERDICT_HUNG : VERDICT_BROKEN;
}

static verdict judge_difference(told *why, const phrases *rules, line is, line should) {
    const line about[MOST_TEXTS] = {field(should, 1), field(should, 2), field(is, 2)};
    if (begins(is, "see\t") && same(field(is, 1), about[0]))
        add_about(why, rules, WORDS_EXPECTED, about);
    else
        add_about(why, rules, WORDS_MISSING, about);
    return VERDICT_BROKEN;
}

/* Both runs have the same lines. */
static verdict judge_whole(told *why, const attempt *student) {
    if (student->left_processes) {
        words_add(why, WORDS_LEFT_PROCESSES);
        return VERDICT_FORBIDDEN;
    }
    if (student->exit_status == 0 && !student->signal && !student->timed_out) return VERDICT_HELD;
    words_add(why, WORDS_AT_THE_END);
    return judge_end(why, student);
}

verdict verdict_of(told *why, const attempt *student, const attempt *reference, const phrases *rules) {
    const char *mine = student->seen, *theirs = reference->seen;
    line is = {"", 0}, should, at = {"", 0};
    bool whole = false;
    *why = (told){0};
    while (next_line(&theirs, &should)) {
        if (begins(should, "end\t")) whole = true;
        if (begins(should, "case\t")) at = field(should, 1);
        bool more = next_line(&mine, &is);
        if (more && agree(is, should)) continue;
        if (at.length) add_about(why, rules, WORDS_CASE, (const line[MOST_TEXTS]){at});
        if (!more) return judge_end(why, student);
        if (!begins(is, "forbidden\t")) return judge_difference(why, rules, is, should);
        words_add(why, WORDS_TRIED, field(is, 1).length, field(is, 1).text);
        return VERDICT_FORBIDDEN;
    }
    if (whole) return judge_whole(why, student);
    words_add(why, WORDS_REFERENCE_BROKE);
    tell_end(why, reference);
    return VERDICT_NOT_RUN;
}

/* The innermost place in a file that the report names: " in FUNCTION FILE:LINE", without folders. */
static line find_place(const char *report) {
    for (const char *at = strstr(report, "\n    #0 "); at && strncmp(at, "\n    #", 6) == 0;
         at = strchr(at + 1, '\n')) {
        const char *in = strstr(at, " in ");
        size_t length = strcspn(at + 1, "\n");
        if (!in || in > at + 1 + length) return (line){"", 0};
        const char *end = at + 1 + length, *slash = memrchr(in, '/', (size_t)(end - in));
        const char *colon = memchr(in, ':', (size_t)(end - in));
        if (slash && colon && strncmp(in, " in __", 6) != 0 && !memmem(in, (size_t)(end - in), "libsanitizer", 12))
            return (line){slash + 1, (int)(end - slash - 1)};
    }
    return (line){"", 0};
}

verdict verdict_of_memory(told *why, const attempt *student) {
    const char *address = strstr(student->said, "ERROR: AddressSanitizer: ");
    const char *undefined = strstr(student->said, ": runtime error: ");
    *why = (told){0};
    if (address) {
        const char *text = address + strlen("ERROR: AddressSanitizer: ");
        line place = find_place(text);
        int length = (int)strcspn(text, "\n");
        const char *where = memmem(text, (size_t)length, " on ", 4);
        if (where && place.length) length = (int)(where - text); /* addresses are left out */
        words_add(why, WORDS_AS_IT_IS, length, text);
        if (place.length) words_add(why, WORDS_PLACE, place.length, place.text);
    } else if (undefined) {
        const char *begin = undefined;
        while (begin > student->said && begin[-1] != '\n' && begin[-1] != '/') begin--;
        const char *text = undefined + strlen(": runtime error: ");
        words_add(why, WORDS_AS_IT_IS, (int)strcspn(text, "\n"), text);
        words_add(why, WORDS_PLACE, (int)(undefined - begin), begin);
    }
    if (address || undefined) return VERDICT_BROKEN;
    if (!student->timed_out && student->seen && *student->seen) return VERDICT_HELD;
    tell_end(why, student);
    return student->timed_out ? VERDICT_HUNG : VERDICT_NOT_RUN;
}
