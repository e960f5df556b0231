/* The parts of training that use GPU memory, one by one: a step and its waits, weights, evaluation, checkpoints, the
 * optimizer, page-locked batches, profilers' marks, a loss that is not finite, and the reasons for refusing a graph.
 * Each test is a process of its own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/checkpoint/weights.h"
#include "common/seam/step.h"
#include "common/seam/step_graph.h"
#include "dp_threads/data_parallel.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda_on_cpu/include/cuda_on_cpu.h"
#include "tests/nn/models.h"
#include "tests/train/small_run.h"
#include "tests/train/trainer.h"

static const struct repetition small = {"", "mlp:784,32,10", 64, 30, LS_SGD, 0.1, 0.9};

/* --- a step ------------------------------------------------------------------------------------------------------ */

static void take_step(ls_parallel *p, const ls_batch *batch) {
    assert_int_equal(ls_step(p, batch), LS_OK);
    assert_int_equal(ls_event_synchronize(p->batch_copied), LS_OK);
    p->step++;
}

/* After the first steps the host waits only for its batch's copy, and nothing is allocated. */
APART("", a_step_waits_for_nothing) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    struct trainer t = trainer_open(&small, gpu);
    static float inputs[64 * 784];
    static int64_t labels[64];
    ls_batch batch = {.inputs = inputs, .labels = labels, .count = 64, .global_count = 64};
    assert_int_equal(t.parallel->places.count, 2);
    for (int i = 0; i < 3; i++) take_step(t.parallel, &batch);
    unsigned long waits = cuda_on_cpu_host_waits(), allocations = cuda_on_cpu_device_allocations();
    unsigned long pinned = cuda_on_cpu_calls("cudaHostAlloc"), events = cuda_on_cpu_calls("cudaEventCreateWithFlags");
    unsigned long kernels = cuda_on_cpu_kernel_launches(), stream_waits = cuda_on_cpu_calls("cudaStreamQuery");
    for (int i = 0; i < 10; i++) take_step(t.parallel, &batch);
    assert_int_equal(cuda_on_cpu_host_waits(), waits);
    assert_int_equal(cuda_on_cpu_calls("cudaStreamQuery"), stream_waits);
    assert_int_equal(cuda_on_cpu_device_allocations(), allocations);
    assert_int_equal(cuda_on_cpu_calls("cudaHostAlloc"), pinned);
    assert_int_equal(cuda_on_cpu_calls("cudaEventCreateWithFlags"), events);
    assert_true(cuda_on_cpu_kernel_launches() > kernels);
    assert_int_equal(ls_device_synchronize(gpu), LS_OK);
    trainer_close(&t);
    ls_device_close(gpu);
}

/* --- weights and evaluation -------------------------------------------------------------------------------------- */

APART("", weights_travel_through_files) {
    ls_device *gpu = open_gpu((ls_device_options){0}), *cpu = open_device(0);
    ls_model *on_gpu = make_model(gpu, "convnet", 2, 5), *on_cpu = make_model(cpu, "convnet", 2, 5);
    uint64_t gpu_hash, cpu_hash;
    *ls_model_batches_tracked(on_gpu, 1) = *ls_model_batches_tracked(on_cpu, 1) = 7;
    assert_int_equal(ls_model_hash(on_gpu, &gpu_hash), LS_OK);
    assert_int_equal(ls_model_hash(on_cpu, &cpu_hash), LS_OK);
    assert_true(gpu_hash == cpu_hash);
    assert_int_equal(ls_weights_save(on_gpu, scratch_path("gpu"), ""), LS_OK);
    assert_int_equal(ls_weights_save(on_cpu, scratch_path("cpu"), ""), LS_OK);
    assert_true(same_files(scratch_path("gpu"), scratch_path("cpu")));
    assert_int_equal(ls_model_init(on_cpu, 6), LS_OK);
    assert_int_equal(ls_weights_save(on_cpu, scratch_path("cpu"), ""), LS_OK);
    assert_int_equal(ls_weights_load(on_gpu, scratch_path("cpu"), false), LS_OK);
    assert_int_equal(ls_weights_save(on_gpu, scratch_path("gpu"), ""), LS_OK);
    assert_true(same_files(scratch_path("gpu"), scratch_path("cpu")));
    ls_model_destroy(on_gpu);
    ls_model_destroy(on_cpu);
    ls_device_close(gpu);
    close_empty_device(cpu);
}

