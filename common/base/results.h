/* Whether what a program printed has arrived. */
#ifndef LS_BASE_RESULTS_H
#define LS_BASE_RESULTS_H

#include "common/base/status.h"

/* What main says last: the status itself or, where all went well but standard output could not be written (a full disk,
 * a pipe that nobody reads any more), LS_ERR_IO with one line. Flushes standard output. */
ls_status ls_results_written(ls_status status);

#endif
