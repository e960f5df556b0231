/* Layers split over ranks on GPUs, as a user runs them: the same losses as on one GPU, whichever way the ranks
 * communicate. The GPUs are those of tests/cuda_on_cpu. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

enum { STEPS = 5 };

static program p;

static void train(const char *line, const char *model, double losses[STEPS]) {
    (void)unlink(scratch_path("losses"));
    program_run(&p, "%s %s --steps 5 --dump-losses %s", line, model, scratch_path("losses"));
    if (p.status != 0) fail_msg("%s %s: status %d, %s", line, model, p.status, p.err_text);
    size_t nbytes;
    char *text = scratch_read(scratch_path("losses"), &nbytes), *at = text;
    for (int k = 0; k < STEPS; k++) losses[k] = strtod(at, &at);
    free(text);
}

static const char *verdict(void) {
    const char *at = strstr(p.out_text, "accuracy ");
    assert_non_null(at);
    return at;
}

static void expect_as_one(const char *model, const char *const *lines) {
    double one[STEPS], losses[STEPS];
    char wanted[24], got[24];
    train("CUDA_ON_CPU_DEVICES=1 ddp_train", model, one);
    snprintf(wanted, sizeof wanted, "%.14s", verdict());
    for (; *lines; lines++) {
        train(*lines, model, losses);
        snprintf(got, sizeof got, "%.14s", verdict());
        for (int k = 0; k < STEPS; k++)
            if (!(fabs(losses[k] - one[k]) <= 2e-5))
                fail_msg("%s %s: loss %d is %.9g, on one GPU %.9g", *lines, model, k + 1, losses[k], one[k]);
        assert_string_equal(got, wanted);
    }
}

TEST_IN(programs, ranks_on_gpus_follow_one_gpu) {
    expect_as_one("--model gpt:1,4,32,8 --data sums:1 --batch-size 8 --lr 0.003 --clip-norm 0.5",
                  (const char *const[]){"CUDA_ON_CPU_DEVICES=1 ddp_train --spawn 2 --tensor 2 --backend shm",
                                        "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --tensor 2",
                                        "CUDA_ON_CPU_DEVICES=4 ddp_train --spawn 4 --tensor 2 --sequence-parallel",
                                        "CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 4 --tensor 4 --sequence-parallel",
                                        NULL});
    expect_as_one("--model mlp:784,32,10 --batch-size 8",
                  (const char *const[]){"CUDA_ON_CPU_DEVICES=4 ddp_train --spawn 4 --tensor 2 --shard-state 1", NULL});
    expect_as_one("--model convnet --batch-size 8 --optimizer sgd --lr 0.01",
                  (const char *const[]){"CUDA_ON_CPU_DEVICES=2 ddp_train --spawn 2 --tensor 2", NULL});
}