APART("", an_evaluation_counts_as_on_the_cpu) {
    ls_device *gpu = open_gpu((ls_device_options){0}), *cpu = open_device(0);
    struct trainer t = trainer_open(&small, gpu);
    ls_train_result result;
    trainer_begin(&t, &small);
    t.options.save = scratch_path("weights");
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    ls_model *on_cpu = make_model(cpu, small.model, 100, 0);
    struct ls_test_sums on_gpu_sums, on_cpu_sums;
    size_t count = ls_dataset_count(t.test);
    assert_int_equal(ls_weights_load(on_cpu, t.options.save, false), LS_OK);
    assert_int_equal(ls_evaluate(t.model, t.test, 0, count, 50, 0, &on_gpu_sums), LS_OK);
    assert_int_equal(ls_evaluate(on_cpu, t.test, 0, count, 100, 0, &on_cpu_sums), LS_OK);
    assert_true(on_cpu_sums.right > (int64_t)count / 2);
    assert_int_equal(on_gpu_sums.right, on_cpu_sums.right);
    assert_true(fabs(result.accuracy * (double)count - (double)on_cpu_sums.right) <= 1e-6);
    trainer_close(&t);
    ls_model_destroy(on_cpu);
    ls_device_close(gpu);
    close_empty_device(cpu);
}

/* --- checkpoints: resumed, they give the bits of a run without a break, on GPU and CPU ---------------------------- */

/* Trains to step `steps` and saves; `resume` may be NULL. */
static void train_to(ls_device *device, int64_t steps, const char *resume, const char *save) {
    const struct repetition adam = {"", "mlp:784,16,10", 64, steps, LS_ADAM, 1e-3, 0};
    struct trainer t = trainer_open(&adam, device);
    ls_train_result result;
    assert_int_equal(ls_model_init(t.model, resume ? 9 : 0), LS_OK);
    t.options.resume = resume;
    t.options.save = save;
    t.options.evaluate = false;
    stderr_begin();
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    stderr_end();
    assert_int_equal(result.steps, steps);
    trainer_close(&t);
}

APART("", a_gpus_checkpoint_goes_on_anywhere) {
    ls_device *gpu = open_gpu((ls_device_options){0}), *cpu = open_device(0);
    train_to(gpu, 9, NULL, scratch_path("whole"));
    train_to(gpu, 4, NULL, scratch_path("part"));
    train_to(gpu, 9, scratch_path("part"), scratch_path("again"));
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
    /* to a CPU device, where no steps are left, and back */
    train_to(cpu, 9, scratch_path("whole"), scratch_path("cpu"));
    assert_true(same_files(scratch_path("whole"), scratch_path("cpu")));
    train_to(gpu, 9, scratch_path("cpu"), scratch_path("back"));
    assert_true(same_files(scratch_path("whole"), scratch_path("back")));
    ls_device_close(gpu);
    close_empty_device(cpu);
}

/* --- the optimizer ----------------------------------------------------------------------------------------------- */

enum { UPDATES = 5 };

/* Five updates with the same gradients each time; the third and the fourth leave out some parameters, and the last has
 * its gradients at other addresses. */
static uint64_t hash_after_updates(ls_device *device, ls_optimizer_options options) {
    ls_model *model = make_model(device, "mlp:70,90,10", 1, 1);
    ls_optimizer *optimizer;
    float *gradients, *elsewhere, values[8192];
    size_t count;
    uint64_t hash;
    ls_stream *compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    assert_int_equal(ls_optimizer_create(&optimizer, model, &options), LS_OK);
    ls_model_gradients(model, &gradients, &count);
    assert_true(count <= sizeof values / sizeof *values);
    assert_int_equal(
        ls_device_alloc(device, LS_MEMORY_GRADIENT, count * sizeof(float), "gradients", (void **)&elsewhere), LS_OK);
    for (int i = 0; i < UPDATES; i++) {
        ls_generator generator;
        ls_generator_seed(&generator, (uint64_t)i);
        ls_fill_uniform(&generator, values, count, -1, 1);
        float *to = i == UPDATES - 1 ? elsewhere : gradients;
        assert_int_equal(ls_copy_now(compute, to, values, count * sizeof(float)), LS_OK);
        for (size_t p = 0; to == elsewhere && p < ls_model_parameter_count(model); p++) {
            ls_model_place_gradient(model, p, elsewhere + (ls_model_parameter(model, p)->gradient - gradients));
        }
        const bool some[4] = {false, i == 3, true, false};
        assert_int_equal(ls_optimizer_step(optimizer, i == 2 || i == 3 ? some : NULL), LS_OK);
    }
    assert_int_equal(ls_model_hash(model, &hash), LS_OK);
    ls_optimizer_destroy(optimizer);
    ls_device_free(device, elsewhere);
    ls_model_destroy(model);
    return hash;
}

