/* ddp_train --shard-state 3, in which no rank has all parameters: the same accuracy, hash and files as a run in which
 * every rank has them. (Checkpoints: test_resume.c; lost ranks: test_faults.c; NaN: test_nan_stops.c.) */
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"
#include "tests/train/small_run.h"

static program p;

static void run(const char *line, int stage, const char *options) {
    program_run(&p, "%s --shard-state %d %s", line, stage, options);
    if (p.status != 0) fail_msg("%s, stage %d: status %d, %s", line, stage, p.status, p.err_text);
}

/* The lines with accuracy and weights. */
static const char *verdict(void) {
    const char *at = strstr(p.out_text, "test accuracy ");
    assert_non_null(at);
    at = strstr(at + 1, "test accuracy ");
    assert_non_null(at);
    return at;
}

static void expect_same_end(const char *line, const char *units) {
    char whole[300];
    run(line, 0, "");
    snprintf(whole, sizeof whole, "%s", verdict());
    run(line, 3, units);
    assert_string_equal(verdict(), whole);
}

/* 297 test samples: 148 and 149 per rank, in chunks of 37; and 42 or 43 on seven ranks, in chunks of 6. */
TEST_IN(programs, test_ranks_that_evaluate_in_different_numbers_of_passes) {
    expect_same_end("ddp_train --spawn 2 --batch-size 74 --steps 3", "");
    expect_same_end("ddp_train --spawn 7 --batch-size 42 --steps 3 --model convnet", "--prefetch-blocks 0");
}

TEST_IN(programs, test_weights_are_whole_in_files) {
    static const char *const line =
        "ddp_train --spawn 3 --model convnet --batch-size 60 --no-evaluate --quiet --steps 2";
    char options[300], whole[200], sharded[200], hash[2][PROGRAM_HASH + 1];
    snprintf(whole, sizeof whole, "%s", scratch_path("whole"));
    snprintf(sharded, sizeof sharded, "%s", scratch_path("sharded"));
    snprintf(options, sizeof options, "--save-weights %s", whole);
    run(line, 0, options);
    snprintf(options, sizeof options, "--save-weights %s", sharded);
    run(line, 3, options);
    assert_true(same_files(whole, sharded));
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options, "--seed 5 --precision fp16 --init %s", i ? whole : sharded);
        run(line, 3 * i, options);
        program_read_hash(&p, hash[i]);
    }
    assert_string_equal(hash[0], hash[1]);
}
