/* What lab 12's learning rates are: of devices, of settings, step by step, and in whole runs. */
#include <math.h>
#include <string.h>

#include "common/optim/schedule.h"
#include "common/seam/options.h"
#include "labs/12-large-batches/training.h"
#include "labs/course/probe/probe.h"

/* A number of low .. high. */
static double draw(probe *p, double low, double high) {
    float value;
    probe_draw_floats(p, &value, 1);
    return low + (high - low) * (1 + (double)value) / 2;
}

/* --- devices ----------------------------------------------------------------------------------------------------- */

/* W = 1 changes nothing, and 4 is the root of 16 only: 2, 3 and 7 tell rules apart that agree there. */
static void scaled(probe *p) {
    static const int devices[] = {1, 2, 3, 4, 7, 8, 16, 64, 1000};
    for (int scaling = LS_RATE_NONE; scaling <= LS_RATE_SQRT; scaling++) {
        for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
            double rate = draw(p, 0.001, 0.2);
            probe_case(p, "--lr %.6g --lr-scale %s, %d device%s", rate, ls_rate_scaling_names[scaling], devices[i],
                       devices[i] > 1 ? "s" : "");
            probe_see(p, "the learning rate", "%.9g", ls_scaled_rate(rate, (ls_rate_scaling)scaling, devices[i]));
        }
    }
}

/* --- settings ---------------------------------------------------------------------------------------------------- */

static void see_schedule(probe *p, const ls_schedule *s) {
    bool is_known = (unsigned)s->kind <= LS_SCHEDULE_STEP;
    probe_see(p, "its rate", "%.9g", s->rate);
    probe_see(p, "its kind", "%s", is_known ? ls_schedule_names[s->kind] : "none that there is");
    probe_see(p, "its warmup_steps", "%lld", (long long)s->warmup_steps);
    probe_see(p, "its total_steps", "%lld", (long long)s->total_steps);
    probe_see(p, "its min_rate", "%.9g", s->min_rate);
    probe_see(p, "its decay_epochs", "%lld", (long long)s->decay_epochs);
    probe_see(p, "its decay_factor", "%.9g", s->decay_factor);
}

/* The batch and what goes into it are other numbers each time: none of them is the number of devices. */
static void settings(probe *p) {
    static const int devices[] = {1, 2, 3, 4, 5, 16};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        for (int scaling = LS_RATE_NONE; scaling <= LS_RATE_SQRT; scaling++) {
            ls_train_options o = ls_train_defaults();
            int64_t total = 1000 + (int64_t)probe_draw(p, 1000);
            o.learning_rate = draw(p, 0.05, 0.2);
            o.lr_scale = scaling;
            o.lr_schedule = (int)((i + (size_t)scaling) % 3);
            o.warmup_steps = (int64_t)probe_draw(p, 100);
            o.min_rate = draw(p, 0.001, 0.01);
            o.decay_epochs = 1 + (int64_t)probe_draw(p, 30);
            o.decay_factor = draw(p, 0.1, 0.9);
            o.batch_size = 64 * (1 + (int64_t)probe_draw(p, 8));
            o.accumulate = 1 + (int)probe_draw(p, 4);
            probe_case(p, "%d device%s, --lr %.6g --lr-scale %s --lr-schedule %s --warmup-steps %lld --accumulate %d",
                       devices[i], i > 0 ? "s" : "", o.learning_rate, ls_rate_scaling_names[scaling],
                       ls_schedule_names[o.lr_schedule], (long long)o.warmup_steps, o.accumulate);
            ls_schedule schedule = ls_train_schedule(&o, devices[i], total);
            see_schedule(p, &schedule);
        }
    }
    ls_train_options o = ls_train_defaults();
    probe_case(p, "a stream, of which nobody knows the length");
    ls_schedule schedule = ls_train_schedule(&o, 2, 0);
    see_schedule(p, &schedule);
}

/* --- step by step ------------------------------------------------------------------------------------------------ */

/* Nine decimals of a rate of 0.1 .. 1: rounding is far below the last one, and a mistake far above. What rounds to 0 has
 * no sign. */
static double rounded(double rate) { return fabs(rate) < 5e-10 ? 0 : rate; }

static void see_rate(probe *p, const ls_schedule *s, int64_t step, int64_t epoch) {
    probe_see(p, probe_name(p, "the rate of step %lld, epoch %lld", (long long)step, (long long)epoch), "%.9f",
              rounded(ls_schedule_rate(s, step, epoch)));
}

/* A schedule of which all that this kind does not use is set, too. */
static ls_schedule draw_schedule(probe *p, ls_schedule_kind kind, int64_t warmup, int64_t total) {
    return (ls_schedule){.kind = kind,
                         .rate = draw(p, 0.1, 1),
                         .warmup_steps = warmup,
                         .total_steps = total,
                         .min_rate = draw(p, 0.01, 0.05),
                         .decay_epochs = 2 + (int64_t)probe_draw(p, 3),
                         .decay_factor = draw(p, 0.3, 0.7)};
}

static void warmup(probe *p) {
    static const int64_t lengths[] = {0, 1, 2, 3, 4, 10};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        ls_schedule s = draw_schedule(p, LS_SCHEDULE_CONSTANT, lengths[i], 20);
        probe_case(p, "constant, rate %.6g, %lld steps of warm-up", s.rate, (long long)s.warmup_steps);
        for (int64_t step = 0; step < lengths[i] + 3; step++) see_rate(p, &s, step, step / 2);
        see_rate(p, &s, s.total_steps - 1, 9);
    }
    ls_schedule s = draw_schedule(p, LS_SCHEDULE_CONSTANT, (int64_t)6 << 30, (int64_t)7 << 30);
    probe_case(p, "constant, rate %.6g, 6 x 2^30 steps of warm-up", s.rate);
    static const int64_t steps[] = {0, 1 << 30, (int64_t)3 << 30, ((int64_t)6 << 30) - 1, ((int64_t)6 << 30) + 1};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) see_rate(p, &s, steps[i], 0);
}

