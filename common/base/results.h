/* The stream that results are printed to, and the check that they were written. */
#ifndef LS_BASE_RESULTS_H
#define LS_BASE_RESULTS_H

#include <stdio.h>

#include "common/base/log.h"
#include "common/base/status.h"

/* The stream for results: standard output, or the file set by ls_results_redirect. */
FILE *ls_results(void);
void ls_results_redirect(FILE *file); /* NULL: back to standard output */
void ls_print(const char *format, ...) LS_PRINTF(1, 2);

/* Call last in main. Flushes standard output. Returns `status` or, if that is LS_OK but standard output could not be
 * written (a full disk, a pipe without a reader), LS_ERR_IO after one line. */
ls_status ls_results_written(ls_status status);

#endif
