/* merge — the rank files of a folder as one file, for looking at: read, checked, and written again, each event on the
 * time that all ranks share. */
#include <stdio.h>

#include "common/base/log.h"
#include "common/trace/chrome_parts.h"

ls_status ls_trace_merge(const char *folder) {
    char path[PATH_MAX];
    ls_trace *trace;
    if (snprintf(path, sizeof path, "%s/merged.json", folder) >= (int)sizeof path)
        return ls_fail(LS_ERR_IO, "the name of the folder %s is too long", folder);
    ls_status status = ls_trace_read(&trace, folder);
    if (status != LS_OK) return status;
    status = ls_trace_write_file(trace, path);
    ls_trace_destroy(trace);
    return status;
}
