/* Training on a GPU, through the loop: PyTorch's recorded runs, however matrix multiplies and exponential functions
 * round, the same bits in any order of the streams, and steps recorded into a graph. Each test is a process of its own.
 * A real GPU chooses its own orders and rounding, and runs each test once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/weights.h"
#include "common/report/step_times.h"
#include "common/seam/step_graph.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda_on_cpu/include/cuda_on_cpu.h"
#include "tests/parallel/plan.h"
#include "tests/train/small_run.h"
#include "tests/train/trainer.h"

/* Memory that this process shares with its tests' processes. */
static struct shared { uint64_t hash; } * shared;

/* Settings that only the GPUs of tests/cuda_on_cpu have. */
static void on_the_stand_in(const char *settings, void (*body)(void **state)) {
    if (!gpu_is_real()) in_own_process(settings, body);
}

/* --- PyTorch's runs ---------------------------------------------------------------------------------------------- */

APART("", the_mlp_follows_pytorch) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    expect_recorded_gradients(&recorded_mlp, gpu, 0, "before.", "step0.grad.");
    expect_recorded_gradients(&recorded_mlp, gpu, 5, "step5.state.", "step5.grad.");
    expect_recorded_run(&recorded_mlp, gpu);
    ls_device_close(gpu);
}

TEST(the_mlp_follows_pytorch_rounded) {
    on_the_stand_in("CUDA_ON_CPU_ROUNDING=slices:8,place,ulps,flush", in_the_mlp_follows_pytorch);
}

/* Convolutions and batch norm take seconds a step on a CPU that acts as a GPU, so only the first steps are repeated. */
APART("", the_convnet_follows_pytorch) {
    enum { STEPS = 2 };
    ls_device *gpu = open_gpu((ls_device_options){0});
    expect_recorded_gradients(&recorded_convnet, gpu, 5, "step5.state.", "step5.grad.");
    struct trainer t = trainer_open(&recorded_convnet, gpu);
    ls_train_result result;
    double losses[STEPS], expected[STORED_MAX_STEPS];
    trainer_begin(&t, &recorded_convnet);
    t.options.steps = STEPS;
    t.options.evaluate = false;
    t.options.dump_losses = scratch_path("losses");
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    assert_int_equal(read_losses(t.options.dump_losses, losses, STEPS), STEPS);
    assert_true(stored_losses(recorded_convnet.run, expected, STORED_MAX_STEPS) > STEPS);
    for (int i = 0; i < STEPS; i++) assert_true(fabs(losses[i] - expected[i]) <= 1e-4 * expected[i]);
    trainer_close(&t);
    ls_device_close(gpu);
}

/* --- the same bits ----------------------------------------------------------------------------------------------- */

/* 1500 samples in batches of 64: 23 full ones and one of 28 per epoch. */
static const struct repetition small_mlp = {"", "mlp:784,32,16,10", 64, 60, LS_ADAM, 1e-3, 0};
static const struct repetition small_convnet = {"", "convnet", 4, LS_GRAPH_WARMUP_STEPS + 3, LS_SGD, 0.01, 0.9};

/* How a run differs from the others. */
struct variant {
    bool graph, pin, each_step; /* each_step: waits after each, as with --dump-losses */
    bool in_part;               /* an epoch's last batch is smaller */
};

static ls_train_result run_variant(const struct repetition *r, ls_device *gpu, struct variant v, const char *save) {
    struct trainer t = trainer_open(r, gpu);
    ls_train_result result;
    trainer_begin(&t, r);
    t.options.evaluate = false;
    t.options.drop_last = !v.in_part;
    t.options.cuda_graph = v.graph;
    t.options.pin_memory = v.pin;
    t.options.save = save;
    if (v.each_step) t.options.dump_losses = scratch_path("losses");
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    assert_int_equal(result.steps, r->steps);
    trainer_close(&t);
    return result;
}

TEST_CASE(run_and_compare) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    uint64_t hash = run_variant(&small_mlp, gpu, (struct variant){.in_part = true}, NULL).parameter_hash;
    if (shared->hash == 0) shared->hash = hash;
    assert_true(hash == shared->hash);
    hash = run_variant(&small_mlp, gpu, (struct variant){.in_part = true, .pin = true}, NULL).parameter_hash;
    assert_true(hash == shared->hash);
    hash = run_variant(&small_mlp, gpu, (struct variant){.in_part = true, .graph = true}, NULL).parameter_hash;
    assert_true(hash == shared->hash);
    hash = run_variant(&small_mlp, gpu, (struct variant){.in_part = true, .each_step = true}, NULL).parameter_hash;
    assert_true(hash == shared->hash);
    ls_device_close(gpu);
}

