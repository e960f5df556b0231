/* verdict — compares what two probes saw, line by line.
 *   idea  : the reference's lines are the right ones. The first that the student's run has not, or has otherwise, is
 *           the smallest failing case: probes go from small to large. If the student's lines end there, the way in
 *           which the run ended says why */
#define _GNU_SOURCE
#include "labs/course/grade/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/todo.h"

const char *verdict_name(verdict v) {
    static const char *const names[] = {"held", "broken", "hung", "forbidden", "not written", "not run"};
    return names[v];
}

typedef struct line {
    const char *text;
    int length;
} line;

/* The line at *at, which moves on; false: there is none that is whole. */
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

/* "sub: " of the case at hand, or nothing. */
#define CASE_FORMAT "%.*s%s"
#define CASE_ARGS(c) (c).length, (c).text, (c).length ? ": " : ""

static void say(char *why, size_t capacity, const char *format, ...) LS_PRINTF(3, 4);
static void say(char *why, size_t capacity, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, capacity, format, arguments);
    va_end(arguments);
}

/* The last line of what was printed. */
static line last_said(const attempt *a) {
    size_t length = strlen(a->said);
    while (length > 0 && a->said[length - 1] == '\n') length--;
    size_t begin = length;
    while (begin > 0 && a->said[begin - 1] != '\n') begin--;
    return (line){a->said + begin, (int)(length - begin)};
}

/* The student's lines are at their end, in the case `at`. */
static verdict judge_end(char *why, size_t capacity, const attempt *a, line at) {
    line said = last_said(a);
    if (a->exit_status == LS_TODO_EXIT && !a->signal && !a->timed_out) {
        say(why, capacity, "%.*s", said.length, said.text);
        return VERDICT_NOT_WRITTEN;
    }
    if (a->timed_out) {
        say(why, capacity, CASE_FORMAT "it did not end, and was killed", CASE_ARGS(at));
        return VERDICT_HUNG;
    }
    if (a->signal)
        say(why, capacity, CASE_FORMAT "it was ended by signal %d (%s)", CASE_ARGS(at), a->signal,
            strsignal(a->signal));
    else if (a->exit_status == 0)
        say(why, capacity, CASE_FORMAT "it ended the program before the check was done", CASE_ARGS(at));
    else
        say(why, capacity, CASE_FORMAT "it ended with status %d%s%.*s", CASE_ARGS(at), a->exit_status,
            said.length ? ": " : "", said.length, said.text);
    return VERDICT_BROKEN;
}

static verdict judge_difference(char *why, size_t capacity, line at, line is, line should) {
    line what = field(should, 1), right = field(should, 2), wrong = field(is, 2);
    if (begins(is, "see\t") && same(field(is, 1), what))
        say(why, capacity, CASE_FORMAT "%.*s: expected %.*s, got %.*s", CASE_ARGS(at), what.length, what.text,
            right.length, right.text, wrong.length, wrong.text);
    else
        say(why, capacity, CASE_FORMAT "%.*s is missing", CASE_ARGS(at), what.length, what.text);
    return VERDICT_BROKEN;
}

verdict verdict_of(char *why, size_t capacity, const attempt *student, const attempt *reference) {
    const char *mine = student->seen, *theirs = reference->seen;
    line is, should, at = {"", 0};
    bool whole = false;
    why[0] = '\0';
    while (next_line(&theirs, &should)) {
        if (begins(should, "end\t")) whole = true;
        if (begins(should, "case\t")) at = field(should, 1);
        if (!next_line(&mine, &is)) return judge_end(why, capacity, student, at);
        if (begins(is, "forbidden\t")) {
            line what = field(is, 1);
            say(why, capacity, CASE_FORMAT "it tried to %.*s, which a solution has no need of", CASE_ARGS(at),
                what.length, what.text);
            return VERDICT_FORBIDDEN;
        }
        if (!same(is, should)) return judge_difference(why, capacity, at, is, should);
    }
    if (!whole) {
        say(why, capacity, "the reference itself did not come to its end");
        return VERDICT_NOT_RUN;
    }
    if (student->left_processes) {
        say(why, capacity, "it left processes behind, which were killed");
        return VERDICT_FORBIDDEN;
    }
    if (student->exit_status != 0 || student->signal || student->timed_out)
        return judge_end(why, capacity, student, (line){"at the end", 10});
    return VERDICT_HELD;
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

verdict verdict_of_memory(char *why, size_t capacity, const attempt *student) {
    const char *address = strstr(student->said, "ERROR: AddressSanitizer: ");
    const char *undefined = strstr(student->said, ": runtime error: ");
    why[0] = '\0';
    if (address) {
        const char *text = address + strlen("ERROR: AddressSanitizer: ");
        line place = find_place(text);
        int length = (int)strcspn(text, "\n");
        const char *where = memmem(text, (size_t)length, " on ", 4);
        if (where && place.length) length = (int)(where - text); /* addresses say nothing */
        say(why, capacity, "%.*s%s%.*s", length, text, place.length ? ", at " : "", place.length, place.text);
    } else if (undefined) {
        const char *begin = undefined;
        while (begin > student->said && begin[-1] != '\n' && begin[-1] != '/') begin--;
        const char *text = undefined + strlen(": runtime error: ");
        say(why, capacity, "%.*s, at %.*s", (int)strcspn(text, "\n"), text, (int)(undefined - begin), begin);
    }
    return address || undefined ? VERDICT_BROKEN : VERDICT_HELD;
}
