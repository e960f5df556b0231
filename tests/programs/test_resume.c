/* The options --save, --save-every and --resume: a run that was ended and resumed has the bits of an uninterrupted one,
 * in every mode. (One device, and each recipe: tests/checkpoint/test_checkpoint_resume.c.) */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/checkpoint/content.h"
#include "tests/programs/program.h"
#include "tests/train/small_run.h"

#define SMALL "--model mlp:784,16,10 --batch-size 60 --no-evaluate "
#define SOME_CONVNET "--model convnet --batch-size 12 --optimizer sgd --momentum 0.9 --no-evaluate "

/* Runs the line to step `steps`, with its losses in FOLDER/NAME.losses and its last checkpoint in FOLDER/NAME. */
static void run(program *p, const char *line, int steps, const char *name, const char *more) {
    char losses[64];
    snprintf(losses, sizeof losses, "%s.losses", name);
    remove(scratch_path(losses)); /* --resume would not overwrite it */
    program_run(p, "%s --steps %d --save %s --dump-losses %s %s", line, steps, scratch_path(name), scratch_path(losses),
                more);
    if (p->status != 0) fail_msg("%s: status %d, %s", line, p->status, p->err_text);
}

static char *losses_of(const char *name) {
    char losses[64];
    size_t nbytes;
    snprintf(losses, sizeof losses, "%s.losses", name);
    return scratch_read(scratch_path(losses), &nbytes);
}

/* Compares a run with regular checkpoints and one without that ends in the middle and is resumed. */
static void expect_same_run(const char *line, int steps, int end) {
    static program whole, half, rest;
    char resume[700], *losses, *first, *then;
    snprintf(resume, sizeof resume, "--resume %s", scratch_path("half"));
    run(&whole, line, steps, "whole", "--save-every 2 --quiet");
    run(&half, line, end, "half", "--quiet");
    run(&rest, line, steps, "again", resume);
    if (!same_files(scratch_path("whole"), scratch_path("again"))) fail_msg("%s: other bits after step %d", line, end);
    losses = losses_of("whole");
    first = losses_of("half");
    then = losses_of("again");
    assert_int_equal(count_lines(then), steps - end);
    assert_true(strncmp(losses, first, strlen(first)) == 0 && strcmp(losses + strlen(first), then) == 0);
    const char *epoch = strstr(whole.out_text, "\nepoch "), *again = strstr(rest.out_text, "\nepoch ");
    assert_non_null(epoch);
    assert_non_null(again);
    assert_memory_equal(epoch, again, strlen("\nepoch   1  loss 2.0000")); /* the mean over all of the epoch's steps */
    assert_int_equal(count_lines(rest.err_text), 1);
    assert_non_null(strstr(rest.err_text, "going on after step"));
    assert_null(strstr(rest.err_text, "other than before"));
    free(losses);
    free(first);
    free(then);
}

TEST_IN(programs, test_dp) {
    expect_same_run("dp_train --devices 2 " SMALL, 7, 3);
    expect_same_run("dp_train --devices 2 --sync-bn " SOME_CONVNET, 4, 2);
    expect_same_run("dp_train --devices 2 --precision fp16 --growth-interval 3 --accumulate 2 " SMALL, 7, 4);
}

/* With three ranks and the ring the results depend on which gradients share a bucket, and on that all reductions except
 * the first divide. */
TEST_IN(programs, test_ddp) {
    expect_same_run("ddp_train --spawn 3 --allreduce ring --bucket-cap-mb 0.01 " SMALL, 7, 1);
    expect_same_run("ddp_train --spawn 3 --allreduce ring " SOME_CONVNET, 4, 2);
    expect_same_run("ddp_train --spawn 2 --sync-bn --shard contiguous " SOME_CONVNET, 4, 2);
    expect_same_run("ddp_train --spawn 2 --precision bf16 --accumulate 2 --clip-norm 1 " SMALL, 7, 4);
}

/* The file has each rank's unsent values, a row for each rank; without them, or with a different number of ranks, they
 * are zero. */