TEST(any_order_of_streams_and_threads_gives_the_same_bits) {
    static const char *const orders[] = {"",
                                         "CUDA_ON_CPU_THREADS=descending",
                                         "CUDA_ON_CPU_THREADS=random:3 CUDA_ON_CPU_STREAMS=shuffle:1",
                                         "CUDA_ON_CPU_STREAMS=shuffle:2",
                                         "CUDA_ON_CPU_STREAMS=shuffle:3",
                                         "CUDA_ON_CPU_STREAMS=shuffle:4",
                                         "CUDA_ON_CPU_STREAMS=shuffle:5"};
    shared->hash = 0;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        (i == 0 ? in_own_process : on_the_stand_in)(orders[i], run_and_compare);
}

/* --- a step as a graph ------------------------------------------------------------------------------------------- */

/* Parameters, batch norm's statistics and its count of batches, and every loss. */
static void expect_same_with_graph(const struct repetition *r, ls_device *gpu, struct variant v) {
    char without[600], losses_without[600], with[600];
    snprintf(without, sizeof without, "%s", scratch_path("without"));
    snprintf(with, sizeof with, "%s", scratch_path("with"));
    snprintf(losses_without, sizeof losses_without, "%s", scratch_path("losses.without"));
    v.each_step = true;
    run_variant(r, gpu, v, without);
    assert_int_equal(rename(scratch_path("losses"), losses_without), 0);
    v.graph = true;
    run_variant(r, gpu, v, with);
    assert_true(same_files(without, with));
    assert_true(same_files(losses_without, scratch_path("losses")));
}

static void expect_calls(const char *function, unsigned long count) {
    unsigned long (*calls)(const char *) = NULL;
    *(void **)&calls = fake_function("cuda_on_cpu_calls");
    if (calls) assert_int_equal(calls(function), count);
}

APART("", a_graph_gives_the_same_bits) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    expect_same_with_graph(&small_mlp, gpu, (struct variant){.in_part = true});
    /* 60 steps in three epochs; the 24th and the 48th have fewer samples, and three precede the first recording */
    expect_calls("cudaGraphLaunch", 60 - 2 - LS_GRAPH_WARMUP_STEPS);
    expect_calls("cudaGraphInstantiate", 2); /* one for each of the batch's places */
    ls_device_close(gpu);
}

TEST(a_graph_gives_the_same_bits_shuffled) {
    on_the_stand_in("CUDA_ON_CPU_STREAMS=shuffle:7", in_a_graph_gives_the_same_bits);
}

/* Two recordings, and one more launch of the first. */
APART("", a_graph_of_the_convnet_gives_the_same_bits) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    expect_same_with_graph(&small_convnet, gpu, (struct variant){0});
    ls_device_close(gpu);
}

/* --- times ------------------------------------------------------------------------------------------------------- */

APART("", steps_are_timed_in_blocks_unless_each_is_asked_for) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    struct repetition r = small_mlp;
    r.steps = 3 * LS_TIME_BLOCK + 4;
    ls_train_result result = run_variant(&r, gpu, (struct variant){0}, NULL);
    assert_true(result.timed_steps == 2 * LS_TIME_BLOCK && result.steps_per_time == LS_TIME_BLOCK);
    assert_int_equal(result.clocked_steps, r.steps - LS_TIME_BLOCK);
    r.steps = 2 * LS_TIME_BLOCK + 4 * LS_TIME_LONGEST_BLOCK + 4; /* room for longer blocks, if these steps are short */
    result = run_variant(&r, gpu, (struct variant){0}, NULL);
    bool longer = result.steps_per_time > LS_TIME_BLOCK;
    assert_true(result.timed_steps > 0 && result.timed_steps % result.steps_per_time == 0);
    assert_int_equal(result.clocked_steps, r.steps - (longer ? 2 : 1) * LS_TIME_BLOCK);
    assert_true(result.median_step_ms > 0);
    result = run_variant(&r, gpu, (struct variant){.each_step = true}, NULL);
    assert_true(result.timed_steps == r.steps - LS_WARMUP_STEPS && result.steps_per_time == 1);
    ls_device_close(gpu);
}

int main(void) {
    shared = shared_alloc(sizeof *shared);
    int failed = run_added_tests();
    shared_free(shared, sizeof *shared);
    return failed;
}
