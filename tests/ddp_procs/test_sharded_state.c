/* A rank's memory and communication in ZeRO-1 or 2: bytes by formula, reuse of buffers, decisions that all ranks share,
 * and checkpoints exchanged with other modes. */
#include <math.h>
#include <string.h>

#include "common/nn/network_internal.h"
#include "common/seam/step.h"
#include "ddp_procs/sharded_internal.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/job.h"
#include "tests/nn/models.h"

static struct plan make(const char *model, enum mode mode, int ranks) {
    struct plan plan = {.mode = mode, .devices = ranks, .model = model, .batch = 24, .steps = 4, .samples = 96};
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    plan.allreduce = "direct";
    plan.bucket_cap_mb = 0.001;
    return plan;
}

static void run_on_ranks(const char *model, enum mode mode, int ranks, void (*body)(struct rank *rank)) {
    struct plan plan = make(model, mode, ranks);
    run_training_ranks(ranks, body, &plan);
}

/* --- memory and bytes ----------------------------------------------------------------------------------------------- */

enum { LINE = 16 }; /* floats of 64 bytes */

static size_t padded(const ls_model *model, size_t unit) {
    size_t floats = 0;
    for (size_t p = 0; p < ls_model_parameter_count(model); p++)
        floats += (ls_model_parameter(model, p)->count + unit - 1) / unit * unit;
    return floats;
}

/* Bytes of Adam's moments, of gradients and of parameters. Apart from moments an optimizer has some hundred bytes a
 * tensor. */
static void count_memory(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct job job;
    ls_memory_report memory;
    job_open(rank, &job, *plan, NULL);
    const struct sharded *s = sharded_of(job.session.parallel);
    const ddp_reducer *r = s->ddp.reducer;
    ls_device_memory(job.session.devices[0], &memory);
    size_t all = padded(job.session.model, LINE * (size_t)rank->world_size) * sizeof(float);
    size_t own = all / (size_t)rank->world_size, beside = 256 + 64 * ls_model_parameter_count(job.session.model);
    double moments = (double)memory.current_bytes[LS_MEMORY_OPTIMIZER], sum = moments;
    CHECK(memory.current_bytes[LS_MEMORY_PARAMETER] == all);
    CHECK(moments <= (double)(2 * own + beside));
    CHECK(ls_sum_over_ranks(job.session.parallel, &sum, 1) == LS_OK);
    CHECK(sum >= 2.0 * sizeof(float) * (double)padded(job.session.model, LINE)); /* each element has an owner */
    bool gradients = plan->mode == MODE_ZERO2;
    CHECK(memory.current_bytes[LS_MEMORY_GRADIENT] == (gradients ? own : 0));
    size_t largest = 0;
    for (size_t b = 0; b < r->bucket_count; b++)
        if (largest < r->buckets[b].count) largest = r->buckets[b].count;
    CHECK(r->bucket_count > 4);
    CHECK(gradients ? memory.current_bytes[LS_MEMORY_BUCKET] <= 3 * largest * sizeof(float)
                    : memory.current_bytes[LS_MEMORY_BUCKET] == all);
    job_close(rank, &job);
}

TEST(a_rank_has_its_share_and_padding) {
    for (int mode = MODE_ZERO1; mode <= MODE_ZERO2; mode++)
        for (int ranks = 1; ranks <= 8; ranks++)
            run_on_ranks("mlp:20,33,32,31,30,29,13,7", (enum mode)mode, ranks, count_memory);
}

static uint64_t step_traffic(struct rank *rank, struct job *job, size_t k) {
    ls_comm_traffic before, after;
    ls_comm_traffic_read(job->plan.groups.job, &before);
    job_step(rank, job, k);
    ls_comm_traffic_read(job->plan.groups.job, &after);
    return after.sent_bytes - before.sent_bytes;
}

