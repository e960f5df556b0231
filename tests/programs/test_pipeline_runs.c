/* ddp_train --pipeline: the accuracy, hash, text and files of a run on one device that accumulates, checkpoints that
 * each can resume from the other, and refused options. (Every step's bits: tests/ddp_procs/test_pipeline.c; lost ranks:
 * test_faults.c.) */
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"
#include "tests/train/small_run.h"

static program p;

static void run(const char *line, int stages, const char *options) {
    program_run(&p, "ddp_train --spawn %d --pipeline %d %s %s", stages, stages, line, options);
    if (p.status != 0) fail_msg("%s, %d stages: status %d, %s", line, stages, p.status, p.err_text);
}

/* The last line: loss, accuracy and hash. */
static const char *verdict(void) {
    const char *at = strstr(p.out_text, "final loss ");
    assert_non_null(at);
    return at;
}

static void expect_same_end(const char *line, int stages, const char *options) {
    char whole[400];
    run(line, 1, "");
    snprintf(whole, sizeof whole, "%s", verdict());
    run(line, stages, options);
    assert_string_equal(verdict(), whole);
}

/* All ranks pass test samples through all stages: 297 of them, in different numbers of passes. */
TEST_IN(programs, test_runs_end_as_one_device_does) {
    expect_same_end("--accumulate 4 --batch-size 60 --steps 6 --model convnet --optimizer sgd --momentum 0.9", 3, "");
    expect_same_end("--accumulate 3 --batch-size 20 --steps 4 --model deep", 2, "--schedule gpipe");
    expect_same_end("--batch-size 8 --steps 5 --model gpt:2,2,32,16 --data sums:1 --generate 30", 4, "");
    expect_same_end("--accumulate 2 --batch-size 30 --steps 4 --precision fp16 --clip-norm 0.5", 2, "");
}

TEST_IN(programs, test_replicas_end_as_ranks_do) {
    static const struct {
        int stages;
        const char *how;
    } runs[] = {{1, ""}, {3, ""}, {3, "--shard-state 1"}};
    static const char *const line = "--accumulate 2 --batch-size 40 --model convnet --quiet";
    char hash[COUNT_OF(runs)][PROGRAM_HASH + 1], weights[COUNT_OF(runs)][200], saved[200];
    snprintf(saved, sizeof saved, "%s", scratch_path("saved"));
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        snprintf(weights[i], sizeof weights[i], "%s%zu", scratch_path("weights"), i);
        program_run(&p, "ddp_train --spawn %d --pipeline %d %s --steps 5 %s --save %s --save-weights %s",
                    2 * runs[i].stages, runs[i].stages, runs[i].how, line, saved, weights[i]);
        if (p.status != 0) fail_msg("%s: %s", runs[i].how, p.err_text);
        assert_true(same_files(weights[0], weights[i]));
    }
    for (size_t i = 0; i < COUNT_OF(runs); i++) { /* with the shards' checkpoints */
        program_run(&p, "ddp_train --spawn %d --pipeline %d %s --steps 8 %s --resume %s", 2 * runs[i].stages,
                    runs[i].stages, runs[i].how, line, saved);
        if (p.status != 0) fail_msg("%s: %s", runs[i].how, p.err_text);
        program_read_hash(&p, hash[i]);
        assert_string_equal(hash[i], hash[0]);
    }
}

