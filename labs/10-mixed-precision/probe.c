/* Tests lab 10's two functions: with sums of squares and updates, number by number; and in a run of several ranks in
 * fp16. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "labs/10-mixed-precision/run.h"
#include "labs/course/probe/probe.h"

/* --- the factor ---------------------------------------------------------------------------------------------------- */

enum { MOST_STATES = 5 };

/* A number with that many digits. The sign of a NaN is ignored. */
static const char *text_of(float value, int digits) {
    static char text[32];
    if (isnan(value)) return "NaN";
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    return text;
}

/* The input: the gradients' sum of squares, a scale (0: no scaler), a norm to clip at (0: none). */
struct weighed {
    double square_sum;
    float scale, max_norm;
    size_t states;
    int digits;
};

static void weigh(probe *p, struct ls_update_state *states, const struct weighed *w) {
    const struct ls_scaler_state scaler = {.scale = w->scale, .growth_tracker = 3, .skipped = 7};
    const struct ls_weigh_gradients_arguments a = {states, w->states, w->scale > 0 ? &scaler : NULL, &w->square_sum,
                                                   w->max_norm};
    probe_must(p, "what it returns", ls_cpu_weigh_gradients(&a));
}

static void begin_case(probe *p, const struct weighed *w) {
    char scale[40] = "no scaler", clip[40] = "no clipping";
    if (w->scale > 0) snprintf(scale, sizeof scale, "scale %.9g", (double)w->scale);
    if (w->max_norm > 0) snprintf(clip, sizeof clip, "clipped at %.9g", (double)w->max_norm);
    probe_case(p, "%s, %s, a sum of squares of %.17g, %zu state%s", scale, clip, w->square_sum, w->states,
               w->states > 1 ? "s" : "");
}

static struct ls_update_state draw_state(probe *p, int number) {
    float drawn[3];
    probe_draw_floats(p, drawn, 3);
    return (struct ls_update_state){.01, 4 + number, (float)(number % 2), drawn[0], drawn[1], drawn[2], .25F, .5F};
}

/* Of many states only the first ones, those around the limits of 8 and 16 bits, and the last. */
static bool is_seen(size_t s, size_t states) {
    return s < MOST_STATES || s + 1 == states || s == 255 || s == 256 || s == 65535 || s == 65536;
}

static void see_state(probe *p, const struct weighed *w, size_t s, const struct ls_update_state *is,
                      const struct ls_update_state *was) {
    probe_see(p, probe_name(p, "state %zu: found_inf", s), "%s", text_of(is->found_inf, 9));
    probe_see(p, probe_name(p, "state %zu: scale", s), "%s", text_of(is->scale, 9));
    probe_see(p, probe_name(p, "state %zu: norm", s), "%s", text_of(is->norm, w->digits));
    if (is->found_inf == 0)
        probe_see(p, probe_name(p, "state %zu: gradient_factor", s), "%s", text_of(is->gradient_factor, w->digits));
    bool same = is->learning_rate == was->learning_rate && is->step == was->step && is->step_size == was->step_size &&
                is->bias2_sqrt == was->bias2_sqrt;
    probe_see(p, probe_name(p, "state %zu: whether the rest is as it was", s), "%s", same ? "yes" : "no");
}

/* Checks `w->states` states, and the memory after them. Old contents are random. With found_inf the factor is
 * unused. */
static void see_weighed_in(probe *p, const struct weighed *w, struct ls_update_state *states, size_t all) {
    struct ls_update_state *before = malloc(all * sizeof *before);
    probe_must(p, "memory for the states", before ? LS_OK : LS_ERR_NO_MEMORY);
    for (size_t s = 0; s < all; s++) states[s] = draw_state(p, (int)s);
    memcpy(before, states, all * sizeof *before);
    begin_case(p, w);
    weigh(p, states, w);
    for (size_t s = 0; s < w->states; s++)
        if (is_seen(s, w->states)) see_state(p, w, s, &states[s], &before[s]);
    for (size_t s = w->states; s < all && s <= w->states; s++) {
        bool same = memcmp(&states[s], &before[s], sizeof states[s]) == 0;
        probe_see(p, "whether the state behind the last is as it was", "%s", same ? "yes" : "no");
    }
    free(before);
}

