/* ddp_train --tensor: losses, accuracy, texts and files of one device, on grids with and without replicas, and
 * checkpoints that any number of parts can resume from any other. (Lost ranks: test_faults.c; communication:
 * test_recipe_options.c; refusals: test_bad_input.c.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"
#include "tests/train/small_run.h"

static program p;

#define GPT "--model gpt:2,4,32,16 --data sums:1 --batch-size 12 --lr 0.003 "
#define CONVNET "--model convnet --batch-size 24 --optimizer sgd --lr 0.01 "

static void run(const char *format, const char *line, const char *options) {
    program_run(&p, format, line, options);
    if (p.status != 0) fail_msg("%s %s: status %d, %s", line, options, p.status, p.err_text);
}

enum { STEPS = 12 };

/* The losses of each step, from --dump-losses. */
static void read_losses(double losses[STEPS]) {
    size_t nbytes;
    char *text = scratch_read(scratch_path("losses"), &nbytes), *at = text;
    for (int k = 0; k < STEPS; k++) {
        char *line = strchr(at, '\n');
        assert_non_null(line);
        losses[k] = strtod(at, &at);
        at = line + 1;
    }
    free(text);
}

static void train(const char *line, double losses[STEPS]) {
    char options[200];
    snprintf(options, sizeof options, "--steps 12 --dump-losses %s", scratch_path("losses"));
    run("ddp_train %s %s", line, options);
    read_losses(losses);
}

/* The lines with a program's results, up to the weights' hash. */
static void read_verdict(char verdict[400]) {
    const char *at = strstr(p.out_text, "test accuracy "), *text = strstr(p.out_text, "\nand the model goes on");
    at = at ? at : strstr(p.out_text, "next-token accuracy ");
    assert_non_null(at);
    snprintf(verdict, 400, "%.21s%s", at, text ? text : "");
}

static void expect_as_one(const char *model, const char *const *grids) {
    double one[STEPS], losses[STEPS];
    char line[400], wanted[400], verdict[400];
    train(model, one);
    read_verdict(wanted);
    for (; *grids; grids++) {
        snprintf(line, sizeof line, "%s%s", model, *grids);
        train(line, losses);
        read_verdict(verdict);
        for (int k = 0; k < STEPS; k++)
            if (!(fabs(losses[k] - one[k]) <= 2e-5))
                fail_msg("%s: loss %d is %.9g, on one device %.9g", line, k + 1, losses[k], one[k]);
        if (strcmp(wanted, verdict) != 0) fail_msg("%s: %s, on one device %s", line, verdict, wanted);
    }
}

/* --debug-ranks compares after each step: all state of replicas, and the uncut state of ranks that share layers. */
TEST_IN(programs, grids_follow_one_device) {
    expect_as_one(GPT "--generate 12 ",
                  (const char *const[]){"--spawn 2 --tensor 2 --debug-ranks",
                                        "--spawn 4 --tensor 4 --sequence-parallel",
                                        "--spawn 4 --tensor 2 --sequence-parallel --debug-ranks",
                                        "--spawn 4 --tensor 2 --shard-state 1", "--spawn 2 --tensor 1", NULL});
    expect_as_one(GPT "--clip-norm 0.5 --accumulate 3 ",
                  (const char *const[]){"--spawn 2 --tensor 2", "--spawn 2 --tensor 2 --offload optimizer",
                                        "--spawn 4 --tensor 2 --sequence-parallel --shard-state 2", NULL});
    expect_as_one(CONVNET, (const char *const[]){"--spawn 2 --tensor 2 --debug-ranks", NULL});
    expect_as_one(CONVNET "--sync-bn ", (const char *const[]){"--spawn 4 --tensor 2", NULL});
    expect_as_one("--model mlp:784,32,10 --batch-size 24 ", (const char *const[]){"--spawn 6 --tensor 2", NULL});
}

