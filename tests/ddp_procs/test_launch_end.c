/* launch: how jobs end, by themselves, by force and by deadline, and that nothing is left over. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp_procs/launch.h"
#include "tests/ddp_procs/children.h"
#include "tests/ddp_procs/launch_run.h"

static void test_the_others_are_asked_to_end(void **state) {
    (void)state;
    run r;
    assert_int_equal(
        run_shells(&r, 2, "[ $RANK = 1 ] && exit 1; trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done"), 1);
    assert_string_equal(r.out_text, "told\n");
}

static void test_a_rank_that_ignores_sigterm_is_killed(void **state) {
    (void)state;
    char *argv[] = {"sh", "-c", "echo pid $$; [ $RANK = 0 ] && exit 1; trap '' TERM; exec sleep 60", NULL};
    run r = {.options = {.nproc = 3, .program = "sh", .argv = argv, .grace_s = 0.2}};
    start_job(&r);
    assert_int_equal(finish_job(&r), 1);
    expect_message(&r, "launcher: error: rank 0 (pid #) exited with status 1");
    expect_gone(&r, 3);
}

static void test_the_users_signal_reaches_the_ranks(void **state) {
    (void)state;
    char *argv[] = {"sh", "-c", "trap 'echo told; exit 0' TERM; echo pid $$; while :; do sleep 0.05; done", NULL};
    run r = {.options = {.nproc = 2, .program = "sh", .argv = argv, .grace_s = 20}};
    pid_t pids[PIDS_MAX];
    start_job(&r);
    await_pids(&r, 2, pids);
    kill(r.pid, SIGTERM);
    assert_int_equal(finish_job(&r), 1);
    expect_message(&r, "launcher: error: the job was ended by signal 15 (Terminated)");
    const char *told = strstr(r.out_text, "told");
    assert_non_null(told);
    assert_non_null(strstr(told + 1, "told"));
    expect_gone(&r, 2);
}

/* As a shell's background job, for which Ctrl-C is not meant but a kill -INT is. A shell cannot trap what it was told
 * to ignore. */
static void test_a_job_that_ignores_interrupts_passes_them_on(void **state) {
    (void)state;
    char *argv[] = {"sh", "-c", "trap 'echo told; exit 0' INT; echo pid $$; while :; do sleep 0.05; done", NULL};
    run r = {.options = {.nproc = 1, .program = "sh", .argv = argv, .grace_s = 1}};
    pid_t pids[PIDS_MAX];
    signal(SIGINT, SIG_IGN);
    start_job(&r);
    signal(SIGINT, SIG_DFL);
    await_pids(&r, 1, pids);
    kill(r.pid, SIGINT);
    assert_int_equal(finish_job(&r), 1);
    assert_non_null(strstr(r.out_text, "told"));
    expect_gone(&r, 1);
}

static void test_a_second_signal_ends_at_once(void **state) {
    (void)state;
    char *argv[] = {"sh", "-c", "trap '' INT; echo pid $$; exec sleep 60", NULL};
    run r = {.options = {.nproc = 2, .program = "sh", .argv = argv, .grace_s = 60}};
    pid_t pids[PIDS_MAX];
    start_job(&r);
    await_pids(&r, 2, pids);
    kill(r.pid, SIGINT);
    usleep(100000);
    assert_int_equal(waitpid(r.pid, NULL, WNOHANG), 0);
    kill(r.pid, SIGINT);
    assert_int_equal(finish_job(&r), 1);
    expect_message(&r, "launcher: error: the job was ended by signal 2 (Interrupt)");
    expect_gone(&r, 2);
}

static void test_the_jobs_deadline(void **state) {
    (void)state;
    char *argv[] = {"sh", "-c", "echo pid $$; exec sleep 60", NULL};
    run r = {.options = {.nproc = 2, .program = "sh", .argv = argv, .grace_s = 10, .timeout_s = 0.3}};
    start_job(&r);
    assert_int_equal(finish_job(&r), 3);
    expect_message(&r,
                   "launcher: error: the job was not done after #.# s and has been ended; allow more with --timeout");
    expect_gone(&r, 2);
}

static void test_no_rank_survives_a_killed_launcher(void **state) {
    (void)state;
    char *argv[] = {"sh", "-c", "trap '' TERM INT HUP; echo pid $$; exec sleep 60", NULL};
    run r = {.options = {.nproc = 3, .program = "sh", .argv = argv, .grace_s = 10}};
    pid_t pids[PIDS_MAX];
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that the orphans come to us, and we can see how they ended */
    start_job(&r);
    await_pids(&r, 3, pids);
    kill(r.pid, SIGKILL);
    assert_int_equal(finish_job(&r), 128 + SIGKILL);
    for (int i = 0; i < 3; i++) assert_int_equal(finish_child(pids[i]), 128 + SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody else was left behind */
    assert_int_equal(errno, ECHILD);
}

static int count_entries(const char *folder) {
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static void test_a_launch_leaves_nothing_in_its_process(void **state) {
    (void)state;
    char *argv[] = {"true", NULL};
    const ddp_launch_options options = {.nproc = 2, .program = "true", .argv = argv};
    int files = count_entries("/proc/self/fd");
    sigset_t mask;
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(ddp_launch(&options), LS_OK);
    assert_int_equal(count_entries("/proc/self/fd"), files);
    assert_true(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGTERM));
    assert_false(sigismember(&mask, SIGCHLD));
}

int main(void) {
    alarm(150);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_others_are_asked_to_end),
        cmocka_unit_test(test_a_rank_that_ignores_sigterm_is_killed),
        cmocka_unit_test(test_the_users_signal_reaches_the_ranks),
        cmocka_unit_test(test_a_job_that_ignores_interrupts_passes_them_on),
        cmocka_unit_test(test_a_second_signal_ends_at_once),
        cmocka_unit_test(test_the_jobs_deadline),
        cmocka_unit_test(test_no_rank_survives_a_killed_launcher),
        cmocka_unit_test(test_a_launch_leaves_nothing_in_its_process),
    };
    return cmocka_run_group_tests_name("launch end", tests, NULL, NULL);
}
