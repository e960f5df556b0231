/* Tests lab 14's functions: shares of a stream, their order and their ends; and how ranks use the counts that they
 * exchange (joined.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data/assembler.h"
#include "common/data/loader.h"
#include "labs/14-uneven-ends/joined.h"
#include "labs/14-uneven-ends/numbered.h"
#include "labs/course/probe/probe.h"

enum { MOST_SAMPLES = 700, MOST_BATCH = 8 };

struct sharing {
    int64_t samples;
    int ranks, workers, batch;
    bool targets;
};

/* The samples that one worker read, by its batches. */
struct reading {
    int64_t answers[MOST_SAMPLES];
    size_t count;
    int64_t batches, strangers; /* strangers: samples whose inputs are not those of their answer */
    ls_status status;
};

static void begin_case(probe *p, const struct sharing *s) {
    probe_case(p, "%lld sample%s%s, %d rank%s with %d worker%s%s, batches of %d", (long long)s->samples,
               s->samples == 1 ? "" : "s", s->targets ? " with targets" : "", s->ranks, s->ranks > 1 ? "s" : "",
               s->workers, s->workers > 1 ? "s" : "", s->ranks > 1 ? " each" : "", s->batch);
}

static void take_batch(struct reading *reading, const ls_batch_slot *slot) {
    const float *inputs = slot->inputs;
    for (size_t i = 0; i < slot->batch.count && reading->count < MOST_SAMPLES; i++) {
        int64_t answer = slot->labels ? slot->labels[i] : (int64_t)slot->targets[i];
        bool same =
            inputs[NUMBERED_INPUTS * i] == (float)answer && inputs[NUMBERED_INPUTS * i + 1] == (float)answer + 0.5F;
        reading->strangers += !same;
        reading->answers[reading->count++] = answer;
    }
    reading->batches++;
}

/* One worker's pass over the stream, to the end of its share. */
static void read_share(probe *p, struct reading *reading, numbered *n, const struct sharing *s, int rank, int worker) {
    ls_batch_slot slot = {.pass = 1};
    ls_assembler assembler = {.dataset = &n->base,
                              .stream = {.local_batch = (size_t)s->batch, .rank = rank, .world_size = s->ranks},
                              .precision = LS_FP32,
                              .worker = worker,
                              .workers = s->workers};
    memset(reading, 0, sizeof *reading);
    if (!ls_batch_slot_alloc(&slot, &n->base.spec, (size_t)s->batch, LS_FP32, NULL))
        probe_must(p, "memory", LS_ERR_NO_MEMORY);
    for (int64_t i = 0; i < s->samples + 2; i++) {
        slot.batch.step = i;
        ls_assembler_fill(&assembler, &slot);
        if (slot.status != LS_OK || slot.end) break;
        take_batch(reading, &slot);
    }
    reading->status = slot.status;
    ls_assembler_release(&assembler);
    ls_batch_slot_free(&slot);
}

/* --- which samples are read, and which are not --------------------------------------------------------------------- */

/* The check of the order tests which share belongs to which worker. */
static void see_shares(probe *p, const struct sharing *s) {
    enum { MOST_TIMES = 4 };
    static struct reading reading;
    int seen[MOST_SAMPLES] = {0}, samples[MOST_TIMES + 1] = {0}, starved = 0;
    size_t most = 0, fewest = MOST_SAMPLES;
    int64_t strangers = 0;
    numbered n;
    numbered_init(&n, s->samples, s->targets);
    begin_case(p, s);
    for (int share = 0; share < s->ranks * s->workers; share++) {
        read_share(p, &reading, &n, s, share / s->workers, share % s->workers);
        if (reading.status != LS_OK) probe_must(p, "reading", reading.status);
        starved += reading.count == 0;
        if (reading.count > most) most = reading.count;
        if (reading.count < fewest) fewest = reading.count;
        strangers += reading.strangers;
        for (size_t i = 0; i < reading.count; i++)
            if (reading.answers[i] >= 0 && reading.answers[i] < s->samples) seen[reading.answers[i]]++;
    }
    for (int64_t i = 0; i < s->samples; i++) samples[seen[i] < MOST_TIMES ? seen[i] : MOST_TIMES]++;
    for (int times = MOST_TIMES; times >= 0; times--)
        probe_see(p, probe_name(p, "samples that are read %d time%s", times, times == 1 ? "" : "s"), "%d",
                  samples[times]);
    probe_see(p, "the number of workers that get no sample", "%d", starved);
    probe_see(p, "samples of the workers that have the fewest and the most", "%zu %zu", fewest, most);
    probe_see(p, "samples with another one's inputs", "%lld", (long long)strangers);
}

