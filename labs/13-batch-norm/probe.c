/* Tests lab 13's merge and its two passes: with sets of values, then with layers on several ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/statistics.h"
#include "labs/13-batch-norm/ranks.h"

/* --- merging two sets -------------------------------------------------------------------------------------------- */

/* Statistics by definition: of values[0 .. count - 1]. */
static struct ls_statistics by_definition(const float *values, size_t count) {
    long double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) sum += (long double)values[i];
    long double mean = count > 0 ? sum / (long double)count : 0;
    for (size_t i = 0; i < count; i++) squares += ((long double)values[i] - mean) * ((long double)values[i] - mean);
    return (struct ls_statistics){(double)count, (double)mean, (double)squares};
}

static void see_is(probe *p, const char *what, double is, double should, double scale) {
    bool near = fabs(is - should) <= 1e-6 * scale;
    if (near)
        probe_see(p, what, "that of all values");
    else
        probe_see(p, what, "%.9g in place of %.9g", is, should);
}

/* Merges sets of these sizes in order, each with a mean of its own. */
static void merge_sets(probe *p, const size_t *sizes, int sets, float base, float scale) {
    enum { MOST = 4096 };
    float values[MOST];
    size_t count = 0;
    struct ls_statistics total = {0};
    for (int i = 0; i < sets; i++) {
        probe_draw_floats(p, values + count, sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++)
            values[count + j] = base + scale * (values[count + j] * (float)(1 + i) + 2.0f * (float)i);
        ls_statistics_merge(&total, by_definition(values + count, sizes[i]));
        count += sizes[i];
    }
    struct ls_statistics all = by_definition(values, count);
    probe_see(p, "count", "%.9g", total.count);
    see_is(p, "mean", total.mean, all.mean, (double)scale);
    see_is(p, "M2", total.m2, all.m2, all.m2);
}

/* Sets too large to store their values: their counts exceed what a float or 32 bits can distinguish. */
static void merge_large_sets(probe *p) {
    static const double counts[] = {70000, 16777217, 3e9, 4294967301, 1e12, 1};
    enum { COUNTS = sizeof counts / sizeof *counts };
    for (int i = 0; i < COUNTS; i++) {
        float drawn[2];
        probe_draw_floats(p, drawn, 2);
        double m = counts[(i + 1) % COUNTS];
        struct ls_statistics total = {counts[i], (double)drawn[0], counts[i] * 2};
        ls_statistics_merge(&total, (struct ls_statistics){m, 3 + (double)drawn[1], (m - 1) * 5});
        probe_case(p, "sets of %.0f and %.0f values", counts[i], m);
        probe_see(p, "count", "%.17g", total.count);
        probe_see_near(p, "mean", total.mean, 1e-9 * (1 + fabs(total.mean)));
        probe_see_near(p, "M2", total.m2, 1e-9 * total.m2);
    }
}

