/* Steps of several micro-batches, in half precision and with a schedule, that are recorded into graphs, on the GPUs of
 * tests/cuda_on_cpu: the same bits as without. Each test is a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/train/step_graph.h"
#include "tests/base/scratch.h"
#include "tests/cuda/gpu.h"
#include "tests/train/trainer.h"

struct recipe {
    int accumulate;
    ls_dtype precision;
};

struct result {
    uint64_t weights;
    double accuracy;
    char *losses;
};

/* 1500 samples in batches of 260 and 200 at the end of each epoch, which runs without the graph, as does the evaluation behind
 * it: both read what launches have left. Most graphs are launched in the second epoch only. */
static struct result run(ls_device *gpu, const struct recipe *recipe, bool graph) {
    enum { BATCH = 260 };
    struct trainer t = {.options = ls_train_defaults()};
    ls_train_result result;
    t.options.model = "mlp:784,12,10";
    t.options.batch_size = BATCH;
    t.options.epochs = 3;
    t.options.quiet = true;
    t.options.accumulate = recipe->accumulate;
    t.options.precision = (int)recipe->precision;
    t.options.growth_interval = 3;
    t.options.clip_norm = 0.5;
    t.options.warmup_steps = 12; /* the rate changes with every step */
    t.options.cuda_graph = graph;
    t.options.dump_losses = scratch_path("losses");
    size_t rows = ls_micro_batch_rows(BATCH, recipe->accumulate);
    assert_int_equal(ls_model_create(&t.model, gpu, t.options.model, rows, recipe->precision), LS_OK);
    assert_int_equal(ls_train_open_data(&t.options, t.model, &t.train, &t.test), LS_OK);
    ls_optimizer_options optimizer = ls_train_optimizer(&t.options);
    assert_int_equal(ls_single_create(&t.parallel, gpu, t.model, &optimizer, rows), LS_OK);
    assert_int_equal(ls_model_init(t.model, 0), LS_OK);
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    trainer_close(&t);
    size_t nbytes;
    return (struct result){result.parameter_hash, result.accuracy, scratch_read(t.options.dump_losses, &nbytes)};
}

static void check(void **state) {
    static const struct recipe recipes[] = {{1, LS_FP16}, {2, LS_FP32}, {3, LS_FP16}, {2, LS_BF16}};
    (void)state;
    ls_device *gpu = open_gpu((ls_device_options){0});
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        struct result without = run(gpu, &recipes[i], false), with = run(gpu, &recipes[i], true);
        assert_true(with.weights == without.weights && with.accuracy == without.accuracy);
        assert_string_equal(with.losses, without.losses);
        free(with.losses);
        free(without.losses);
    }
    ls_device_close(gpu);
}

static void a_graph_of_micro_batches_gives_the_same_bits(void **state) {
    (void)state;
    in_own_process((const char *const[]){NULL}, check);
    in_own_process((const char *const[]){"CUDA_ON_CPU_STREAMS=shuffle:3", NULL}, check);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_graph_of_micro_batches_gives_the_same_bits, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