/* Files are whole in both directions; a run resumes with a different number of stages. */
TEST_IN(programs, test_checkpoints_and_weights_are_whole) {
    static const char *const line = "--accumulate 2 --batch-size 40 --model convnet --no-evaluate --quiet";
    char options[500], files[2][2][200], hash[PROGRAM_HASH + 1], expected[PROGRAM_HASH + 1];
    run(line, 1, "--steps 9");
    program_read_hash(&p, expected);
    for (int i = 0; i < 2; i++) {
        snprintf(files[i][0], sizeof files[i][0], "%s", scratch_path(i ? "stages" : "one"));
        snprintf(files[i][1], sizeof files[i][1], "%s", scratch_path(i ? "stages.weights" : "one.weights"));
        snprintf(options, sizeof options, "--steps 5 --save %s --save-weights %s", files[i][0], files[i][1]);
        run(line, i ? 3 : 1, options);
    }
    assert_true(same_files(files[0][1], files[1][1]));
    for (int i = 0; i < 4; i++) {
        snprintf(options, sizeof options, "--steps 9 --resume %s", files[i % 2][0]);
        run(line, 1 + i % 3, options);
        program_read_hash(&p, hash);
        assert_string_equal(hash, expected);
    }
}

/* A moment of a tied embedding is saved once. */
TEST_IN(programs, test_a_tied_embedding_goes_on) {
    static const char *const line =
        "--batch-size 8 --model gpt:2,2,32,16 --data sums:1 --no-evaluate --quiet --optimizer adamw";
    char options[300], hash[PROGRAM_HASH + 1], expected[PROGRAM_HASH + 1];
    run(line, 1, "--steps 8");
    program_read_hash(&p, expected);
    snprintf(options, sizeof options, "--steps 4 --save %s", scratch_path("saved"));
    run(line, 3, options);
    snprintf(options, sizeof options, "--steps 8 --resume %s", scratch_path("saved"));
    for (int stages = 1; stages <= 4; stages += 3) {
        run(line, stages, options);
        program_read_hash(&p, hash);
        assert_string_equal(hash, expected);
    }
}

/* In one line, before a rank is started. */
TEST_IN(programs, test_what_stages_cannot_do_is_refused) {
    static const struct {
        const char *options, *text;
    } refused[] = {
        {"--spawn 3 --pipeline 2", "--pipeline 2 needs a multiple of 2 ranks, but there are 3"},
        {"--spawn 4 --pipeline 4 --model convnet", "--pipeline 4: the model has only 3 blocks"},
        {"--spawn 2 --pipeline 2 --join", "cannot be combined with --uneven and --join"},
        {"--spawn 2 --pipeline 2 --shard-state 2", "cannot be combined with --shard-state 2 and 3"},
        {"--spawn 2 --pipeline 2 --find-unused", "cannot be combined with --find-unused"},
        {"--spawn 2 --pipeline 2 --compress fp16", "cannot be combined with --compress"},
        {"--spawn 2 --pipeline 2 --debug-ranks", "cannot be combined with --debug-ranks"},
        {"--spawn 2 --pipeline 2 --checkpoint-activations 1", "cannot be combined with --checkpoint-activations"},
        {"--spawn 2 --pipeline 2 --cuda-graph", "cannot be combined with --cuda-graph"},
        {"--spawn 2 --pipeline 2 --resident-batches 2 --steps 4", "cannot be combined with --resident-batches"},
        {"--spawn 2 --pipeline 2 --device-kind meta", "cannot be combined with --device-kind meta"},
        {"--spawn 2 --pipeline 2 --schedule gpipe --accumulate 64 --batch-size 64", "in flight"},
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        program_run(&p, "ddp_train --quiet %s", refused[i].options);
        if (p.status != 2 || count_lines(p.err_text) != 1 || !strstr(p.err_text, refused[i].text))
            fail_msg("%s: status %d, %s", refused[i].options, p.status, p.err_text);
        assert_string_equal(p.out_text, "");
    }
}

/* A NaN in a later stage is reported as received from the stage before. */
TEST_IN(programs, test_a_loss_that_is_nan_ends_the_run) {
    program_run(&p,
                "ddp_train --spawn 3 --pipeline 3 --model convnet --accumulate 4 --optimizer sgd --lr 1e30 --quiet");
    assert_int_equal(p.status, 1);
    if (!strstr(p.err_text,
                "the loss is nan; the first value that is not finite is in the output of pool2, which rank 1 has sent"))
        fail_msg("%s", p.err_text);
}
