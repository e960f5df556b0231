/* Tests lab 19's units: each rank's part of each parameter, its gathers, their order, its waits, and training. */
#include <stdio.h>
#include <stdlib.h>

#include "common/nn/model.h"
#include "common/seam/step.h"
#include "ddp_procs/sharded.h"
#include "ddp_procs/units_internal.h"
#include "labs/19-fsdp/run.h"
#include "labs/course/probe/crew.h"

static const int world_sizes[] = {1, 2, 3, 5, 8};
#define WORLD_SIZES (sizeof world_sizes / sizeof *world_sizes)

static void *ask(probe *p, size_t nbytes) {
    void *zeros = calloc(1, nbytes);
    if (zeros) return zeros;
    probe_must(p, "memory", LS_ERR_NO_MEMORY);
    abort(); /* it has ended the probe */
}

/* --- a rank's parts ------------------------------------------------------------------------------------------------- */

enum { MOST_PARTS = 16 };

struct parts {
    const ls_network *network;
    int prefetch;
    ls_comm *beside[MOST_RANKS];
    int64_t rows[MOST_RANKS][3 * MOST_PARTS];
    size_t count;
    uint64_t step_nbytes[3];
};

static ls_status read_parts(crew_rank *c) {
    struct parts *parts = c->argument;
    struct ls_phase_clock clock;
    ls_model *model = NULL;
    ddp_units *units = NULL;
    ls_status status = ls_device_bind_thread(c->device);
    ls_phase_begin(&clock, c->device);
    if (status == LS_OK) status = ls_model_create_segments_of(&model, c->device, parts->network, 1, LS_FP32, 0, true);
    if (status == LS_OK)
        status = ddp_units_create(&units, c->comm, parts->beside[c->rank], model, &clock, parts->prefetch);
    for (size_t p = 0; status == LS_OK && p < units->parameters->count && p < MOST_PARTS; p++) {
        const struct ls_part *part = &units->parts[p];
        int64_t *row = parts->rows[c->rank] + 3 * p;
        row[0] = part->count > 0 ? (int64_t)part->first : -1;
        row[1] = (int64_t)part->count;
        row[2] = part->count > 0 ? (int64_t)(part->values - units->slices) : -1;
        if (c->rank == 0) parts->count = p + 1;
    }
    for (int k = 0; status == LS_OK && c->rank == 0 && k < 3; k++)
        parts->step_nbytes[k] = ddp_units_step_nbytes(units, k + 1);
    ddp_units_destroy(units);
    ls_model_destroy(model);
    return status;
}

static struct parts *open_parts(probe *p, const ls_network *network, int ranks, int prefetch) {
    struct parts *parts = ask(p, sizeof *parts);
    ls_comm_options beside = {.world_size = ranks, .timeout_s = CREW_TIMEOUT_S, .allreduce = "direct"};
    parts->network = network;
    parts->prefetch = prefetch;
    probe_must(p, "a group", ls_comm_create_threads(parts->beside, &beside));
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    probe_must(p, "the ranks", crew_run(ranks, "direct", "inline", read_parts, parts));
    for (int r = 0; r < ranks; r++) ls_comm_destroy(parts->beside[r]);
    return parts;
}

static void see_parts(probe *p, const ls_network *network, const char *name, int ranks) {
    probe_case(p, "W = %d, %s", ranks, name);
    struct parts *parts = open_parts(p, network, ranks, 1);
    for (size_t i = 0; i < parts->count; i++)
        for (int r = 0; r < ranks; r++)
            probe_see_wholes(
                p, probe_name(p, "rank %d, parameter %zu: first, count, and where among the rank's slices", r, i),
                parts->rows[r] + 3 * i, 3);
    free(parts);
}

static void parts(probe *p) {
    static const char large[] = "mlp:12,6000,5"; /* more than 16 bits count */
    ls_network *network;
    for (size_t n = 0; n < WORLD_SIZES; n++)
        for (int net = 0; net < NETS; net++) {
            network = net_create(p, (enum net)net);
            see_parts(p, network, net_name((enum net)net), world_sizes[n]);
            ls_network_destroy(network);
        }
    probe_must(p, "a network", ls_network_create(&network, large));
    see_parts(p, network, large, 3);
    ls_network_destroy(network);
}

/* --- passes --------------------------------------------------------------------------------------------------------- */

