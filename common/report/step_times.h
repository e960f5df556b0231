/* Step times: how long steps take, measured at no cost to the devices. Used by the loop.
 *
 *     LS_TIME_STEPS   each step is waited for and timed: on CPU devices, whose work has already run, and if the options
 *                     ask for a line per step
 *     LS_TIME_BLOCKS  on devices that run behind: blocks of steps. At both ends of a block all devices of this process
 *                     are idle; within it the host does not wait. For work outside of steps (reading the losses, an
 *                     evaluation) the clock is stopped, with the devices idle. The first block of LS_TIME_BLOCK steps
 *                     is the warm-up. The second tells how long a step is. If it lasts less than LS_TIME_BLOCK_MS,
 *                     blocks are doubled until they last as long, up to LS_TIME_LONGEST_BLOCK steps and a quarter of
 *                     what is left of the run, since the idle ends would distort short blocks; the second then belongs
 *                     to the warm-up, too. (Ranks may choose different lengths: one's blocks end where the other's do.)
 *     LS_TIME_NONE    no step is waited for and none is timed: with shuffled streams, so that the race detector works
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
    int64_t steps; /* that the run takes; 0: not known, and blocks stay as they are */
    /* steps at the start of the run that do not count: LS_WARMUP_STEPS, or the first block or two */
    int64_t warmup;
    int64_t block; /* steps of a block */
    /* the times of all steps or blocks so far, a block's as the mean of its steps */
    double *ms;
    int64_t count, room;
    /* in progress */
    bool runs;       /* the clock */
    double begun_us; /* this step; and when the clock was started last */
    double started_us;
    double block_us; /* of the block, before the clock was started last */
    int64_t block_steps;
} ls_step_times;

/* What the devices and the options allow. `each`: steps are to be waited for in any case (a run that keeps what it has done). */
ls_time_how ls_step_times_choose(const ls_parallel *parallel, const ls_train_options *options, bool each);

/* `steps`: that are going to be taken; 0: not known. */
void ls_step_times_open(ls_step_times *times, ls_parallel *parallel, ls_time_how how, int64_t steps);

/* Steps of a block where a step takes `step_ms` and `steps` are left. */
int64_t ls_step_times_block(double step_ms, int64_t steps);

/* Before a step, its batch not loaded yet. Starts the clock if it is stopped. */
void ls_step_times_begin(ls_step_times *times);

/* After it: *step_ms is what it took on the host. In LS_TIME_STEPS the caller has waited for it. LS_ERR_NO_MEMORY, or
 * what a device failed with. */
ls_status ls_step_times_end(ls_step_times *times, double *step_ms);

/* Stops the clock, once the devices are idle, before something that is no step. */
ls_status ls_step_times_pause(ls_step_times *times);

/* Median and quantiles to the result, the warm-up left out; all 0 if nothing is left. */
void ls_step_times_summarise(ls_step_times *times, ls_train_result *result);

void ls_step_times_close(ls_step_times *times);

#endif
