/* The reducer on forked ranks: averages, their rounding, buckets, and local gradients with no_sync. */
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/reduced.h"
#include "tests/parallel/plan.h"

enum { BATCH = 4, INPUTS = 24, OUTPUTS = 16 };

static void reduced_open(struct rank *rank, struct reduced *r, const char *model, double cap_mb) {
    CHECK(rank_open(rank, "inline", "naive", REDUCED_TIMEOUT_S) == LS_OK);
    CHECK(ls_device_bind_thread(rank->device) == LS_OK);
    reduced_create(rank, r, model, BATCH, &(ddp_reducer_options){.bucket_cap_mb = cap_mb, .overlap = true});
}

static void reduced_close(struct rank *rank, struct reduced *r) {
    reduced_destroy(r);
    reduced_rank_close(rank);
}

/* Forward and backward of a linear model: the gradients depend on x and dy only. */
static void pass(const struct rank *rank, ls_model *model, int as_rank, int turn, bool accumulate) {
    float x[BATCH * INPUTS], dy[BATCH * OUTPUTS];
    reduced_fill(x, BATCH * INPUTS, as_rank, turn);
    reduced_fill(dy, BATCH * OUTPUTS, as_rank, turn + 50);
    (void)ls_model_forward(model, x, BATCH, true);
    ls_model_backward(model, dy, accumulate);
    CHECK(ls_device_status(ls_model_device(model)) == LS_OK);
}

/* --- PyTorch's numbers for no_sync ------------------------------------------------------------------------------- */

/* One weight whose gradient is x. */
static void pass_one(const struct rank *rank, struct reduced *r, float x, bool sync, bool accumulate) {
    float dy = 1;
    CHECK(ddp_reducer_arm(r->reducer, sync, 1) == LS_OK);
    (void)ls_model_forward(r->model, &x, 1, true);
    ls_model_backward(r->model, &dy, accumulate);
    CHECK(ddp_reducer_finish(r->reducer) == LS_OK);
}

static void no_sync_rank(struct rank *rank) {
    struct reduced r;
    reduced_open(rank, &r, "mlp:1,1", 25);
    float own = (float)(rank->rank + 1);
    pass_one(rank, &r, own, false, false);
    CHECK(ls_model_parameter(r.model, 0)->gradient[0] == own);
    pass_one(rank, &r, 10 * own, true, true);
    CHECK(ls_model_parameter(r.model, 0)->gradient[0] == 16.5f);
    CHECK(ls_model_parameter(r.model, 1)->gradient[0] == 2.0f);
    pass_one(rank, &r, 1, true, true); /* the buckets are rebuilt before it, and the gradients stay */
    CHECK(ls_model_parameter(r.model, 0)->gradient[0] == 17.5f);
    CHECK(ls_model_parameter(r.model, 1)->gradient[0] == 3.0f);
    pass_one(rank, &r, own, false, false);
    CHECK(ls_model_parameter(r.model, 0)->gradient[0] == own);
    reduced_close(rank, &r);
}

TEST(no_sync_leaves_gradients_local) { run_training_ranks(2, no_sync_rank, NULL); }

/* --- rounding ---------------------------------------------------------------------------------------------------- */

/* The expected gradients of a turn: the sum over ranks in order of fl(g x fl(1/W)) or of fl(g / W). */
static void expect_average(struct rank *rank, const struct reduced *r, ls_model *plain, int turn, bool divide,
                           size_t *differ) {
    static float multiplied[2][INPUTS * OUTPUTS], divided[2][INPUTS * OUTPUTS];
    memset(multiplied, 0, sizeof multiplied);
    memset(divided, 0, sizeof divided);
    float factor = (float)(1.0 / rank->world_size);
    for (int other = 0; other < rank->world_size; other++) {
        pass(rank, plain, other, turn, false);
        for (size_t p = 0; p < 2; p++) {
            const struct ls_tensor *tensor = ls_model_parameter(plain, p);
            for (size_t i = 0; i < tensor->count; i++) {
                float one = tensor->gradient[i] * factor, two = tensor->gradient[i] / (float)rank->world_size;
                multiplied[p][i] = other == 0 ? one : multiplied[p][i] + one;
                divided[p][i] = other == 0 ? two : divided[p][i] + two;
            }
        }
    }
    for (size_t p = 0; p < 2; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(r->model, p);
        const float *expected = divide ? divided[p] : multiplied[p];
        CHECK(memcmp(tensor->gradient, expected, tensor->count * sizeof *expected) == 0);
        for (size_t i = 0; i < tensor->count; i++) *differ += divided[p][i] != multiplied[p][i];
    }
}