/* A step of two micro-batches; then an update, an evaluation, and a step; then an update and a step. */
static void set_passes(struct run *run) {
    static const enum pass passes[] = {PASS_STEP, PASS_STEP, PASS_EVALUATION, PASS_STEP, PASS_EVALUATION, PASS_STEP};
    static const bool updates[] = {false, false, true, false, false, true};
    run->pass_count = (int)(sizeof passes / sizeof *passes);
    for (int i = 0; i < run->pass_count; i++) {
        run->passes[i] = passes[i];
        run->updates[i] = updates[i];
    }
}

static struct run *open_run(probe *p, enum net net, int ranks, int prefetch, int every) {
    struct run *run = ask(p, sizeof *run);
    run->net = net;
    run->ranks = ranks;
    run->prefetch = prefetch;
    run->every = every;
    set_passes(run);
    return run;
}

static void begin(probe *p, const struct run *run) {
    char segments[40] = "";
    if (run->every > 0) snprintf(segments, sizeof segments, ", %d a segment", run->every);
    probe_case(p, "W = %d, %s, %d blocks%s, %d prefetched, %s", run->ranks, net_name(run->net), net_blocks(run->net),
               segments, run->prefetch, ls_dtype_name(run->precision));
}

static const char *name_pass(const struct run *run, int i) {
    static _Thread_local char name[80];
    snprintf(name, sizeof name, "pass %d (%s%s)", i, run->updates[i] ? "behind an update: " : "",
             run->passes[i] == PASS_STEP ? "a step" : "an evaluation");
    return name;
}

static void expect_well(probe *p, const struct run *run) {
    for (int r = 0; r < run->ranks; r++) probe_must(p, probe_name(p, "rank %d", r), run->rank[r].status);
}

static void run_well(probe *p, struct run *run) {
    run_all(p, run);
    expect_well(p, run);
}

/* Calls `see` for each pass on each rank of each run: all numbers of ranks, of prefetched units, and of blocks in a segment. */
static void each_pass(probe *p, void (*change)(struct run *run),
                      void (*see)(probe *p, const struct run *run, int rank, int pass)) {
    for (size_t n = 0; n < WORLD_SIZES; n++)
        for (int net = 0; net < NETS; net++)
            for (int prefetch = 0; prefetch <= DDP_MOST_PREFETCHED; prefetch++)
                for (int every = 0; every <= 2; every++) {
                    if (world_sizes[n] > 2 && (every + prefetch + net) % 3 != 1) continue;
                    struct run *run = open_run(p, (enum net)net, world_sizes[n], prefetch, every);
                    if (change) change(run);
                    begin(p, run);
                    run_all(p, run);
                    for (int i = 0; i < run->pass_count; i++)
                        for (int r = 0; r < run->ranks; r++) see(p, run, r, i);
                    expect_well(p, run);
                    run_release(run);
                    free(run);
                }
}

static void see_order(probe *p, const struct run *run, int rank, int pass) {
    probe_see(p, probe_name(p, "rank %d's gathers () and blocks, %s", rank, name_pass(run, pass)), "%s",
              run->rank[rank].passes[pass].order);
}

static void order(probe *p) { each_pass(p, NULL, see_order); }

/* The bytes that a step is expected to communicate, and those that it does. */
static void bytes(probe *p) {
    for (int net = 0; net < NETS; net++)
        for (int ranks = 1; ranks <= 3; ranks++)
            for (int prefetch = 0; prefetch <= DDP_MOST_PREFETCHED; prefetch++) {
                ls_network *network = net_create(p, (enum net)net);
                probe_case(p, "W = %d, %s, %d prefetched", ranks, net_name((enum net)net), prefetch);
                struct parts *parts = open_parts(p, network, ranks, prefetch);
                for (int k = 0; k < 3; k++)
                    probe_see_count(p, probe_name(p, "bytes that a step of %d micro-batches gathers", k + 1),
                                    parts->step_nbytes[k]);
                free(parts);
                ls_network_destroy(network);
                struct run *run = open_run(p, (enum net)net, ranks, prefetch, 0);
                run_well(p, run);
                for (int i = 0; i < run->pass_count; i++)
                    probe_see_count(p, probe_name(p, "bytes on the clock, %s", name_pass(run, i)),
                                    run->rank[0].passes[i].nbytes);
                run_release(run);
                free(run);
            }
}

