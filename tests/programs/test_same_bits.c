/* The statement of `ddp_train --help` on --shard: when DDP's weights have DataParallel's bits, and when not. And the
 * line with the hash has a hint if the shards alone make them differ. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/programs/program.h"

#define HINT " (strided; dp_train's bits need --shard contiguous)\n"

enum { LINE = 300 };

/* Runs the line; returns whether the hash's line has the hint. */
static bool run(const char *line, const char *options, char hash[PROGRAM_HASH + 1]) {
    static program p;
    program_run(&p, "%s --model mlp:784,32,10 --steps 6 --no-evaluate --quiet %s", line, options);
    if (p.status != 0) fail_msg("%s %s: status %d, %s", line, options, p.status, p.err_text);
    program_read_hash(&p, hash);
    return strstr(p.out_text, HINT) != NULL;
}

struct row {
    int devices;
    const char *both, *ddp; /* options of both programs, and additional ones of DDP */
    bool same;
};

/* DataParallel's run; that of the row before is not repeated. */
static const char *run_dp(const struct row *row) {
    static char line[LINE], before[LINE], hash[PROGRAM_HASH + 1];
    snprintf(line, sizeof line, "dp_train --devices %d %s", row->devices, row->both);
    if (strcmp(line, before) != 0) assert_false(run(line, "", hash));
    memcpy(before, line, sizeof before);
    return hash;
}

static void expect_row(const struct row *row) {
    char line[LINE], ddp[PROGRAM_HASH + 1];
    const char *dp = run_dp(row);
    snprintf(line, sizeof line, "ddp_train --spawn %d %s", row->devices, row->ddp);
    bool strided = strstr(row->ddp, "contiguous") == NULL;
    if (run(line, row->both, ddp) != strided) fail_msg("%s: the hint is there, or is not", line);
    if ((strcmp(dp, ddp) == 0) != row->same) fail_msg("%s %s: %s, and DP has %s", line, row->both, ddp, dp);
}

TEST_IN(programs, test_as_they_come) {
    expect_row(&(struct row){2, "", "", false});
    expect_row(&(struct row){2, "", "--shard contiguous", true});
}

TEST_IN(programs, test_what_matters) {
    static const struct row rows[] = {
        {4, "", "--shard contiguous", true},
        {4, "", "--shard contiguous --allreduce direct", true},
        {4, "", "--shard contiguous --allreduce naive --no-overlap --bucket-cap-mb 0.01", true},
        {4, "", "--shard contiguous --shard-state 1 --allreduce ring", true}, /* reduce-scatter is in rank order */
        {4, "", "--shard contiguous --shard-state 2 --bucket-cap-mb 0.01", true},
        {4, "", "--shard contiguous --shard-state 3", true},
        {4, "", "--shard contiguous --allreduce ring", false},
        {4, "", "--shard contiguous --allreduce tree", false},
        {4, "", "--shard contiguous --allreduce halving-doubling", false},
        {2, "", "--shard contiguous --allreduce ring", true},
        {2, "", "--shard contiguous --allreduce tree", true},
        {2, "", "--shard contiguous --allreduce halving-doubling", true},
        {3, "--batch-size 63", "--shard contiguous", false}, /* 1/3 is rounded */
        {4, "--batch-size 9", "--shard contiguous", true},   /* 3 3 3 0: N need not divide the batch */
        {2, "--precision bf16", "--shard contiguous", true},
        {2, "--accumulate 2", "--shard contiguous", false},
        {2, "", "--shard contiguous --compress bf16", false},
        {2, "", "--shard contiguous --compress topk:0.5", false},
        {4, "", "--shard contiguous --compress topk:1 --allreduce ring", true}, /* all elements, in rank order */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_row(&rows[i]);
}

/* No hint if one rank has every sample, nor if a stream allows only one kind of shards. */
TEST_IN(programs, test_no_hint) {
    char hash[PROGRAM_HASH + 1];
    assert_false(run("ddp_train", "", hash));
    assert_false(run("ddp_train --spawn 2 --data stream:data/digits --join", "--no-shuffle", hash));
    assert_true(run("ddprun --nproc-per-node 2 ddp_train", "", hash));
}
