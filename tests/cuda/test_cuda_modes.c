/* Both modes on GPUs: the invariants between modes, between ranks, and between one run and the next, with a GPU for
 * each device, with devices that share one, through staging, flat copies and NCCL. Every run is in processes of its
 * own.
 *
 * On a machine with GPUs (make gpu-check) the same tests run on as many of them as there are. The CPU's GPUs sum matrix
 * multiplies as real ones may, in slices that depend on the matrices' addresses: no result here may depend on that. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/seam/devices.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/checkpoint/stored.h"
#include "tests/cuda/gpu.h"
#include "tests/parallel/gpt_tiny.h"
#include "tests/parallel/plan.h"

/* Small, since a CPU may do the GPU's work; a few buckets after the first step. */
static const struct plan mlp = {
    .model = "mlp:64,32,32,10", .batch = 16, .steps = 4, .samples = 100, .bucket_cap_mb = 0.001};
static const struct plan convnet = {.model = "convnet", .batch = 4, .steps = 2, .samples = 40, .bucket_cap_mb = 0.01};

enum { ORDERS = 3 };

static int gpus_there;

static struct plan make(struct plan plan, enum mode mode, int devices, int gpus) {
    plan.mode = mode;
    plan.devices = devices;
    plan.gpus = gpus < gpus_there ? gpus : gpus_there;
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

static struct outcome *run(const struct plan *plan) {
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    run_plan(plan, outcomes, NULL);
    for (int r = 0; r < plan_ranks(plan); r++) {
        if (outcomes[r].status == LS_OK) continue;
        fail_msg("%s on %d: rank %d: %s (%s)", plan->model, plan->devices, r, ls_status_text(outcomes[r].status),
                 outcomes[r].message);
    }
    return outcomes;
}

static void release(struct outcome *outcomes) { shared_free(outcomes, MAX_RANKS * sizeof *outcomes); }

static void expect_same_bits(const struct plan *plan, const struct outcome *left, const struct outcome *right,
                             const char *what) {
    int step = first_difference(left, right, plan->steps);
    if (step < 0) return;
    fail_msg("%s on %d devices of %d GPUs: %s: the weights differ after step %d", plan->model, plan->devices,
             plan->gpus, what, step + 1);
}

static void expect_same_on_all_ranks(const struct plan *plan, const struct outcome *outcomes) {
    for (int r = 1; r < plan_ranks(plan); r++) expect_same_bits(plan, &outcomes[0], &outcomes[r], "rank 0 and another");
}

/* Training must change the weights at each step, or the comparisons would prove nothing. */
static void expect_progress(const struct plan *plan, const struct outcome *o) {
    for (size_t k = 1; k < plan->steps; k++) assert_true(o->weights[k] != o->weights[k - 1]);
}

static void expect_losses(const struct plan *plan, const struct outcome *outcomes, const struct plan *other,
                          const struct outcome *expected, double tolerance) {
    for (size_t k = 0; k < plan->steps; k++) {
        double wanted = global_loss(other, expected, k), loss = global_loss(plan, outcomes, k);
        if (fabs(loss - wanted) <= tolerance * fabs(wanted)) continue;
        fail_msg("%s on %d devices of %d GPUs: loss %zu is %.9g, not %.9g", plan->model, plan->devices, plan->gpus,
                 k + 1, loss, wanted);
    }
}

/* --- DP and DDP: the same bits after every step ------------------------------------------------------------------- */

static void expect_dp_is_ddp(struct plan model, int devices, int gpus) {
    static const char *const in_order[] = {"naive", "direct"};
    struct plan dp_plan = make(model, MODE_DP, devices, gpus);
    struct outcome *dp = run(&dp_plan);
    expect_progress(&dp_plan, dp);
    for (int a = 0; a < 2; a++) {
        struct plan plan = make(model, MODE_DDP, devices, gpus);
        plan.allreduce = in_order[a];
        struct outcome *ddp = run(&plan);
        expect_same_on_all_ranks(&plan, ddp);
        expect_same_bits(&plan, dp, ddp, in_order[a]);
        expect_losses(&plan, ddp, &dp_plan, dp, 1e-6);
        assert_true(ddp->buckets > 1); /* rebuilt in the second step */
        release(ddp);
    }
    release(dp);
}

TEST(dp_and_ddp_agree_with_a_gpu_each) {
    for (int devices = 2; devices <= 4; devices *= 2) expect_dp_is_ddp(mlp, devices, devices);
    expect_dp_is_ddp(convnet, 2, 2);
}

TEST(dp_and_ddp_agree_on_one_gpu) {
    for (int devices = 2; devices <= 4; devices *= 2) expect_dp_is_ddp(mlp, devices, 1);
    expect_dp_is_ddp(mlp, 4, 2);
}

/* The assignment of devices to GPUs does not affect the arithmetic. */
TEST(sharing_a_gpu_changes_no_bit) {
    for (int mode = MODE_DP; mode < MODES; mode++) {
        struct plan plan = make(mlp, (enum mode)mode, 4, 4);
        struct outcome *apart = run(&plan);
        plan.gpus = 1;
        struct outcome *together = run(&plan);
        expect_same_bits(&plan, apart, together, "a GPU each and one for all");
        release(apart);
        release(together);
    }
}

TEST(one_device_and_one_rank_are_the_plain_path) {
    struct plan plan = make(convnet, MODE_SINGLE, 1, 1);
    struct outcome *single = run(&plan);
    expect_progress(&plan, single);
    for (int mode = MODE_DP; mode < MODES; mode++) {
        plan.mode = (enum mode)mode;
        struct outcome *other = run(&plan);
        expect_same_bits(&plan, single, other, plan_modes[mode].mode->name);
        for (size_t k = 0; k < plan.steps; k++) assert_true(single->state[k] == other->state[k]);
        release(other);
    }
    release(single);
}

TEST(sync_bn_makes_them_agree_too) {
    struct plan plan = make(convnet, MODE_DP, 2, 2);
    plan.sync_bn = true;
    struct outcome *dp = run(&plan);
    plan.mode = MODE_DDP;
    struct outcome *ddp = run(&plan);
    expect_same_bits(&plan, dp, ddp, "DP and DDP with sync_bn");
    plan.sync_bn = false;
    struct outcome *without = run(&plan);
    assert_true(first_difference(ddp, without, plan.steps) >= 0);
    release(without);
    release(dp);
    release(ddp);
}

/* The loss is computed on another device, from the same outputs. */
TEST(the_output_device_changes_no_bit) {
    struct plan plan = make(mlp, MODE_DP, 3, 3);
    struct outcome *first = run(&plan);
    plan.output_device = 2;
    struct outcome *last = run(&plan);
    expect_same_bits(&plan, first, last, "output devices 0 and 2");
    release(first);
    release(last);
}

/* --- NCCL --------------------------------------------------------------------------------------------------------- */

/* NCCL's order of summation is unspecified, but the same on all ranks and in every run. */
static void expect_nccl_follows(struct plan model, enum mode mode, int devices, bool sync_bn) {
    struct plan plan = make(model, mode, devices, devices), exact = plan;
    plan.sync_bn = exact.sync_bn = sync_bn;
    plan.nccl = true;
    struct outcome *expected = run(&exact), *outcomes = run(&plan), *again = run(&plan);
    expect_progress(&plan, outcomes);
    expect_same_on_all_ranks(&plan, outcomes);
    expect_same_bits(&plan, outcomes, again, "the same again");
    expect_losses(&plan, outcomes, &exact, expected, 1e-4);
    release(expected);
    release(outcomes);
    release(again);
}

TEST(nccl_keeps_ranks_together) {
    if (gpus_there < 4) skip();
    expect_nccl_follows(mlp, MODE_DDP, 2, false);
    expect_nccl_follows(mlp, MODE_DDP, 4, false);
    expect_nccl_follows(convnet, MODE_DDP, 2, true);
}

TEST(nccl_replicates_and_reduces) {
    if (gpus_there < 4) skip();
    expect_nccl_follows(mlp, MODE_DP, 2, false);
    expect_nccl_follows(mlp, MODE_DP, 4, false);
    struct plan uneven = convnet;
    uneven.batch = 5; /* 2 2 1 */
    expect_nccl_follows(uneven, MODE_DP, 3, true);
}

/* 9 samples on 4 devices: 3 3 3, so that one replica has no piece but still takes part. */
TEST(a_replica_without_a_piece_takes_part) {
    if (gpus_there < 4) skip();
    struct plan plan = make(mlp, MODE_DP, 4, 4);
    plan.batch = 9;
    plan.samples = 30; /* 9 9 9 3 */
    struct outcome *flat = run(&plan);
    plan.nccl = true;
    struct outcome *nccl = run(&plan);
    expect_losses(&plan, nccl, &plan, flat, 1e-4);
    release(flat);
    release(nccl);
}

/* --- one device's path -------------------------------------------------------------------------------------------- */

/* The first steps of a stored run: rounding errors are still small. */
static void expect_stored_losses(struct plan plan, const char *stored) {
    double expected[STORED_MAX_STEPS];
    plan.stored = stored;
    plan.state = "before.";
    plan.samples = 0;
    plan.bucket_cap_mb = 0;
    assert_true(stored_losses(stored, expected, STORED_MAX_STEPS) >= (int)plan.steps);
    struct outcome *outcomes = run(&plan);
    for (size_t k = 0; k < plan.steps; k++) {
        double loss = global_loss(&plan, outcomes, k);
        if (fabs(loss - expected[k]) <= 1e-4 * fabs(expected[k])) continue;
        fail_msg("%s, %d devices of %d GPUs: loss %zu is %.9g, not %.9g", stored, plan.devices, plan.gpus, k + 1, loss,
                 expected[k]);
    }
    release(outcomes);
}

TEST(losses_follow_pytorchs) {
    struct plan plan = mlp;
    plan.model = "mlp";
    plan.batch = 64;
    plan.steps = 3; /* buckets are rebuilt in the second */
    for (int mode = MODE_DP; mode < MODES; mode++)
        expect_stored_losses(make(plan, (enum mode)mode, 2, 2), "train_mlp_adam_w1");
    expect_stored_losses(make(plan, MODE_DP, 4, 1), "train_mlp_adam_w1");
    expect_stored_losses(make(plan, MODE_DDP, 4, 4), "train_mlp_adam_w1");
    expect_stored_losses(make(plan, MODE_SINGLE, 1, 1), "train_mlp_adam_w1");
    plan = make(plan, MODE_DDP, 2, 2);
    plan.nccl = gpus_there >= 2;
    expect_stored_losses(plan, "train_mlp_adam_w1");
}

TEST(convnet_losses_follow_pytorchs) {
    struct plan plan = convnet;
    plan.batch = 100;
    plan.steps = 1; /* batches of 100 are slow on a CPU that does a GPU's work */
    plan = make(plan, MODE_DP, 4, 4);
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    plan.optimizer.learning_rate = 0.01;
    plan.optimizer.momentum = 0.9;
    expect_stored_losses(plan, "train_convnet_sgd_w4_dp");
    plan.mode = MODE_DDP;
    plan.strided = true;
    expect_stored_losses(plan, "train_convnet_sgd_w4_ddp");
}

/* Every mode that GPUs have, and both implementations of attention. */
TEST_IN(scratch, gpt_losses_follow_pytorchs) {
    enum { FEW = 3 };
    double losses[GPT_TINY_STEPS];
    const char *text = gpt_tiny_text();
    gpt_tiny_losses("adamw", losses);
    for (int scores = 0; scores <= 1; scores++) {
        for (int mode = MODE_SINGLE; mode < MODES; mode++) {
            struct plan plan = gpt_tiny_plan(text);
            ls_optimizer_options adamw = plan.optimizer;
            if (scores) plan.model = "gpt:2,2,32,16,27,scores";
            plan.steps = FEW;
            plan = make(plan, (enum mode)mode, mode == MODE_SINGLE ? 1 : 2, 2);
            plan.optimizer = adamw;
            struct outcome *outcomes = run(&plan);
            for (size_t k = 0; k < FEW; k++) {
                double loss = global_loss(&plan, outcomes, k);
                if (!(fabs(loss - losses[k]) <= 1e-4 * losses[k]))
                    fail_msg("%s, mode %d: loss %zu is %.9g, in PyTorch %.9g", plan.model, mode, k + 1, loss,
                             losses[k]);
            }
            release(outcomes);
        }
    }
}

/* --- other features of a step ------------------------------------------------------------------------------------- */

/* 9 samples on 4 devices; and a last batch that leaves devices without samples. */
TEST(uneven_batches_follow_one_device) {
    struct plan plan = make(mlp, MODE_SINGLE, 1, 1), shared;
    plan.batch = 9;
    plan.samples = 30;
    struct outcome *single = run(&plan);
    for (int mode = MODE_DP; mode < MODES; mode++) {
        shared = plan;
        shared.mode = (enum mode)mode;
        shared.devices = shared.gpus = 4 < gpus_there ? 4 : gpus_there;
        struct outcome *outcomes = run(&shared);
        expect_same_on_all_ranks(&shared, outcomes);
        expect_losses(&shared, outcomes, &plan, single, 1e-5);
        release(outcomes);
    }
    release(single);
}

/* Hashes of GPU memory are compared after each step, and nothing else changes. */
TEST(comparing_and_searching_change_no_bit) {
    struct plan plan = make(mlp, MODE_DDP, 2, 2);
    struct outcome *plain = run(&plan);
    plan.compare_each_step = true;
    struct outcome *compared = run(&plan);
    expect_same_bits(&plan, plain, compared, "with and without a comparison of the ranks");
    plan.compare_each_step = false;
    plan.find_unused = true;
    struct outcome *searched = run(&plan);
    expect_same_bits(&plan, plain, searched, "with and without find_unused");
    plan.find_unused = false;
    plan.no_overlap = true;
    struct outcome *after = run(&plan);
    expect_same_bits(&plan, plain, after, "with and without overlap");
    release(plain);
    release(compared);
    release(searched);
    release(after);
}

/* --- any order of the streams ------------------------------------------------------------------------------------- */

/* Random orders of a run that does not wait between its steps give the bits of an eager run: three seeds, which detect
 * every missing wait (test_cuda_waits.c). (A real GPU chooses its own order: one more run.) */
static void expect_any_order(struct plan plan, int seeds) {
    struct outcome *expected = run(&plan);
    plan.rush = true;
    for (int seed = 0; seed < (gpu_is_real() ? 1 : seeds); seed++) {
        char streams[32];
        snprintf(streams, sizeof streams, "shuffle:%d", seed);
        plan.streams = streams;
        struct outcome *outcomes = run(&plan);
        size_t last = plan.steps - 1;
        for (int r = 0; r < plan_ranks(&plan); r++) {
            if (outcomes[r].weights[last] == expected[r].weights[last] &&
                outcomes[r].state[last] == expected[r].state[last])
                continue;
            fail_msg("%s, mode %d, %d devices, nccl %d: other bits on rank %d with %s", plan.model, plan.mode,
                     plan.devices, plan.nccl, r, streams);
        }
        release(outcomes);
    }
    release(expected);
}

TEST(any_order_gives_the_same_bits) {
    for (int mode = MODE_SINGLE; mode < MODES; mode++) {
        int devices = mode == MODE_SINGLE ? 1 : 2;
        expect_any_order(make(mlp, (enum mode)mode, devices, devices), ORDERS);
        struct plan plan = make(mlp, (enum mode)mode, devices, devices);
        plan.nccl = true;
        if (mode != MODE_SINGLE && gpus_there >= 2) expect_any_order(plan, ORDERS);
    }
    struct plan plan = make(mlp, MODE_DP, 3, 1);
    plan.output_device = 2;
    expect_any_order(plan, ORDERS);
}

/* On GPUs an offloaded optimizer's update is computed by the CPU, whose bits equal those of the GPU. */
TEST(offload_changes_no_bit) {
    static const char *const orders[] = {NULL, "shuffle:1"};
    struct plan several_tiles = mlp;
    several_tiles.model = "mlp:300,300,10";
    several_tiles.steps = 3;
    several_tiles.precision = LS_FP16;
    for (int mode = MODE_SINGLE; mode < MODES; mode++) {
        int devices = mode == MODE_SINGLE ? 1 : 2;
        struct plan plan = make(several_tiles, (enum mode)mode, devices, devices);
        plan.optimizer.clip_norm = 0.1;
        struct outcome *expected = run(&plan);
        expect_progress(&plan, expected);
        plan.optimizer.offload = true;
        for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
            plan.streams = orders[i];
            struct outcome *outcomes = run(&plan);
            expect_same_bits(&plan, expected, outcomes, "offload");
            expect_same_on_all_ranks(&plan, outcomes);
            assert_true(outcomes->bytes[LS_PHASE_OPTIMIZER] > 0);
            release(outcomes);
        }
        release(expected);
    }
}

TEST(any_order_gives_the_same_bits_of_batch_norm) {
    struct plan plan = convnet;
    plan.batch = 2;
    plan.samples = 16;
    static const enum mode modes[] = {MODE_DP, MODE_DDP, MODE_ZERO3}; /* elsewhere buffers are sent as in DDP */
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        struct plan synced = make(plan, modes[m], 2, 2);
        synced.sync_bn = modes[m] == MODE_DP;
        expect_any_order(synced, 2);
    }
}

int main(void) {
    char why[512] = "";
    setenv("CUDA_ON_CPU_DEVICES", "4", 1);
    setenv("CUDA_ON_CPU_ROUNDING", "slices:4,place,ulps,flush", 0);
    ls_find_gpus_apart(&gpus_there, why, sizeof why);
    if (gpus_there > 0) return run_added_tests();
    print_error("%s\n", why);
    return 1;
}
