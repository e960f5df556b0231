/* ddp_train with ranks that differ: shards of unequal size, ranks that run out of samples, unused parameters, and what
 * --debug-ranks reports of them. data/digits has 1500 training samples: 7 ranks get 215 or 214. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/checkpoint/content.h"
#include "tests/programs/program.h"

enum { SAMPLES = 1500, LOSSES_MAX = 200 };

static program p;

static void expect_status(int status, const char *line) {
    if (program_run(&p, "%s", line) != status) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

/* Runs it and reads the losses of its steps. */
static size_t losses_of(const char *line, double losses[LOSSES_MAX]) {
    char with_file[700];
    const char *path = scratch_path("losses");
    size_t nbytes, count = 0;
    snprintf(with_file, sizeof with_file, "%s --dump-losses %s", line, path);
    expect_status(0, with_file);
    char *text = scratch_read(path, &nbytes);
    for (char *at = strtok(text, "\n"); at && count < LOSSES_MAX; at = strtok(NULL, "\n")) losses[count++] = atof(at);
    free(text);
    return count;
}

/* --- join -------------------------------------------------------------------------------------------------------------- */

/* 107 samples a step on each rank: ranks 0 and 1 need three steps, the others two. */
static const char *const uneven = "ddp_train --spawn 7 --uneven --batch-size 749 --model mlp:784,16,10";

TEST_IN(programs, test_without_join_it_is_refused) {
    static const char *const more[] = {"", "--steps 2", "--epochs 3 --workers 0"};
    char line[300];
    for (size_t i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "%s %s", uneven, more[i]);
        expect_status(1, line);
        assert_string_equal(p.out_text, "");
        assert_int_equal(count_lines(p.err_text), 1);
        assert_non_null(strstr(p.err_text, "rank 0 has 3 steps in an epoch, but rank 2 has 2: use --join"));
    }
    expect_status(0, "ddp_train --spawn 3 --uneven --batch-size 96 --steps 2"); /* 500 each: nothing to join */
    expect_status(2, "ddp_train --spawn 2 --join-throw");
    assert_non_null(strstr(p.err_text, "give --join, too"));
    expect_status(2, "ddp_train --spawn 2 --join-divide active");
}

/* All ranks stay equal in every step (--debug-ranks would end the run), and evaluate their common model. */
TEST_IN(programs, test_with_join_it_trains) {
    static const char *const more[] = {"", "--join-divide active --optimizer sgd --momentum 0.9 --workers 0"};
    char line[400];
    double losses[LOSSES_MAX];
    for (size_t i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "%s --join --epochs 2 --debug-ranks %s", uneven, more[i]);
        assert_int_equal(losses_of(line, losses), 6);
        assert_int_equal(count_text(p.out_text, "test accuracy"), 3);
    }
}

/* A rank without samples continues to send its unsent values. */
TEST_IN(programs, test_join_with_top_k) {
    double losses[LOSSES_MAX] = {0};
    char line[400];
    snprintf(line, sizeof line, "%s --join --epochs 2 --debug-ranks --compress topk:0.05", uneven);
    assert_int_equal(losses_of(line, losses), 6);
}

/* A rank without samples updates its shards, and sends them. */
TEST_IN(programs, test_join_with_shards) {
    double whole[LOSSES_MAX] = {0}, losses[LOSSES_MAX] = {0};
    char line[400];
    snprintf(line, sizeof line, "%s --join --epochs 2", uneven);
    assert_int_equal(losses_of(line, whole), 6);
    for (int stage = 1; stage <= 3; stage++) {
        snprintf(line, sizeof line, "%s --join --epochs 2 --debug-ranks --shard-state %d", uneven, stage);
        assert_int_equal(losses_of(line, losses), 6);
        assert_memory_equal(losses, whole, sizeof whole);
    }
}

/* Ranks without samples take part in batch norm's collectives: with --join-divide active each step is that of one
 * device. */
TEST_IN(programs, test_join_with_sync_bn) {
    double whole[LOSSES_MAX] = {0}, losses[LOSSES_MAX] = {0};
    const char *options = "--batch-size 749 --steps 4 --model convnet";
    char line[400];
    snprintf(line, sizeof line, "dp_train --single %s", options);
    assert_int_equal(losses_of(line, whole), 4);
    snprintf(line, sizeof line, "ddp_train --spawn 7 --uneven --join --join-divide active --sync-bn --debug-ranks %s",
             options);
    assert_int_equal(losses_of(line, losses), 4);
    for (size_t k = 0; k < 4; k++) {
        if (!(fabs(losses[k] - whole[k]) <= 1e-4 * whole[k])) fail_msg("step %zu: %g, not %g", k, losses[k], whole[k]);
    }
}

