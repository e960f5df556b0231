/* lab.conf: what a lab asks for, and how it is judged. One line a fact, "KEY NAME the rest in words"; # begins a
 * comment. Keys that the scripts of labs/course read (cut, link, predict, ...) are passed over here. */
#ifndef LABS_COURSE_GRADE_LAB_H
#define LABS_COURSE_GRADE_LAB_H

#include "common/base/status.h"

enum { LAB_MOST_CHECKS = 16 };

/* The check that runs all others once more under AddressSanitizer; no probe has it. */
#define LAB_MEMORY_CHECK "memory"

typedef struct lab_check {
    const char *name;
    int points;
    const char *invariant; /* what must hold, in words */
    const char *hint;      /* NULL: none */
} lab_check;

typedef struct lab {
    char *text;                 /* owns all strings */
    const char *number, *title; /* "03", "..." */
    lab_check checks[LAB_MOST_CHECKS];
    int check_count;
} lab;

/* Reads DIR/lab.conf, of a folder like labs/03-allreduce. LS_ERR_INVALID names the line. Close also after a failure. */
ls_status lab_open(lab *out, const char *folder);
void lab_close(lab *l);

#endif