APART("", updates_have_the_bits_of_the_cpu) {
    ls_device *gpu = open_gpu((ls_device_options){0}), *cpu = open_device(0);
    for (int kind = LS_SGD; kind <= LS_ADAMW; kind++) {
        ls_optimizer_options options = ls_optimizer_defaults((ls_optimizer_kind)kind);
        options.learning_rate = 0.01;
        options.weight_decay = 0.1;
        if (kind == LS_SGD) options.momentum = 0.9;
        options.nesterov = kind == LS_SGD;
        uint64_t on_gpu = hash_after_updates(gpu, options), on_cpu = hash_after_updates(cpu, options);
        if (on_gpu != on_cpu) fail_msg("optimizer %d: the CPU's weights are others", kind);
    }
    ls_device_close(gpu);
    close_empty_device(cpu);
}

/* --- the loop's calls to the device ------------------------------------------------------------------------------- */

APART("", batches_are_pinned_if_the_options_say_so) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    struct trainer t = trainer_open(&small, gpu);
    ls_train_result result;
    trainer_begin(&t, &small);
    t.options.workers = 2;
    t.options.prefetch = 3;
    t.options.pin_memory = false;
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    assert_int_equal(cuda_on_cpu_calls("cudaHostRegister"), 0);
    t.options.pin_memory = true;
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    assert_int_equal(cuda_on_cpu_calls("cudaHostRegister"), 2 * (2 * 3 + 1)); /* inputs and labels of each slot */
    assert_int_equal(cuda_on_cpu_calls("cudaHostUnregister"), 2 * (2 * 3 + 1));
    trainer_close(&t);
    ls_device_close(gpu);
}

APART("", profilers_see_the_phases) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    struct trainer t = trainer_open(&small, gpu);
    ls_train_result result;
    trainer_begin(&t, &small);
    t.options.evaluate = false;
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    assert_int_equal(cuda_on_cpu_ranges("forward"), 30);
    assert_int_equal(cuda_on_cpu_ranges("backward"), 30);
    assert_int_equal(cuda_on_cpu_ranges("optimizer"), 30);
    assert_int_equal(cuda_on_cpu_ranges("graph"), 0);
    t.options.cuda_graph = true;
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    assert_int_equal(cuda_on_cpu_ranges("graph"), 30 - LS_GRAPH_WARMUP_STEPS);
    assert_true(cuda_on_cpu_open_ranges() <= 1); /* a phase ends where the next one begins */
    trainer_close(&t);
    ls_device_close(gpu);
}

/* --- a loss that is not finite ------------------------------------------------------------------------------------ */

APART("", a_nan_ends_the_run) {
    ls_device *gpu = open_gpu((ls_device_options){0});
    struct repetition r = small;
    r.learning_rate = 1e30;
    for (int graph = 0; graph < 2; graph++) {
        struct trainer t = trainer_open(&r, gpu);
        ls_train_result result;
        char place[128];
        trainer_begin(&t, &r);
        t.options.cuda_graph = graph == 1;
        assert_int_equal(trainer_train(&t, &result), LS_ERR_DIVERGED);
        scratch_expect_error("(epoch 0): the loss is nan", "lower --lr");
        assert_int_equal(ls_model_find_nonfinite(t.model, place, sizeof place), LS_OK);
        assert_string_equal(place, "parameter fc1.weight");
        trainer_close(&t);
    }
    ls_device_close(gpu);
}

/* --- reasons to refuse a graph ------------------------------------------------------------------------------------ */

APART("", graphs_are_refused_where_the_host_takes_part) {
    struct gpus gpus = open_gpus(2);
    ls_device *cpu = open_device(0);
    ls_train_result result;
    struct trainer t = trainer_open(&small, cpu);
    t.options.cuda_graph = true;
    assert_int_equal(trainer_train(&t, &result), LS_ERR_USAGE);
    scratch_expect_error("--cuda-graph needs GPUs", "CPU devices");
    trainer_close(&t);
    ls_model *model = make_model(gpus.device[0], small.model, 64, 0);
    for (int count = 1; count <= 2; count++) {
        ls_parallel *parallel;
        dp_options options = {
            .devices = gpus.device, .device_count = count, .max_batch = 64, .optimizer = ls_optimizer_defaults(LS_SGD)};
        assert_int_equal(dp_create(&parallel, model, &options), LS_OK);
        ls_status status = ls_step_graph_create(parallel);
        if (count == 1) assert_int_equal(status, LS_OK);
        if (count == 2) {
            assert_int_equal(status, LS_ERR_USAGE);
            assert_null(parallel->graph);
            scratch_expect_error("--cuda-graph", "DataParallel on several devices");
        }
        ls_step_graph_destroy(parallel);
        parallel->ops->destroy(parallel);
    }
    ls_model_destroy(model);
    close_gpus(&gpus);
    close_empty_device(cpu);
}
