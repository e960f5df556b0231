/* Ranks and programs that are killed, stopped, leave early or never come: whoever is left ends by itself, names the one
 * that is missing, and nothing stays behind.
 *
 * Ranks are started by hand, with what a launcher would give them: nobody helps them to notice. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/programs/program.h"

enum { RANKS_MAX = 3 };

/* Small enough for an epoch to pass quickly under a sanitizer; each step has 60 samples, which 1, 2 and 3 ranks
 * share. */
static const char *const endless = "--model mlp:784,32,10 --batch-size 60 --epochs 100000 --no-evaluate --quiet";

typedef struct job {
    program ranks[RANKS_MAX];
    int world_size, port;
    const char *streams; /* LS_CPU_STREAMS of the ranks */
} job;

static job make_job(int world_size) {
    return (job){.world_size = world_size, .port = free_port(), .streams = "inline"};
}

static void start_rank(job *j, int rank, const char *options) {
    program_start(&j->ranks[rank],
                  "RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                  "LS_CPU_STREAMS=%s ddp_train %s",
                  rank, j->world_size, rank, j->world_size, j->port, j->streams, options);
}

/* All but `missing` (-1: all). */
static void start_ranks(job *j, int missing, const char *options) {
    for (int r = 0; r < j->world_size; r++)
        if (r != missing) start_rank(j, r, options);
}

/* All but the lost rank end with status 3 and one line, which names it and says the verdict. */
static void expect_survivors(job *j, int lost, const char *verdict) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "rank %d%s", lost, verdict);
    for (int r = 0; r < j->world_size; r++) {
        if (r == lost) continue;
        const program *p = &j->ranks[r];
        program_finish(&j->ranks[r]);
        if (p->status != 3 || count_lines(p->err_text) != 1)
            fail_msg("rank %d of %d ended with %d: %s", r, j->world_size, p->status, p->err_text);
        if (!strstr(p->err_text, wanted))
            fail_msg("rank %d of %d does not say '%s': %s", r, j->world_size, wanted, p->err_text);
    }
}

/* --- ranks without a launcher ----------------------------------------------------------------------------------------- */

static void kill_one(int world_size, int lost, const char *streams, const char *model, const char *algorithm) {
    static job j;
    char options[256];
    snprintf(options, sizeof options, "%s --model %s --allreduce %s --save %s", endless, model, algorithm,
             scratch_path("weights"));
    j = make_job(world_size);
    j.streams = streams;
    start_ranks(&j, -1, options);
    program_await(&j.ranks[0], "\n"); /* the line before the first step */
    usleep(150000);                   /* it is somewhere in a step now, wherever that is */
    for (int r = 0; r < world_size; r++) program_expect_no_named_files(j.ranks[r].pid);
    kill(j.ranks[lost].pid, SIGKILL);
    assert_int_equal(program_finish(&j.ranks[lost]), 128 + SIGKILL);
    expect_survivors(&j, lost, " died");
    assert_int_equal(scratch_file_count(), 0);
}

static void test_a_rank_is_killed(void **state) {
    (void)state;
    kill_one(2, 1, "inline", "mlp", "naive");
    kill_one(2, 0, "threads", "mlp", "direct");
    kill_one(2, 1, "threads", "deep", "direct");
    kill_one(3, 0, "inline", "mlp", "naive");
    kill_one(3, 1, "threads", "convnet", "naive");
    kill_one(3, 2, "inline", "mlp", "direct");
}

static void test_a_rank_is_stopped(void **state) {
    (void)state;
    enum { JOBS = 3 };
    static job jobs[JOBS];
    static const int stopped[JOBS] = {1, 0, 1}, world_size[JOBS] = {2, 3, 2};
    static const char *const streams[JOBS] = {"inline", "inline", "threads"};
    char options[256];
    snprintf(options, sizeof options, "%s --timeout 2", endless);
    for (int i = 0; i < JOBS; i++) { /* all wait at the same time */
        jobs[i] = make_job(world_size[i]);
        jobs[i].streams = streams[i];
        start_ranks(&jobs[i], -1, options);
        program_await(&jobs[i].ranks[0], "\nepoch ");
        kill(jobs[i].ranks[stopped[i]].pid, SIGSTOP);
    }
    for (int i = 0; i < JOBS; i++) {
        program *p = &jobs[i].ranks[stopped[i]];
        expect_survivors(&jobs[i], stopped[i], " did not come within 2 s");
        kill(p->pid, SIGCONT); /* awake again, it finds the group broken, and says so */
        assert_int_equal(program_finish(p), 3);
        assert_int_equal(count_lines(p->err_text), 1);
        if (!strstr(p->err_text, "has given up")) fail_msg("job %d: %s", i, p->err_text);
    }
}

/* A rank whose command line asks for less leaves, in good order, while the others want more of it. */
static void test_a_rank_leaves_early(void **state) {
    (void)state;
    static job j;
    for (int leaver = 0; leaver < 3; leaver++) {
        j = make_job(3);
        start_ranks(&j, leaver, "--batch-size 60 --no-evaluate --quiet --epochs 100000");
        start_rank(&j, leaver, "--batch-size 60 --no-evaluate --quiet --epochs 1");
        assert_int_equal(program_finish(&j.ranks[leaver]), 0);
        expect_survivors(&j, leaver, " left the group without taking part");
    }
}

