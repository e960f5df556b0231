/* A rank's memory and communication in ZeRO-3: bytes by formula, parts of parameters, PyTorch's losses, and where a NaN
 * is found. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp_procs/sharded_internal.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/golden_deep.h"
#include "tests/nn/models.h"

static struct plan make(const char *model, int ranks) {
    struct plan plan = job_plan(model, ranks, 24, 96);
    plan.mode = MODE_ZERO3;
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

/* --- memory --------------------------------------------------------------------------------------------------------- */

enum { LINE = 16 }; /* floats of 64 bytes */

/* Floats of a rank's slice of the unit of one layer of an mlp. */
static size_t layer_slice(size_t inputs, size_t outputs, size_t world) {
    size_t unit = LINE * world;
    return ((inputs * outputs + unit - 1) / unit + (outputs + unit - 1) / unit) * LINE;
}

static const size_t sizes[] = {20, 33, 32, 31, 30, 29, 13, 7};
static const char deep[] = "mlp:20,33,32,31,30,29,13,7";
enum { LAYERS = sizeof sizes / sizeof *sizes - 1 };

static void count_memory(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct job job;
    ls_memory_report memory;
    job_open(rank, &job, *plan, NULL);
    size_t world = (size_t)rank->world_size, own = 0, largest = 0, buffers[DDP_MOST_PREFETCHED + 1] = {0}, gathered = 0;
    for (int l = 0; l < LAYERS; l++) {
        size_t slice = layer_slice(sizes[l], sizes[l + 1], world), *buffer = &buffers[l % (1 + plan->prefetch)];
        own += slice;
        if (slice > largest) largest = slice;
        if (slice > *buffer) *buffer = slice;
    }
    for (size_t k = 0; k < COUNT_OF(buffers); k++) gathered += buffers[k] * world;
    size_t element = sizeof(float) + (plan->precision == LS_FP32 ? 0 : 2);
    for (size_t k = 0; k < 2; k++) job_step(rank, &job, k);
    ls_device_memory(job.session.devices[0], &memory);
    CHECK(memory.peak_bytes[LS_MEMORY_PARAMETER] == own * sizeof(float) + gathered * element);
    CHECK(memory.peak_bytes[LS_MEMORY_GRADIENT] == own * sizeof(float));
    CHECK(memory.peak_bytes[LS_MEMORY_BUCKET] <= 3 * largest * world * sizeof(float));
    CHECK(memory.peak_bytes[LS_MEMORY_OPTIMIZER] <= 2 * own * sizeof(float) + 256 + 2 * LAYERS * 64);
    job_close(rank, &job);
}

TEST(a_rank_has_its_slices_and_a_few_units) {
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int half = 0; half < 2; half++) {
            struct plan plan = make(deep, ranks);
            plan.prefetch = ranks % (DDP_MOST_PREFETCHED + 1);
            plan.precision = half ? LS_BF16 : LS_FP32;
            run_training_ranks(ranks, count_memory, &plan);
        }
}

/* Each element belongs to one rank, and padding to none. */
static void read_parts(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct job job;
    job_open(rank, &job, *plan, NULL);
    ls_parameters *all = ls_model_tensors(job.session.model);
    for (size_t p = 0; p < all->count; p++) {
        size_t count = all->tensors[p].count;
        double held = (double)all->parts[p].count;
        float *wanted = calloc(count, sizeof *wanted), *found = calloc(count, sizeof *found);
        CHECK(wanted && found);
        for (size_t i = 0; i < count; i++) wanted[i] = (float)(100 * p + i + 1);
        CHECK(ls_sum_over_ranks(job.session.parallel, &held, 1) == LS_OK && held == (double)count);
        CHECK(ls_parameters_write(all, p, wanted) == LS_OK && ls_parameters_read(all, p, found) == LS_OK);
        CHECK(memcmp(wanted, found, count * sizeof *wanted) == 0);
        free(wanted);
        free(found);
    }
    job_close(rank, &job);
}

TEST(each_element_is_one_ranks) {
    for (int ranks = 1; ranks <= 8; ranks++) {
        struct plan plan = make(deep, ranks);
        run_training_ranks(ranks, read_parts, &plan);
    }
}

/* --- bytes ---------------------------------------------------------------------------------------------------------- */

struct traffic {
    struct plan plan;
    size_t reduced, gathered; /* floats of a step */
};