/* Data x tensor x pipeline, each of size 2. Stages send each other rows, or parts of channels. */
TEST_IN(programs, grids_of_three_axes_follow_one_device) {
    expect_as_one(GPT "--generate 12 --accumulate 2 --clip-norm 0.5 ",
                  (const char *const[]){"--spawn 8 --tensor 2 --pipeline 2",
                                        "--spawn 8 --tensor 2 --pipeline 2 --sequence-parallel --shard-state 1",
                                        "--spawn 4 --tensor 2 --pipeline 2 --schedule gpipe", NULL});
    expect_as_one(
        "--model mlp:784,32,24,16,10 --batch-size 24 --accumulate 3 ",
        (const char *const[]){"--spawn 8 --tensor 2 --pipeline 2", "--spawn 8 --tensor 2 --pipeline 4", NULL});
    expect_as_one(CONVNET "--accumulate 2 ", (const char *const[]){"--spawn 4 --tensor 2 --pipeline 2", NULL});
}

/* --- files -------------------------------------------------------------------------------------------------------------- */

static const char *const shapes[] = {"--spawn 1",
                                     "--spawn 2 --tensor 2",
                                     "--spawn 4 --tensor 4 --sequence-parallel",
                                     "--spawn 4 --tensor 2 --shard-state 1",
                                     "--spawn 8 --tensor 2 --pipeline 2 --shard-state 1 --sequence-parallel",
                                     "--spawn 4 --tensor 2 --pipeline 2"};

/* The initial weights are one device's, however they are cut. */
TEST_IN(programs, weights_are_whole_in_files) {
    char options[300], first[200];
    snprintf(first, sizeof first, "%s", scratch_path("first"));
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const char *path = i == 0 ? first : scratch_path("other");
        snprintf(options, sizeof options, "--lr 0 --steps 1 --quiet --no-evaluate --save-weights %s", path);
        run("ddp_train " GPT "%s %s", shapes[i], options);
        if (!same_files(first, path)) fail_msg("%s has other initial weights", shapes[i]);
        snprintf(options, sizeof options, "--lr 0 --steps 1 --quiet --no-evaluate --seed 5 --init %s --save-weights %s",
                 first, scratch_path("again"));
        run("ddp_train " GPT "%s %s", shapes[i], options);
        if (!same_files(first, scratch_path("again"))) fail_msg("%s reads other weights", shapes[i]);
    }
}

/* Saved and read by any grid: the second half has the losses of one run. */
TEST_IN(programs, checkpoints_go_from_any_to_any) {
    double whole[STEPS], losses[STEPS];
    char options[300], line[300];
    snprintf(line, sizeof line, GPT "--spawn 1");
    train(line, whole);
    for (size_t from = 0; from < COUNT_OF(shapes); from++) {
        snprintf(options, sizeof options, "--steps 6 --quiet --no-evaluate --save %s", scratch_path("half"));
        run("ddp_train " GPT "%s %s", shapes[from], options);
        for (size_t to = 0; to < COUNT_OF(shapes); to++) {
            assert_int_equal(unlink(scratch_path("losses")), 0); /* from the run before */
            snprintf(options, sizeof options, "--steps 12 --quiet --no-evaluate --resume %s --dump-losses %s",
                     scratch_path("half"), scratch_path("losses"));
            run("ddp_train " GPT "%s %s", shapes[to], options);
            size_t nbytes;
            char *text = scratch_read(scratch_path("losses"), &nbytes), *at = text;
            for (int k = 6; k < STEPS; k++) {
                losses[k] = strtod(at, &at);
                if (!(fabs(losses[k] - whole[k]) <= 2e-5))
                    fail_msg("%s, then %s: loss %d is %g, of one run %g", shapes[from], shapes[to], k + 1, losses[k],
                             whole[k]);
            }
            free(text);
        }
    }
}

/* The same grid resumes bit for bit. */
TEST_IN(programs, a_resumed_run_has_the_same_bits) {
    char options[300], whole[PROGRAM_HASH + 1], rest[PROGRAM_HASH + 1];
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        run("ddp_train " GPT "%s %s", shapes[i], "--steps 8 --no-evaluate");
        program_read_hash(&p, whole);
        snprintf(options, sizeof options, "--steps 4 --quiet --no-evaluate --save %s", scratch_path("half"));
        run("ddp_train " GPT "%s %s", shapes[i], options);
        snprintf(options, sizeof options, "--steps 8 --no-evaluate --resume %s", scratch_path("half"));
        run("ddp_train " GPT "%s %s", shapes[i], options);
        program_read_hash(&p, rest);
        if (strcmp(whole, rest) != 0) fail_msg("%s: %s, resumed %s", shapes[i], whole, rest);
    }
}