/* Tensor sizes that need no padding on 2 and 4 ranks. A step counts the announced bytes. */
static void count_traffic(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct plan ddp_plan = *plan;
    struct job ddp, shards;
    uint64_t announced[LS_PHASE_COUNT] = {0};
    ddp_plan.mode = MODE_DDP;
    job_open(rank, &ddp, ddp_plan, NULL);
    (void)step_traffic(rank, &ddp, 0);
    (void)step_traffic(rank, &ddp, 1); /* with rebuilt buckets, which takes communication */
    uint64_t expected = step_traffic(rank, &ddp, 2);
    job_open(rank, &shards, *plan, ddp.plan.groups.job);
    (void)step_traffic(rank, &shards, 0);
    ls_parallel *p = shards.session.parallel;
    ls_phase_reset(p->clocks);
    CHECK(step_traffic(rank, &shards, 1) == expected);
    p->mode->count_bytes(p, (struct ls_step_size){plan->batch, 1}, 0, announced);
    CHECK(memcmp(announced, p->clocks->bytes, sizeof announced) == 0);
    uint64_t bytes = padded(shards.session.model, LINE) * sizeof(float);
    CHECK(announced[LS_PHASE_REDUCE] == bytes && announced[LS_PHASE_GATHER] == bytes);
    job_close(rank, &shards);
    job_close(rank, &ddp);
}

TEST(a_step_sends_what_an_all_reduce_sends) {
    for (int mode = MODE_ZERO1; mode <= MODE_ZERO2; mode++)
        for (int ranks = 2; ranks <= 4; ranks *= 2)
            run_on_ranks("mlp:64,128,64,64", (enum mode)mode, ranks, count_traffic);
}

/* One message each if buckets and parameters are in the group's memory. Staged data is sent in slices, one message
 * each. */
static void count_messages(struct rank *rank) {
    ls_comm_traffic before, after;
    struct job job;
    job_open(rank, &job, *(const struct plan *)rank->argument, NULL);
    ls_comm_traffic_read(job.plan.groups.job, &before);
    (void)step_traffic(rank, &job, 0);
    ls_comm_traffic_read(job.plan.groups.job, &after);
    CHECK(after.operations - before.operations >= 4);
    CHECK(after.sent_messages - before.sent_messages == after.operations - before.operations);
    job_close(rank, &job);
}

TEST(parameters_are_gathered_where_they_lie) {
    for (int mode = MODE_ZERO1; mode <= MODE_ZERO2; mode++)
        run_on_ranks("mlp:1024,2048,64", (enum mode)mode, 2, count_messages);
}

/* --- shared decisions --------------------------------------------------------------------------------------------- */

/* An infinity in the last rank's slices only: all ranks skip the step, and all halve the scale. */
static void infinite_on_one(struct rank *rank) {
    struct plan plan = *(const struct plan *)rank->argument;
    struct job job;
    struct ls_scaler_state scaler;
    uint64_t before, after, state;
    plan.precision = LS_FP16;
    job_open(rank, &job, plan, NULL);
    CHECK(session_step(&job.session, &job.samples.batches[0]) == LS_OK);
    CHECK(session_hash(&job.session, &before, &state) == LS_OK);
    CHECK(ls_step_gradients(job.session.parallel, &job.samples.batches[1]) == LS_OK);
    CHECK(session_synchronize(&job.session) == LS_OK);
    const ls_optimizer_range *own = ls_optimizer_range_at(job.session.parallel->optimizer, 0);
    if (rank->rank == rank->world_size - 1) {
        CHECK(own->count > 0);
        float *gradient = own->gradient ? own->gradient : own->tensor->gradient + own->first;
        gradient[own->count - 1] = INFINITY;
    }
    CHECK(ls_step_update(job.session.parallel) == LS_OK);
    CHECK(session_hash(&job.session, &after, &state) == LS_OK && after == before);
    CHECK(session_scaler(&job.session, &scaler) == LS_OK && scaler.skipped == 1 && scaler.scale == 32768);
    CHECK(session_step(&job.session, &job.samples.batches[2]) == LS_OK);
    CHECK(session_hash(&job.session, &after, &state) == LS_OK && after != before);
    job_close(rank, &job);
}

TEST(an_infinity_on_one_rank_keeps_all_from_stepping) {
    for (int mode = MODE_ZERO1; mode <= MODE_ZERO2; mode++)
        for (int ranks = 2; ranks <= 3; ranks++) run_on_ranks("mlp:64,64,10", (enum mode)mode, ranks, infinite_on_one);
}

/* Small integers, which no order of summation rounds, show a sum that is taken twice or missing; also where gradients
 * stay local for a while (no_sync), which stage 2 ignores. */