TEST_IN(programs, test_top_k) {
    static program p;
    static const char *const line = "ddp_train --spawn 3 --compress topk:0.02 --optimizer sgd --momentum 0.9 " SMALL;
    static const char *const others[] = {"--spawn 2", "--compress topk:0.02,nofeedback", "--compress none"};
    expect_same_run(line, 7, 1);
    expect_same_run("ddp_train --spawn 2 --compress topk:0.05 --model convnet --batch-size 12 --no-evaluate", 4, 2);
    expect_same_run("ddp_train --spawn 2 --compress topk:0.05,nofeedback --precision fp16 " SMALL, 7, 4);
    run(&p, line, 3, "half", "--quiet");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char resume[300];
        snprintf(resume, sizeof resume, "%s --resume %s", others[i], scratch_path("half"));
        run(&p, line, 5, "rest", resume);
        assert_true((i == 0) == (strstr(p.err_text, "left unsent (top-k's errors): they begin at zero here") != NULL));
    }
    run(&p, "ddp_train --spawn 3 " SMALL "--optimizer sgd --momentum 0.9", 3, "half", "--quiet");
    char resume[300];
    snprintf(resume, sizeof resume, "--resume %s", scratch_path("half"));
    run(&p, line, 5, "rest", resume);
    assert_non_null(
        strstr(p.err_text, "does not hold what 3 ranks have left unsent (top-k's errors): they begin at zero here"));
}

/* Saved by any stage, resumed by any other: the bits of one run, and the same file, whichever stage has written it. */
TEST_IN(programs, test_shards) {
    static const char *const line = "ddp_train --spawn 3 --bucket-cap-mb 0.01 " SMALL;
    static program p;
    expect_same_run("ddp_train --spawn 3 --shard-state 1 --precision fp16 --growth-interval 3 " SMALL, 7, 4);
    expect_same_run("ddp_train --spawn 2 --shard-state 2 --accumulate 2 --bucket-cap-mb 0.01 " SMALL, 7, 3);
    expect_same_run("ddp_train --spawn 2 --shard-state 3 --precision fp16 --checkpoint-activations 1 " SOME_CONVNET, 4,
                    2);
    run(&p, line, 6, "whole", "--quiet");
    for (int from = 0; from <= 3; from++) {
        char options[200];
        snprintf(options, sizeof options, "--quiet --shard-state %d", from);
        run(&p, line, 3, "half", options);
        for (int to = 0; to <= 3; to++) {
            snprintf(options, sizeof options, "--quiet --shard-state %d --resume %s", to, scratch_path("half"));
            run(&p, line, 6, "rest", options);
            if (!same_files(scratch_path("whole"), scratch_path("rest"))) fail_msg("%d to %d: other bits", from, to);
            assert_null(strstr(p.err_text, "other than before"));
        }
        program_run(&p, "ddp_train --spawn 2 --shard-state %d " SMALL "--steps 4 --resume %s", 3 - from,
                    scratch_path("half"));
        assert_int_equal(p.status, 0);
        assert_non_null(strstr(p.err_text, "number of devices 2 (was 3)"));
    }
}

/* The same file, whether the host or the device has the moments, and either resumes the other's: the bits of one
 * run. */
TEST_IN(programs, test_offload) {
    static const char *const lines[] = {
        "dp_train --devices 2 --optimizer sgd --momentum 0.9 --model mlp:784,100,10 --no-evaluate",
        "ddp_train --spawn 2 --precision fp16 --growth-interval 3 " SMALL,
        "ddp_train --spawn 3 --shard-state 1 --bucket-cap-mb 0.01 " SMALL,
    };
    static const char *const options[] = {"--quiet", "--quiet --offload optimizer"};
    static program p;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        run(&p, lines[i], 6, "whole", options[0]);
        for (int from = 0; from <= 1; from++) {
            char resume[200];
            run(&p, lines[i], 3, "half", options[from]);
            snprintf(resume, sizeof resume, "%s --resume %s", options[1 - from], scratch_path("half"));
            run(&p, lines[i], 6, "rest", resume);
            if (!same_files(scratch_path("whole"), scratch_path("rest")))
                fail_msg("%s: other bits, %s", lines[i], options[from]);
            assert_null(strstr(p.err_text, "other than before"));
        }
    }
}