static void count_traffic(struct rank *rank) {
    const struct traffic *t = rank->argument;
    uint64_t announced[LS_PHASE_COUNT] = {0};
    size_t micro_batches = t->plan.accumulate > 0 ? (size_t)t->plan.accumulate : 1, world = (size_t)rank->world_size;
    ls_comm_traffic before, after;
    struct job job;
    job_open(rank, &job, t->plan, NULL);
    ls_parallel *p = job.session.parallel;
    job_step(rank, &job, 0);
    ls_phase_reset(p->clocks);
    /* an evaluation is not counted */
    (void)ls_model_forward(job.session.model, job.samples.batches[0].inputs, 1, false);
    CHECK(session_synchronize(&job.session) == LS_OK);
    ls_comm_traffic_read(job.plan.groups.job, &before);
    job_step(rank, &job, 1);
    ls_comm_traffic_read(job.plan.groups.job, &after);
    p->mode->count_bytes(p, (struct ls_step_size){t->plan.batch, (int)micro_batches}, 0, announced);
    CHECK(memcmp(announced, p->clocks->bytes, sizeof announced) == 0);
    CHECK(announced[LS_PHASE_GATHER] == t->gathered * sizeof(float));
    CHECK(announced[LS_PHASE_REDUCE] == t->reduced * sizeof(float));
    CHECK(after.sent_bytes - before.sent_bytes ==
          (announced[LS_PHASE_GATHER] + announced[LS_PHASE_REDUCE]) / world * (world - 1));
    job_close(rank, &job);
}

/* Equal units without padding. DDP's all-reduce sends twice what a reduce-scatter does. */
static void expect_gathered(size_t blocks, int prefetch, int every, int accumulate, size_t gathered) {
    static const char all[] = "mlp:64,64,64,64,64,64,64,64,64";
    char model[sizeof all];
    const size_t unit = 64 * 64 + 64;
    memcpy(model, all, sizeof all);
    model[strlen("mlp:64") + blocks * strlen(",64")] = '\0';
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        struct traffic t = {make(model, ranks), blocks * unit * (size_t)accumulate, gathered * unit};
        t.plan.prefetch = prefetch;
        t.plan.every = every;
        t.plan.accumulate = accumulate;
        run_training_ranks(ranks, count_traffic, &t);
    }
}

TEST(a_step_moves_what_it_announces) {
    for (int prefetch = 0; prefetch <= DDP_MOST_PREFETCHED; prefetch++) {
        size_t kept = 1 + (size_t)prefetch;
        expect_gathered(8, prefetch, 0, 1, 8 + 8 - kept);
        expect_gathered(8, prefetch, 0, 3, 8 + 8 - kept + 2 * 2 * (8 - kept));
        expect_gathered(3, prefetch, 0, 1, 3 + 3 - kept); /* an evaluation leaves units that a step has to gather */
    }
    /* segments of two blocks, the last of which stays: with room for one more unit, the second is gathered once for
     * both */
    expect_gathered(8, 0, 2, 1, 8 + 1 + 3 * 3);
    expect_gathered(8, 1, 2, 1, 8 + 3 * 2);
    expect_gathered(8, 2, 2, 1, 8 + 3 * 2 - 1);
}

/* Blocks 2 and 4 read block 1's weight, and have a bias each. Units with a weight and units without that are gathered in the first
 * micro-batch, and in each that follows. */
TEST(a_unit_that_other_blocks_read_is_gathered_once) {
    static const struct {
        size_t weights, biases;
    } gathered[DDP_MOST_PREFETCHED + 1][2] = {{{5, 3}, {3, 3}}, {{4, 3}, {1, 3}}, {{4, 2}, {2, 0}}};
    ls_network *network = tied_blocks(1, 1);
    for (int prefetch = 0; prefetch <= DDP_MOST_PREFETCHED; prefetch++)
        for (size_t more = 0; more <= 2; more++)
            for (int ranks = 2; ranks <= 4; ranks += 2) {
                size_t bias = LINE * (size_t)ranks, weight = (36 + bias - 1) / bias * bias + bias;
                struct traffic t = {.plan = make(NULL, ranks), .reduced = (3 * weight + 2 * bias) * (1 + more)};
                t.plan.network = network;
                t.plan.prefetch = prefetch;
                t.plan.accumulate = 1 + (int)more;
                t.gathered = gathered[prefetch][0].weights * weight + gathered[prefetch][0].biases * bias;
                t.gathered += more * (gathered[prefetch][1].weights * weight + gathered[prefetch][1].biases * bias);
                run_training_ranks(ranks, count_traffic, &t);
            }
    ls_network_destroy(network);
}

/* --- PyTorch's FSDP -------------------------------------------------------------------------------------------------- */

