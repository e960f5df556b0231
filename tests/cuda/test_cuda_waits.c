/* Each wait between the streams of GPUs is needed: without it, some order that streams and events allow gives different
 * bits (or memory is read before it is written). The counterpart of tests/parallel/test_shuffle.c for work that only
 * GPUs do. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "tests/base/test.h"
#include "tests/parallel/plan.h"

enum { SEEDS = 12 };

static const struct plan mlp = {.devices = 2,
                                .gpus = 2,
                                .model = "mlp:64,32,32,10",
                                .batch = 16,
                                .steps = 4,
                                .samples = 100,
                                .bucket_cap_mb = 0.001};

static struct outcome *run(const struct plan *plan) {
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    run_plan(plan, outcomes, NULL);
    return outcomes;
}

static void release(struct outcome *outcomes) { shared_free(outcomes, MAX_RANKS * sizeof *outcomes); }

/* The first of so many seeds that gives different weights on some rank, or -1. */
static int red_seed(struct plan plan, const struct outcome *expected) {
    int red = -1;
    size_t last = plan.steps - 1;
    plan.rush = true;
    for (int seed = 0; red < 0 && seed < SEEDS; seed++) {
        char streams[32];
        snprintf(streams, sizeof streams, "shuffle:%d", seed);
        plan.streams = streams;
        struct outcome *outcomes = run(&plan);
        for (int r = 0; r < plan_ranks(&plan); r++) {
            if (outcomes[r].status != LS_OK || outcomes[r].weights[last] != expected[r].weights[last]) red = seed;
        }
        release(outcomes);
    }
    return red;
}

static void expect_needed(enum mode mode, bool nccl, const char *const names[]) {
    struct plan plan = mlp;
    plan.mode = mode;
    plan.nccl = nccl;
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    struct outcome *expected = run(&plan);
    assert_int_equal(expected[0].status, LS_OK);
    for (int i = 0; names[i]; i++) {
        setenv("LS_CPU_DROP_WAIT", names[i], 1);
        int seed = red_seed(plan, expected);
        unsetenv("LS_CPU_DROP_WAIT");
        if (seed < 0) fail_msg("mode %d, nccl %d: without \"%s\" nothing is ever wrong", mode, nccl, names[i]);
    }
    release(expected);
}

TEST(waits_of_a_single_gpu) {
    expect_needed(MODE_SINGLE, false, (const char *const[]){"batch copied", "batch used", NULL});
}

TEST(waits_of_flat_copies) {
    expect_needed(MODE_DP, false,
                  (const char *const[]){"batch copied", "replica updated", "outputs ready", "outputs gathered",
                                        "loss taken", "loss gradient arrived", "backward done", "gradients sent",
                                        "parameters updated", NULL});
}

TEST(waits_of_replicas_that_meet_in_nccl) {
    expect_needed(MODE_DP, true,
                  (const char *const[]){"batch copied", "piece arrived", "replica updated", "backward done",
                                        "gradients sent", "parameters updated", NULL});
}

TEST(waits_of_ranks_that_meet_in_nccl) {
    expect_needed(MODE_DDP, true, (const char *const[]){"batch copied", "bucket ready", "bucket reduced", NULL});
}

int main(void) {
    setenv("CUDA_ON_CPU_DEVICES", "2", 1);
    return run_added_tests();
}
