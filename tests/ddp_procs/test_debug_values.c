/* --debug-values: eight bugs, none of which stops training without it, are found by tensor, axis and place; and correct
 * runs pass, with the same bits. Each bug is planted into a rank that has been set up correctly. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/comm/values.h"
#include "common/nn/network_internal.h"
#include "ddp_procs/pipeline_internal.h"
#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/job.h"
#include "tests/parallel/gpt_tiny.h"

enum { STEPS = 3 };

/* A bug. `found`: texts of the message, up to a NULL. */
struct bug {
    struct plan plan;
    void (*plant)(struct rank *rank, struct job *job);
    const char *found[5];
};

/* Memory that the ranks share. */
struct scene {
    struct bug bug;
    bool checks;
    atomic_int failed; /* ranks that have found it */
};

static ls_network *network_of(struct job *job) { return (ls_network *)(uintptr_t)ls_model_network(job->session.model); }

static void check_values(struct rank *rank, const struct job *job) {
    const struct plan_groups *g = &job->plan.groups;
    const ls_parallel *p = job->session.parallel;
    ls_comm *groups[LS_MESH_AXES] = {[LS_MESH_DATA] = g->job};
    int sizes[LS_MESH_AXES] = {1, p->data_size, 1};
    for (int a = 0; g->mesh.job && a < LS_MESH_AXES; a++) {
        groups[a] = g->mesh.axis[a];
        sizes[a] = ls_comm_world_size(groups[a]);
    }
    CHECK(ls_values_begin(sizes, groups) == LS_OK);
}

/* Waits until all ranks have failed, since the others would report a rank that leaves. */
static void await_all(struct scene *scene, int ranks) {
    atomic_fetch_add(&scene->failed, 1);
    for (int i = 0; i < 2000 && atomic_load(&scene->failed) < ranks; i++)
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
}

static void steps_rank(struct rank *rank) {
    struct scene *scene = (struct scene *)(uintptr_t)rank->argument;
    const struct bug *bug = &scene->bug;
    struct job job;
    ls_status status = LS_OK;
    job_open(rank, &job, bug->plan, NULL);
    bug->plant(rank, &job);
    if (scene->checks) check_values(rank, &job);
    for (size_t k = 0; k < STEPS && status == LS_OK; k++) {
        status = session_step(&job.session, &job.samples.batches[k]);
        if (status == LS_OK) status = session_synchronize(&job.session);
    }
    CHECK(status == (scene->checks ? LS_ERR_INVALID : LS_OK));
    for (int i = 0; scene->checks && bug->found[i]; i++) CHECK(strstr(rank->message, bug->found[i]));
    if (scene->checks) await_all(scene, rank->world_size);
    _exit(0); /* planted bugs are not removed */
}

/* No rank fails without the labels; with them every rank does. */
static void expect_found(const struct bug *bug) {
    struct scene *scene = shared_alloc(sizeof *scene);
    assert_non_null(scene);
    scene->bug = *bug;
    for (int checks = 0; checks < 2; checks++) {
        scene->checks = checks;
        run_training_ranks(bug->plan.devices, steps_rank, scene);
    }
    shared_free(scene, sizeof *scene);
}

/* Two replicas of a GPT, each shared by two ranks. */
static struct plan shared_gpt(bool sequence) {
    struct plan plan = gpt_tiny_plan(gpt_tiny_text());
    plan.mode = MODE_TENSOR;
    plan.devices = 4;
    plan.parts = 2;
    plan.sequence = sequence;
    plan.steps = STEPS;
    return plan;
}

static struct plan shared_convnet(void) {
    struct plan plan = job_plan("convnet", 4, 12, 48);
    plan.mode = MODE_TENSOR;
    plan.parts = 2;
    plan.steps = STEPS;
    return plan;
}

/* --- the eight bugs ----------------------------------------------------------------------------------------------- */

static void swap_f_and_g(struct rank *rank, struct job *job) {
    (void)rank;
    ls_network *network = network_of(job);
    for (size_t l = 0; l < network->layer_count; l++) {
        ls_layer *layer = &network->layers[l];
        bool f = layer->kind == &ls_tensor_f, g = layer->kind == &ls_tensor_g && layer->units > 0;
        if (f || g) layer->kind = f ? &ls_tensor_g : &ls_tensor_f;
    }
}

TEST_IN(scratch, f_and_g_swapped) {
    expect_found(
        &(struct bug){.plan = shared_gpt(false),
                      .plant = swap_f_and_g,
                      .found = {"the output of transformer.h.0.ln_1, tensor axis, block 1, forward: found replicated",
                                "all_reduce"}});
}

