/* Gradients sent in half precision (--compress): PyTorch's rule by hand, overflow, and other options in combination. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/optim/optimizer.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/inside.h"
#include "tests/ddp_procs/reduced.h"
#include "tests/ddp_procs/unused.h"
#include "tests/parallel/plan.h"

enum { BATCH = 4 };

static void open_rank(struct rank *rank, const char *mode, const char *allreduce) {
    CHECK(rank_open(rank, mode, allreduce, REDUCED_TIMEOUT_S) == LS_OK);
    CHECK(ls_device_bind_thread(rank->device) == LS_OK);
}

static ddp_reducer_options compressed(ls_dtype half, double cap_mb) {
    return (ddp_reducer_options){.bucket_cap_mb = cap_mb, .overlap = true, .compress = half};
}

/* --- the rule ----------------------------------------------------------------------------------------------------- */

static float round_to(ls_dtype half, float value) {
    return half == LS_FP16 ? ls_fp16_to_float(ls_fp16_from_float(value)) : ls_bf16_to_float(ls_bf16_from_float(value));
}

/* One sample of 1 through a linear layer: the gradients of its weights, and of its biases, are dy. */
static void turn_of_dy(const struct rank *rank, struct reduced *r, const float *dy, size_t count) {
    float x = 1, copy[16];
    memcpy(copy, dy, count * sizeof *copy);
    CHECK(ddp_reducer_arm(r->reducer, true, 1) == LS_OK);
    (void)ls_model_forward(r->model, &x, 1, true);
    ls_model_backward(r->model, copy, false);
    CHECK(ddp_reducer_finish(r->reducer) == LS_OK);
    CHECK(ls_stream_synchronize(r->compute) == LS_OK);
}

/* PyTorch's numbers (docs/pytorch.md#compressed-gradients), which are the same on one rank and on two with the same
 * gradients. */
static void golden_rank(struct rank *rank) {
    static const float dy[] = {1e-8F, 1.0001F, 70000, 3.14159F, -70000, 65504, 0, NAN};
    static const float fp16[] = {0, 1, INFINITY, 3.140625F, -INFINITY, 65504, 0};
    static const float bf16[] = {1e-8F, 1, 70144, 3.140625F, -70144, 65536, 0};
    for (int half = LS_FP16; half <= LS_BF16; half++) {
        struct reduced r;
        ddp_reducer_options options = compressed((ls_dtype)half, 25);
        reduced_create(rank, &r, "mlp:1,8", 1, &options);
        for (int turn = 0; turn < 2; turn++) { /* the second rounds uncompressed gradients differently */
            turn_of_dy(rank, &r, dy, 8);
            for (size_t p = 0; p < 2; p++) {
                const float *gradient = ls_model_parameter(r.model, p)->gradient;
                for (size_t i = 0; i < 7; i++) {
                    float expected = half == LS_FP16 ? fp16[i] : round_to(LS_BF16, bf16[i]);
                    CHECK(gradient[i] == expected);
                }
                CHECK(isnan(gradient[7]));
            }
        }
        reduced_destroy(&r);
    }
}

static void golden_on_a_rank_of_its_own(struct rank *rank) {
    open_rank(rank, "inline", "naive");
    golden_rank(rank);
    reduced_rank_close(rank);
}

TEST(pytorchs_numbers) {
    run_training_ranks(2, golden_on_a_rank_of_its_own, NULL);
    run_training_ranks(1, golden_on_a_rank_of_its_own, NULL); /* nothing is sent, but the hook runs */
}

/* The result of rank 0's order of summation: each gradient rounded, then divided by W in half precision, then summed in
 * fp32 and rounded once. *differ counts the values for which dividing first gives another result. */
static float by_hand(ls_dtype half, const float *of_ranks, int world_size, size_t *differ) {
    float sum = 0, divided_first = 0;
    for (int r = 0; r < world_size; r++) {
        sum += round_to(half, round_to(half, of_ranks[r]) / (float)world_size);
        divided_first += round_to(half, of_ranks[r] / (float)world_size);
    }
    *differ += round_to(half, sum) != round_to(half, divided_first);
    return round_to(half, sum);
}

