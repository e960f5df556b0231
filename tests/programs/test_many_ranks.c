/* 64 ranks, however few the cores: they start, train in lockstep, and end. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

/* They take 3 s on two free cores; the deadline is for a sanitizer on a busy machine. */
#define DEADLINE_S 220.0

/* A sample per rank. --debug-ranks compares all ranks' weights after every step, and ends the run with an error if they
 * differ. */
static const char *const common = "--model mlp --steps 3 --batch-size 64 --no-evaluate --timeout 200";

static void run(program *p, const char *line) {
    program_start(p, "%s %s", line, common);
    if (program_finish_within(p, DEADLINE_S) != 0 || strstr(p->err_text, "error"))
        fail_msg("%s %s: status %d, stderr: %s", line, common, p->status, p->err_text);
    assert_non_null(strstr(p->out_text, " on 64 CPU devices: mlp, global batch 64,"));
}

static const char *hash_of(const program *p) {
    const char *hash = strstr(p->out_text, ", weights ");
    assert_non_null(hash);
    return hash;
}

/* 64 divides the batch, so with the same chunks and the ordered sum, the threads of one process give the same bits. */
TEST_IN(programs, spawned_ranks_equal_64_threads) {
    static program threads, ranks;
    run(&threads, "dp_train --devices 64");
    run(&ranks, "ddp_train --spawn 64 --shard contiguous --allreduce naive --debug-ranks");
    assert_string_equal(hash_of(&ranks), hash_of(&threads));
}

TEST_IN(programs, launched_ranks_stay_together) {
    static program p;
    run(&p, "ddprun --nproc-per-node 64 ddp_train --debug-ranks");
    hash_of(&p);
}

/* Each of the 63 others notices the loss, and only a few lines report it. */
static void lose_one(bool started, int signal_number, int status, const char *verdict) {
    static program p;
    enum { VICTIM = 37, MOST_ERRORS = 3 };
    program_start(
        &p,
        "ddprun --nproc-per-node 64 --grace 1 ddp_train --model mlp:784,16,10 --batch-size 64 --epochs 100000 "
        "--no-evaluate --quiet --timeout %d",
        signal_number == SIGSTOP ? 20 : 100);
    pid_t pid = 0;
    if (started) program_await(&p, "\nepoch ");
    while ((pid = program_rank(&p, VICTIM)) == 0) usleep(1000);
    kill(pid, signal_number);
    program_finish_within(&p, DEADLINE_S);
    bool named = strstr(p.err_text, "rank 37 ") && strstr(p.err_text, verdict);
    if (p.status != status || !named || count_text(p.err_text, ": error: ") > MOST_ERRORS)
        fail_msg("status %d, %d lines: %s", p.status, count_lines(p.err_text), p.err_text);
}

TEST_IN(programs, one_of_64_ranks_is_lost) {
    static const char *const killed = "rank 37 (pid ";
    lose_one(true, SIGKILL, 1, killed);
    lose_one(false, SIGKILL, 1, killed);
    lose_one(true, SIGSTOP, 3, "rank 37 did not arrive within 20 s");
}