static void add_up(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct plan ddp_plan = *plan;
    struct job ddp, shards;
    uint64_t left = 0, right = 0, state;
    ddp_plan.mode = MODE_DDP;
    job_open(rank, &ddp, ddp_plan, NULL);
    job_open(rank, &shards, *plan, ddp.plan.groups.job);
    for (size_t k = 0; k < plan->steps; k++) {
        ddp.session.parallel->no_sync = shards.session.parallel->no_sync = k % 2 == 0;
        CHECK(ls_step_gradients(ddp.session.parallel, &ddp.samples.batches[k]) == LS_OK);
        CHECK(ls_step_gradients(shards.session.parallel, &shards.samples.batches[k]) == LS_OK);
        if (k % 2 == 0) continue;
        CHECK(ls_step_update(ddp.session.parallel) == LS_OK && ls_step_update(shards.session.parallel) == LS_OK);
        CHECK(session_synchronize(&ddp.session) == LS_OK && session_synchronize(&shards.session) == LS_OK);
        for (size_t p = 0; p < ls_model_parameter_count(ddp.session.model); p++) {
            const struct ls_tensor *a = ls_model_parameter(ddp.session.model, p);
            const struct ls_tensor *b = ls_model_parameter(shards.session.model, p);
            for (size_t i = 0; i < a->count; i++) CHECK(fabsf(a->data[i] - b->data[i]) < 1e-6F);
        }
    }
    CHECK(session_hash(&ddp.session, &left, &state) == LS_OK && session_hash(&shards.session, &right, &state) == LS_OK);
    CHECK(plan->mode == MODE_ZERO2 || left == right);
    job_close(rank, &shards);
    job_close(rank, &ddp);
}

TEST(gradients_that_stay_add_up) {
    for (int mode = MODE_ZERO1; mode <= MODE_ZERO2; mode++)
        for (int ranks = 2; ranks <= 3; ranks++) {
            struct plan plan = make("mlp:20,16,10", (enum mode)mode, ranks);
            plan.optimizer = ls_optimizer_defaults(LS_SGD);
            plan.optimizer.learning_rate = 0.1;
            run_training_ranks(ranks, add_up, &plan);
        }
}

/* --- reuse of buffers --------------------------------------------------------------------------------------------- */

/* Checked layer by layer: from its first gradient to its launch no other bucket uses a bucket's memory. */
static void expect_own_memory(struct rank *rank, const struct sharded *s, const ls_network *network) {
    const ddp_reducer *r = s->ddp.reducer;
    size_t pending[64], launched = 0;
    bool alive[64] = {false};
    CHECK(r->bucket_count <= 64);
    for (size_t b = 0; b < r->bucket_count; b++) pending[b] = r->buckets[b].parameter_count;
    for (size_t l = network->layer_count; l > 0; l--) {
        const ls_layer *layer = &network->layers[l - 1];
        for (size_t p = 0; p < layer->parameter_count; p++)
            if (layer->writes_gradient[p]) alive[r->bucket_of[layer->parameter_numbers[p]]] = true;
        for (size_t a = 0; a < r->bucket_count; a++)
            for (size_t b = 0; b < a; b++) {
                const struct bucket *one = &r->buckets[a], *other = &r->buckets[b];
                CHECK(!alive[a] || !alive[b] || one->at + one->count <= other->at ||
                      other->at + other->count <= one->at);
            }
        for (size_t p = 0; p < layer->parameter_count; p++)
            if (layer->completes_gradient[p]) pending[r->bucket_of[layer->parameter_numbers[p]]]--;
        while (launched < r->bucket_count && pending[launched] == 0) alive[launched++] = false;
    }
    CHECK(launched == r->bucket_count);
}

static void look_at_turns(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct job job;
    job_open(rank, &job, *plan, NULL);
    expect_own_memory(rank, sharded_of(job.session.parallel), ls_model_network(job.session.model));
    job_close(rank, &job);
}

TEST(buckets_that_are_written_have_their_own_memory) {
    ls_network *network = residual_network();
    static const char *const models[] = {"mlp:20,33,32,31,30,29,13,7", "convnet", NULL};
    for (size_t m = 0; m < COUNT_OF(models); m++) {
        struct plan plan = make(models[m], MODE_ZERO2, 2);
        if (!models[m]) plan.network = network;
        for (plan.bucket_cap_mb = 1e-6; plan.bucket_cap_mb < 1; plan.bucket_cap_mb *= 10)
            run_training_ranks(2, look_at_turns, &plan);
    }
    ls_network_destroy(network);
}
