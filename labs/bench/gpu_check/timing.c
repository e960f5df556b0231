/* timing — how long one enqueued call takes, from the host's clock.
 *   idea  : enqueue many calls, wait for the last; the host's time per call is hidden as long as a call takes longer on
 *           the GPU than its launch, so the arrays are large */
#include "common/base/clock.h"
#include "common/base/statistics.h"
#include "labs/bench/gpu_check/gpu_check.h"

enum { WARMUP_CALLS = 3, CALLS_MAX = 10000 };
#define GROUP_US 50e3

static ls_status time_calls(ls_stream *stream, gpu_check_call call, const void *argument, int calls, double *us) {
    double begin_us = ls_now_us();
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < calls; i++) status = call(stream, argument);
    ls_status done = ls_stream_synchronize(stream);
    *us = (ls_now_us() - begin_us) / calls;
    return status != LS_OK ? status : done;
}

ls_status gpu_check_time(ls_stream *stream, gpu_check_call call, const void *argument, bool quick, double *us) {
    double once_us = 0, groups_us[GPU_CHECK_GROUPS];
    ls_status status = time_calls(stream, call, argument, quick ? 1 : WARMUP_CALLS, &once_us);
    if (status == LS_OK) status = time_calls(stream, call, argument, 1, &once_us);
    int calls = quick ? 1 : once_us * CALLS_MAX > GROUP_US ? (int)(GROUP_US / once_us) + 1 : CALLS_MAX;
    for (int g = 0; status == LS_OK && g < GPU_CHECK_GROUPS; g++) {
        status = time_calls(stream, call, argument, calls, &groups_us[g]);
    }
    if (status != LS_OK) return status;
    ls_sort(groups_us, GPU_CHECK_GROUPS);
    *us = ls_quantile(groups_us, GPU_CHECK_GROUPS, 0.5);
    return LS_OK;
}
