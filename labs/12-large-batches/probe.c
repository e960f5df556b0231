/* Tests lab 12's learning rates: for numbers of devices, for settings, step by step, and in whole runs. A rate that
 * depends on a result of an earlier check is compared with that result: one mistake fails one check. */
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

/* Rounding is far below the bound, and a mistake far above; a rate that should be 0 may be 1e-17. */
static void see_rate_as(probe *p, const char *what, double rate) {
    probe_see_near(p, what, rate, 1e-8 * fabs(rate) + 1e-14);
}

/* --- devices ----------------------------------------------------------------------------------------------------- */

/* At W = 1 and at 4 different rules can agree: 2, 3 and 7 tell them apart. The last ones exceed 16 bits, and what a
 * float can distinguish from 2^24. */
static void scaled(probe *p) {
    static const int devices[] = {1, 2, 3, 4, 7, 8, 16, 64, 300, 70000, (1 << 24) + 1};
    for (int scaling = LS_RATE_NONE; scaling <= LS_RATE_SQRT; scaling++) {
        for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
            double rate = draw(p, 0.001, 0.2);
            probe_case(p, "--lr %.6g --lr-scale %s, %d device%s", rate, ls_rate_scaling_names[scaling], devices[i],
                       devices[i] > 1 ? "s" : "");
            see_rate_as(p, "the learning rate", ls_scaled_rate(rate, (ls_rate_scaling)scaling, devices[i]));
        }
    }
}

/* --- settings ---------------------------------------------------------------------------------------------------- */

/* `scaled`: what ls_scaled_rate returns for the rate, right or wrong. */
static void see_schedule(probe *p, const ls_schedule *s, double scaled) {
    bool is_known = (unsigned)s->kind <= LS_SCHEDULE_STEP;
    if (scaled > 0)
        see_rate_as(p, "its rate, as a part of the scaled rate", s->rate / scaled);
    else
        see_rate_as(p, "its rate", s->rate);
    probe_see(p, "its kind", "%s", is_known ? ls_schedule_names[s->kind] : "none that there is");
    probe_see(p, "its warmup_steps", "%lld", (long long)s->warmup_steps);
    probe_see(p, "its total_steps", "%lld", (long long)s->total_steps);
    see_rate_as(p, "its min_rate", s->min_rate);
    probe_see(p, "its decay_epochs", "%lld", (long long)s->decay_epochs);
    see_rate_as(p, "its decay_factor", s->decay_factor);
}

/* The batch and its factors differ each time, and none of them is the number of devices. */
static ls_train_options draw_options(probe *p, int scaling, int kind) {
    ls_train_options o = ls_train_defaults();
    o.learning_rate = draw(p, 0.05, 0.2);
    o.lr_scale = scaling;
    o.lr_schedule = kind;
    o.warmup_steps = (int64_t)probe_draw(p, 100);
    o.min_rate = draw(p, 0.001, 0.01);
    o.decay_epochs = 1 + (int64_t)probe_draw(p, 30);
    o.decay_factor = draw(p, 0.1, 0.9);
    o.batch_size = 64 * (1 + (int64_t)probe_draw(p, 8));
    o.accumulate = 1 + (int)probe_draw(p, 4);
    return o;
}

static void see_settings(probe *p, const ls_train_options *o, int devices, int64_t total) {
    probe_case(p, "%d device%s, --lr %.6g --lr-scale %s --lr-schedule %s --warmup-steps %lld --accumulate %d", devices,
               devices > 1 ? "s" : "", o->learning_rate, ls_rate_scaling_names[o->lr_scale],
               ls_schedule_names[o->lr_schedule], (long long)o->warmup_steps, o->accumulate);
    ls_schedule schedule = ls_train_schedule(o, devices, total);
    see_schedule(p, &schedule, ls_scaled_rate(o->learning_rate, (ls_rate_scaling)o->lr_scale, devices));
}

static void settings(probe *p) {
    static const int devices[] = {1, 2, 3, 4, 5, 16, 65, 300, 70000};
    static const int64_t large[] = {300, 70000, (int64_t)3 << 40};
    ls_train_options o;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        for (int scaling = LS_RATE_NONE; scaling <= LS_RATE_SQRT; scaling++) {
            o = draw_options(p, scaling, (int)((i + (size_t)scaling) % 3));
            see_settings(p, &o, devices[i], 1000 + (int64_t)probe_draw(p, 1000));
        }
    }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) { /* counts of steps and epochs are int64_t */
        o = draw_options(p, LS_RATE_SQRT, (int)i);
        o.warmup_steps = large[i];
        o.decay_epochs = large[i] + 1;
        see_settings(p, &o, 7, large[i] + 2);
    }
    o = draw_options(p, LS_RATE_LINEAR, LS_SCHEDULE_COSINE); /* 0 is a valid number */
    o.learning_rate = o.min_rate = o.decay_factor = 0;
    o.warmup_steps = 0;
    see_settings(p, &o, 3, 10);
    o = ls_train_defaults();
    probe_case(p, "a stream of unknown length");
    ls_schedule schedule = ls_train_schedule(&o, 2, 0);
    see_schedule(p, &schedule, ls_scaled_rate(o.learning_rate, (ls_rate_scaling)o.lr_scale, 2));
}

