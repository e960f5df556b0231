/* skeleton */
#include "common/replay/workload.h"

ls_status ls_workload_open(ls_workload **out, const char *name) {
    (void)out;
    (void)name;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_workload_parse(ls_workload **out, const char *name, const char *text, size_t nbytes) {
    (void)out;
    (void)name;
    (void)text;
    (void)nbytes;
    return LS_ERR_UNSUPPORTED;
}
ls_status ls_workload_from_trace(ls_workload **out, const ls_trace *trace) {
    (void)out;
    (void)trace;
    return LS_ERR_UNSUPPORTED;
}
void ls_workload_close(ls_workload *workload) { (void)workload; }
uint64_t ls_workload_parameters(const ls_workload *workload) {
    (void)workload;
    return 0;
}
