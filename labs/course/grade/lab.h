/* lab.conf: a lab's tasks and checks. One fact a line, "KEY NAME the rest in words"; # begins a comment. Keys that the
 * scripts of labs/course read (cut, link, predict, ...) are ignored here. lab.zh.conf in the same folder has the words
 * in Chinese: "title ...", "check NAME WORDS", "hint NAME WORDS"; words that it lacks stay English. */
#ifndef LABS_COURSE_GRADE_LAB_H
#define LABS_COURSE_GRADE_LAB_H

#include "common/base/status.h"
#include "labs/course/grade/words.h"

enum { LAB_MOST_CHECKS = 16, LAB_MOST_HINTS = 96 };

/* The check that runs all others again under AddressSanitizer; probes do not have it. */
#define LAB_MEMORY_CHECK "memory"

typedef struct lab_check {
    const char *name;
    int points;
    const char *invariant; /* the invariant, in English words, for programs */
    const char *words;     /* the same for the student, in the student's language */
} lab_check;

/* "hint NAME WORDS" is for every failure of that check; "hint NAME:SIGN WORDS" only for those whose text has the
 * sign. */
typedef struct lab_hint {
    const char *name, *words; /* "sum", or "sum:rank_2" */
} lab_hint;

typedef struct lab {
    char *text, *words;         /* own all strings */
    const char *number, *title; /* "03", "..." */
    lab_check checks[LAB_MOST_CHECKS];
    int check_count;
    lab_hint hints[LAB_MOST_HINTS];
    int hint_count;
} lab;

/* Reads DIR/lab.conf, of a folder like labs/03-allreduce, and its words in that language. LS_ERR_INVALID names a line.
 * Close also after a failure. */
ls_status lab_open(lab *out, const char *folder, words_language language);
void lab_close(lab *l);

/* The hint for a failure of the check with the English text `why`: the first whose sign is in the text ("_" in a sign
 * stands for a blank), else the one for every failure. NULL: there is none. */
const char *lab_find_hint(const lab *l, const char *check, const char *why);

#endif
