/* A lab's part of the page. */
#ifndef LABS_COURSE_REPORT_PAGE_LAB_H
#define LABS_COURSE_REPORT_PAGE_LAB_H

#include <stdio.h>

#include "common/base/status.h"
#include "labs/course/report/facts.h"
#include "labs/course/report/markdown.h"
#include "labs/course/report/points.h"
#include "labs/course/report/words.h"

enum { PAGE_PATH = 4096 };

typedef struct page_lab {
    facts facts;
    points points;        /* no checks where none count: not graded, or other code was */
    char *answers, *diff; /* as they are; NULL: none */
    size_t answers_nbytes, diff_nbytes;
    markdown_said answered;
    char figures[PAGE_PATH], answers_file[PAGE_PATH];
} page_lab;

/* Reads all of a lab: BUILT/NUMBER/report.facts and report.diff, grade.json and pictures; answers.md in CODE. Close
 * also after a failure. */
ls_status page_lab_open(page_lab *out, const char *built, const char *number, const char *code);
void page_lab_close(page_lab *lab);

void page_lab_put(FILE *file, language l, const page_lab *lab);

#endif
