#include "common/base/results.h"

#include <errno.h>
#include <stdio.h>

#include "common/base/file.h"
#include "common/base/log.h"

ls_status ls_results_written(ls_status status) {
    const char *why = fflush(stdout) != 0 ? ls_write_error(errno) : ferror(stdout) ? "an earlier write failed" : NULL;
    if (status != LS_OK || !why) return status;
    return ls_fail(LS_ERR_IO, "cannot write all of the results to standard output: %s; all else is done", why);
}
