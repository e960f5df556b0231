/* Training on each layout of files: both modes, loaders with and without workers, checkpoints. */
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/data/folders.h"
#include "tests/programs/program.h"

static program p;

static void run(char hash[PROGRAM_HASH + 1], const char *line, const char *options) {
    program_run(&p, "%s --data %s --steps 4 --batch-size 4 %s", line, scratch_folder(), options);
    if (p.status != 0) fail_msg("%s %s: status %d, %s", line, options, p.status, p.err_text);
    program_read_hash(&p, hash);
}

/* DP's weights, whatever the mode and the loader. */
static void expect_same_weights(const char *model) {
    static const char *const others[] = {
        "dp_train --devices 2 --workers 0", "dp_train --devices 2 --workers 2 --prefetch 2",
        "ddp_train --spawn 2 --shard contiguous", "ddp_train --spawn 2 --shard contiguous --workers 0"};
    char first[PROGRAM_HASH + 1], hash[PROGRAM_HASH + 1];
    run(first, "dp_train --devices 2", model);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        run(hash, others[i], model);
        assert_string_equal(hash, first);
    }
    run(hash, "dp_train --devices 2 --normalize none", model);
    if (strstr(model, "wide") == NULL) assert_string_not_equal(hash, first);
}

TEST_IN(programs, test_records_train_in_both_modes) {
    folders_write_cifar10();
    expect_same_weights("--model mlp:3072,8,10");
}

TEST_IN(programs, test_float_targets_train_in_both_modes) {
    static const float values[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -2, -3};
    folders_write_npy("inputs.npy", "<f4", "(8, 3)", values, 96);
    folders_write_npy("targets.npy", "<f4", "(8, 2)", values, 64);
    expect_same_weights("--model wide:3,8,2");
    program_run(&p, "dp_train --single --data %s --steps 2 --batch-size 4 --model wide:3,8,2", scratch_folder());
    assert_int_equal(p.status, 0);
    assert_null(strstr(p.out_text, "accuracy"));
}

/* The numbers of auto are printed and saved; a run that resumes with different ones reports it. */
TEST_IN(programs, test_normalization_is_announced_and_kept) {
    char hash[PROGRAM_HASH + 1], options[400];
    static const char numbers[] = "auto (mean 0.5 0.249 0.1235, deviation 0.2898 0.1449 0.07244)";
    folders_write_cifar10();
    snprintf(options, sizeof options, "--model mlp:3072,8,10 --save %s", scratch_path("saved"));
    run(hash, "dp_train --devices 2", options);
    program_expect_text(&p, "normalization: ");
    program_expect_text(&p, numbers);
    program_run(
        &p,
        "dp_train --devices 2 --data %s --steps 5 --batch-size 4 --model mlp:3072,8,10 --resume %s --normalize none",
        scratch_folder(), scratch_path("saved"));
    assert_int_equal(p.status, 0);
    assert_null(strstr(p.out_text, "normalization: "));
    const char *note = strstr(p.err_text, "normalization");
    if (!note || !strstr(note, numbers)) fail_msg("stderr: %s", p.err_text);
}
