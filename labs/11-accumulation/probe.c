/* Tests lab 11's functions: how they split a batch and which calls they make; and in runs of several ranks: which
 * collectives, how many bytes, which losses, gradients and weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/seam/parallel.h"
#include "labs/11-accumulation/run.h"
#include "labs/11-accumulation/turns.h"
#include "labs/course/probe/probe.h"

#define MLP "mlp:12,8,5"

/* --- the pieces ----------------------------------------------------------------------------------------------------- */

enum { MOST_SAMPLES = 64, MOST_ROW_NBYTES = 64, MOST_ANSWER = 7, MOST_SEEN = 16 };

/* The offset of `part` in the batch's memory, or that there is none. */
static const char *place_of(const void *part, const void *whole) {
    static char text[32];
    if (!part) return "none";
    if (!whole) return "something";
    snprintf(text, sizeof text, "%td", (const char *)part - (const char *)whole);
    return text;
}

static void see_pieces(probe *p, const ls_batch *batch, int pieces, size_t row_nbytes, size_t answer) {
    probe_case(p, "%zu of %zu samples, %zu bytes each, %s, in %d piece%s", batch->count, batch->global_count,
               row_nbytes,
               batch->targets  ? "with targets"
               : batch->labels ? "with labels"
                               : "without answers",
               pieces, pieces > 1 ? "s" : "");
    for (int k = 0; k < pieces; k++) {
        if (pieces > MOST_SEEN && k == MOST_SEEN / 2) k = pieces - MOST_SEEN / 2; /* the first ones and the last */
        ls_batch part = ls_micro_batch(batch, k, pieces, row_nbytes, answer);
        probe_see_count(p, probe_name(p, "samples of piece %d", k), part.count);
        probe_see(p, probe_name(p, "bytes before piece %d's inputs", k), "%s", place_of(part.inputs, batch->inputs));
        probe_see(p, probe_name(p, "bytes before piece %d's labels", k), "%s", place_of(part.labels, batch->labels));
        probe_see(p, probe_name(p, "bytes before piece %d's targets", k), "%s", place_of(part.targets, batch->targets));
        probe_see_count(p, probe_name(p, "samples of the step, as piece %d has them", k), part.global_count);
        probe_see(p, probe_name(p, "epoch and step of piece %d", k), "%lld and %lld", (long long)part.epoch,
                  (long long)part.step);
    }
}

/* Batches with labels and with targets, in memory that ends after the last sample. */
static void see_pieces_exactly(probe *p, size_t count, int pieces) {
    enum { ROW_NBYTES = 4, ANSWER = 3 };
    char *inputs = calloc(count, ROW_NBYTES);
    int64_t *labels = calloc(count, sizeof *labels);
    float *targets = calloc(count * ANSWER, sizeof *targets);
    probe_must(p, "memory for a batch", inputs && labels && targets ? LS_OK : LS_ERR_NO_MEMORY);
    ls_batch batch = {.inputs = inputs, .labels = labels, .count = count, .global_count = count};
    see_pieces(p, &batch, pieces, ROW_NBYTES, 1);
    batch.labels = NULL;
    batch.targets = targets;
    see_pieces(p, &batch, pieces, ROW_NBYTES, ANSWER);
    free(inputs);
    free(labels);
    free(targets);
}

static void pieces(probe *p) {
    static const char inputs[MOST_SAMPLES * MOST_ROW_NBYTES];
    static const int64_t labels[MOST_SAMPLES];
    static const float targets[MOST_SAMPLES * MOST_ANSWER];
    static const int numbers[] = {1, 2, 3, 4, 5, 8};
    for (size_t count = 1; count <= 17; count++)
        for (int i = 0; i < 6; i++) see_pieces_exactly(p, count, numbers[i]);
    for (int again = 0; again < 20; again++) {
        size_t count = 1 + probe_draw(p, MOST_SAMPLES), row_nbytes = 1 + probe_draw(p, MOST_ROW_NBYTES);
        ls_batch batch = {.inputs = inputs, .count = count, .global_count = count + probe_draw(p, 100), .epoch = 3};
        batch.step = (int64_t)probe_draw(p, 1000);
        if (again % 2) batch.targets = targets;
        if (!batch.targets) batch.labels = labels;
        see_pieces(p, &batch, 1 + (int)probe_draw(p, 9), row_nbytes, 1 + probe_draw(p, MOST_ANSWER));
    }
    see_pieces(p, &(ls_batch){.inputs = inputs, .labels = labels, .global_count = 5}, 3, 4, 1);
    see_pieces(p, &(ls_batch){.inputs = inputs, .labels = labels, .count = 5000000000, .global_count = 5000000000}, 3,
               100, 1);
    static const int many[] = {16, 17, 255, 256, 257, 300, 65536, 66000};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) { /* only addresses are checked: the samples do not exist */
        see_pieces(p, &(ls_batch){.inputs = inputs, .labels = labels, .count = 1000, .global_count = 70000}, many[i], 4,
                   1);
        see_pieces(p, &(ls_batch){.inputs = inputs, .targets = targets, .count = 200000, .global_count = 200000},
                   many[i], 70000, 300);
    }
    see_pieces(p, &(ls_batch){.global_count = 5}, 3, 4, 1); /* a rank that has run out of samples */
    see_pieces(p, &(ls_batch){.labels = labels, .count = 7, .global_count = 7}, 3, 4, 1); /* with inputs */
}

/* --- communication -------------------------------------------------------------------------------------------------- */

