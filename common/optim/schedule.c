#include "common/optim/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include "common/base/log.h"

const char *const ls_schedule_names[] = {"constant", "cosine", "step", NULL};
const char *const ls_rate_scaling_names[] = {"none", "linear", "sqrt", NULL};

#define PI 3.14159265358979323846

static bool is_amount(double value) { return isfinite(value) && value >= 0; }

static ls_status check_steps(const ls_schedule *s) {
    if (s->warmup_steps < 0) {
        return ls_fail(LS_ERR_USAGE, "--warmup-steps is %" PRId64 "; expected at least 0", s->warmup_steps);
    }
    if (s->total_steps > 0 && s->warmup_steps > s->total_steps) {
        return ls_fail(LS_ERR_USAGE,
                       "--warmup-steps %" PRId64 " exceeds the run's %" PRId64 " steps (--steps, or --epochs)",
                       s->warmup_steps, s->total_steps);
    }
    if (s->kind != LS_SCHEDULE_COSINE) return LS_OK;
    if (s->total_steps <= 0) {
        return ls_fail(LS_ERR_USAGE,
                       "--lr-schedule cosine needs the length of the run, which a stream does not have: give --steps");
    }
    if (s->warmup_steps == s->total_steps) {
        return ls_fail(LS_ERR_USAGE,
                       "--warmup-steps %" PRId64 " leaves --lr-schedule cosine none of the run's %" PRId64 " steps",
                       s->warmup_steps, s->total_steps);
    }
    return LS_OK;
}

ls_status ls_schedule_check(const ls_schedule *s) {
    ls_status status = check_steps(s);
    if (status != LS_OK) return status;
    if (!is_amount(s->rate)) {
        return ls_fail(LS_ERR_USAGE, "the learning rate is %g after --lr-scale; lower --lr or leave out --lr-scale",
                       s->rate);
    }
    if (!is_amount(s->min_rate))
        return ls_fail(LS_ERR_USAGE, "--lr-min is %g; expected a finite number from 0", s->min_rate);
    if (s->kind == LS_SCHEDULE_COSINE && s->min_rate > s->rate) {
        return ls_fail(LS_ERR_USAGE, "--lr-min %g exceeds the learning rate, %g, at which the cosine begins",
                       s->min_rate, s->rate);
    }
    if (!is_amount(s->decay_factor)) {
        return ls_fail(LS_ERR_USAGE, "--lr-decay is %g; expected a finite positive factor", s->decay_factor);
    }
    if (s->decay_epochs < 1) {
        return ls_fail(LS_ERR_USAGE, "--lr-decay-epochs is %" PRId64 "; expected at least 1", s->decay_epochs);
    }
    return LS_OK;
}

double ls_schedule_rate(const ls_schedule *s, int64_t step, int64_t epoch) {
    /* divide first: at the end the quotient is 1, and the rate exact */
    if (step < s->warmup_steps) return s->rate * ((double)(step + 1) / (double)s->warmup_steps);
    switch (s->kind) {
    case LS_SCHEDULE_CONSTANT: return s->rate;
    case LS_SCHEDULE_COSINE: {
        double part = (double)(step - s->warmup_steps) / (double)(s->total_steps - s->warmup_steps);
        return s->min_rate + (s->rate - s->min_rate) * (1 + cos(PI * part)) / 2;
    }
    case LS_SCHEDULE_STEP: {
        int64_t decays = epoch / s->decay_epochs;
        return s->rate * pow(s->decay_factor, (double)decays);
    }
    }
    return s->rate;
}

double ls_scaled_rate(double rate, ls_rate_scaling scaling, int device_count) {
    switch (scaling) {
    case LS_RATE_NONE: return rate;
    case LS_RATE_LINEAR: return rate * device_count;
    case LS_RATE_SQRT: return rate * sqrt((double)device_count);
    }
    return rate;
}