/* --- step by step ------------------------------------------------------------------------------------------------ */

static void see_rate(probe *p, const ls_schedule *s, int64_t step, int64_t epoch) {
    see_rate_as(p, probe_name(p, "the rate of step %lld, epoch %lld", (long long)step, (long long)epoch),
                ls_schedule_rate(s, step, epoch));
}

/* A schedule in which the members that this kind does not use are set, too. */
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
    static const int64_t lengths[] = {0, 1, 2, 3, 4, 10, 300};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        ls_schedule s = draw_schedule(p, LS_SCHEDULE_CONSTANT, lengths[i], 20);
        probe_case(p, "constant, rate %.6g, %lld steps of warm-up", s.rate, (long long)s.warmup_steps);
        for (int64_t step = 0; step < lengths[i] + 3; step++) see_rate(p, &s, step, step / 2);
        see_rate(p, &s, s.total_steps - 1, 9);
    }
    ls_schedule s = draw_schedule(p, LS_SCHEDULE_CONSTANT, 100000, 200000);
    probe_case(p, "constant, rate %.6g, 100000 steps of warm-up", s.rate);
    for (int64_t step = 9; step < 110000; step += 9999) see_rate(p, &s, step, 0);
    s = draw_schedule(p, LS_SCHEDULE_CONSTANT, (int64_t)6 << 30, (int64_t)7 << 30);
    probe_case(p, "constant, rate %.6g, 6 x 2^30 steps of warm-up", s.rate);
    static const int64_t steps[] = {0, 1 << 30, (int64_t)3 << 30, ((int64_t)6 << 30) - 1, ((int64_t)6 << 30) + 1};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) see_rate(p, &s, steps[i], 0);
}

/* --- where warm-up ends ------------------------------------------------------------------------------------------ */

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

/* The check before this one tests that the last step has the full rate. */
static void full(probe *p) {
    enum { RATES = 100 };
    static const int64_t lengths[] = {1, 2, 3, 5, 7, 10, 49, 100, 1000, 100000, (int64_t)6 << 30};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t nearly = 0, next = 0;
        probe_case(p, "%d rates, %lld step%s of warm-up, then constant", RATES, (long long)lengths[i],
                   lengths[i] > 1 ? "s" : "");
        for (int r = 0; r < RATES; r++) {
            ls_schedule s = draw_schedule(p, LS_SCHEDULE_CONSTANT, lengths[i], 2 * lengths[i]);
            double last = ls_schedule_rate(&s, lengths[i] - 1, 0);
            nearly += !same_bits(last, s.rate) && fabs(last - s.rate) < 1e-12;
            next += same_bits(ls_schedule_rate(&s, lengths[i], 0), s.rate);
        }
        probe_see_count(p, "in how many the last step of warm-up has nearly the full rate, and not its bits", nearly);
        probe_see_count(p, "in how many the step behind it has the full rate, bit by bit", next);
    }
}

/* --- kinds ------------------------------------------------------------------------------------------------------- */

/* During warm-up all kinds are alike, however long it is. */
static void see_warmup(probe *p, const ls_schedule *s, int64_t epochs) {
    ls_schedule constant = *s;
    constant.kind = LS_SCHEDULE_CONSTANT;
    for (int64_t step = 0; step < s->warmup_steps; step += s->warmup_steps / 5 + 1) {
        int64_t epoch = epochs * step / s->warmup_steps;
        double rate = ls_schedule_rate(&constant, step, epoch);
        see_rate_as(p,
                    probe_name(p, "by how much step %lld of warm-up has another rate than with a constant one",
                               (long long)step),
                    ls_schedule_rate(s, step, epoch) - rate);
    }
}

static void see_cosine(probe *p, const ls_schedule *s, int64_t points) {
    int64_t behind = s->total_steps - s->warmup_steps, stride = behind / points + 1;
    probe_case(p, "cosine, rate %.6g to %.6g, %lld steps, of which %lld warm-up", s->rate, s->min_rate,
               (long long)s->total_steps, (long long)s->warmup_steps);
    for (int64_t step = s->warmup_steps; step < s->total_steps; step += stride) see_rate(p, s, step, step / 3);
    see_rate(p, s, s->total_steps - 1, 9);
    see_rate(p, s, s->total_steps, 9); /* after the last */
    see_warmup(p, s, 3);
}