/* One that disagrees about what comes next is told apart from one that is lost. */
static void test_a_rank_does_something_else(void **state) {
    (void)state;
    static job j;
    static const char *const streams[] = {"inline", "threads", "shuffle:1", "shuffle:2", "shuffle:3"};
    for (int i = 0; i < 5; i++) { /* in a queue, work may be left over when the run ends */
        j = make_job(2);
        j.streams = streams[i];
        start_rank(&j, 0, endless);
        start_rank(&j, 1, "--model mlp:784,32,10 --batch-size 60 --steps 1 --no-evaluate --quiet");
        for (int r = 0; r < 2; r++) {
            assert_int_equal(program_finish(&j.ranks[r]), 1);
            assert_int_equal(count_lines(j.ranks[r].err_text), 1); /* and nothing from a sanitizer */
            assert_non_null(strstr(j.ranks[r].err_text, "the ranks are out of step: rank 1 runs "));
        }
    }
}

static void test_a_rank_never_joins(void **state) {
    (void)state;
    static job jobs[4];
    for (int missing = 0; missing < 3; missing++) { /* all wait at the same time */
        jobs[missing] = make_job(3);
        start_ranks(&jobs[missing], missing, "--batch-size 6 --timeout 2");
    }
    jobs[3] = make_job(2); /* here, one fails before it joins */
    start_rank(&jobs[3], 0, "--batch-size 6 --timeout 2");
    start_rank(&jobs[3], 1, "--batch-size 6 --timeout 2 --data /no/such/folder");
    for (int missing = 0; missing < 3; missing++) expect_survivors(&jobs[missing], missing, "");
    assert_int_equal(program_finish(&jobs[3].ranks[1]), 1);
    expect_survivors(&jobs[3], 1, " of 2 did not join the group within 2 s");
}

/* --- ranks of a launcher ---------------------------------------------------------------------------------------------- */

static const char *const launchers[] = {"ddp_train --spawn 3", "ddprun --nproc-per-node 3 ddp_train"};

/* Starts the job and waits until it trains; the process of rank 1. */
static pid_t start_job(program *p, const char *launcher) {
    program_start(p, "%s %s --save %s", launcher, endless, scratch_path("weights"));
    program_await(p, "\nepoch ");
    pid_t pid = program_rank(p, 1);
    assert_true(pid > 0);
    return pid;
}

static void test_a_rank_of_a_launcher_is_killed(void **state) {
    (void)state;
    static program p;
    for (int i = 0; i < 2; i++) {
        char wanted[128];
        pid_t pid = start_job(&p, launchers[i]);
        snprintf(wanted, sizeof wanted, "%s: error: rank 1 (pid %d) was ended by signal 9 (Killed)\n",
                 i == 0 ? "ddp_train" : "ddprun", (int)pid);
        kill(pid, SIGKILL);
        assert_int_equal(program_finish(&p), 1);
        if (!strstr(p.err_text, wanted)) fail_msg("'%s' is not in: %s", wanted, p.err_text);
        assert_true(count_lines(p.err_text) <= 3); /* the survivors', if they had time for them, and the launcher's */
        assert_int_equal(scratch_file_count(), 0);
    }
}

static void test_a_launcher_is_killed(void **state) {
    (void)state;
    static program p;
    for (int i = 0; i < 2; i++) {
        start_job(&p, launchers[i]);
        kill(p.pid, SIGKILL);
        assert_int_equal(program_finish(&p), 128 + SIGKILL);
        programs_await_orphans();
        assert_int_equal(scratch_file_count(), 0);
    }
}

static void test_a_launcher_is_told_to_stop(void **state) {
    (void)state;
    static const struct {
        int number;
        const char *text;
    } signals[] = {{SIGTERM, "15 (Terminated)"}, {SIGINT, "2 (Interrupt)"}, {SIGHUP, "1 (Hangup)"}};
    static program p;
    for (int i = 0; i < 3; i++) {
        char wanted[128];
        snprintf(wanted, sizeof wanted, "error: the job was ended by signal %s\n", signals[i].text);
        start_job(&p, launchers[i % 2]);
        kill(p.pid, signals[i].number);
        assert_int_equal(program_finish(&p), 1);
        if (!strstr(p.err_text, wanted)) fail_msg("'%s' is not in: %s", wanted, p.err_text);
        assert_int_equal(scratch_file_count(), 0);
    }
}

/* --- one process ------------------------------------------------------------------------------------------------------ */

static void test_dp_train_is_killed(void **state) {
    (void)state;
    static const int signals[] = {SIGKILL, SIGTERM, SIGINT};
    static const char *const modes[] = {"threads", "inline", "threads"};
    static program p;
    for (int i = 0; i < 3; i++) {
        program_start(&p, "LS_CPU_STREAMS=%s dp_train --devices 3 %s --save %s --summary %s", modes[i], endless,
                      scratch_path("weights"), scratch_path("summary"));
        program_await(&p, "\nepoch ");
        program_expect_no_named_files(p.pid);
        kill(p.pid, signals[i]);
        assert_int_equal(program_finish(&p), 128 + signals[i]);
        assert_int_equal(scratch_file_count(), 0);
    }
}

int main(void) {
    alarm(230);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_rank_is_killed, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_rank_is_stopped, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_rank_leaves_early, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_rank_does_something_else, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_rank_never_joins, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_rank_of_a_launcher_is_killed, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_launcher_is_killed, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_launcher_is_told_to_stop, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_dp_train_is_killed, programs_setup, programs_teardown),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