/* At an epoch's end, by --epochs, with the accuracy of every epoch. */
TEST_IN(programs, test_epochs) {
    static const char *const line = "ddp_train --spawn 2 --model mlp:784,16,10 --batch-size 300 --lr-schedule step "
                                    "--lr-decay-epochs 2";
    static program whole, half, rest;
    program_run(&whole, "%s --epochs 3 --save %s", line, scratch_path("whole"));
    program_run(&half, "%s --epochs 1 --save %s", line, scratch_path("part"));
    program_run(&rest, "%s --epochs 3 --save %s --resume %s --metrics %s", line, scratch_path("again"),
                scratch_path("part"), scratch_path("metrics"));
    assert_int_equal(rest.status, 0);
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
    assert_null(strstr(rest.out_text, "epoch   1"));
    const char *epoch = strstr(whole.out_text, "epoch   2"), *again = strstr(rest.out_text, "epoch   2");
    assert_non_null(again);
    assert_memory_equal(epoch, again, strlen("epoch   2  loss 2.0000  test accuracy  50.0 %"));
    size_t nbytes;
    char *metrics = scratch_read(scratch_path("metrics"), &nbytes);
    assert_int_equal(count_lines(metrics), 10 + 1); /* five steps an epoch, and the summary */
    assert_memory_equal(metrics, "{\"step\": 5, \"epoch\": 1, ", strlen("{\"step\": 5, \"epoch\": 1, "));
    free(metrics);
    program_run(&rest, "%s --epochs 3 --resume %s --metrics %s", line, scratch_path("part"), scratch_path("metrics"));
    assert_int_equal(rest.status, 2);
    assert_non_null(strstr(rest.err_text, "holds the lines of an earlier run, which --resume would overwrite"));
    program_run(&rest, "%s --epochs 3 --save %s --resume %s", line, scratch_path("again"), scratch_path("whole"));
    assert_int_equal(rest.status, 0);
    assert_true(same_files(scratch_path("whole"), scratch_path("again")));
    assert_non_null(strstr(rest.err_text, "nothing is left to train: --epochs 3 was reached"));
    assert_non_null(strstr(rest.out_text, strstr(whole.out_text, "weights "))); /* the same hash */
}

/* With a different number of devices or a different mode it continues, and rank 0 reports the difference. */
TEST_IN(programs, test_other_devices) {
    static const char *const goes_on[] = {"ddp_train --spawn 3 ", "dp_train --single ", "dp_train --devices 3 ",
                                          "ddp_train --spawn 2 --seed 5 "};
    static const char *const noted[] = {"number of devices 3 (was 2)",
                                        "mode single device (was DistributedDataParallel)",
                                        "mode DataParallel (was DistributedDataParallel), number of devices 3 (was 2)",
                                        "other than before: seed 5 (was 0)\n"};
    static program p;
    run(&p, "ddp_train --spawn 2 " SMALL, 3, "part", "");
    for (int i = 0; i < 4; i++) {
        program_run(&p, "%s " SMALL "--steps 5 --resume %s", goes_on[i], scratch_path("part"));
        assert_int_equal(p.status, 0);
        assert_int_equal(count_lines(p.err_text), 1);
        if (!strstr(p.err_text, noted[i])) fail_msg("'%s' is not in %s", noted[i], p.err_text);
    }
}

/* Errors in a checkpoint are reported in one line, before ranks are started, and nothing is written. */
TEST_IN(programs, test_refusals) {
    static const struct {
        const char *options, *words;
    } rows[] = {
        {"--model mlp:784,32,10 --batch-size 60",
         "was written by a run with model mlp:784,16,10; this run has mlp:784,32,10"},
        {"--model mlp:784,16,10 --batch-size 30",
         "was written by a run with batch size 60; this run has 30, which would change"},
        {"--model mlp:784,16,10 --batch-size 60 --optimizer sgd",
         "was written by a run with optimizer adam; this run has sgd"},
    };
    static const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    static program p;
    run(&p, "dp_train --devices 2 " SMALL, 3, "part", "");
    int files = scratch_file_count();
    for (size_t i = 0; i < 6; i++) {
        program_run(&p, "%s %s --resume %s --save %s --metrics %s", programs[i % 2], rows[i / 2].options,
                    scratch_path("part"), scratch_path("new"), scratch_path("metrics"));
        assert_int_equal(p.status, 1);
        assert_string_equal(p.out_text, "");
        if (count_text(p.err_text, rows[i / 2].words) != 1 || count_lines(p.err_text) != 1)
            fail_msg("%s %s: %s", programs[i % 2], rows[i / 2].options, p.err_text);
        assert_int_equal(scratch_file_count(), files);
    }
}
