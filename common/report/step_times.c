#include "common/report/step_times.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/statistics.h"

enum { ROOM_FIRST = 1 << 12 };

ls_time_how ls_step_times_choose(const ls_parallel *p, const ls_train_options *options, bool each) {
    if (each || !ls_device_runs_behind(p->devices[0])) return LS_TIME_STEPS;
    if (strcmp(ls_device_stream_mode(p->devices[0]), "shuffle") == 0) return LS_TIME_NONE;
    return options->metrics || options->dump_losses ? LS_TIME_STEPS : LS_TIME_BLOCKS;
}

void ls_step_times_open(ls_step_times *times, ls_parallel *parallel, ls_time_how how, int64_t steps) {
    *times = (ls_step_times){.how = how, .parallel = parallel, .steps = steps};
    times->block = how == LS_TIME_BLOCKS ? LS_TIME_BLOCK : 1;
    times->warmup = how == LS_TIME_BLOCKS ? LS_TIME_BLOCK : LS_WARMUP_STEPS;
}

/* Makes room for one more time: the number of steps is not always known. Called while no clock runs. */
static ls_status push(ls_step_times *times, double ms) {
    if (times->count == times->room) {
        int64_t room = times->room > 0 ? 2 * times->room : ROOM_FIRST;
        double *grown = realloc(times->ms, (size_t)room * sizeof *grown);
        if (!grown)
            return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the times of %lld steps", (long long)room);
        times->ms = grown;
        times->room = room;
    }
    times->ms[times->count++] = ms;
    return LS_OK;
}

void ls_step_times_begin(ls_step_times *times) {
    times->begun_us = ls_now_us();
    if (!times->runs) times->started_us = times->begun_us;
    times->runs = true;
}

ls_status ls_step_times_pause(ls_step_times *times) {
    if (times->how != LS_TIME_BLOCKS || !times->runs) return LS_OK;
    const ls_parallel *p = times->parallel;
    ls_status status = LS_OK;
    for (int d = 0; status == LS_OK && d < p->local_device_count; d++) status = ls_device_synchronize(p->devices[d]);
    times->block_us += ls_now_us() - times->started_us;
    times->runs = false;
    return status;
}

int64_t ls_step_times_block(double step_ms, int64_t steps) {
    int64_t block = LS_TIME_BLOCK, most = steps / 4 < LS_TIME_LONGEST_BLOCK ? steps / 4 : LS_TIME_LONGEST_BLOCK;
    while (2 * block <= most && step_ms * (double)block < LS_TIME_BLOCK_MS) block *= 2;
    return block;
}

static void choose_block(ls_step_times *times, double step_ms) {
    times->block = ls_step_times_block(step_ms, times->steps - 2 * LS_TIME_BLOCK);
    if (times->block > LS_TIME_BLOCK) times->warmup = 2 * LS_TIME_BLOCK;
}

ls_status ls_step_times_end(ls_step_times *times, double *step_ms) {
    *step_ms = (ls_now_us() - times->begun_us) * 1e-3;
    if (times->how == LS_TIME_STEPS) return push(times, *step_ms);
    if (times->how == LS_TIME_NONE || ++times->block_steps < times->block) return LS_OK;
    ls_status status = ls_step_times_pause(times);
    double ms = times->block_us * 1e-3 / (double)times->block;
    if (status == LS_OK) status = push(times, ms);
    if (status == LS_OK && times->count == 2) choose_block(times, ms);
    times->block_us = 0;
    times->block_steps = 0;
    return status;
}

void ls_step_times_summarise(ls_step_times *times, ls_train_result *result) {
    int64_t each = times->block, skip = times->how == LS_TIME_BLOCKS ? times->warmup / LS_TIME_BLOCK : times->warmup;
    if (skip > times->count) skip = times->count;
    size_t count = (size_t)(times->count - skip);
    double *ms = times->count > 0 ? times->ms + skip : NULL;
    ls_sort(ms, count);
    result->steps_per_time = each;
    result->timed_steps = (int64_t)count * each;
    result->median_step_ms = ls_quantile(ms, count, 0.5);
    result->p10_step_ms = ls_quantile(ms, count, 0.1);
    result->p90_step_ms = ls_quantile(ms, count, 0.9);
}

void ls_step_times_close(ls_step_times *times) {
    free(times->ms);
    times->ms = NULL;
}
