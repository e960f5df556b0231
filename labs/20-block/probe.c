/* Tests lab 20's functions: rows of layer norm, rows of scores, and parameters that several layers share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "labs/20-block/golden.h"
#include "labs/20-block/run.h"

/* --- layer norm ------------------------------------------------------------------------------------------------------ */

/* One row, few channels, then more of both: whole lanes and remainders, and rows of more than one block. */
static const size_t norms[][2] = {{1, 1}, {1, 2}, {1, 3}, {2, 3}, {1, 16}, {1, 17}, {3, 33}, {5, 128}, {2, 1500}};
enum { NORMS = sizeof norms / sizeof *norms };

static void begin_norm(probe *p, const struct norm *n) {
    probe_case(p, "layer norm, %zu row%s of %zu channel%s, %s%s", n->rows, n->rows > 1 ? "s" : "", n->channels,
               n->channels > 1 ? "s" : "", n->halves ? "bf16" : "fp32", n->accumulate ? ", accumulate" : "");
}

static void input(probe *p) {
    for (int i = 0; i < NORMS; i++) {
        struct norm norm = {.rows = norms[i][0], .channels = norms[i][1]};
        begin_norm(p, &norm);
        norm_run(p, &norm);
        see_close(p, "dx", norm.dx, norm.rows * norm.channels, 2 * norm.steepest);
        norm_release(&norm);
    }
    struct norm golden = {.rows = GOLDEN_ROWS, .channels = GOLDEN_CHANNELS};
    golden.x = floats_read(p, golden_x, GOLDEN_ROWS * GOLDEN_CHANNELS);
    golden.gamma = floats_read(p, golden_gamma, GOLDEN_CHANNELS);
    golden.dy = floats_read(p, golden_dy, GOLDEN_ROWS * GOLDEN_CHANNELS);
    begin_norm(p, &golden);
    norm_run(p, &golden);
    see_golden(p, "dx", golden.dx, golden_dx, GOLDEN_ROWS * GOLDEN_CHANNELS);
    norm_release(&golden);
}

static void parameters(probe *p) {
    for (int i = 0; i < NORMS; i++)
        for (int how = 0; how < 3; how++) {
            struct norm norm = {
                .rows = norms[i][0], .channels = norms[i][1], .accumulate = how == 1, .halves = how == 2};
            begin_norm(p, &norm);
            norm_run(p, &norm);
            see_close(p, "dbeta", norm.dbeta, norm.channels, 1);
            see_close(p, "dgamma", norm.dgamma, norm.channels, 1);
            norm_release(&norm);
        }
}

/* --- attention ------------------------------------------------------------------------------------------------------- */

static struct attention attention_of(int batch, int context, int heads, int head) {
    return (struct attention){
        .shape = {.batch = batch, .context = context, .heads = heads, .channels = heads * head, .dtype = LS_FP32}};
}

static void begin_attention(probe *p, const struct attention *a, const char *more) {
    const struct ls_attention_shape *s = &a->shape;
    probe_case(p, "attention, %d sequence%s of %d position%s, %d head%s of %d channel%s%s", s->batch,
               s->batch > 1 ? "s" : "", s->context, s->context > 1 ? "s" : "", s->heads, s->heads > 1 ? "s" : "",
               s->channels / s->heads, s->channels / s->heads > 1 ? "s" : "", more);
}

/* All scores are 0: p is 1/(t + 1), or 0. */
static void mask(probe *p) {
    static const int contexts[] = {1, 2, 3, 5, 17, 70};
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        struct attention a = attention_of(2, contexts[i], 2, 1);
        const size_t context = (size_t)contexts[i];
        begin_attention(p, &a, ", all scores 0");
        a.qkv = floats_new(p, 3 * attention_count(&a));
        attention_run(p, &a);
        for (size_t t = 0; t < context; t++) {
            const float *row = a.scores + (2 * context + t) * context; /* of the second sequence's first head */
            size_t seen = 0;
            for (size_t u = 0; u < context; u++) seen += row[u] > 0;
            probe_see_count(p, probe_name(p, "position %zu: how many positions it sees", t), seen);
            if (t + 1 < context)
                probe_see(p, probe_name(p, "position %zu: whether it sees the next one", t), "%s",
                          row[t + 1] == 0 ? "no" : "yes");
        }
        attention_release(&a);
    }
}

/* A head of one channel: scores are products of two numbers, whatever the scale. Scores grow. */
static void softmax(probe *p) {
    static const int contexts[] = {1, 2, 3, 16, 19, 70};
    static const float sizes[] = {1, 5, 30};
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct attention a = attention_of(1, contexts[i], 1, 1);
            char more[60];
            snprintf(more, sizeof more, ", scores up to %g", (double)(sizes[k] * sizes[k]));
            begin_attention(p, &a, more);
            a.qkv = floats_drawn(p, 3 * attention_count(&a));
            for (size_t c = 0; c < 3 * attention_count(&a); c++) a.qkv[c] *= sizes[k];
            attention_run(p, &a);
            see_close(p, "p", a.scores, (size_t)contexts[i] * (size_t)contexts[i], 0);
            see_close(p, "y", a.y, attention_count(&a), 0);
            attention_release(&a);
        }
}

static const int heads[][2] = {{1, 4}, {2, 2}, {4, 1}, {3, 4}, {2, 16}, {1, 5}};
enum { HEADS = sizeof heads / sizeof *heads };

