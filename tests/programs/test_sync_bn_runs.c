/* The option --sync-bn: the same numbers from both programs, a note if it has no effect, and the end of the job if a
 * rank dies. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"
#include "tests/programs/small_images.h"

static program p;

static void expect_good(const char *line) {
    if (program_run(&p, "%s", line) != 0) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

/* The weights' hash at the end of a run. */
static void weights_of(const char *line, char weights[17]) {
    expect_good(line);
    const char *at = strstr(p.out_text, "weights ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "weights %16[0-9a-f]", weights), 1);
}

/* 2 batches of 70, cut 18 18 18 16, then one of 18, cut 5 5 5 3, and again. */
TEST_IN(programs, test_both_programs_come_to_the_same_weights) {
    char dp[17], ddp[17], apart[17];
    char options[700], line[900];
    snprintf(options, sizeof options,
             "--model convnet --optimizer sgd --lr 0.05 --batch-size 70 --steps 5 --no-evaluate --data %s",
             small_images("images", 158, 1));
    snprintf(line, sizeof line, "dp_train --devices 4 --sync-bn %s", options);
    weights_of(line, dp);
    snprintf(line, sizeof line, "ddp_train --spawn 4 --sync-bn --shard contiguous --allreduce direct %s", options);
    weights_of(line, ddp);
    assert_string_equal(dp, ddp);
    snprintf(line, sizeof line, "dp_train --devices 4 %s", options);
    weights_of(line, apart);
    assert_string_not_equal(dp, apart);
}

TEST_IN(programs, test_a_model_without_batch_norm_gets_a_note) {
    static const char *const lines[] = {"dp_train --devices 2", "ddp_train --spawn 2", "dp_train --single"};
    char line[200];
    for (size_t i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "%s --sync-bn --model mlp:784,8,10 --steps 1 --no-evaluate", lines[i]);
        expect_good(line);
        if (i == 2) continue;
        assert_int_equal(count_lines(p.err_text), 1); /* printed once, not by each rank */
        assert_non_null(strstr(p.err_text, "--sync-bn has no effect: mlp:784,8,10 has no batch norm"));
        strcat(line, " --quiet");
        expect_good(line);
        assert_string_equal(p.err_text, "");
    }
}

TEST_IN(programs, test_one_device_trains_as_without_it) {
    char with[17], without[17];
    char options[700], line[900];
    snprintf(options, sizeof options, "--model convnet --steps 2 --no-evaluate --data %s",
             small_images("images", 128, 1));
    snprintf(line, sizeof line, "dp_train --single %s", options);
    weights_of(line, without);
    static const char *const lines[] = {"dp_train --single", "dp_train --devices 1", "ddp_train"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "%s --sync-bn %s", lines[i], options);
        weights_of(line, with);
        assert_string_equal(with, without);
        assert_string_equal(p.err_text, "");
    }
}

/* Wherever the rank is at that moment: in a bucket, or in batch norm. */
TEST_IN(programs, test_a_lost_rank_ends_the_job) {
    for (int i = 0; i < 4; i++) {
        program_start(&p,
                      "ddp_train --spawn 3 --sync-bn --model convnet --epochs 100000 --batch-size 96 --no-evaluate "
                      "--data %s",
                      small_images("images", 96, 1));
        program_await(&p, "\n");
        usleep((useconds_t)(20000 + 3700 * i));
        pid_t rank = program_rank(&p, 1 + i % 2);
        assert_true(rank > 0);
        kill(rank, SIGKILL);
        assert_int_equal(program_finish(&p), 1);
        assert_non_null(strstr(p.err_text, "was ended by signal 9"));
        programs_await_orphans();
    }
}
