/* The report: one HTML page that needs nothing else, and runs nothing. */
#ifndef LABS_COURSE_REPORT_PAGE_H
#define LABS_COURSE_REPORT_PAGE_H

#include "labs/bench/shared/machine.h"
#include "labs/course/report/page_lab.h"
#include "labs/course/report/words.h"

typedef struct page {
    language language;
    const char *student; /* NULL: no name is given */
    const char *results; /* the folder of the programs' pictures */
    bench_machine machine;
    page_lab *labs;
    int lab_count;
} page;

/* The page as a text that the caller frees; NULL: no memory. */
char *page_text(const page *p);

#endif