static void cosine(probe *p) {
    static const struct {
        int64_t warmup, total;
    } rows[] = {{0, 1},    {0, 4},      {0, 7},     {1, 5},     {2, 6},      {3, 13},        {10, 30},
                {0, 1000}, {100, 1000}, {300, 700}, {0, 40000}, {5, 100000}, {70000, 140000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_schedule s = draw_schedule(p, LS_SCHEDULE_COSINE, rows[i].warmup, rows[i].total);
        see_cosine(p, &s, 30);
    }
    ls_schedule s = draw_schedule(p, LS_SCHEDULE_COSINE, 2, 9);
    s.min_rate = 0;
    see_cosine(p, &s, 30);
    s = draw_schedule(p, LS_SCHEDULE_COSINE, (int64_t)1 << 32, (int64_t)5 << 32);
    probe_case(p, "cosine, rate %.6g to %.6g, 5 x 2^32 steps, of which 2^32 warm-up", s.rate, s.min_rate);
    for (int64_t quarter = 1; quarter <= 5; quarter++) see_rate(p, &s, quarter << 32, 0);
}

/* Many decays by a factor near 1, so that each of them shows; epochs beyond 8, 16 and 32 bits. */
static void see_decays(probe *p, double factor, int64_t every, int64_t most) {
    ls_schedule s = draw_schedule(p, LS_SCHEDULE_STEP, 0, 0);
    s.decay_epochs = every;
    s.decay_factor = factor;
    probe_case(p, "step, rate %.6g, times %.6g every %lld epoch%s, up to epoch %lld", s.rate, s.decay_factor,
               (long long)every, every > 1 ? "s" : "", (long long)(most * every));
    for (int64_t decays = 1; decays <= most; decays += decays / 2 + 1) {
        see_rate(p, &s, decays, decays * every - 1);
        see_rate(p, &s, decays, decays * every);
    }
    see_rate(p, &s, most, most * every);
}

static void step(probe *p) {
    enum { EPOCH = 7, ALL = 8 * EPOCH };
    for (int64_t warmup = 0; warmup <= 32; warmup += 16) {
        for (int64_t every = 1; every <= 3; every++) {
            ls_schedule s = draw_schedule(p, LS_SCHEDULE_STEP, warmup, ALL);
            s.decay_epochs = every;
            probe_case(p, "step, rate %.6g, times %.6g every %lld epoch%s, %lld steps of warm-up", s.rate,
                       s.decay_factor, (long long)every, every > 1 ? "s" : "", (long long)warmup);
            for (int64_t at = warmup; at < ALL; at += 3) see_rate(p, &s, at, at / EPOCH);
            see_warmup(p, &s, 5);
        }
    }
    ls_schedule s = draw_schedule(p, LS_SCHEDULE_STEP, 0, 0);
    s.decay_factor = 1.5;
    probe_case(p, "step, rate %.6g, a factor above 1: 1.5, every %lld epochs", s.rate, (long long)s.decay_epochs);
    for (int64_t epoch = 0; epoch < 6; epoch++) see_rate(p, &s, epoch, epoch);
    s.decay_factor = 0;
    probe_case(p, "step, rate %.6g, a factor of 0, every %lld epochs", s.rate, (long long)s.decay_epochs);
    for (int64_t epoch = 0; epoch < 6; epoch++) see_rate(p, &s, epoch, epoch);
    see_decays(p, draw(p, 0.8, 0.9), 3, 20);
    see_decays(p, draw(p, 0.98, 0.99), 1, 300);
    see_decays(p, draw(p, 0.9999, 0.99999), 7, 70000);
    see_decays(p, draw(p, 0.6, 0.9), ((int64_t)1 << 30) + 1, 12);
    see_decays(p, draw(p, 0.6, 0.9), ((int64_t)3 << 32) + 1, 5);
}

/* --- whole runs -------------------------------------------------------------------------------------------------- */

/* Compares with the functions that this run was linked with. The checks above test that the rate is right. */
static void see_run(probe *p, const struct training *t) {
    ls_schedule s = ls_train_schedule(&t->options, t->devices, EPOCHS * STEPS_OF_EPOCH);
    for (int i = 0; i < t->rate_count; i++) {
        double rate = ls_schedule_rate(&s, i, i / STEPS_OF_EPOCH);
        see_rate_as(p, probe_name(p, "the optimizer's rate in step %d, as a part of that step's rate", i),
                    t->rates[i] / rate);
    }
    probe_see_count(p, "steps that have set a rate", (uint64_t)t->rate_count);
    bool rises = t->rate_count > 1 && t->rates[1] > t->rates[0] && t->rates[0] > 0;
    probe_see(p, "whether the rate rises in warm-up", "%s", rises ? "yes" : "no");
}

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
            see_run(p, &t);
        }
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"scaled", scaled}, {"settings", settings}, {"warmup", warmup}, {"full", full},
                                         {"cosine", cosine}, {"step", step},         {"run", run},       {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