static void scale(probe *p) {
    for (int i = 0; i < HEADS; i++)
        for (int context = 2; context <= 9; context += 7) {
            struct attention a = attention_of(2, context, heads[i][0], heads[i][1]);
            begin_attention(p, &a, "");
            attention_run(p, &a);
            see_close(p, "p", a.scores, (size_t)(2 * heads[i][0]) * (size_t)context * (size_t)context, 0);
            attention_release(&a);
        }
}

static void gradient(probe *p) {
    for (int i = 0; i < HEADS; i++)
        for (int context = 1; context <= 70; context += context < 3 ? 1 : 67) {
            struct attention a = attention_of(2, context, heads[i][0], heads[i][1]);
            begin_attention(p, &a, "");
            attention_run(p, &a);
            see_close(p, "dqkv", a.dqkv, 3 * attention_count(&a), 0);
            attention_release(&a);
        }
    struct attention golden = attention_of(1, GOLDEN_CONTEXT, GOLDEN_HEADS, GOLDEN_WIDTH / GOLDEN_HEADS);
    golden.qkv = floats_read(p, golden_qkv, 3 * attention_count(&golden));
    golden.dy = floats_read(p, golden_dattention, attention_count(&golden));
    begin_attention(p, &golden, "");
    attention_run(p, &golden);
    see_golden(p, "y", golden.y, golden_y, attention_count(&golden));
    see_golden(p, "dqkv", golden.dqkv, golden_dqkv, 3 * attention_count(&golden));
    attention_release(&golden);
}

/* --- shared parameters ----------------------------------------------------------------------------------------------- */

static struct passes passes_of(enum net net, size_t batch) {
    return (struct passes){.net = net, .batch = batch, .count = 3, .accumulates = {false, true, false}};
}

static void begin_passes(probe *p, const struct passes *passes) {
    probe_case(p, "%s; %zu sample%s", net_name(passes->net), passes->batch, passes->batch > 1 ? "s" : "");
}

static void ready(probe *p) {
    static const enum net nets[] = {NET_IMAGES, NET_EMBEDDING, NET_TIED, NET_THRICE, NET_UNREAD, NET_GPT};
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        struct passes passes = passes_of(nets[n], 1);
        begin_passes(p, &passes);
        passes_run(p, &passes);
        for (int i = 0; i < passes.count; i++)
            probe_see(p, probe_name(p, "whose gradient is ready, in order, pass %d", i), "%s", passes.ready[i]);
        passes_release(&passes);
    }
}

static void tied(probe *p) {
    static const enum net nets[] = {NET_IMAGES, NET_EMBEDDING, NET_TIED, NET_THRICE, NET_UNREAD};
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++)
        for (size_t batch = 1; batch <= 3; batch++) {
            struct passes passes = passes_of(nets[n], batch);
            begin_passes(p, &passes);
            passes_run(p, &passes);
            for (int i = 0; i < passes.count; i++)
                see_close(p,
                          probe_name(p, "gradients after pass %d (%s)", i, passes.accumulates[i] ? "adds" : "writes"),
                          passes.gradients[i], passes.gradient_count, 0);
            passes_release(&passes);
        }
}

/* --- training -------------------------------------------------------------------------------------------------------- */

static void mean(probe *p) {
    for (int net = NET_IMAGES; net <= NET_ROWS; net++)
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
            for (int accumulate = 1; accumulate <= 2; accumulate++) {
                struct training t = {.net = (enum net)net,
                                     .ranks = ranks,
                                     .accumulate = accumulate,
                                     .steps = 2,
                                     .batch = (size_t)(4 - ranks),
                                     .seed = 7,
                                     .learning_rate = 0.5};
                probe_case(p, "%s; W = %d, %d micro-batch%s of %zu samples", net_name(t.net), ranks, accumulate,
                           accumulate > 1 ? "es" : "", t.batch);
                training_run(p, &t);
                see_close(p, "loss of step", t.losses, (size_t)t.steps, 0);
                see_close(p, "trained weights", t.trained, t.trained_count, 0);
                free(t.trained);
            }
}

/* Losses and weights of PyTorch's run. */
static void trained(probe *p) {
    for (int accumulate = 1; accumulate <= 4; accumulate *= 4) {
        struct training t = {.model = "gpt:2,2,32,16,27,scores",
                             .ranks = 1,
                             .accumulate = accumulate,
                             .steps = GOLDEN_STEPS,
                             .batch = (size_t)(GOLDEN_BATCH / accumulate),
                             .seed = 3,
                             .learning_rate = 0.1,
                             .momentum = 0.9,
                             .text = golden_text};
        probe_case(p, "%s, %d micro-batch%s, SGD", t.model, accumulate, accumulate > 1 ? "es" : "");
        training_run(p, &t);
        for (int s = 0; s < t.steps; s++)
            probe_see(p, probe_name(p, "loss of step %d, whether it is PyTorch's %.6g", s, golden_losses[s]), "%s",
                      fabs((double)t.losses[s] - golden_losses[s]) <= 1e-5 ? "yes" : "no");
        free(t.trained);
    }
}

#if defined(__x86_64__)
#define FIRST_BUILD "v2"
#else
#define FIRST_BUILD "plain"
#endif

/* The probe has the student's kernels for one instruction set (labs/course/build.sh). */
int main(int argc, char **argv) {
    static const probe_check checks[] = {
        {"input", input}, {"parameters", parameters}, {"mask", mask},   {"softmax", softmax},
        {"scale", scale}, {"gradient", gradient},     {"ready", ready}, {"tied", tied},
        {"mean", mean},   {"trained", trained},       {NULL, NULL}};
    setenv("LS_CPU_ISA", FIRST_BUILD, 1);
    return probe_main(argc, argv, checks);
}