/* With a learning rate of 0 the losses show which samples were used: each once, by any rank. */
TEST_IN(programs, test_each_sample_counts_once) {
    double whole[LOSSES_MAX] = {0}, losses[LOSSES_MAX] = {0};
    assert_int_equal(losses_of("dp_train --single --batch-size 1500 --epochs 1 --model mlp:784,16,10 --lr 0", whole),
                     1);
    static const struct {
        const char *line;
        size_t steps;
        int counts[3]; /* of the last three steps; earlier ones have a full batch */
        int batch;
    } runs[] = {
        {"--spawn 7 --uneven --batch-size 749", 3, {749, 749, 2}, 749},
        {"--spawn 8 --uneven --batch-size 1496", 2, {0, 1496, 4}, 1496},
        {"--spawn 7 --data stream:data/digits --batch-size 749", 3, {749, 749, 2}, 749},
        {"--spawn 8 --shard contiguous --batch-size 500", 3, {500, 500, 500}, 500},
    };
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        char line[400];
        snprintf(line, sizeof line, "ddp_train %s --join --epochs 1 --model mlp:784,16,10 --lr 0", runs[r].line);
        assert_int_equal(losses_of(line, losses), runs[r].steps);
        double sum = 0;
        int count = 0;
        for (size_t k = 0; k < runs[r].steps; k++) {
            bool last = k + 3 >= runs[r].steps;
            int samples = last ? runs[r].counts[k + 3 - runs[r].steps] : runs[r].batch;
            sum += losses[k] * samples;
            count += samples;
        }
        assert_int_equal(count, SAMPLES);
        if (!(fabs(sum / SAMPLES - whole[0]) <= 1e-6))
            fail_msg("%s: mean %.9g, not %.9g", line, sum / SAMPLES, whole[0]);
    }
}

TEST_IN(programs, test_join_throw) {
    char line[300];
    snprintf(line, sizeof line, "%s --join --join-throw --epochs 2 --save %s", uneven, scratch_path("weights"));
    expect_status(1, line);
    assert_null(strstr(p.out_text, "\nepoch "));
    assert_non_null(strstr(p.err_text, "[rank 2]: error: rank 2 has run out of samples at step 2, which ends the run"));
    assert_non_null(strstr(p.err_text, "has run out of samples at step 2: this rank, which has more, stops as well"));
    assert_int_equal(scratch_file_count(), 0);
}

/* --- find_unused -------------------------------------------------------------------------------------------------------- */

static const char *weights_of(const char *out_text) {
    const char *at = strstr(out_text, "weights ");
    assert_non_null(at);
    return at;
}

/* A model that uses everything: the same weights, and the main rank reports that the option is not needed. */
TEST_IN(programs, test_find_unused) {
    static program plain;
    const char *options = "--spawn 2 --steps 12 --model mlp:784,16,10";
    assert_int_equal(program_run(&plain, "ddp_train %s", options), 0);
    assert_int_equal(program_run(&p, "ddp_train --find-unused %s", options), 0);
    assert_string_equal(weights_of(p.out_text), weights_of(plain.out_text));
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(
        strstr(p.err_text, "ddp_train[rank 0]: warning: all parameters were used on all ranks in the first 10 steps"));
}

/* The file of the weights. */
static const char *train_branched(const char *line, const char *options, const char *name) {
    program_run(&p, "%s --model branched --steps 12 --no-evaluate %s --save-weights %s", line, options,
                scratch_path(name));
    if (p.status != 0 || p.err_text[0] != '\0') fail_msg("%s: status %d, %s", line, p.status, p.err_text);
    return scratch_path(name);
}

static bool same_tensor(struct content *left, struct content *right, const char *name) {
    const ls_safetensor *a = content_find(left, name), *b = content_find(right, name);
    assert_int_equal(a->nbytes, b->nbytes);
    return memcmp(a->data, b->data, a->nbytes) == 0;
}

/* A branch that no rank uses is refused by name, in the first step. */
TEST_IN(programs, test_branch_is_refused) {
    static const char names[] =
        "error: 2 parameters got no gradient: aux.weight aux.bias; bucket 1 of 1 and all after it wait";
    expect_status(1, "ddp_train --model branched --steps 3");
    assert_int_equal(count_text(p.err_text, names), 1);
    assert_non_null(strstr(p.err_text, "--find-unused"));
    expect_status(1, "ddp_train --spawn 2 --model branched --steps 3");
    assert_non_null(strstr(p.err_text, names));
}

/* PyTorch leaves a gradient of None alone, weight decay included. DataParallel on several devices has a gradient of
 * zero for such a branch, which weight decay acts on (docs/pytorch.md#dataparallel). */