/* --- which rank gets which samples, and in which order ------------------------------------------------------------- */

/* A rank's batches as its loader returns them, its workers in turn. */
static void see_loader(probe *p, const struct sharing *s, numbered *n, int rank) {
    const ls_loader_options options = {
        .workers = s->workers,
        .prefetch = 2,
        .timeout_s = 2,
        .stream = {.local_batch = (size_t)s->batch, .rank = rank, .world_size = s->ranks}};
    ls_loader *loader;
    const ls_batch *batch;
    probe_must(p, "the loader", ls_loader_create(&loader, &n->base, NULL, &options));
    ls_status status = ls_loader_begin_epoch(loader, 0, 0);
    for (int i = 0; status == LS_OK && i <= MOST_SAMPLES; i++) {
        status = ls_loader_next(loader, &batch);
        if (status != LS_OK || !batch) break;
        probe_see_wholes(p, probe_name(p, "rank %d's batch %d", rank, i), batch->labels, batch->count);
    }
    probe_must(p, probe_name(p, "rank %d's epoch", rank), status);
    ls_loader_destroy(loader);
}

static void see_order(probe *p, const struct sharing *s) {
    static struct reading reading;
    numbered n;
    numbered_init(&n, s->samples, s->targets);
    begin_case(p, s);
    for (int rank = 0; rank < s->ranks; rank++)
        for (int worker = 0; worker < s->workers; worker++) {
            read_share(p, &reading, &n, s, rank, worker);
            probe_see_wholes(p, probe_name(p, "what worker %d of rank %d reads", worker, rank), reading.answers,
                             reading.count);
            probe_see(p, probe_name(p, "how it ends on worker %d of rank %d", worker, rank), "%s after %lld batches",
                      ls_status_text(reading.status), (long long)reading.batches);
        }
    if (s->samples <= 40 && !s->targets)
        for (int rank = 0; rank < s->ranks; rank++) see_loader(p, s, &n, rank);
}

/* Ranks and workers with and without a common divisor; streams that end before each worker has a sample, at the end of
 * a round, and in the middle of one. */
static void every_sharing(probe *p, void (*see)(probe *p, const struct sharing *s)) {
    static const int64_t counts[] = {1, 2, 5, 12, 24, 37};
    enum { COUNTS = sizeof counts / sizeof counts[0] };
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int workers = 1; workers <= 4; workers++)
            for (int c = 0; c < COUNTS; c++)
                see(p, &(struct sharing){
                           .samples = counts[c], .ranks = ranks, .workers = workers, .batch = 1 + (ranks + c) % 3});
    for (int again = 0; again < 12; again++)
        see(p, &(struct sharing){.samples = (int64_t)probe_draw(p, 400),
                                 .ranks = 1 + (int)probe_draw(p, 8),
                                 .workers = 1 + (int)probe_draw(p, 8),
                                 .batch = 1 + (int)probe_draw(p, MOST_BATCH),
                                 .targets = again % 4 == 3});
    see(p, &(struct sharing){.samples = 0, .ranks = 2, .workers = 2, .batch = 2});
}

/* More shares than 8 bits count. */
static void stream_share(probe *p) {
    every_sharing(p, see_shares);
    see_shares(p, &(struct sharing){.samples = MOST_SAMPLES, .ranks = 20, .workers = 16, .batch = 2});
}

/* A few of many workers, more than 16 bits count. */
static void see_far_shares(probe *p, int ranks, int workers) {
    static struct reading reading;
    numbered n;
    struct sharing s = {.ranks = ranks, .workers = workers, .batch = 2};
    s.samples = 2 * (int64_t)ranks * workers + (int64_t)probe_draw(p, 99);
    numbered_init(&n, s.samples, true); /* as labels they would be out of range */
    begin_case(p, &s);
    for (int i = 0; i < 4; i++) {
        int rank = i < 2 ? i * (ranks - 1) : (int)probe_draw(p, (uint64_t)ranks);
        int worker = i < 2 ? i * (workers - 1) : (int)probe_draw(p, (uint64_t)workers);
        read_share(p, &reading, &n, &s, rank, worker);
        probe_see_wholes(p, probe_name(p, "what worker %d of rank %d reads", worker, rank), reading.answers,
                         reading.count);
    }
}

static void stream_order(probe *p) {
    every_sharing(p, see_order);
    see_far_shares(p, 64, 64);
    see_far_shares(p, 300, 300);
}

/* --- ends ---------------------------------------------------------------------------------------------------------- */

