/* skeleton */
#include "common/trace/resolve.h"

ls_status ls_trace_resolve(ls_trace *trace, const struct ls_probe_thread *threads, size_t thread_count, int rank,
                           int first_device, bool cpu_time) {
    (void)trace;
    (void)threads;
    (void)thread_count;
    (void)rank;
    (void)first_device;
    (void)cpu_time;
    return LS_ERR_UNSUPPORTED;
}
