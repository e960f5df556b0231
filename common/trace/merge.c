/* merge — merges the rank files of a folder into one file for viewers: they are read, checked, and written again, with
 * all events on the clock that the ranks share. */
#include "common/trace/chrome_internal.h"

ls_status ls_trace_merge(const char *folder) {
    char path[PATH_MAX];
    ls_trace *trace;
    ls_status status = ls_trace_file_name(path, sizeof path, folder, LS_NONE);
    if (status == LS_OK) status = ls_trace_read(&trace, folder);
    if (status != LS_OK) return status;
    status = ls_trace_write_file(trace, path);
    ls_trace_destroy(trace);
    return status;
}