static void rounding_rank(struct rank *rank) {
    struct reduced r;
    ls_model *plain;
    size_t differ = 0;
    reduced_open(rank, &r, "mlp:24,16", 25);
    CHECK(ls_model_create(&plain, rank->device, "mlp:24,16", BATCH, LS_FP32) == LS_OK);
    CHECK(ls_model_alloc_gradients(plain) == LS_OK);
    for (int turn = 0; turn < 4; turn++) {
        CHECK(ddp_reducer_arm(r.reducer, true, BATCH) == LS_OK);
        pass(rank, r.model, rank->rank, turn, false);
        CHECK(ddp_reducer_finish(r.reducer) == LS_OK);
        expect_average(rank, &r, plain, turn, turn > 0, &differ);
    }
    CHECK(rank->world_size == 3 ? differ > 50 : differ == 0);
    ls_model_destroy(plain);
    reduced_close(rank, &r);
}

TEST(the_first_step_multiplies_and_later_ones_divide) {
    run_training_ranks(3, rounding_rank, NULL);
    run_training_ranks(2, rounding_rank, NULL); /* where the two are equal */
    run_training_ranks(4, rounding_rank, NULL);
    run_training_ranks(1, rounding_rank, NULL);
}

/* --- buckets ----------------------------------------------------------------------------------------------------- */

/* fc1: 64-32, 8192 and 128 bytes; fc2: 32-10, 1280 and 40 bytes; limit of all buckets: 1 KiB. */
static void rebuild_rank(struct rank *rank) {
    struct reduced r;
    reduced_open(rank, &r, "mlp:64,32,10", 1.0 / 1024);
    CHECK(bucket_count(r.reducer) == 1);
    CHECK(bucket_nbytes(r.reducer, 0) == 8192 + 128 + 1280 + 40);
    reduced_turn(rank, &r, BATCH, 0);
    CHECK(bucket_count(r.reducer) == 1);
    float *before[4], copies[4][2048];
    for (size_t p = 0; p < 4; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(r.model, p);
        before[p] = tensor->gradient;
        memcpy(copies[p], tensor->gradient, tensor->count * sizeof(float));
    }
    CHECK(ddp_reducer_arm(r.reducer, true, BATCH) == LS_OK);
    CHECK(bucket_count(r.reducer) == 2);
    CHECK(bucket_nbytes(r.reducer, 0) == 40 + 1280);
    CHECK(bucket_nbytes(r.reducer, 1) == 128 + 8192);
    for (size_t p = 0; p < 4; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(r.model, p);
        CHECK(tensor->gradient != before[p]);
        CHECK(memcmp(tensor->gradient, copies[p], tensor->count * sizeof(float)) == 0);
    }
    /* in order of readiness: the last layer's bias is first */
    CHECK(ls_model_parameter(r.model, 3)->gradient < ls_model_parameter(r.model, 2)->gradient);
    CHECK(ls_model_parameter(r.model, 1)->gradient < ls_model_parameter(r.model, 0)->gradient);
    ls_memory_report memory;
    ls_device_memory(rank->device, &memory);
    CHECK(memory.current_bytes[LS_MEMORY_BUCKET] == (16 + 320 + 32 + 2048) * sizeof(float));
    CHECK(memory.peak_bytes[LS_MEMORY_BUCKET] == memory.current_bytes[LS_MEMORY_BUCKET]); /* rebuilt in place */
    CHECK(memory.current_bytes[LS_MEMORY_GRADIENT] == 0);
    float *placed = ls_model_parameter(r.model, 0)->gradient;
    reduced_turn(rank, &r, BATCH, 1);
    reduced_turn(rank, &r, BATCH, 2); /* once is enough */
    CHECK(bucket_count(r.reducer) == 2);
    CHECK(ls_model_parameter(r.model, 0)->gradient == placed);
    reduced_close(rank, &r);
}

