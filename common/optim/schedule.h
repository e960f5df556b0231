/* The learning rate of each step: its scaling with the number of devices, and its schedule over a run. Pure functions
 * on the host; ls_optimizer_set_rate passes the rate to the device. Any thread. */
#ifndef LS_OPTIM_SCHEDULE_H
#define LS_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "common/base/status.h"

/* The order of --lr-scale's and --lr-schedule's choices. */
typedef enum ls_rate_scaling { LS_RATE_NONE, LS_RATE_LINEAR, LS_RATE_SQRT } ls_rate_scaling;
typedef enum ls_schedule_kind { LS_SCHEDULE_CONSTANT, LS_SCHEDULE_COSINE, LS_SCHEDULE_STEP } ls_schedule_kind;
extern const char *const ls_schedule_names[]; /* of the kinds, and a NULL */
extern const char *const ls_rate_scaling_names[];

typedef struct ls_schedule {
    ls_schedule_kind kind;
    double rate;          /* after warm-up, before any decay; >= 0 */
    int64_t warmup_steps; /* 0: none */
    int64_t total_steps;  /* of the run, warm-up included; 0: not known, which the cosine does not allow */
    double min_rate;      /* cosine: where it ends; >= 0 */
    int64_t decay_epochs; /* step: the rate is multiplied by decay_factor every so many epochs; >= 1 */
    double decay_factor;  /* >= 0 */
} ls_schedule;

/* LS_ERR_USAGE, with one line that names the option, for numbers out of range, a warm-up that is longer than the run,
 * or a cosine without an end or without a step after the warm-up. */
ls_status ls_schedule_check(const ls_schedule *schedule);

/* The rate of optimizer step `step` (from 0) in epoch `epoch` (from 0):
 *     warm-up   rate * ((step + 1) / warmup_steps), while step < warmup_steps: the last of these steps has the full rate
 *     cosine    min_rate + (rate - min_rate) (1 + cos(pi t / T)) / 2, with t = step - warmup_steps and
 *               T = total_steps - warmup_steps: from the full rate at t = 0 towards min_rate, which step T, after the
 *               last, would have
 *     step      rate decay_factor^floor(epoch / decay_epochs)
 * These are PyTorch's LinearLR (from 1/warmup_steps, over warmup_steps - 1 steps), CosineAnnealingLR (T_max = T) and
 * StepLR in closed form: a rate depends only on its step, so that a run can resume anywhere. Steps that the loss scaler
 * skips count, as they do where the scheduler steps after each of GradScaler's. `schedule` has passed
 * ls_schedule_check. */
double ls_schedule_rate(const ls_schedule *schedule, int64_t step, int64_t epoch);

/* `rate` for device_count devices: none: rate; linear: rate x device_count (Goyal et al. 2017); sqrt: rate x
 * sqrt(device_count). */
double ls_scaled_rate(double rate, ls_rate_scaling scaling, int device_count);

#endif
