#include "common/train/schedule.h"

#include <math.h>

#include "common/base/log.h"

#define PI 3.14159265358979323846

ls_status ls_schedule_check(const ls_schedule *s) {
    if (s->warmup_steps < 0) return ls_fail(LS_ERR_USAGE, "a warm-up of %lld steps", (long long)s->warmup_steps);
    if (s->total_steps > 0 && s->warmup_steps >= s->total_steps) {
        return ls_fail(LS_ERR_USAGE, "a warm-up of %lld steps is as long as the run, which has %lld",
                       (long long)s->warmup_steps, (long long)s->total_steps);
    }
    if (s->kind == LS_SCHEDULE_COSINE && s->total_steps == 0) {
        return ls_fail(LS_ERR_USAGE, "the cosine needs to know how many steps the run has: give --steps with a stream");
    }
    if (!(s->min_rate >= 0 && s->decay_factor >= 0) || s->decay_epochs < 1) {
        return ls_fail(LS_ERR_USAGE, "a learning rate schedule with numbers below 0");
    }
    return LS_OK;
}

double ls_schedule_rate(const ls_schedule *s, int64_t step, int64_t epoch) {
    if (step < s->warmup_steps) return s->rate * (double)(step + 1) / (double)s->warmup_steps;
    switch (s->kind) {
    case LS_SCHEDULE_CONSTANT: return s->rate;
    case LS_SCHEDULE_COSINE: {
        double part = (double)(step - s->warmup_steps) / (double)(s->total_steps - s->warmup_steps);
        return s->min_rate + (s->rate - s->min_rate) * (1 + cos(PI * part)) / 2;
    }
    case LS_SCHEDULE_STEP: return s->rate * pow(s->decay_factor, (double)(epoch / s->decay_epochs));
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