/* Each rank's term has the bias, and g has none. */
static void add_bias_everywhere(struct rank *rank, struct job *job) {
    (void)rank;
    ls_network *network = network_of(job);
    for (size_t l = 0; l + 1 < network->layer_count; l++) {
        ls_layer *layer = &network->layers[l], *g = layer + 1;
        if (layer->cut != LS_CUT_INPUTS || layer->kind != &ls_head || g->units == 0) continue;
        layer->kind = &ls_linear;
        layer->parameters[1] = g->parameters[0];
        layer->parameter_numbers[1] = g->parameter_numbers[0];
        layer->writes_gradient[1] = layer->completes_gradient[1] = true;
        layer->parameter_count = 2;
        g->parameter_count = 0;
        g->units = 0;
    }
}

TEST_IN(scratch, a_bias_on_every_rank) {
    expect_found(&(struct bug){.plan = shared_gpt(false),
                               .plant = add_bias_everywhere,
                               .found = {"transformer.h.0.attn.c_proj, tensor axis, block 1, forward: found partial",
                                         "transformer.h.0.attn.c_proj.bias"}});
}

static void leave_norms_partial(struct rank *rank, struct job *job) {
    (void)rank;
    ls_network *network = network_of(job);
    for (size_t l = 0; l < network->layer_count; l++)
        if (network->layers[l].kind == &ls_layernorm_part) network->layers[l].kind = &ls_layernorm;
}

TEST_IN(scratch, a_norms_gradient_left_partial) {
    expect_found(
        &(struct bug){.plan = shared_gpt(true),
                      .plant = leave_norms_partial,
                      .found = {"the gradient of transformer.h.0.ln_1.weight, tensor axis, update: found partial"}});
}

/* Half of the sum over all four ranks, instead of the sum over two replicas. */
static ls_status sum_over_the_world(void *context, size_t bucket, ls_stream *stream, void *values, size_t count,
                                    ls_dtype dtype) {
    (void)bucket;
    ls_scale(stream, values, 0.5f, count);
    return ls_comm_all_reduce(context, stream, values, count, dtype, LS_REDUCE_SUM);
}

static void average_over_the_world(struct rank *rank, struct job *job) {
    (void)rank;
    ddp_reducer *r = reducer_of(job->session.parallel);
    r->options.reduce = sum_over_the_world;
    r->options.context = job->plan.groups.job;
}

TEST_IN(scratch, a_mean_over_the_whole_world) {
    expect_found(&(struct bug){.plan = shared_gpt(false),
                               .plant = average_over_the_world,
                               .found = {"the gradient of transformer.", ", tensor axis, block ", "backward: found ",
                                         "all_reduce in group group0"}});
}

/* The copy of the embedding gets no new values, and its gradient is added to nothing. */
static void let_copies_drift(struct rank *rank, struct job *job) {
    (void)rank;
    struct ddp_tie *tie = &pipeline_of(job->session.parallel)->stage->tie;
    tie->owner = tie->reader = -1;
}

TEST_IN(scratch, embedding_copies_that_drift) {
    struct plan plan = gpt_tiny_plan(gpt_tiny_text());
    plan.mode = MODE_PIPELINE;
    plan.devices = plan.parts = 2;
    plan.steps = STEPS;
    expect_found(
        &(struct bug){.plan = plan,
                      .plant = let_copies_drift,
                      .found = {"transformer.wte.weight, pipeline axis, after the update: expected replicated, but "
                                "rank 1 has other bits than rank 0"}});
}

static void count_all_ranks(struct rank *rank, struct job *job) {
    samples_free(&job->samples);
    CHECK(samples_make(&job->samples, &job->plan, job->session.model, rank->rank, rank->world_size));
}

TEST_IN(scratch, a_sampler_that_counts_all_ranks) {
    expect_found(
        &(struct bug){.plan = shared_gpt(false),
                      .plant = count_all_ranks,
                      .found = {"the inputs of micro-batch 0, tensor axis, after the update: expected replicated"}});
}

static void normalize_over_the_world(struct rank *rank, struct job *job) {
    CHECK(ls_model_sync_batchnorm(job->session.model, job->plan.groups.job) == LS_OK);
}

TEST(batch_norm_in_the_wrong_group) {
    expect_found(&(struct bug){
        .plan = shared_convnet(),
        .plant = normalize_over_the_world,
        .found = {"the statistics of bn2, tensor axis, block 1, forward: found replicated", "all_gather"}});
}

