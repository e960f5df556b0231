/* --no-set-epoch: every epoch has the first one's order, in both modes, in one run and over a checkpoint. With a
 *                 learning rate of 0 the losses reflect the order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define SMALL "--model mlp:784,16,10 --batch-size 300 --optimizer sgd --lr 0 --no-evaluate "

enum { EPOCH_STEPS = 5 };

static program p;

/* The losses of each step, as text. */
static char *losses(const char *line, const char *options) {
    size_t nbytes;
    (void)remove(scratch_path("losses"));
    program_run(&p, "%s " SMALL "--dump-losses %s %s", line, scratch_path("losses"), options);
    if (p.status != 0) fail_msg("%s %s: status %d, %s", line, options, p.status, p.err_text);
    return scratch_read(scratch_path("losses"), &nbytes);
}

/* The beginning of line `number` of a text. */
static const char *line_at(const char *text, int number) {
    while (number-- > 0) text = strchr(text, '\n') + 1;
    return text;
}

static const char *const modes[] = {"dp_train --single", "dp_train --devices 2", "ddp_train --spawn 2",
                                    "ddp_train --spawn 2 --shard contiguous"};
enum { MODES = sizeof modes / sizeof *modes };

TEST_IN(programs, test_orders) {
    static const char announced[] = ", in the same order each epoch; 10 steps in all\n";
    for (int m = 0; m < MODES; m++) {
        char *good = losses(modes[m], "--epochs 2"), *bad = NULL;
        assert_null(strstr(p.out_text, "in the same order"));
        bad = losses(modes[m], "--epochs 2 --no-set-epoch");
        program_expect_text(&p, announced);
        assert_int_equal(count_lines(good), 2 * EPOCH_STEPS);
        assert_int_equal(count_lines(bad), 2 * EPOCH_STEPS);
        size_t length = (size_t)(line_at(bad, EPOCH_STEPS) - bad);
        assert_memory_equal(good, bad, length);
        assert_string_equal(line_at(bad, EPOCH_STEPS) + length, "");
        assert_memory_equal(bad, bad + length, length);
        assert_true(strcmp(line_at(good, EPOCH_STEPS), bad + length) != 0);
        free(good);
        free(bad);
    }
}

/* Ended in the second epoch; and the message of a resumed run without the option. */
TEST_IN(programs, test_resumed) {
    char options[700];
    char *whole = losses(modes[2], "--steps 10 --no-set-epoch");
    snprintf(options, sizeof options, "--steps 7 --no-set-epoch --save %s", scratch_path("part"));
    free(losses(modes[2], options));
    snprintf(options, sizeof options, "--steps 10 --no-set-epoch --resume %s", scratch_path("part"));
    char *rest = losses(modes[2], options);
    assert_string_equal(rest, line_at(whole, 7));
    assert_null(strstr(p.err_text, "other than before"));
    snprintf(options, sizeof options, "--steps 10 --resume %s", scratch_path("part"));
    char *other = losses(modes[2], options);
    assert_non_null(strstr(p.err_text, "other than before: shuffling on (was on without set_epoch)\n"));
    assert_true(strcmp(other, rest) != 0);
    free(whole);
    free(rest);
    free(other);
}

TEST_IN(programs, test_idle) {
    free(losses("dp_train --single", "--steps 1 --no-shuffle --no-set-epoch"));
    assert_string_equal(p.err_text, "dp_train: --no-set-epoch has no effect: the samples keep one order anyway\n");
    assert_null(strstr(p.out_text, "in the same order"));
}