TEST_IN(programs, test_branch_decays_in_data_parallel_only) {
    static const struct {
        const char *line;
        bool left_alone;
    } runs[] = {
        {"dp_train --single", true},
        {"ddp_train --find-unused", true},
        {"ddp_train --spawn 2 --find-unused", true},
        {"ddp_train --spawn 2 --find-unused --shard contiguous", true},
        {"dp_train --devices 1", true},
        {"dp_train --devices 2", false},
        {"dp_train --devices 2 --accumulate 2", false},
    };
    struct content before = content_open(train_branched("dp_train --single", "--optimizer sgd --lr 0", "before"));
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        struct content after = content_open(train_branched(runs[r].line, "--weight-decay 0.1", "after"));
        assert_int_equal(after.count, 6);
        assert_false(same_tensor(&before, &after, "fc1.weight"));
        if (same_tensor(&before, &after, "aux.weight") != runs[r].left_alone ||
            same_tensor(&before, &after, "aux.bias") != runs[r].left_alone)
            fail_msg("%s: the branch has %schanged", runs[r].line, runs[r].left_alone ? "" : "not ");
        content_close(&after, scratch_path("after"));
    }
    content_close(&before, scratch_path("before"));
}

/* The one exception to "the same weights" (README.md#compare): the branch, and only with weight decay. A gradient of
 * zero changes no momentum, no moment and no norm. */
TEST_IN(programs, test_branch_differs_by_decay_only) {
    static const struct {
        const char *options;
        bool same_branch;
    } runs[] = {
        {"--optimizer sgd --momentum 0.9", true},
        {"--optimizer adam", true},
        {"--optimizer adam --clip-norm 0.1", true},
        {"--optimizer adamw --weight-decay 0", true},
        {"--optimizer sgd --momentum 0.9 --weight-decay 0.1", false},
        {"--optimizer adam --weight-decay 0.1 --clip-norm 0.1", false},
        {"--optimizer adamw", false}, /* 0.01, its default */
    };
    static const char *const used[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        const char *ddp_line = "ddp_train --spawn 2 --find-unused --shard contiguous";
        struct content dp = content_open(train_branched("dp_train --devices 2", runs[r].options, "dp"));
        struct content ddp = content_open(train_branched(ddp_line, runs[r].options, "ddp"));
        for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
            if (!same_tensor(&dp, &ddp, used[i])) fail_msg("%s: %s differs", runs[r].options, used[i]);
        }
        if (same_tensor(&dp, &ddp, "aux.weight") != runs[r].same_branch)
            fail_msg("%s: the branch is %s", runs[r].options, runs[r].same_branch ? "different" : "the same");
        content_close(&dp, scratch_path("dp"));
        content_close(&ddp, scratch_path("ddp"));
    }
}

/* --- debug-ranks -------------------------------------------------------------------------------------------------------- */

static void expect_described(const char *line) {
    expect_status(0, line);
    assert_int_equal(count_text(p.out_text, "final loss"), 1); /* only the main rank prints results */
    int samples = 0, share = 0;
    enum { HASH_NBYTES = sizeof "initial weights 0123456789abcdef" - 1 };
    char wanted[64], weights[HASH_NBYTES];
    assert_int_equal(count_lines(p.err_text), 3);
    for (int r = 0; r < 3; r++) {
        snprintf(wanted, sizeof wanted, "ddp_train[rank %d]: rank %d of 3: pid ", r, r);
        const char *at = strstr(p.err_text, wanted);
        if (!at) fail_msg("'%s' is not in: %s", wanted, p.err_text);
        snprintf(wanted, sizeof wanted, ", device %d, core", r);
        at = strstr(at, wanted);
        assert_non_null(at);
        at = strstr(at, "; ");
        assert_int_equal(sscanf(at, "; %d of 1500 samples, the first ", &share), 1);
        samples += share;
        at = strstr(at, "initial weights ");
        assert_non_null(at);
        if (r == 0) memcpy(weights, at, HASH_NBYTES);
        assert_memory_equal(at, weights, HASH_NBYTES);
    }
    assert_int_equal(samples, SAMPLES);
}

TEST_IN(programs, test_each_rank_is_described) {
    expect_described("ddp_train --spawn 3 --debug-ranks --steps 2 --batch-size 96");
    expect_described("ddprun --nproc-per-node 3 ddp_train --debug-ranks --steps 2 --batch-size 96 --shard contiguous");
}

/* A rank that forgets to wait for the other ranks' gradients diverges, which only --debug-ranks detects. */
TEST_IN(programs, test_drifting_ranks_stop) {
    const char script[] = "[ $RANK = 1 ] && export LS_CPU_STREAMS=shuffle:1 LS_CPU_DROP_WAIT='bucket reduced'\n"
                          "exec \"$1\" --model mlp:784,32,10 --optimizer sgd --lr 0.1 --steps 6 --batch-size 60 $2\n";
    scratch_write("rank", script, sizeof script - 1);
    const char *path = scratch_path("rank");
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 3 /bin/sh %s ddp_train --quiet", path), 0);
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 3 /bin/sh %s ddp_train --debug-ranks", path), 1);
    assert_non_null(strstr(p.err_text, "error: after step "));
    assert_non_null(strstr(p.err_text, ", fc1.weight (100352 bytes) differs between ranks: other bits than on rank 0 "
                                       "on rank 1\n"));
}