/* Norm of the gradients of all ranks together, whose padding is zero. */
static double norm_of(struct rank *rank, ls_parallel *p) {
    const struct sharded *s = sharded_of(p);
    double squares = 0;
    for (size_t b = 0; b < s->ddp.reducer->bucket_count; b++) {
        const float *slice = s->shard + s->turns[b].begin;
        for (size_t i = 0; i < slice_of(s, s->ddp.reducer->buckets[b].count); i++)
            squares += (double)slice[i] * (double)slice[i];
    }
    CHECK(ls_sum_over_ranks(p, &squares, 1) == LS_OK);
    return sqrt(squares);
}

static void run_golden(struct rank *rank) {
    const struct golden_deep *run = rank->argument;
    struct job job;
    golden_deep_open(rank, &job, run);
    ls_parallel *p = job.session.parallel;
    for (size_t k = 0; k < run->plan.steps; k++) {
        job_gradients(rank, &job, k);
        if (!run->scales || k < 2)
            golden_deep_expect(rank, "the norm", k, norm_of(rank, p), run->norms[k], 1e-4 * run->norms[k]);
        CHECK(ls_step_update(p) == LS_OK && session_synchronize(&job.session) == LS_OK);
        golden_deep_expect_loss(rank, &job, run, p->step++);
    }
    job_close(rank, &job);
}

/* Norms are compared with DDP's; PyTorch sums them with fewer roundings. With larger weights, after two steps they
 * depend on the last bits of the weights. */
TEST(losses_and_norms_are_fsdps) {
    cJSON *golden = golden_json("fsdp2_deep.json"), *runs = cJSON_GetObjectItem(golden, "runs");
    for (int scales = 0; scales < 2; scales++) {
        const cJSON *expected =
            cJSON_GetObjectItem(cJSON_GetObjectItem(runs, scales ? "he_sgd" : "adam"), scales ? "W4" : "W2");
        struct golden_deep run =
            golden_deep_make(MODE_ZERO3, scales ? 4 : 2, scales, cJSON_GetObjectItem(expected, "fsdp2_loss"));
        run.plan.prefetch = 1;
        golden_deep_read(cJSON_GetObjectItem(expected, "grad_norm_ddp"), run.norms);
        run_training_ranks(run.plan.devices, run_golden, &run);
    }
    cJSON_Delete(golden);
}

/* --- values that are not finite ----------------------------------------------------------------------------------- */

/* In the slices of the last rank only: every rank's message names the parameter. */
static void lose_a_value(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct job job;
    job_open(rank, &job, *plan, NULL);
    job.session.parallel->check_each_loss = true;
    ls_parameters *all = ls_model_tensors(job.session.model);
    for (size_t k = 0; k < 2; k++) {
        ls_status status = session_step(&job.session, &job.samples.batches[k]);
        CHECK(k == 0 ? status == LS_OK : status == LS_ERR_DIVERGED || status == LS_ERR_PEER);
        for (size_t p = 4; p < 8; p++) /* the third and fourth layers' weights and biases */
            if (k == 0 && rank->rank == rank->world_size - 1 && all->parts[p].count > 0) all->parts[p].values[0] = NAN;
    }
    CHECK(strstr(rank->message, "step 1 (epoch 0): the loss is nan"));
    CHECK(strstr(rank->message, "is in parameter fc3.weight;"));
    (void)session_synchronize(&job.session);
    exit(0);
}

TEST(a_nan_in_a_slice_names_the_parameter) {
    for (int prefetch = 0; prefetch < 2; prefetch++)
        for (int every = 0; every <= 2; every += 2) {
            struct plan plan = make(deep, 3);
            plan.prefetch = prefetch;
            plan.every = every;
            run_training_ranks(3, lose_a_value, &plan);
        }
}

/* One rank's batch is not finite. The others have finite values, and are in their backward when that rank searches for
 * the cause. */
static void lose_a_sample(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct job job;
    job_open(rank, &job, *plan, NULL);
    job.session.parallel->check_each_loss = true;
    job_step(rank, &job, 0);
    if (rank->rank == 1) ((float *)(uintptr_t)job.samples.batches[1].inputs)[3] = INFINITY;
    ls_status status = session_step(&job.session, &job.samples.batches[1]);
    if (status == LS_OK) status = session_synchronize(&job.session);
    CHECK(rank->rank == 1 ? status == LS_ERR_DIVERGED : status == LS_ERR_PEER);
    CHECK(strstr(rank->message, "is in the input batch on rank 1;"));
    exit(0);
}

TEST(a_bad_sample_is_one_ranks) {
    struct plan plan = make(deep, 3);
    run_training_ranks(3, lose_a_sample, &plan);
}
