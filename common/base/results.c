#include "common/base/results.h"

#include "common/base/file.h"
#include <errno.h>
#include <stdarg.h>

static FILE *redirected;

FILE *ls_results(void) { return redirected ? redirected : stdout; }
void ls_results_redirect(FILE *file) { redirected = file; }

void ls_print(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(ls_results(), format, arguments);
    va_end(arguments);
}

ls_status ls_results_written(ls_status status) {
    const char *why = fflush(stdout) != 0 ? ls_write_error(errno) : ferror(stdout) ? "an earlier write failed" : NULL;
    if (status != LS_OK || !why) return status;
    return ls_fail(LS_ERR_IO, "cannot write all of the results to standard output: %s; all else is done", why);
}