/* One cursor, read in parts: what it returns, what it requests from the stream, and what it leaves unchanged. */
static void see_cursor(probe *p, numbered *n, size_t share, size_t shares, size_t part) {
    enum { ROOM = MOST_BATCH + 1 };
    ls_cursor *cursor;
    probe_must(p, "a cursor", ls_cursor_create(&cursor, &n->base, share, shares));
    ls_status status = LS_OK;
    size_t read = 1;
    for (int i = 0; status == LS_OK && read > 0 && i < MOST_SAMPLES; i++) {
        float inputs[NUMBERED_INPUTS * ROOM] = {0}, targets[ROOM];
        int64_t labels[ROOM];
        for (int k = 0; k < ROOM; k++) labels[k] = -7, targets[k] = -7;
        status = ls_cursor_read(cursor, part, inputs, labels, targets, &read);
        probe_see(p, probe_name(p, "reading %d of share %zu", i, share), "%s, %zu sample%s", ls_status_text(status),
                  read, read == 1 ? "" : "s");
        if (status != LS_OK || read > part) break;
        if (n->base.spec.classes > 0) probe_see_wholes(p, "its labels, and what stands behind them", labels, read + 1);
        probe_see_floats(p, "its targets, and what stands behind them", targets, read + 1);
        probe_see_floats(p, "its inputs, and what stands behind them", inputs, NUMBERED_INPUTS * (read + 1));
    }
    probe_see(p, "how often the stream was asked after its end, or after a failure", "%d",
              atomic_load(&n->asked_too_late));
    if (status == LS_OK) probe_see(p, "samples that were converted", "%d", atomic_load(&n->converted));
    ls_cursor_destroy(cursor);
}

/* `trouble`: the status of reading sample `bad`. */
static void see_end(probe *p, int64_t count, int shares, int64_t bad, ls_status trouble, bool targets) {
    char words[96] = "";
    if (bad >= 0)
        snprintf(words, sizeof words, ", of which number %lld is bad (%s)", (long long)bad, ls_status_text(trouble));
    for (int share = 0; share < shares; share++) {
        numbered n;
        numbered_init(&n, count, targets);
        n.bad = bad;
        n.bad_status = trouble;
        size_t part = 1 + (size_t)probe_draw(p, 3);
        probe_case(p, "%lld sample%s%s%s, share %d of %d, %zu at a time", (long long)count, count == 1 ? "" : "s",
                   targets ? " with targets" : "", words, share, shares, part);
        ls_log_sink before = ls_log_capture((char[256]){0}, 256);
        see_cursor(p, &n, (size_t)share, (size_t)shares, part);
        ls_log_restore(before);
    }
}

/* A stream that cannot be opened: its first batch and all later ones return the reason. */
static void see_no_stream(probe *p, ls_status trouble) {
    numbered n;
    struct sharing s = {.samples = 6, .ranks = 2, .workers = 2, .batch = 2};
    static struct reading reading;
    numbered_init(&n, s.samples, false);
    n.open_status = trouble;
    probe_case(p, "a stream that cannot be opened (%s)", ls_status_text(trouble));
    read_share(p, &reading, &n, &s, 1, 1);
    probe_see(p, "how it ends", "%s after %lld batches", ls_status_text(reading.status), (long long)reading.batches);
}

static void stream_end(probe *p) {
    static const ls_status troubles[] = {LS_ERR_IO,    LS_ERR_NO_MEMORY,   LS_ERR_SYSTEM, LS_ERR_INVALID,
                                         LS_ERR_USAGE, LS_ERR_UNSUPPORTED, LS_ERR_PEER,   LS_ERR_STOPPED};
    for (int shares = 1; shares <= 4; shares++)
        for (int64_t count = 0; count <= 9; count++) see_end(p, count, shares, -1, LS_OK, false);
    for (int shares = 1; shares <= 3; shares++)
        for (int64_t bad = 0; bad < 6; bad++) see_end(p, 6, shares, bad, LS_ERR_FORMAT, false);
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
        see_end(p, 5, 2, 1 + (int64_t)i % 3, troubles[i], false);
        see_no_stream(p, troubles[i]);
    }
    for (int shares = 1; shares <= 3; shares++) see_end(p, 7, shares, -1, LS_OK, true);
    for (int again = 0; again < 4; again++)
        see_end(p, 30 + (int64_t)probe_draw(p, 60), 2 + (int)probe_draw(p, 20), -1, LS_OK, again % 2 > 0);
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"stream-share", stream_share}, {"stream-order", stream_order},
                                         {"stream-end", stream_end},     {"counts", joined_counts},
                                         {"weight", joined_weight},      {"buffers", joined_buffers},
                                         {"trained", joined_trained},    {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
