/* Training on a stream, and bad data in the middle of a run. data/digits has 1500 training samples. */
#include <stdio.h>
#include <string.h>

#include "common/base/cores.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define SMALL "--model mlp:784,16,10"

static program p;

static void expect_status(int status, const char *line) {
    if (program_run(&p, "%s", line) != status) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

/* The hash of the weights, which the program prints last. */
static void weights_of(const char *line, char hash[17]) {
    expect_status(0, line);
    const char *weights = strstr(p.out_text, "weights ");
    if (!weights || sscanf(weights, "weights %16[0-9a-f]", hash) != 1)
        fail_msg("%s: no weights in %s", line, p.out_text);
}

TEST_IN(programs, test_one_rank_sees_the_files_order) {
    static const char *const lines[] = {
        "dp_train --single " SMALL " --epochs 2 --data stream:data/digits --no-shuffle --workers 0",
        "dp_train --single " SMALL " --epochs 2 --data stream:data/digits --no-shuffle",
        "ddp_train " SMALL " --epochs 2 --data stream:data/digits --no-shuffle --prefetch 1",
    };
    char folder[17], stream[17];
    weights_of("dp_train --single " SMALL " --epochs 2 --no-shuffle", folder);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        weights_of(lines[i], stream);
        assert_string_equal(stream, folder);
        assert_string_equal(p.err_text, "");
    }
}

TEST_IN(programs, test_ranks_and_workers_share_a_stream) {
    char line[200], first[17], again[17], reference[17] = "";
    for (int workers = 1; workers <= 3; workers += 2) {
        bool warned = workers > 1 && 3 * workers > ls_usable_cores();
        snprintf(line, sizeof line,
                 "ddp_train --spawn 3 --batch-size 60 " SMALL
                 " --epochs 2 --data stream:data/digits --join --workers %d",
                 workers);
        weights_of(line, first);
        assert_non_null(strstr(p.err_text, "[rank 0]: a stream keeps its own order: --shuffle has no effect\n"));
        assert_true((strstr(p.err_text, "[rank 0]: warning: 9 loader workers") != NULL) == warned);
        assert_int_equal(count_lines(p.err_text), warned ? 2 : 1); /* one for all ranks */
        weights_of(line, again);
        assert_string_equal(first, again);
        assert_string_not_equal(first, reference);
        memcpy(reference, first, sizeof reference);
    }
}

TEST_IN(programs, test_ranks_that_do_not_join_are_refused) {
    expect_status(1, "ddp_train --spawn 2 --data stream:data/digits --steps 3");
    assert_string_equal(p.out_text, "");
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "its 2 ranks may run out of samples at different steps: use --join"));
}

/* 100 training images, of which the file contains only 70 and a half, and 10 test images; all black. */
static void write_truncated_folder(void) {
    enum { PIXELS = 784 };
    static uint8_t images[16 + 100 * PIXELS] = {0, 0, 8, 3, 0, 0, 0, 100, 0, 0, 0, 28, 0, 0, 0, 28};
    static uint8_t labels[8 + 100] = {0, 0, 8, 1, 0, 0, 0, 100};
    scratch_write("train-images-idx3-ubyte", images, 16 + 70 * PIXELS + PIXELS / 2);
    scratch_write("train-labels-idx1-ubyte", labels, sizeof labels);
    images[7] = labels[7] = 10;
    scratch_write("t10k-images-idx3-ubyte", images, 16 + 10 * PIXELS);
    scratch_write("t10k-labels-idx1-ubyte", labels, 8 + 10);
    images[7] = labels[7] = 100;
}

/* With one share in order, sample 70 is in batch 7 of 10 samples each; with two shares, in batch 3 of its own, which is
 * batch 6 of both. */
TEST_IN(programs, test_bad_data_ends_the_run_at_its_batch) {
    static const struct {
        const char *options, *place;
    } rows[] = {{"--workers 0", "loader, epoch 0, batch 7: "},
                {"--workers 1", "loader worker 0, epoch 0, batch 7: "},
                {"--workers 2", "loader worker 0, epoch 0, batch 6: "}};
    char line[600];
    write_truncated_folder();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(line, sizeof line, "dp_train --devices 2 --batch-size 10 --no-shuffle --data stream:%s %s",
                 scratch_folder(), rows[i].options);
        expect_status(1, line);
        const char *place = strstr(p.err_text, rows[i].place);
        if (!place) fail_msg("%s: stderr: %s", line, p.err_text);
        assert_non_null(strstr(place, "train-images-idx3-ubyte is truncated: the file ends within sample 70 of 100\n"));
    }
    snprintf(line, sizeof line, "ddp_train --spawn 2 --batch-size 10 --join --no-shuffle --data stream:%s",
             scratch_folder());
    expect_status(1, line);
    assert_non_null(strstr(p.err_text, "the file ends within sample 70 of 100"));
}