static void look(struct run *run) { run->looks = true; }

/* Each pass is checked on one rank only, since all have the same values, and with short segments only, since there are
 * many cases. */
static void see_values(probe *p, const struct run *run, int rank, int pass) {
    const struct seen_pass *seen = &run->rank[rank].passes[pass];
    if (rank != pass % run->ranks || run->every > 1) return;
    for (int f = 0; f < seen->found_count; f++)
        if (seen->found[f].values)
            probe_see_floats(p,
                             probe_name(p, "rank %d, %s, visit %d: parameters of block %d", rank, name_pass(run, pass),
                                        f, seen->found[f].block),
                             seen->found[f].values, seen->found[f].count);
}

static void values(probe *p) { each_pass(p, look, see_values); }

static void see_waits(probe *p, const struct run *run, int rank, int pass) {
    probe_see(p, probe_name(p, "rank %d's gathers () and blocks, %s", rank, name_pass(run, pass)), "%s",
              run->rank[rank].passes[pass].waits);
}

static void waits(probe *p) { each_pass(p, NULL, see_waits); }

static void see_overlap(probe *p, const struct run *run, int rank, int pass) {
    probe_see(p, probe_name(p, "rank %d's gathers () and blocks, %s", rank, name_pass(run, pass)), "%s",
              run->rank[rank].passes[pass].overlap);
}

static void overlap(probe *p) { each_pass(p, NULL, see_overlap); }

static void see_results(probe *p, const struct run *run) {
    for (int r = 0; r < run->ranks; r++)
        for (int i = 0; i < run->pass_count; i++) {
            const struct seen_pass *seen = &run->rank[r].passes[i];
            probe_see_floats(p, probe_name(p, "rank %d's outputs, %s", r, name_pass(run, i)), seen->y,
                             MOST_ROWS * MOST_OUTPUTS);
            if (seen->gradients)
                probe_see_floats(p, probe_name(p, "rank %d's gradients, %s", r, name_pass(run, i)), seen->gradients,
                                 run->rank[r].gradient_count);
        }
}

static void halves(probe *p) {
    for (int precision = LS_FP16; precision <= LS_BF16; precision++)
        for (int net = 0; net < NETS; net++)
            for (int prefetch = 0; prefetch <= DDP_MOST_PREFETCHED; prefetch++) {
                struct run *run = open_run(p, (enum net)net, 1 + prefetch, prefetch, prefetch);
                run->precision = (ls_dtype)precision;
                begin(p, run);
                run_well(p, run);
                see_results(p, run);
                run_release(run);
                free(run);
            }
}

static void shuffled(probe *p) {
    enum { SEEDS = 3 };
    for (int net = 0; net < NETS; net++)
        for (int prefetch = 0; prefetch <= DDP_MOST_PREFETCHED; prefetch++)
            for (int seed = 0; seed < SEEDS; seed++) {
                char streams[40];
                snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
                struct run *run = open_run(p, (enum net)net, 1 + seed, prefetch, prefetch);
                run->streams = streams;
                run->precision = seed == 2 ? LS_BF16 : LS_FP32;
                probe_case(p, "W = %d, %s, %d prefetched, %s, streams %s", run->ranks, net_name(run->net), prefetch,
                           ls_dtype_name(run->precision), streams);
                run_well(p, run);
                see_results(p, run);
                run_release(run);
                free(run);
            }
}

/* --- training ------------------------------------------------------------------------------------------------------- */

enum { STEPS = 4 };

struct training {
    const ls_network *network;
    int ranks, prefetch, every, accumulate;
    ls_optimizer_kind rule;
    uint64_t seed;
    ls_comm *beside[MOST_RANKS];
    float x[STEPS][MOST_RANKS][MOST_ROWS * MOST_INPUTS];
    int64_t labels[STEPS][MOST_RANKS][MOST_ROWS];
    float trained[MOST_RANKS][MOST_FLOATS], losses[MOST_RANKS][STEPS];
    size_t count[MOST_RANKS];
};

