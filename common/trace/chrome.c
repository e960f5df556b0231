/* skeleton */
#include "common/trace/chrome.h"

ls_status ls_trace_write_rank(const ls_trace *trace, const char *folder, int rank) {
    (void)trace;
    (void)folder;
    (void)rank;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_trace_merge(const char *folder) {
    (void)folder;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_trace_write_file(const ls_trace *trace, const char *path) {
    (void)trace;
    (void)path;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_trace_read(ls_trace **out, const char *folder) {
    (void)out;
    (void)folder;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_trace_read_text(ls_trace *trace, const char *name, const char *text, size_t nbytes) {
    (void)trace;
    (void)name;
    (void)text;
    (void)nbytes;
    return LS_ERR_UNSUPPORTED;
}