/* In memory of exactly that many states, so that AddressSanitizer detects accesses past their end. */
static void see_weighed_exactly(probe *p, const struct weighed *w) {
    struct ls_update_state *states = malloc(w->states * sizeof *states);
    probe_must(p, "memory for the states", states ? LS_OK : LS_ERR_NO_MEMORY);
    see_weighed_in(p, w, states, w->states);
    free(states);
}

/* With one more state after the valid ones. */
static void see_weighed(probe *p, const struct weighed *w) {
    static struct ls_update_state states[MOST_STATES + 1];
    see_weighed_in(p, w, states, MOST_STATES + 1);
}

/* Four digits agree for any order of the same operations. */
enum { ABOUT = 4, EXACT = 9 };

/* Scales that are powers of two, and sums that are squares: exact in any order of the multiplications. */
static void unscale(probe *p) {
    static const float scales[] = {0, 1, 2, 65536, 0x1p100F, 0.25F};
    for (int i = 0; i < 6; i++)
        for (size_t states = 1; states <= MOST_STATES; states += 2) {
            float norm = (float)(1 + probe_draw(p, 1000));
            see_weighed(p, &(struct weighed){(double)norm * norm, scales[i], 0, states, EXACT});
        }
    see_weighed(p, &(struct weighed){0, 65536, 0, 1, EXACT});
    static const size_t exactly[] = {1, 3, 300, 66000};
    for (int i = 0; i < 4; i++) see_weighed_exactly(p, &(struct weighed){9, 2, 0, exactly[i], EXACT});
}

static void found_inf(probe *p) {
    const double sums[] = {1, INFINITY, (double)NAN, -(double)NAN, 0, (double)FLT_MAX, 1e60, 5e-324};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        for (int scaled = 0; scaled < 2; scaled++) {
            see_weighed(p, &(struct weighed){sums[i], scaled ? 1024.F : 0, 0, 2, ABOUT});
            see_weighed(p, &(struct weighed){sums[i], scaled ? 1.F : 0, 0, 1, ABOUT});
        }
    for (int again = 0; again < 10; again++) /* finite and infinite in turn: no state may be kept */
        see_weighed(p, &(struct weighed){again % 2 ? 4 : INFINITY, 8, 0, 1 + probe_draw(p, MOST_STATES), ABOUT});
}

/* Norms around max_norm, then tiny and huge ones; scales that would hide or cause clipping if clipping came first. */
static void clip(probe *p) {
    static const float scales[] = {0, 1, 1024, 0x1p-10F, 3};
    static const double norms[] = {0, 1, 3.9, 4, 4.1, 8, 4000, 1e-6, 1e-3, 1e25};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 10; j++) {
            double norm = norms[j] * (scales[i] > 0 ? (double)scales[i] : 1);
            see_weighed(p, &(struct weighed){norm * norm, scales[i], 4, 1, ABOUT});
            see_weighed(p, &(struct weighed){norm * norm, scales[i], 1e-6F, 3, ABOUT});
            see_weighed(p, &(struct weighed){norm * norm, scales[i], 0, 1, ABOUT});
        }
    for (int clipped = 0; clipped < 2; clipped++) { /* without a scaler the weights become infinite, as in PyTorch */
        see_weighed(p, &(struct weighed){(double)NAN, 0, clipped ? 4 : 0, 1, ABOUT});
        see_weighed(p, &(struct weighed){INFINITY, 0, clipped ? 4 : 0, 2, ABOUT});
        see_weighed(p, &(struct weighed){INFINITY, 8, clipped ? 4 : 0, 2, ABOUT});
    }
}

/* --- the scale ----------------------------------------------------------------------------------------------------- */

static void update(probe *p, struct ls_scaler_state *scaler, float bad, struct ls_scaler_rule rule) {
    struct ls_update_state state = {.found_inf = bad, .scale = 12345, .norm = 6, .gradient_factor = .125F};
    const struct ls_update_scale_arguments a = {scaler, &state, rule};
    probe_must(p, "what it returns", ls_cpu_update_scale(&a));
}