static ls_status open_zero3(ls_parallel **out, ls_model **model, const struct training *t, const crew_rank *c) {
    ddp_options options = {.comm = c->comm,
                           .shards = t->beside[c->rank],
                           .prefetch_blocks = t->prefetch,
                           .max_batch = MOST_ROWS,
                           .optimizer = ls_optimizer_defaults(t->rule),
                           .reducer = {.bucket_cap_mb = 1, .overlap = true}};
    options.optimizer.learning_rate = 0.05;
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK)
        status = ls_model_create_segments_of(model, c->device, t->network, MOST_ROWS, LS_FP32, t->every, true);
    if (status == LS_OK) status = ddp_create_zero3(out, *model, &options);
    if (status == LS_OK) (*out)->micro_batches = t->accumulate;
    return status == LS_OK ? ls_model_init(*model, t->seed) : status;
}

static ls_status read_trained(struct training *t, const ls_model *model, int rank) {
    const ls_parameters *all = ls_model_tensors(model);
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < all->count; i++) {
        if (t->count[rank] + all->tensors[i].count > MOST_FLOATS) return LS_ERR_NO_MEMORY;
        status = ls_parameters_read(all, i, t->trained[rank] + t->count[rank]);
        t->count[rank] += all->tensors[i].count;
    }
    return status;
}

static ls_status train(crew_rank *c) {
    struct training *t = c->argument;
    ls_parallel *parallel = NULL;
    ls_model *model = NULL;
    ls_status status = open_zero3(&parallel, &model, t, c);
    for (int s = 0; status == LS_OK && s < STEPS; s++) {
        ls_batch batch = {.inputs = t->x[s][c->rank],
                          .labels = t->labels[s][c->rank],
                          .count = MOST_ROWS,
                          .global_count = (size_t)(MOST_ROWS * t->ranks)};
        parallel->step = (uint64_t)s;
        status = ls_step(parallel, &batch);
    }
    ls_status done = ls_device_synchronize(c->device);
    if (status == LS_OK) status = done;
    if (status == LS_OK) status = read_trained(t, model, c->rank);
    for (int s = 0; status == LS_OK && s < STEPS; s++) t->losses[c->rank][s] = parallel->losses[s];
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    return status;
}

static void train_case(probe *p, enum net net, const struct training *wanted, const char *streams) {
    struct training *t = ask(p, sizeof *t);
    ls_network *network = net_create(p, net);
    ls_comm_options beside = {.world_size = wanted->ranks, .timeout_s = CREW_TIMEOUT_S, .allreduce = "direct"};
    *t = *wanted;
    t->network = network;
    t->seed = probe_draw(p, 1000000);
    for (int s = 0; s < STEPS; s++)
        for (int r = 0; r < t->ranks; r++) {
            probe_draw_floats(p, t->x[s][r], MOST_ROWS * MOST_INPUTS);
            for (int i = 0; i < MOST_ROWS; i++) t->labels[s][r][i] = (int64_t)probe_draw(p, MOST_OUTPUTS);
        }
    probe_case(p, "W = %d, %s, %d prefetched, %d micro-batch%s, streams %s", t->ranks, net_name(net), t->prefetch,
               t->accumulate, t->accumulate > 1 ? "es" : "", streams);
    probe_must(p, "a group", ls_comm_create_threads(t->beside, &beside));
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    probe_must(p, "the ranks", crew_run(t->ranks, "direct", streams, train, t));
    for (int r = 0; r < t->ranks; r++) {
        probe_see_floats(p, probe_name(p, "losses of rank %d", r), t->losses[r], STEPS);
        probe_see_floats(p, probe_name(p, "trained weights, read on rank %d", r), t->trained[r], t->count[r]);
        ls_comm_destroy(t->beside[r]);
    }
    ls_network_destroy(network);
    free(t);
}

static void trained(probe *p) {
    for (size_t n = 0; n < WORLD_SIZES; n++)
        for (int prefetch = 0; prefetch <= DDP_MOST_PREFETCHED; prefetch++) {
            struct training *t = ask(p, sizeof *t);
            char streams[40];
            t->ranks = world_sizes[n];
            t->prefetch = t->every = prefetch;
            t->accumulate = 1 + (int)(n % 2);
            t->rule = prefetch == 1 ? LS_ADAM : LS_SGD;
            snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            train_case(p, (enum net)(prefetch % NETS), t, "inline");
            if (world_sizes[n] <= 3) train_case(p, NET_LINEAR, t, streams);
            free(t);
        }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {
        {"parts", parts}, {"order", order},     {"bytes", bytes},       {"values", values},   {"halves", halves},
        {"waits", waits}, {"overlap", overlap}, {"shuffled", shuffled}, {"trained", trained}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
