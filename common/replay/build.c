/* skeleton */
#include "common/replay/build.h"

struct ls_build_options ls_build_defaults(ls_build_mode mode, int devices, double batch) {
    (void)mode;
    (void)devices;
    (void)batch;
    return (struct ls_build_options){0};
}
ls_status ls_build(ls_trace **out, const ls_workload *workload, const ls_node *node,
                   const struct ls_build_options *options) {
    (void)out;
    (void)workload;
    (void)node;
    (void)options;
    return LS_ERR_UNSUPPORTED;
}
void ls_build_messages(ls_trace *trace, ls_pattern pattern, const int *lanes, int *tasks, int count, double bytes,
                       int step) {
    (void)trace;
    (void)pattern;
    (void)lanes;
    (void)tasks;
    (void)count;
    (void)bytes;
    (void)step;
}
void ls_build_memory(struct ls_memory_prediction *memory, const ls_workload *workload,
                     const struct ls_build_options *options, int device) {
    (void)memory;
    (void)workload;
    (void)options;
    (void)device;
}
