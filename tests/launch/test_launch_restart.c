/* launch: how often groups are restarted, with which environment, and when not. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/launch/store.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/ddp_procs/children.h"
#include "tests/launch/launch_run.h"

/* A job of shells with restarts. */
static int run_again(run *r, int nproc, int max_restarts, const char *script) {
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    *r =
        (run){.options = {.nproc = nproc, .program = "sh", .argv = argv, .grace_s = 0.2, .max_restarts = max_restarts}};
    start_job(r);
    return finish_job(r);
}

TEST(test_all_ranks_start_again) {
    static const char *const expected[] = {"0 0 of 3", "0 1 of 3", "1 0 of 3", "1 1 of 3", "2 0 of 3", "2 1 of 3"};
    run r;
    assert_int_equal(
        run_again(&r, 2, 3,
                  "echo $TORCHELASTIC_RESTART_COUNT $RANK of $TORCHELASTIC_MAX_RESTARTS;"
                  "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && sleep 0.1 && exit 7; sleep 60"),
        0);
    expect_lines(r.out_text, 6, expected);
    expect_all(&r, "launcher: rank 1 (pid #) failed first, at #:#:#.#\n"
                   "launcher: warning: rank 1 (pid #) exited with status 7; all ranks start again (restart 1 of 3)\n"
                   "launcher: rank 1 (pid #) failed first, at #:#:#.#\n"
                   "launcher: warning: rank 1 (pid #) exited with status 7; all ranks start again (restart 2 of 3)");
}

/* Restarts are counted for the whole job, whichever rank fails, and in any way. */
TEST(test_restarts_are_counted_for_the_job) {
    run r;
    assert_int_equal(run_again(&r, 3, 2, "[ $RANK = $TORCHELASTIC_RESTART_COUNT ] && kill -9 $$; sleep 60"), 1);
    assert_int_equal(count_text(r.err_text, "start again"), 2);
    assert_non_null(strstr(r.err_text, "warning: rank 1 (pid "));
    assert_non_null(strstr(r.err_text, "error: after 2 restarts, rank 2 (pid "));
    assert_non_null(strstr(r.err_text, "was ended by signal 9 (Killed)\n"));
}

TEST(test_what_is_not_started_again) {
    run r;
    /* wrong usage would fail again */
    assert_int_equal(run_again(&r, 2, 3, "[ $RANK = 1 ] || exec sleep 60; exit 2"), 2);
    expect_all(&r, "launcher: error: rank 1 (pid #) exited with status 2");
    assert_int_equal(run_again(&r, 2, 3, "exit 0"), 0);
    assert_string_equal(r.err_text, "");
    /* nor after the first restart */
    assert_int_equal(run_again(&r, 1, 3, "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; exit 2"), 2);
    assert_non_null(strstr(r.err_text, "error: after 1 restart, rank 0 (pid "));
}

TEST(test_a_job_that_is_told_to_stop_stays_so) {
    char *argv[] = {"sh", "-c", "trap 'exit 9' TERM; echo pid $$; while :; do sleep 0.05; done", NULL};
    run r = {.options = {.nproc = 2, .program = "sh", .argv = argv, .grace_s = 20, .max_restarts = 5}};
    pid_t pids[PIDS_MAX];
    start_job(&r);
    await_pids(&r, 2, pids);
    kill(r.pid, SIGTERM);
    assert_int_equal(finish_job(&r), 1);
    assert_non_null(strstr(r.err_text, "launcher: error: the job was ended by signal 15 (Terminated)\n"));
    assert_null(strstr(r.err_text, "again"));
    expect_gone(&r, 2);
}

/* Also in the two seconds after a failure. */
TEST(test_a_job_that_is_told_to_stop_after_a_failure) {
    char *argv[] = {"sh", "-c", "echo pid $$; [ $RANK = 1 ] && exit 1; exec sleep 60", NULL};
    run r = {.options = {.nproc = 2, .program = "sh", .argv = argv, .grace_s = 20, .max_restarts = 5}};
    pid_t pids[PIDS_MAX];
    start_job(&r);
    await_pids(&r, 2, pids);
    usleep(300000);
    kill(r.pid, SIGTERM);
    assert_int_equal(finish_job(&r), 1);
    assert_null(strstr(r.err_text, "again"));
    expect_gone(&r, 2);
}

