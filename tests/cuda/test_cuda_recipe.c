/* Steps of several micro-batches, in half precision and with a schedule, recorded into graphs, on the GPUs of
 * tests/cuda_on_cpu: the same bits as without graphs. Each test is a process of its own. */
#include <stdlib.h>
#include <string.h>

#include "common/seam/step_graph.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"
#include "tests/parallel/plan.h"
#include "tests/programs/small_images.h"
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

/* 150 samples in batches of 40, with 30 at the end of each epoch. The last batch and the evaluation after it run
 * without the graph, and read the results of earlier launches. The first recording comes right after the first
 * evaluation. */
static struct result run(ls_device *gpu, const struct recipe *recipe, bool graph) {
    enum { BATCH = 40 };
    struct trainer t = {.options = ls_train_defaults()};
    ls_train_result result;
    t.options.model = "mlp:64,12,10";
    t.options.data = small_images("images", 150, 50);
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

APART("", a_graph_of_micro_batches_gives_the_same_bits) {
    static const struct recipe recipes[] = {{1, LS_FP16}, {2, LS_FP32}, {3, LS_FP16}, {2, LS_BF16}};
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

TEST(a_graph_of_micro_batches_gives_the_same_bits_shuffled) {
    in_own_process("CUDA_ON_CPU_STREAMS=shuffle:3", in_a_graph_of_micro_batches_gives_the_same_bits);
}

/* --- DataParallel ------------------------------------------------------------------------------------------------- */

/* The bits are the same on whichever GPU the loss is computed (on the other, its scale is copied from another GPU) and
 * however parameters and gradients are sent: a sum of two has only one order. The scale doubles with each step. */
APART("CUDA_ON_CPU_DEVICES=2", micro_batches_on_two_gpus_give_the_same_bits) {
    struct plan plan = {.mode = MODE_DP, .devices = 2, .gpus = 2, .model = "mlp:20,16,10", .batch = 22, .steps = 3};
    plan.samples = 66;
    plan.accumulate = 3; /* 8 8 6 */
    plan.precision = LS_FP16;
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    plan.optimizer.scaler.growth_interval = 1;
    struct outcome *outcomes[4];
    for (int i = 0; i < 4; i++) {
        outcomes[i] = shared_alloc(MAX_RANKS * sizeof **outcomes);
        assert_non_null(outcomes[i]);
        plan.output_device = i % 2;
        plan.nccl = i / 2 == 1;
        plan.streams = i == 0 ? NULL : "shuffle:5";
        run_plan(&plan, outcomes[i], NULL);
        if (outcomes[i]->status != LS_OK) fail_msg("%s", outcomes[i]->message);
        assert_int_equal(first_difference(outcomes[0], outcomes[i], plan.steps), -1);
        assert_true(outcomes[i]->scales[plan.steps - 1] == 8 * 65536 && outcomes[i]->skipped == 0);
    }
    for (int i = 0; i < 4; i++) shared_free(outcomes[i], MAX_RANKS * sizeof **outcomes);
}
