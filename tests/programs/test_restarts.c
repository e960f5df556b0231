/* Jobs whose ranks are killed and restarted: each step's loss and the weights are those of an undisturbed job, so every
 * epoch has used each of its samples once, in the same order; and nothing else is left. tests/hostile/restarts.sh has
 * many more. */
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
#include "tests/programs/small_images.h"
#include "tests/train/small_run.h"

#define SMALL " --model mlp:784,8,10 --batch-size 60 --no-evaluate "
/* Epochs of 25 steps; with --steps only the last would say that it ends. */
#define TRAINING " --model mlp:64,8,10 --batch-size 6 --no-evaluate --epochs 40 --quiet --save-every 5 "

enum { KILLS = 3 };

static program p;

/* The options that name data, and files of this name. */
static const char *outputs(const char *name, char text[2048]) {
    char losses[600], metrics[600], part[64];
    snprintf(part, sizeof part, "%s.losses", name);
    snprintf(losses, sizeof losses, "%s", scratch_path(part));
    snprintf(part, sizeof part, "%s.metrics", name);
    snprintf(metrics, sizeof metrics, "%s", scratch_path(part));
    snprintf(text, 2048, "--data %s --save %s --resume-if-present %s --dump-losses %s --metrics %s",
             small_images("images", 150, 1), scratch_path(name), scratch_path(name), losses, metrics);
    return text;
}

/* Kills a rank a while, which differs from kill to kill, after the end of an epoch; false: the job has ended. */
static bool kill_a_rank(int ranks, int epoch, unsigned *random) {
    char line[32];
    snprintf(line, sizeof line, "\nepoch %3d ", epoch);
    program_await(&p, line);
    usleep((useconds_t)(rand_r(random) % 5000));
    pid_t victim = program_rank(&p, (int)((unsigned)rand_r(random) % (unsigned)ranks));
    if (victim > 0) kill(victim, SIGKILL);
    return victim > 0;
}

static void expect_same_files(const char *suffix) {
    char whole[64], again[64];
    size_t nbytes;
    snprintf(whole, sizeof whole, "whole%s", suffix);
    snprintf(again, sizeof again, "again%s", suffix);
    char *wanted = scratch_read(scratch_path(whole), &nbytes), *got = scratch_read(scratch_path(again), &nbytes);
    assert_string_equal(got, wanted);
    free(wanted);
    free(got);
}

static void expect_the_same_job(const char *launcher, int ranks, unsigned random) {
    char files[2048];
    assert_int_equal(program_run(&p, "%s" TRAINING "%s", launcher, outputs("whole", files)), 0);
    program_start(&p, "%s" TRAINING "%s", launcher, outputs("again", files));
    int kills = 0;
    while (kills < KILLS && kill_a_rank(ranks, 5 + 10 * kills, &random)) kills++;
    if (program_finish(&p) != 0) fail_msg("%s: %s", launcher, p.err_text);
    assert_in_range(count_text(p.err_text, "; all ranks start again (restart "), 1, kills);
    expect_same_files(".losses");
    if (!same_files(scratch_path("whole"), scratch_path("again"))) fail_msg("%s: other weights", launcher);
    char *metrics = scratch_read_text("again.metrics");
    assert_int_equal(count_lines(metrics), 1001);
    free(metrics);
    assert_int_equal(scratch_file_count(), 7);
}

TEST_IN(programs, test_spawned_ranks_that_are_killed) {
    expect_the_same_job("ddp_train --spawn 2 --max-restarts 3", 2, 1);
}

TEST_IN(programs, test_launched_ranks_that_are_killed) {
    expect_the_same_job("ddprun --nproc-per-node 3 --max-restarts 3 ddp_train", 3, 2);
}

/* Without a checkpoint a restart begins at the first step, and a run without one to resume from reports that at its
 * start. */
TEST_IN(programs, test_restarts_without_a_checkpoint) {
    static const char note[] =
        "ddp_train: --max-restarts begins the training again each time: --save FILE --save-every N "
        "--resume-if-present FILE goes on from the last checkpoint\n";
    assert_int_equal(program_run(&p, "ddp_train --spawn 2 --max-restarts 1 --steps 2" SMALL), 0);
    assert_string_equal(p.err_text, note);
    assert_int_equal(program_run(&p, "ddp_train --spawn 2 --max-restarts 1 --steps 2 --quiet" SMALL), 0);
    assert_string_equal(p.err_text, "");
    assert_int_equal(program_run(&p, "ddp_train --max-restarts 1 --steps 2" SMALL), 0);
    assert_string_equal(p.err_text,
                        "ddp_train: --max-restarts has no effect: without --spawn the launcher starts ranks again "
                        "(ddprun --max-restarts)\n");
}

/* A job that fails each time is restarted as often as allowed; one that is refused at its start, never. */
TEST_IN(programs, test_failures_that_a_restart_does_not_cure) {
    assert_int_equal(program_run(&p, "ddp_train --spawn 2 --max-restarts 2 --lr 1e30 --steps 50 --quiet" SMALL), 1);
    assert_int_equal(count_text(p.err_text, "; all ranks start again (restart "), 2);
    assert_int_equal(count_text(p.err_text, "ddp_train: error: after 2 restarts, rank "), 1);
    scratch_write("damaged", "no checkpoint", 13);
    assert_int_equal(
        program_run(&p, "ddp_train --spawn 2 --max-restarts 2 --steps 2 --quiet --save %s --resume-if-present %s" SMALL,
                    scratch_path("damaged"), scratch_path("damaged")),
        1);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "damaged"));
    assert_int_equal(program_run(&p, "ddprun --nproc-per-node 2 --max-restarts 2 ddp_train --epochs none"), 2);
    assert_null(strstr(p.err_text, "again"));
}

/* --- ranks started by old launchers ------------------------------------------------------------------------------------- */

TEST_IN(programs, test_the_argument_of_old_launchers) {
    static const char script[] = "shift $#; exec \"$PROGRAM\" --steps 2 --quiet --local_rank=$LOCAL_RANK" SMALL "\n";
    scratch_write("script", script, sizeof script - 1);
    assert_int_equal(program_run(&p, "PROGRAM=%s/ddp_train ddprun --nproc_per_node 2 --standalone /bin/sh %s",
                                 build_folder(), scratch_path("script")),
                     0);
    program_expect_text(&p, "DistributedDataParallel on 2 CPU devices");
    assert_int_equal(program_run(&p, "ddp_train --local-rank 0 --steps 2 --quiet" SMALL), 0);
    static const struct {
        const char *line, *text;
    } wrong[] = {
        {"ddp_train --local-rank 1 --steps 2",
         "--local-rank is 1, but this process is local rank 0, since no launcher has set LOCAL_RANK"},
        {"ddp_train --local-rank first --steps 2", "--local-rank is first, but this process is local rank 0"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 ddp_train "
         "--local_rank=0",
         "--local-rank is 0, but this process is local rank 1 (LOCAL_RANK)"},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_int_equal(program_run(&p, "%s", wrong[i].line), 2);
        assert_int_equal(count_lines(p.err_text), 1);
        if (!strstr(p.err_text, wrong[i].text)) fail_msg("%s: %s", wrong[i].line, p.err_text);
    }
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