/* --- where warm-up ends ------------------------------------------------------------------------------------------ */

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static void full(probe *p) {
    enum { RATES = 100 };
    static const int64_t lengths[] = {1, 2, 3, 5, 7, 10, 49, 100, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t last = 0, next = 0;
        probe_case(p, "%d rates, %lld step%s of warm-up, then constant", RATES, (long long)lengths[i],
                   lengths[i] > 1 ? "s" : "");
        for (int r = 0; r < RATES; r++) {
            ls_schedule s = draw_schedule(p, LS_SCHEDULE_CONSTANT, lengths[i], 2000);
            last += same_bits(ls_schedule_rate(&s, lengths[i] - 1, 0), s.rate);
            next += same_bits(ls_schedule_rate(&s, lengths[i], 0), s.rate);
        }
        probe_see_count(p, "in how many the last step of warm-up has the full rate, bit by bit", last);
        probe_see_count(p, "in how many the step behind it has", next);
    }
}

/* --- kinds ------------------------------------------------------------------------------------------------------- */

static void cosine(probe *p) {
    static const struct {
        int64_t warmup, total;
    } rows[] = {{0, 1}, {0, 4}, {0, 7}, {1, 5}, {2, 6}, {3, 13}, {10, 30}, {0, 1000}, {100, 1000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_schedule s = draw_schedule(p, LS_SCHEDULE_COSINE, rows[i].warmup, rows[i].total);
        int64_t stride = rows[i].total / 30 + 1;
        probe_case(p, "cosine, rate %.6g to %.6g, %lld steps, of which %lld warm-up", s.rate, s.min_rate,
                   (long long)s.total_steps, (long long)s.warmup_steps);
        for (int64_t step = 0; step < s.total_steps; step += stride) see_rate(p, &s, step, step / 3);
        see_rate(p, &s, s.total_steps - 1, 9);
        see_rate(p, &s, s.total_steps, 9); /* behind the last */
    }
    ls_schedule s = draw_schedule(p, LS_SCHEDULE_COSINE, (int64_t)1 << 32, (int64_t)5 << 32);
    probe_case(p, "cosine, rate %.6g to %.6g, 5 x 2^32 steps, of which 2^32 warm-up", s.rate, s.min_rate);
    for (int64_t quarter = 1; quarter <= 5; quarter++) see_rate(p, &s, quarter << 32, 0);
}

static void step(probe *p) {
    enum { STEPS_OF_EPOCH = 7, EPOCHS = 8 };
    for (int64_t warmup = 0; warmup <= 32; warmup += 16) {
        for (int64_t every = 1; every <= 3; every++) {
            ls_schedule s = draw_schedule(p, LS_SCHEDULE_STEP, warmup, STEPS_OF_EPOCH * EPOCHS);
            s.decay_epochs = every;
            probe_case(p, "step, rate %.6g, times %.6g every %lld epoch%s, %lld steps of warm-up", s.rate,
                       s.decay_factor, (long long)every, every > 1 ? "s" : "", (long long)warmup);
            for (int64_t at = 0; at < STEPS_OF_EPOCH * EPOCHS; at += 3) see_rate(p, &s, at, at / STEPS_OF_EPOCH);
        }
    }
    ls_schedule s = draw_schedule(p, LS_SCHEDULE_STEP, 0, 0);
    s.decay_factor = 1.5;
    probe_case(p, "step, rate %.6g, a factor above 1: 1.5, every %lld epochs", s.rate, (long long)s.decay_epochs);
    for (int64_t epoch = 0; epoch < 6; epoch++) see_rate(p, &s, epoch, epoch);
    s.decay_factor = 0;
    probe_case(p, "step, rate %.6g, a factor of 0, every %lld epochs", s.rate, (long long)s.decay_epochs);
    for (int64_t epoch = 0; epoch < 6; epoch++) see_rate(p, &s, epoch, epoch);
}

/* --- whole runs -------------------------------------------------------------------------------------------------- */

static void run(probe *p) {
    for (int devices = 1; devices <= MOST_DEVICES; devices++) {
        for (int scaling = LS_RATE_NONE; scaling <= LS_RATE_SQRT; scaling++) {
            struct training t = {.devices = devices, .options = ls_train_defaults()};
            t.options.learning_rate = draw(p, 0.1, 0.4);
            t.options.lr_scale = scaling;
            t.options.lr_schedule = (devices + scaling) % 3;
            t.options.warmup_steps = 2 + scaling;
            t.options.min_rate = 0.01;
            t.options.decay_epochs = 1;
            t.options.decay_factor = 0.5;
            t.options.seed = (int64_t)probe_draw(p, 1000);
            probe_case(p, "a run on %d device%s, --lr %.6g --lr-scale %s --lr-schedule %s --warmup-steps %d", devices,
                       devices > 1 ? "s" : "", t.options.learning_rate, ls_rate_scaling_names[scaling],
                       ls_schedule_names[t.options.lr_schedule], 2 + scaling);
            training_run(p, &t);
            for (int i = 0; i < t.rate_count; i++)
                probe_see(p, probe_name(p, "the optimizer's rate in step %d", i), "%.9f", t.rates[i]);
            probe_see_count(p, "steps that have set a rate", (uint64_t)t.rate_count);
        }
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"scaled", scaled}, {"settings", settings}, {"warmup", warmup}, {"full", full},
                                         {"cosine", cosine}, {"step", step},         {"run", run},       {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