/* An optimizer that ignores the other parts of the network. */
static void clip_by_own_norm(struct rank *rank, struct job *job) {
    ls_parallel *p = job->session.parallel;
    size_t count = ls_model_parameter_count(p->model);
    ls_optimizer_range *ranges = calloc(count, sizeof *ranges);
    CHECK(ranges != NULL);
    for (size_t i = 0; i < count; i++)
        ranges[i] = (ls_optimizer_range){.tensor = ls_model_parameter(p->model, i),
                                         .count = ls_model_parameter(p->model, i)->count};
    ls_optimizer_destroy(p->optimizer);
    CHECK(ls_optimizer_create_of(&p->optimizer, p->devices[0], ranges, count, NULL, &job->plan.optimizer) == LS_OK);
    free(ranges);
}

TEST_IN(scratch, clipping_by_a_shards_norm) {
    struct plan plan = shared_gpt(false);
    plan.optimizer.clip_norm = 0.5;
    expect_found(
        &(struct bug){.plan = plan,
                      .plant = clip_by_own_norm,
                      .found = {"the square sum of the gradients, tensor axis, update: found partial", "clipping"}});
}

/* --- correct runs ------------------------------------------------------------------------------------------------- */

static const struct good {
    enum mode mode;
    int devices, parts, accumulate;
    bool sequence, sync_bn, convnet, sharded;
    double clip_norm, bucket_cap_mb;
} good_runs[] = {
    {.mode = MODE_DDP, .devices = 2, .convnet = true, .sync_bn = true},
    {.mode = MODE_DDP, .devices = 3, .accumulate = 2, .clip_norm = 0.5},
    {.mode = MODE_ZERO1, .devices = 2, .clip_norm = 0.5},
    {.mode = MODE_ZERO1, .devices = 4, .convnet = true, .bucket_cap_mb = 0.001}, /* slices that consist of padding */
    {.mode = MODE_ZERO2, .devices = 2, .accumulate = 2},
    {.mode = MODE_ZERO3, .devices = 2},
    {.mode = MODE_PIPELINE, .devices = 4, .parts = 2, .accumulate = 2, .clip_norm = 0.5},
    {.mode = MODE_PIPELINE, .devices = 4, .parts = 2, .sharded = true},
    {.mode = MODE_TENSOR, .devices = 4, .parts = 2, .clip_norm = 0.5},
    {.mode = MODE_TENSOR, .devices = 4, .parts = 2, .sequence = true, .accumulate = 2},
    {.mode = MODE_TENSOR, .devices = 4, .parts = 2, .convnet = true, .sync_bn = true},
};

struct hashes {
    bool checks;
    struct plan plan;
    uint64_t weights[MAX_RANKS];
};

static void good_rank(struct rank *rank) {
    struct hashes *shared = (struct hashes *)(uintptr_t)rank->argument;
    struct job job;
    uint64_t weights, state;
    job_open(rank, &job, shared->plan, NULL);
    if (shared->checks) check_values(rank, &job);
    for (size_t k = 0; k < STEPS; k++) job_step(rank, &job, k);
    CHECK(session_hash(&job.session, &weights, &state) == LS_OK);
    if (shared->checks) CHECK(weights == shared->weights[rank->rank]);
    shared->weights[rank->rank] = weights;
    ls_values_end();
    job_close(rank, &job);
}

TEST_IN(scratch, good_runs_pass_with_the_same_bits) {
    struct hashes *shared = shared_alloc(sizeof *shared);
    assert_non_null(shared);
    for (size_t i = 0; i < COUNT_OF(good_runs); i++) {
        const struct good *good = &good_runs[i];
        shared->plan = good->convnet ? shared_convnet() : gpt_tiny_plan(gpt_tiny_text());
        shared->plan.mode = good->mode;
        shared->plan.devices = good->devices;
        shared->plan.parts = good->parts;
        shared->plan.accumulate = good->accumulate;
        shared->plan.sequence = good->sequence;
        shared->plan.sync_bn = good->sync_bn;
        shared->plan.sharded = good->sharded;
        shared->plan.steps = STEPS;
        shared->plan.bucket_cap_mb = good->bucket_cap_mb;
        shared->plan.optimizer.clip_norm = good->clip_norm;
        for (int checks = 0; checks < 2; checks++) {
            shared->checks = checks;
            run_training_ranks(good->devices, good_rank, shared);
        }
    }
    shared_free(shared, sizeof *shared);
}