static void see_scaler(probe *p, const char *whose, const struct ls_scaler_state *scaler) {
    probe_see(p, probe_name(p, "%sscale", whose), "%s", text_of(scaler->scale, EXACT));
    probe_see(p, probe_name(p, "%sgrowth_tracker", whose), "%d", scaler->growth_tracker);
    probe_see(p, probe_name(p, "%sskipped", whose), "%lld", (long long)scaler->skipped);
}

/* One update of a scaler in state `scaler`. */
static void see_update(probe *p, struct ls_scaler_state scaler, float bad, struct ls_scaler_rule rule) {
    char found[40] = "all is finite";
    if (bad != 0) snprintf(found, sizeof found, "found_inf %g", (double)bad);
    probe_case(p, "scale %.9g, growth_tracker %d, %s; interval %d, factors %g and %g", (double)scaler.scale,
               scaler.growth_tracker, found, rule.growth_interval, rule.growth_factor, rule.backoff_factor);
    update(p, &scaler, bad, rule);
    see_scaler(p, "", &scaler);
}

/* Random histories of two scalers in turn, so that a function that keeps state of its own fails. */
static void see_history(probe *p, int interval, struct ls_scaler_rule rule) {
    struct ls_scaler_state scalers[2] = {{.scale = 1024}, {.scale = 64, .skipped = 5}};
    char told[2][64] = {"", ""};
    rule.growth_interval = interval;
    for (int step = 0; step < 24; step++) {
        int which = (int)probe_draw(p, 2);
        bool bad = probe_draw(p, 2 + (uint64_t)interval) == 0;
        size_t length = strlen(told[which]);
        told[which][length] = bad ? 'x' : '.';
        probe_case(p, "scaler %d of two, updates %s (x: found_inf), interval %d, factors %g and %g", which, told[which],
                   interval, rule.growth_factor, rule.backoff_factor);
        update(p, &scalers[which], bad, rule);
        see_scaler(p, "its ", &scalers[which]);
    }
}

static void scale(probe *p) {
    const struct ls_scaler_rule rule = {2, 0.5, 3}, other = {8, 0.25, 1};
    see_update(p, (struct ls_scaler_state){8, 0, 4}, 0, rule);
    see_update(p, (struct ls_scaler_state){8, 0, 4}, 1, rule);
    see_update(p, (struct ls_scaler_state){8, 2, 4}, 0, rule);
    see_update(p, (struct ls_scaler_state){8, 2, 4}, 1, rule);
    see_update(p, (struct ls_scaler_state){1, 0, 0}, 1, rule);
    see_update(p, (struct ls_scaler_state){8, 0, 4}, 0, other);
    see_update(p, (struct ls_scaler_state){8, 0, 4}, 2, other); /* two devices have found infinities */
    for (int interval = 1; interval <= 5; interval++) {
        see_history(p, interval, rule);
        see_history(p, interval, other);
    }
}

/* --- rare cases ---------------------------------------------------------------------------------------------------- */