static void rule_rank(struct rank *rank) {
    open_rank(rank, "inline", "naive");
    for (int half = LS_FP16; half <= LS_BF16; half++) {
        struct reduced r;
        size_t differ = 0;
        ddp_reducer_options options = compressed((ls_dtype)half, 25);
        reduced_create(rank, &r, "mlp:1,16", 1, &options);
        for (int turn = 0; turn < 20; turn++) {
            float dy[4][16], of_ranks[4];
            for (int other = 0; other < rank->world_size; other++) reduced_fill(dy[other], 16, other, turn);
            turn_of_dy(rank, &r, dy[rank->rank], 16);
            for (size_t i = 0; i < 16; i++) {
                for (int other = 0; other < rank->world_size; other++) of_ranks[other] = dy[other][i];
                float expected = by_hand((ls_dtype)half, of_ranks, rank->world_size, &differ);
                CHECK(ls_model_parameter(r.model, 0)->gradient[i] == expected);
                CHECK(ls_model_parameter(r.model, 1)->gradient[i] == expected);
            }
        }
        CHECK(differ > 5); /* the test can tell the two apart */
        reduced_destroy(&r);
    }
    reduced_rank_close(rank);
}

TEST(gradients_are_rounded_then_divided_then_summed) { run_training_ranks(3, rule_rank, NULL); }

/* --- other options ------------------------------------------------------------------------------------------------ */

static void read_gradients(const ls_model *model, float *values) {
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        memcpy(values, tensor->gradient, tensor->count * sizeof *values);
        values += tensor->count;
    }
}

enum { DEEP = 64 * 48 + 48 + 48 * 32 + 32 + 32 * 10 + 10, TURNS = 3 };

/* A configuration, and each rank's gradients at its end, in memory that the test shares with its ranks. */
struct way {
    const char *mode;
    ls_dtype compress;
    bool overlap;
    float *gradients[3];
};

/* A few turns of a model with several buckets: half the bytes, and half as much memory again. */
static void several_turns_rank(struct rank *rank) {
    const struct way *way = rank->argument;
    struct reduced r;
    ls_memory_report memory;
    ddp_reducer_options options = compressed(way->compress, 1.0 / 1024);
    options.overlap = way->overlap;
    open_rank(rank, way->mode, "ring");
    reduced_create(rank, &r, "mlp:64,48,32,10", BATCH, &options);
    for (int turn = 0; turn < TURNS; turn++) reduced_turn(rank, &r, BATCH, turn);
    read_gradients(r.model, way->gradients[rank->rank]);
    CHECK(bucket_count(r.reducer) == 3);
    size_t floats = 64 * 48 + 48 + 48 * 32 + 32 + 32 * 10 + 16, halves = way->compress == LS_FP32 ? 0 : floats;
    CHECK(r.clock.bytes[LS_PHASE_ALL_REDUCE] == TURNS * (halves ? 2 * halves : 4 * floats));
    ls_device_memory(rank->device, &memory);
    CHECK(memory.current_bytes[LS_MEMORY_BUCKET] == 4 * floats + 2 * halves);
    reduced_destroy(&r);
    reduced_rank_close(rank);
}