static void merge(probe *p) {
    static const struct {
        int sets;
        size_t sizes[4];
    } rows[] = {{1, {5}},           {2, {1, 1}},
                {2, {3, 3}},        {2, {1, 3}},
                {2, {4, 1}},        {3, {2, 2, 2}},
                {3, {1, 2, 4}},     {2, {0, 3}},
                {2, {3, 0}},        {2, {0, 0}},
                {3, {2, 0, 3}},     {4, {0, 0, 5, 1}},
                {4, {7, 1, 30, 2}}, {4, {1000, 1, 1, 500}},
                {2, {1000, 1000}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[64] = "";
        for (int s = 0, at = 0; s < rows[i].sets; s++)
            at += snprintf(text + at, sizeof text - (size_t)at, s ? " and %zu" : "%zu", rows[i].sizes[s]);
        probe_case(p, "sets of %s values", text);
        merge_sets(p, rows[i].sizes, rows[i].sets, 0, 1);
    }
    probe_case(p, "sets of 50 and 30 values near 1000000, all within 3 of each other");
    merge_sets(p, (size_t[]){50, 30}, 2, 1e6f, 0.5f);
    merge_large_sets(p);
}

/* --- one pass ---------------------------------------------------------------------------------------------------- */

static const struct {
    int ranks;
    size_t batch[MOST_RANKS];
    int channels, height, width;
    bool relu;
    ls_dtype dtype;
} shapes[] = {
    {2, {1, 1}, 1, 1, 2, false, LS_FP32},
    {2, {2, 2}, 1, 2, 2, false, LS_FP32},
    {2, {2, 2}, 3, 2, 3, false, LS_FP32},
    {3, {1, 1, 1}, 2, 2, 2, false, LS_FP32},
    {2, {1, 3}, 2, 2, 2, false, LS_FP32},
    {3, {4, 1, 2}, 3, 3, 2, true, LS_FP32},
    {2, {3, 0}, 2, 2, 2, false, LS_FP32},
    {2, {0, 2}, 2, 2, 2, true, LS_FP32},
    {4, {0, 1, 0, 1}, 1, 1, 2, false, LS_FP32},
    {4, {3, 5, 2, 4}, 5, 7, 3, true, LS_FP32},
    {3, {2, 1, 3}, 3, 2, 2, true, LS_FP16},
    {3, {2, 1, 3}, 3, 2, 2, true, LS_BF16},
    {2, {2, 2}, 300, 1, 1, false, LS_FP32},
    {2, {1, 2}, 2, 70, 80, true, LS_FP32},
    {9, {1, 2, 0, 1, 1, 0, 2, 1, 1}, 3, 2, 2, true, LS_FP32},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct bn_run begin_run(probe *p, int shape, int steps, bool accumulate) {
    struct bn_run run = {.ranks = shapes[shape].ranks,
                         .steps = steps,
                         .channels = shapes[shape].channels,
                         .height = shapes[shape].height,
                         .width = shapes[shape].width,
                         .relu = shapes[shape].relu,
                         .dtype = shapes[shape].dtype,
                         .accumulate = accumulate,
                         .apart = true};
    char text[192] = "";
    for (int r = 0, at = 0; r < run.ranks; r++) {
        const char *unit = r > 0 ? "" : shapes[shape].batch[r] == 1 ? " sample" : " samples";
        at += snprintf(text + at, sizeof text - (size_t)at, "%srank %d has %zu%s", r > 0 ? ", " : "", r,
                       shapes[shape].batch[r], unit);
    }
    for (int s = 0; s < steps; s++) /* in later steps the ranks change places */
        for (int r = 0; r < run.ranks; r++) run.batch[s][r] = shapes[shape].batch[(r + s) % run.ranks];
    probe_case(p, "%s; %d channel%s of %d x %d, %s%s%s", text, run.channels, run.channels > 1 ? "s" : "", run.height,
               run.width, ls_dtype_name(run.dtype), run.relu ? ", ReLU" : "", accumulate ? ", accumulate" : "");
    return run;
}

static void run_well(probe *p, struct bn_run *run) {
    bn_run(p, run);
    for (int r = 0; r < run->ranks; r++) probe_must(p, probe_name(p, "rank %d", r), run->rank[r].status);
}

/* fp16 values as the integers of their bits. */
static void see_values(probe *p, const struct bn_run *run, const char *what, const void *values, size_t count) {
    if (run->dtype == LS_FP32) {
        probe_see_floats(p, what, values, count);
        return;
    }
    int64_t *bits = calloc(count + 1, sizeof *bits);
    for (size_t i = 0; bits && i < count; i++) bits[i] = ((const uint16_t *)values)[i];
    if (bits) probe_see_wholes(p, what, bits, count);
    free(bits);
}

static void forward(probe *p) {
    for (int i = 0; i < SHAPES; i++) {
        struct bn_run run = begin_run(p, i, 1, false);
        run.forward_only = true;
        run_well(p, &run);
        for (int r = 0; r < run.ranks; r++)
            see_values(p, &run, probe_name(p, "outputs of rank %d", r), run.rank[r].y[0], bn_count(&run, 0, r));
        bn_release(&run);
    }
}

static void running(probe *p) {
    for (int i = 0; i < SHAPES; i++) {
        struct bn_run run = begin_run(p, i, MOST_STEPS, false);
        run.forward_only = true;
        if (i % 3 == 2) memset(run.batch[1], 0, sizeof run.batch[1]); /* a step in which no rank has samples */
        run_well(p, &run);
        for (int s = 0; s < run.steps; s++) {
            for (int r = 0; r < run.ranks; r++) {
                const float *buffers = run.rank[r].seen_buffers[s];
                size_t channels = (size_t)run.channels;
                probe_see_floats(p, probe_name(p, "running means of rank %d behind step %d", r, s), buffers, channels);
                probe_see_floats(p, probe_name(p, "running variances of rank %d behind step %d", r, s),
                                 buffers + channels, channels);
            }
        }
        bn_release(&run);
    }
}

static void backward(probe *p) {
    for (int i = 0; i < SHAPES; i++) {
        struct bn_run run = begin_run(p, i, 2, i % 2 == 1);
        run_well(p, &run);
        for (int s = 0; s < run.steps; s++) {
            for (int r = 0; r < run.ranks; r++) {
                const float *gradients = run.rank[r].seen_gradients[s];
                size_t channels = (size_t)run.channels;
                see_values(p, &run, probe_name(p, "input gradients of rank %d in step %d", r, s), run.rank[r].dx[s],
                           bn_count(&run, s, r));
                probe_see_floats(p, probe_name(p, "gradients of gamma on rank %d in step %d", r, s), gradients,
                                 channels);
                probe_see_floats(p, probe_name(p, "gradients of beta on rank %d in step %d", r, s),
                                 gradients + channels, channels);
            }
        }
        bn_release(&run);
    }
}

/* --- communication ----------------------------------------------------------------------------------------------- */

static void traffic(probe *p) {
    for (int i = 0; i < SHAPES; i++) {
        struct bn_run run = begin_run(p, i, 2, false);
        run_well(p, &run);
        for (int pass = 0; pass < 2 * run.steps; pass++) {
            for (int r = 0; r < run.ranks; r++) {
                const ls_comm_traffic *now = &run.rank[r].traffic[pass];
                const ls_comm_traffic *before = pass > 0 ? now - 1 : &(ls_comm_traffic){0};
                const char *name = pass % 2 ? "backward" : "forward";
                probe_see_count(p, probe_name(p, "collectives of rank %d in the %s of step %d", r, name, pass / 2),
                                now->operations - before->operations);
                probe_see_count(p, probe_name(p, "bytes that rank %d has sent in it", r),
                                now->sent_bytes - before->sent_bytes);
            }
        }
        bn_release(&run);
    }
}

/* --- order, and failures ----------------------------------------------------------------------------------------- */

static void shuffled(probe *p) {
    enum { SEEDS = 4 };
    for (int i = 2; i < SHAPES; i += 3) {
        for (int seed = 0; seed < SEEDS; seed++) {
            char streams[40];
            struct bn_run run = begin_run(p, i, MOST_STEPS, false);
            snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            run.streams = streams;
            run_well(p, &run);
            for (int r = 0; r < run.ranks; r++) {
                for (int s = 0; s < run.steps; s++) {
                    size_t count = bn_count(&run, s, r);
                    see_values(p, &run, probe_name(p, "outputs of rank %d in step %d, streams %s", r, s, streams),
                               run.rank[r].y[s], count);
                    see_values(p, &run, probe_name(p, "input gradients of rank %d in step %d", r, s), run.rank[r].dx[s],
                               count);
                }
                probe_see_floats(p, probe_name(p, "running means and variances of rank %d", r), run.rank[r].buffers,
                                 2 * (size_t)run.channels);
            }
            bn_release(&run);
        }
    }
}

static void see_end(probe *p, struct bn_run *run) {
    bn_run(p, run);
    for (int r = 0; r < run->ranks; r++)
        probe_see(p, probe_name(p, "what rank %d's device says", r), "%s", ls_status_text(run->rank[r].status));
    bn_release(run);
}

/* All ranks fail at the same place, so that none waits for another. Each status is passed on as it is. */
static void fails(probe *p) {
    static const ls_status statuses[] = {LS_ERR_TIMEOUT,   LS_ERR_SYSTEM, LS_ERR_PEER,        LS_ERR_INVALID,
                                         LS_ERR_NO_MEMORY, LS_ERR_IO,     LS_ERR_UNSUPPORTED, LS_ERR_STOPPED};
    struct bn_run run = {.ranks = 2, .steps = 1, .channels = 2, .height = 1, .width = 2, .batch = {{1, 1}}};
    struct bn_run one = run;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        struct bn_run gather = run, reduce = run;
        probe_case(p, "the all_gather fails (%s)", ls_status_text(statuses[i]));
        gather.break_gather = statuses[i];
        see_end(p, &gather);
        probe_case(p, "the all_reduce fails (%s)", ls_status_text(statuses[i]));
        reduce.break_reduce = statuses[i];
        see_end(p, &reduce);
    }
    probe_case(p, "all ranks together have one value per channel");
    one.width = 1;
    one.batch[0][1] = 0;
    see_end(p, &one);
    probe_case(p, "each rank has one value per channel");
    one.batch[0][1] = 1;
    see_end(p, &one);
    probe_case(p, "nothing fails");
    see_end(p, &run);
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"merge", merge},       {"forward", forward}, {"running", running},
                                         {"backward", backward}, {"traffic", traffic}, {"shuffled", shuffled},
                                         {"fails", fails},       {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