TEST(test_the_deadline_is_the_jobs) {
    char *argv[] = {"sh", "-c", "sleep 0.2; exit 1", NULL};
    run r = {
        .options = {.nproc = 1, .program = "sh", .argv = argv, .grace_s = 10, .timeout_s = 0.9, .max_restarts = 1000}};
    start_job(&r);
    assert_int_equal(finish_job(&r), 3);
    int restarts = count_text(r.err_text, "start again");
    assert_in_range(restarts, 1, 5);
    assert_non_null(strstr(r.err_text, "error: the job was not done after 0.9 s"));
}

/* Processes that the first attempt has started, and that keep no pipe open, have ended before the second begins. */
TEST(test_nothing_of_an_attempt_outlives_it) {
    run r;
    assert_int_equal(
        run_again(&r, 1, 1,
                  "trap '' TERM; if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sh -c \"trap '' TERM; echo pid "
                  "\\$\\$ > /proc/$PPID/fd/1; exec sleep 60\" & sleep 0.3; exit 1; fi; ps ax >/dev/null 2>&1; exit 0"),
        0);
    expect_gone(&r, 1);
}

/* Each attempt has its own store, name and secret; a message that the first attempt has printed is printed again. */
static int meet(void) {
    ddp_rank self;
    ddp_store *store;
    int64_t arrived = 0;
    size_t nbytes;
    ls_log_init("rank", -1, false);
    const char *count = getenv("TORCHELASTIC_RESTART_COUNT");
    if (ddp_rank_discover(&self) != LS_OK || ddp_store_open(&store, &self, 30) != LS_OK) return 1;
    if (ddp_store_add(store, "arrived", 1, &arrived) != LS_OK || arrived > self.world_size) return 1;
    if (arrived == self.world_size && ddp_store_set(store, "all", "", 0) != LS_OK) return 1;
    if (ddp_store_get(store, "all", NULL, 0, &nbytes) != LS_OK) return 1;
    printf("%s %s\n", getenv("LS_JOB"), getenv("LS_JOB_TOKEN"));
    fflush(stdout);
    ddp_store_close(store);
    return count && strcmp(count, "1") == 0 ? 0 : ls_status_exit_code(ls_fail(LS_ERR_SYSTEM, "a failure"));
}

TEST(test_an_attempt_begins_afresh) {
    char *argv[] = {"rank", NULL};
    run r = {.options = {.nproc = 2, .argv = argv, .last_argument = "--meet", .grace_s = 10, .max_restarts = 1}};
    start_job(&r);
    assert_int_equal(finish_job(&r), 0);
    char *first = strtok(r.out_text, "\n"), *second = strtok(NULL, "\n"), *third = strtok(NULL, "\n");
    assert_string_equal(first, second);
    assert_non_null(third);
    assert_string_not_equal(strchr(second, ' '), strchr(third, ' '));
    *strchr(second, ' ') = *strchr(third, ' ') = '\0';
    assert_string_not_equal(second, third);
    assert_int_equal(count_text(r.err_text, "rank: error: a failure\n"), 1);

    r.options.max_restarts = 2;
    argv[0] = "rank-that-fails"; /* in each attempt */
    r.options.last_argument = "--fail";
    start_job(&r);
    assert_int_equal(finish_job(&r), 1);
    assert_int_equal(count_text(r.err_text, "rank: error: a failure\n"), 3);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--meet") == 0) return meet();
    if (argc == 2 && strcmp(argv[1], "--fail") == 0) {
        ls_log_init("rank", -1, false);
        return ls_status_exit_code(ls_fail(LS_ERR_SYSTEM, "a failure"));
    }
    alarm(150);
    return run_added_tests();
}
