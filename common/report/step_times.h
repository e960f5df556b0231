/* Step times: how long steps take, measured without slowing down the devices. Used by the loop.
 *
 *     LS_TIME_STEPS   the host waits for each step and times it: on CPU devices, whose work has already run, and if the
 *                     options request a line per step
 *     LS_TIME_BLOCKS  on devices that run behind: blocks of steps. At both ends of a block all devices of this process
 *                     are idle; within it the host does not wait. For work outside of steps (reading the losses, an
 *                     evaluation) the clock is stopped, with the devices idle. The first block of LS_TIME_BLOCK steps
 *                     is the warm-up. The second measures the length of a step. If it takes less than LS_TIME_BLOCK_MS,
 *                     blocks are doubled until they take that long, up to LS_TIME_LONGEST_BLOCK steps and a quarter of
 *                     the rest of the run, since the idle ends would distort short blocks; the second is then also
 *                     part of the warm-up. (Ranks may choose different lengths: a longer block ends together with a
 *                     shorter one.)
 *     LS_TIME_NONE    steps are neither waited for nor timed: with shuffled streams, so that the race detector works
 *                     across steps */
#ifndef LS_REPORT_STEP_TIMES_H
#define LS_REPORT_STEP_TIMES_H

#include "common/report/result.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

#define LS_TIME_BLOCK 20
#define LS_TIME_LONGEST_BLOCK 160
#define LS_TIME_BLOCK_MS 20.0

typedef enum ls_time_how { LS_TIME_STEPS, LS_TIME_BLOCKS, LS_TIME_NONE } ls_time_how;

typedef struct ls_step_times {
    /* constant after open, except warmup and block, which change after the second block */
    ls_time_how how;
    ls_parallel *parallel;
    int64_t steps; /* of the run; 0: not known, and blocks keep their length */
    /* steps at the start of the run that do not count: LS_WARMUP_STEPS, or the first block or two */
    int64_t warmup;
    int64_t block; /* steps of a block */
    /* the times of all steps or blocks so far, a block's as the mean of its steps */
    double *ms;
    int64_t count, room;
    /* in progress */
    bool runs;       /* the clock is running */
    double begun_us; /* start of this step, and last start of the clock */
    double started_us;
    double block_us; /* of the block, before the last start of the clock */
    int64_t block_steps;
} ls_step_times;

/* Chooses by the devices and the options. `each`: steps are waited for in any case (a run that keeps its state). */
ls_time_how ls_step_times_choose(const ls_parallel *parallel, const ls_train_options *options, bool each);

/* `steps`: the number of steps to be done; 0: not known. */
void ls_step_times_open(ls_step_times *times, ls_parallel *parallel, ls_time_how how, int64_t steps);

/* The length of a block, in steps, if a step takes `step_ms` and `steps` are left. */
int64_t ls_step_times_block(double step_ms, int64_t steps);

/* Call before a step, before its batch is loaded. Starts the clock if it is stopped. */
void ls_step_times_begin(ls_step_times *times);

/* Call after the step: sets *step_ms to its time on the host. In LS_TIME_STEPS the caller has waited for it.
 * LS_ERR_NO_MEMORY, or a device's failure. */
ls_status ls_step_times_end(ls_step_times *times, double *step_ms);

/* Waits for the devices and stops the clock: call before work that does not belong to a step. */
ls_status ls_step_times_pause(ls_step_times *times);

/* Writes median and quantiles, without the warm-up, to the result; all 0 if no times are left. */
void ls_step_times_summarise(ls_step_times *times, ls_train_result *result);

void ls_step_times_close(ls_step_times *times);

#endif
