/* Where results are printed, and whether they have arrived. */
#ifndef LS_BASE_RESULTS_H
#define LS_BASE_RESULTS_H

#include <stdio.h>

#include "common/base/log.h"
#include "common/base/status.h"

/* What results are printed to: standard output, or what ls_results_redirect has named. */
FILE *ls_results(void);
void ls_results_redirect(FILE *file); /* NULL: back to standard output */
void ls_print(const char *format, ...) LS_PRINTF(1, 2);

/* What main says last: the status itself or, where all went well but standard output could not be written (a full disk,
 * a pipe that nobody reads any more), LS_ERR_IO with one line. Flushes standard output. */
ls_status ls_results_written(ls_status status);

#endif