/* In any order of the streams, and before or after the end of backward: the same bits, on all ranks. */
TEST(every_order_gives_the_same_bits) {
    struct way ways[] = {{"inline", LS_FP16, true, {NULL}},     {"shuffle:3", LS_FP16, true, {NULL}},
                         {"shuffle:11", LS_FP16, true, {NULL}}, {"shuffle:5", LS_FP16, true, {NULL}},
                         {"shuffle:7", LS_FP16, true, {NULL}},  {"threads", LS_FP16, true, {NULL}},
                         {"inline", LS_FP16, false, {NULL}},    {"inline", LS_FP32, true, {NULL}}};
    enum { WAYS = sizeof ways / sizeof *ways, PLAIN = WAYS - 1 };
    float *memory = mmap(NULL, sizeof(float[WAYS][3][DEEP]), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    for (size_t w = 0; w < WAYS; w++) {
        for (size_t r = 0; r < 3; r++) ways[w].gradients[r] = memory + (3 * w + r) * DEEP;
        run_training_ranks(3, several_turns_rank, &ways[w]);
    }
    const float *expected = ways[0].gradients[0], *plain = ways[PLAIN].gradients[0];
    for (size_t w = 0; w < PLAIN; w++)
        for (size_t r = 0; r < 3; r++) assert_memory_equal(ways[w].gradients[r], expected, DEEP * sizeof *expected);
    double error = 0;
    for (size_t i = 0; i < DEEP; i++) error = fmax(error, fabs((double)plain[i] - (double)expected[i]));
    assert_true(error > 0 && error < 5e-3);
    munmap(memory, sizeof(float[WAYS][3][DEEP]));
}

/* A gradient of one rank that half precision cannot represent: all ranks skip the step, and halve the scale. */
static void overflow_rank(struct rank *rank) {
    struct reduced r;
    ddp_reducer_options options = compressed(LS_FP16, 25);
    ls_optimizer_options adam = ls_optimizer_defaults(LS_ADAM);
    adam.scaler.enabled = true;
    adam.scaler.init_scale = 1024;
    ls_optimizer *optimizer;
    struct ls_scaler_state scaler;
    float before[16], *parameters;
    size_t count;
    open_rank(rank, "inline", "direct");
    reduced_create(rank, &r, "mlp:1,1", 1, &options);
    CHECK(ls_optimizer_create(&optimizer, r.model, &adam) == LS_OK);
    ls_model_parameters(r.model, &parameters, &count);
    memcpy(before, parameters, sizeof before);
    float dy = rank->rank == 1 ? 70000 : 1; /* though the average, about 35000, could be represented */
    turn_of_dy(rank, &r, &dy, 1);
    CHECK(isinf(ls_model_parameter(r.model, 0)->gradient[0]));
    CHECK(ls_optimizer_step(optimizer, NULL) == LS_OK);
    CHECK(ls_grad_scaler_read(ls_optimizer_scaler(optimizer), &scaler) == LS_OK);
    CHECK(scaler.scale == 512 && scaler.skipped == 1);
    CHECK(memcmp(before, parameters, sizeof before) == 0);
    dy = 1;
    turn_of_dy(rank, &r, &dy, 1);
    CHECK(ls_optimizer_step(optimizer, NULL) == LS_OK);
    CHECK(ls_grad_scaler_read(ls_optimizer_scaler(optimizer), &scaler) == LS_OK);
    CHECK(scaler.scale == 512 && scaler.skipped == 1 && scaler.growth_tracker == 1);
    CHECK(memcmp(before, parameters, sizeof before) != 0);
    ls_optimizer_destroy(optimizer);
    reduced_destroy(&r);
    reduced_rank_close(rank);
}

TEST(an_overflow_on_one_rank_skips_the_step_on_all) { run_training_ranks(2, overflow_rank, NULL); }

/* A weight that one of two ranks uses gets half of that rank's gradient; a weight that no rank uses is reported. */
static void unused_rank(struct rank *rank) {
    struct reduced r;
    ddp_reducer_options options = compressed(LS_BF16, 25);
    options.find_unused = true;
    open_rank(rank, "inline", "naive");
    reduced_create(rank, &r, "mlp:1,1", 1, &options);
    set_unused(rank, r.model, 1, true);
    if (rank->rank == 1) set_unused(rank, r.model, 0, true);
    float dy = 3;
    turn_of_dy(rank, &r, &dy, 1);
    CHECK(ls_model_parameter(r.model, 0)->gradient[0] == 1.5F);
    CHECK(ls_model_parameter(r.model, 1)->gradient[0] == 0);
    const bool *unused = ddp_reducer_unused(r.reducer);
    CHECK(unused && !unused[0] && unused[1]);
    reduced_destroy(&r);
    reduced_rank_close(rank);
}

TEST(it_goes_with_find_unused) { run_training_ranks(2, unused_rank, NULL); }