TEST(buckets_follow_the_first_backward) {
    run_training_ranks(2, rebuild_rank, NULL);
    run_training_ranks(1, rebuild_rank, NULL);
}

/* --- errors ------------------------------------------------------------------------------------------------------ */

static void missing_rank(struct rank *rank) {
    struct reduced r;
    reduced_open(rank, &r, "mlp:64,32,10", 25);
    if (rank->argument) reduced_turn(rank, &r, BATCH, 0); /* the first step succeeds */
    CHECK(ddp_reducer_arm(r.reducer, true, BATCH) == LS_OK);
    CHECK(ddp_reducer_finish(r.reducer) == LS_ERR_INVALID);
    CHECK(strstr(rank->message, "4 parameters got no gradient: fc1.weight fc1.bias fc2.weight fc2.bias;") != NULL);
    reduced_close(rank, &r);
}

/* A parameter that is not used is named in the same step, and nothing was sent. */
TEST(a_missing_gradient_is_named) {
    run_training_ranks(2, missing_rank, NULL);
    run_training_ranks(2, missing_rank, "after a good step");
}

/* A first backward that does not complete has no effect: the next one counts its gradients from the beginning. */
static void unfinished_rank(struct rank *rank) {
    struct reduced r;
    reduced_open(rank, &r, "mlp:64,32,10", 1.0 / 1024);
    for (int turn = 0; turn < 8; turn++) {
        float x[BATCH * 64] = {0}, dy[BATCH * 10] = {0};
        CHECK(ddp_reducer_arm(r.reducer, true, BATCH) == LS_OK);
        (void)ls_model_forward(r.model, x, BATCH, true);
        ls_model_backward(r.model, dy, false);
    }
    reduced_turn(rank, &r, BATCH, 0);
    CHECK(ddp_reducer_arm(r.reducer, true, BATCH) == LS_OK);
    CHECK(bucket_count(r.reducer) == 2);
    CHECK(bucket_nbytes(r.reducer, 0) == 40 + 1280);
    reduced_close(rank, &r);
}

TEST(an_unfinished_backward_leaves_no_trace) { run_training_ranks(2, unfinished_rank, NULL); }

static void twice_rank(struct rank *rank) {
    struct reduced r;
    reduced_open(rank, &r, "mlp:24,16", 25);
    CHECK(ddp_reducer_arm(r.reducer, true, BATCH) == LS_OK);
    pass(rank, r.model, rank->rank, 0, false);
    float x[BATCH * INPUTS] = {0}, dy[BATCH * OUTPUTS] = {0};
    (void)ls_model_forward(r.model, x, BATCH, true);
    ls_model_backward(r.model, dy, true);
    CHECK(ls_stream_synchronize(r.compute) == LS_ERR_INVALID);
    CHECK(strstr(rank->message, "fc1.bias was reported ready twice") != NULL);
    reduced_close(rank, &r);
}

TEST(a_second_backward_is_refused) { run_training_ranks(2, twice_rank, NULL); }

/* A rank without samples takes part with gradients of zero. */
static void empty_rank(struct rank *rank) {
    struct reduced r;
    reduced_open(rank, &r, "mlp:1,1", 25);
    for (int turn = 0; turn < 3; turn++) {
        float x = 6, dy = 1;
        size_t samples = rank->rank == 1 ? 0 : 1;
        CHECK(ddp_reducer_arm(r.reducer, true, samples) == LS_OK);
        (void)ls_model_forward(r.model, &x, samples, true);
        ls_model_backward(r.model, &dy, false);
        CHECK(ddp_reducer_finish(r.reducer) == LS_OK);
        CHECK(ls_model_parameter(r.model, 0)->gradient[0] == 3);
    }
    reduced_close(rank, &r);
}

TEST(a_rank_without_samples_takes_part) { run_training_ranks(2, empty_rank, NULL); }