static void begin_run(probe *p, struct run *run) {
    probe_case(p, "%d %s%s, %s, %d step%s of up to %zu samples each in %d piece%s%s, streams %s", run->ranks,
               run->threads ? "device" : "rank", run->ranks > 1 ? "s" : "", run->model, run->steps,
               run->steps > 1 ? "s" : "", run->rows, run->pieces, run->pieces > 1 ? "s" : "",
               run->local_first ? ", the first no_sync" : "", run->streams);
    probe_must(p, run->threads ? "DataParallel" : "the ranks", run_all(p, run));
}

static void see_collectives(probe *p, const struct run *run) {
    for (int r = 0; r < run->ranks; r++) {
        for (int s = 0; s < run->steps; s++)
            for (int k = 0; k < run->pieces; k++) {
                const struct sent *sent = &run->rank[r].sent[s][k];
                probe_see(p, probe_name(p, "rank %d, step %d, piece %d", r, s, k),
                          "%d all-reduces of %zu bytes in all, %d broadcasts", sent->reduces,
                          sent->floats * sizeof(float), sent->broadcasts);
            }
        probe_see_count(p, probe_name(p, "bytes of gradients that rank %d has all-reduced", r),
                        run->rank[r].all_reduced);
    }
}

static void see_sent(probe *p, struct run *run) {
    begin_run(p, run);
    if (run->threads)
        probe_see_count(p, "bytes of gradients that were sent to device 0", run->rank[0].reduced);
    else
        see_collectives(p, run);
    run_release(run);
}

static void bytes(probe *p) {
    for (int ranks = 1; ranks <= RUN_RANKS; ranks++)
        for (int pieces = 1; pieces <= 4; pieces += pieces) /* 1, 2, 4 */
            see_sent(p, &(struct run){.model = MLP,
                                      .streams = "inline",
                                      .ranks = ranks,
                                      .steps = RUN_STEPS,
                                      .pieces = pieces,
                                      .rows = RUN_ROWS});
    see_sent(p, &(struct run){.model = MLP, .streams = "inline", .ranks = 2, .steps = 2, .pieces = 3, .rows = 7});
    see_sent(p, &(struct run){.model = "convnet", .streams = "inline", .ranks = 2, .steps = 2, .pieces = 2, .rows = 2});
    for (int pieces = 1; pieces <= 3; pieces++)
        see_sent(p, &(struct run){.model = MLP,
                                  .streams = "inline",
                                  .ranks = 2,
                                  .threads = true,
                                  .steps = 2,
                                  .pieces = pieces,
                                  .rows = RUN_ROWS});
}

/* --- results -------------------------------------------------------------------------------------------------------- */

static void see_results(probe *p, const struct run *run) {
    int members = run->threads ? 1 : run->ranks;
    for (int r = 0; r < members; r++) {
        const struct rank *rank = &run->rank[r];
        probe_see_floats(p, probe_name(p, "losses of rank %d", r), rank->losses, (size_t)run->steps);
        probe_see_floats(p, probe_name(p, "the last gradients on rank %d", r), rank->gradients, rank->gradient_count);
        probe_see_floats(p, probe_name(p, "trained weights of rank %d", r), rank->state, rank->state_count);
    }
}

static void see_trained(probe *p, struct run *run) {
    begin_run(p, run);
    see_results(p, run);
    run_release(run);
}

/* One rank: pieces that divide the batch evenly, pieces with a remainder, and more pieces than samples; then several
 *           steps. */
static void weights(probe *p) {
    static const size_t rows[] = {1, 2, 5, 9};
    static const int pieces[] = {1, 2, 3, 4, 6};
    for (int steps = 1; steps <= RUN_STEPS; steps += RUN_STEPS - 1)
        for (int i = steps > 1 ? 2 : 0; i < 4; i++)
            for (int k = 0; k < 5; k++)
                see_trained(p, &(struct run){.model = MLP,
                                             .streams = "inline",
                                             .ranks = 1,
                                             .steps = steps,
                                             .pieces = pieces[k],
                                             .rows = rows[i]});
}

static void no_sync(probe *p) {
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int pieces = 1; pieces <= 3; pieces++) {
            struct run run = {.model = MLP,
                              .streams = "inline",
                              .ranks = ranks,
                              .steps = RUN_STEPS,
                              .pieces = pieces,
                              .rows = 5,
                              .local_first = true};
            begin_run(p, &run);
            see_collectives(p, &run);
            see_results(p, &run);
            run_release(&run);
        }
}

static void trained(probe *p) {
    static char streams[40];
    for (int again = 0; again < 3; again++)
        for (int ranks = 2; ranks <= RUN_RANKS; ranks++)
            for (int threads = 0; threads < 2; threads++) {
                snprintf(streams, sizeof streams, again ? "shuffle:%d" : "inline", (int)probe_draw(p, 1000000));
                see_trained(p, &(struct run){.model = MLP,
                                             .streams = streams,
                                             .ranks = ranks,
                                             .threads = threads,
                                             .steps = RUN_STEPS,
                                             .pieces = 2 + (int)probe_draw(p, RUN_PIECES - 1),
                                             .rows = RUN_ROWS});
            }
    see_trained(p,
                &(struct run){.model = "convnet", .streams = "inline", .ranks = 2, .steps = 2, .pieces = 2, .rows = 3});
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"pieces", pieces},   {"bytes", bytes},     {"weights", weights},
                                         {"no-sync", no_sync}, {"turns", see_turns}, {"ends", see_ends},
                                         {"trained", trained}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