static void edges(probe *p) {
    const struct ls_scaler_rule rule = {2, 0.5, 3}, at_once = {2, 0.5, 1};
    see_update(p, (struct ls_scaler_state){0x1p126F, 2, 0}, 0, rule);
    see_update(p, (struct ls_scaler_state){0x1p127F, 2, 0}, 0, rule);
    see_update(p, (struct ls_scaler_state){0x1p127F, 0, 0}, 0, at_once);
    see_update(p, (struct ls_scaler_state){0x1p-149F, 1, 3}, 1, rule);
    see_update(p, (struct ls_scaler_state){8, 3, 4}, 0, rule); /* the interval has become shorter */
    see_update(p, (struct ls_scaler_state){8, 0, 1LL << 40}, 1, rule);
    see_update(p, (struct ls_scaler_state){8, 0, INT32_MAX}, 1, rule);
    static const int32_t intervals[] = {127,   128,   255,   256,   2000,    32767,
                                        32768, 65535, 65536, 70000, 1 << 24, INT32_MAX};
    for (size_t i = 0; i < sizeof intervals / sizeof *intervals; i++) {
        const struct ls_scaler_rule rare = {2, 0.5, intervals[i]};
        see_update(p, (struct ls_scaler_state){8, intervals[i] - 2, 4}, 0, rare);
        see_update(p, (struct ls_scaler_state){8, intervals[i] - 1, 4}, 0, rare);
        see_update(p, (struct ls_scaler_state){8, intervals[i] - 1, 4}, 1, rare);
    }
    /* numbers of devices that have found infinities */
    static const float places[] = {64, 128, 256, 65536, 1e10F};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        see_update(p, (struct ls_scaler_state){8, 1, 4}, places[i], rule);
    /* the root of the sum is too large for fp32, but the norm is not */
    see_weighed(p, &(struct weighed){1e80, 65536, 0, 1, ABOUT});
    see_weighed(p, &(struct weighed){1e80, 65536, 1, 1, ABOUT});
    see_weighed(p, &(struct weighed){1e80, 1, 0, 1, ABOUT}); /* every gradient is finite */
    see_weighed(p, &(struct weighed){1e300, 8, 0, 1, ABOUT});
    see_weighed(p, &(struct weighed){DBL_MAX, 8, 1, 2, ABOUT});
    see_weighed(p, &(struct weighed){1e-80, 0x1p-100F, 1e-20F, 1, ABOUT});
}

/* Every bit, with values at which each operation rounds. */
static void rounding(probe *p) {
    const struct ls_scaler_rule uneven = {1.1, 0.7, 1};
    for (int again = 0; again < 40; again++) {
        float drawn[3];
        probe_draw_floats(p, drawn, 3);
        float from = 1 + 1e5F * fabsf(drawn[0]), norm = from * (1 + fabsf(drawn[1]));
        double square_sum = (double)norm * norm;
        see_weighed(p, &(struct weighed){square_sum, from, 0, 1, EXACT});
        see_weighed(p, &(struct weighed){square_sum, from, .1F + fabsf(drawn[2]), 1, EXACT});
        see_weighed(p, &(struct weighed){drawn[1] * drawn[1], 0, .01F * fabsf(drawn[2]), 1, EXACT});
        see_update(p, (struct ls_scaler_state){from, 0, 0}, 0, uneven);
        see_update(p, (struct ls_scaler_state){from, 0, 0}, 1, uneven);
    }
}

/* --- a run --------------------------------------------------------------------------------------------------------- */

static void see_run(probe *p, int ranks, ls_optimizer_kind kind, double clip_norm, const char *streams) {
    static const char *const names[] = {"sgd", "adam", "adamw"};
    struct run run = {.ranks = ranks, .kind = kind, .clip_norm = clip_norm};
    probe_case(p, "%d rank%s in fp16, %s, clipped at %g, streams %s", ranks, ranks > 1 ? "s" : "", names[kind],
               clip_norm, streams);
    probe_must(p, "the ranks", run_all(p, &run, streams));
    for (int r = 0; r < ranks; r++) {
        const struct rank *rank = &run.rank[r];
        for (int s = 0; s < RUN_STEPS; s++)
            probe_see(p, probe_name(p, "step %d on rank %d", s, r), "scale %g, %s, norm %s",
                      (double)rank->records[s].scale, rank->records[s].found_inf != 0 ? "left out" : "taken",
                      text_of(rank->records[s].norm, EXACT));
        see_scaler(p, "at the end, ", &rank->scaler);
        probe_see_floats(p, probe_name(p, "trained weights of rank %d", r), rank->weights, rank->weight_count);
    }
}

static void trained(probe *p) {
    char streams[40];
    for (int ranks = 1; ranks <= RUN_RANKS; ranks++) {
        see_run(p, ranks, LS_SGD, 0, "inline");
        see_run(p, ranks, LS_SGD, 0.5, "inline");
        see_run(p, ranks, LS_ADAM, 0.5, "inline");
        for (int seed = 0; seed < 2; seed++) {
            snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            see_run(p, ranks, LS_ADAM, 1, streams);
        }
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {
        {"unscale", unscale}, {"found-inf", found_inf}, {"clip", clip},       {"scale", scale},
        {"edges", edges},     {"rounding", rounding},   {"trained", trained}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
