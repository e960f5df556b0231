/* launch: how jobs end (by themselves, by force and by deadline), and that no process is left over. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/launch.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"
#include "tests/launch/launch_run.h"

TEST(test_the_others_are_asked_to_end) {
    run r;
    assert_int_equal(
        run_shells(&r, 2, "[ $RANK = 1 ] && exit 1; trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done"), 1);
    assert_string_equal(r.out_text, "told\n");
}

TEST(test_a_rank_that_ignores_sigterm_is_killed) {
    char *argv[] = {"sh", "-c", "echo pid $$; [ $RANK = 0 ] && exit 1; trap '' TERM; exec sleep 60", NULL};
    run r = {.options = {.nproc = 3, .program = "sh", .argv = argv, .grace_s = 0.2}};
    start_job(&r);
    assert_int_equal(finish_job(&r), 1);
    expect_message(&r, "launcher: error: rank 0 (pid #) exited with status 1");
    expect_gone(&r, 3);
}

TEST(test_the_users_signal_reaches_the_ranks) {
    /* its stderr is closed, because the shell would report there that its sleep was killed */
    char *argv[] = {"sh", "-c", "exec 2>&-; trap 'echo told; exit 0' TERM; echo pid $$; while :; do sleep 0.05; done",
                    NULL};
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

/* Like a shell's background job, which ignores Ctrl-C but must end with kill -INT. A shell cannot trap a signal that it
 * was started to ignore. */
TEST(test_a_job_that_ignores_interrupts_passes_them_on) {
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

/* Under nohup. Without it the hang-up would count as the first signal, and the second would end the job at once. */
TEST(test_a_job_that_ignores_hang_ups_goes_on) {
    char *argv[] = {"sh", "-c", "exec 2>&-; trap 'echo told; exit 0' TERM; echo pid $$; while :; do sleep 0.05; done",
                    NULL};
    run r = {.options = {.nproc = 1, .program = "sh", .argv = argv, .grace_s = 20}};
    pid_t pids[PIDS_MAX];
    signal(SIGHUP, SIG_IGN);
    start_job(&r);
    signal(SIGHUP, SIG_DFL);
    await_pids(&r, 1, pids);
    kill(r.pid, SIGHUP);
    kill(r.pid, SIGTERM);
    assert_int_equal(finish_job(&r), 1);
    expect_message(&r, "launcher: error: the job was ended by signal 15 (Terminated)");
    assert_non_null(strstr(r.out_text, "told"));
    expect_gone(&r, 1);
}

TEST(test_a_second_signal_ends_at_once) {
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

TEST(test_the_jobs_deadline) {
    char *argv[] = {"sh", "-c", "echo pid $$; exec sleep 60", NULL};
    run r = {.options = {.nproc = 2, .program = "sh", .argv = argv, .grace_s = 10, .timeout_s = 0.3}};
    start_job(&r);
    assert_int_equal(finish_job(&r), 3);
    expect_message(&r,
                   "launcher: error: the job was not done after #.# s and has been ended; allow more with --timeout");
    expect_gone(&r, 2);
}

/* No process is left once those that are ending have ended. */
static void expect_no_orphans(void) {
    for (double until_us = ls_now_us() + 20e6; ls_now_us() < until_us; usleep(2000)) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0) {
            assert_int_equal(errno, ECHILD);
            return;
        }
    }
    fail_msg("a process outlives the launcher");
}

TEST(test_no_rank_survives_a_killed_launcher) {
    char *argv[] = {"sh", "-c", "trap '' TERM INT HUP; echo pid $$; exec sleep 60", NULL};
    run r = {.options = {.nproc = 3, .program = "sh", .argv = argv, .grace_s = 10}};
    pid_t pids[PIDS_MAX];
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans become our children, so that we can see how they ended */
    start_job(&r);
    await_pids(&r, 3, pids);
    kill(r.pid, SIGKILL);
    assert_int_equal(finish_job(&r), 128 + SIGKILL);
    for (int i = 0; i < 3; i++) assert_int_equal(finish_child(pids[i]), 128 + SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    expect_no_orphans();
}

/* --- processes started by ranks ----------------------------------------------------------------------------------- */

/* Each rank and a child that ignores all signals but SIGKILL, and keeps no pipe open. */
static char *const family[] = {"sh", "-c",
                               "sh -c \"trap '' TERM INT HUP; echo pid \\$\\$; exec sleep 60\" & echo pid $$; [ \"$1\" "
                               "= $RANK ] && sleep 0.3 && exit 5; wait; "
                               "true",
                               "sh", NULL};

static void start_family(run *r, int nproc, const char *failing_rank, pid_t pids[PIDS_MAX]) {
    *r = (run){
        .options = {.nproc = nproc, .program = "sh", .argv = family, .last_argument = failing_rank, .grace_s = 0.1}};
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans become our children, so that none is overlooked */
    start_job(r);
    await_pids(r, 2 * nproc, pids);
}

static void end_family(run *r, int status) {
    assert_int_equal(finish_job(r), status);
    if (status < 128) expect_gone(r, 2 * r->options.nproc);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    expect_no_orphans();
}

TEST(test_what_ranks_have_started_ends_with_them) {
    run r;
    pid_t pids[PIDS_MAX];
    start_family(&r, 2, "1", pids);
    end_family(&r, 1);
    expect_message(&r, "launcher: error: rank 1 (pid #) exited with status 5");

    start_family(&r, 2, "none", pids);
    kill(r.pid, SIGTERM);
    end_family(&r, 1);

    start_family(&r, 2, "none", pids);
    kill(r.pid, SIGKILL);
    end_family(&r, 128 + SIGKILL);
}

TEST(test_a_job_that_went_well_leaves_nothing) {
    run r;
    assert_int_equal(run_shells(&r, 2, "sleep 60 & echo pid $$; echo pid $!"), 0);
    assert_string_equal(r.err_text, "");
    expect_gone(&r, 4);
}

/* Like `kill -9 -- -GROUP`, or a batch system that kills the launcher's whole session. */
TEST(test_the_guard_is_not_of_the_launchers_group) {
    run r;
    pid_t pids[PIDS_MAX];
    start_family(&r, 1, "none", pids);
    assert_int_equal(setpgid(r.pid, r.pid), 0);
    kill(-r.pid, SIGKILL);
    end_family(&r, 128 + SIGKILL);
}

/* The child of `parent` whose name is ls-guard. */
static pid_t find_guard(pid_t parent) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *children = fopen(path, "re");
    pid_t guard = -1;
    assert_non_null(children);
    for (int pid; guard < 0 && fscanf(children, "%d", &pid) == 1;) {
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        FILE *name = fopen(path, "re");
        if (name && fgets(text, sizeof text, name) && strcmp(text, "ls-guard\n") == 0) guard = pid;
        if (name) fclose(name);
    }
    fclose(children);
    return guard;
}

TEST(test_a_stopped_guard_keeps_nobody_waiting) {
    char *argv[] = {"sh", "-c", "echo pid $$; exec sleep 60", NULL};
    run r = {.options = {.nproc = 1, .program = "sh", .argv = argv, .grace_s = 20}};
    pid_t pids[PIDS_MAX];
    start_job(&r);
    await_pids(&r, 1, pids);
    pid_t guard = find_guard(r.pid);
    assert_true(guard > 0);
    kill(guard, SIGSTOP);
    await_state(guard, 'T');
    kill(r.pid, SIGTERM);
    assert_int_equal(finish_job(&r), 1);
    expect_message(&r, "launcher: error: the job was ended by signal 15 (Terminated)");
    await_gone(guard);
}

/* --- the terminal ------------------------------------------------------------------------------------------------------- */

typedef struct terminal {
    run *job;
    int master; /* the user's end of the terminal */
} terminal;

/* A launcher that leads the session of a terminal, as under ssh -t: the kernel signals a hang-up to it alone. */
static int launch_on_terminal(void *argument) {
    terminal *t = argument;
    if (setsid() < 0 || ioctl(open(ptsname(t->master), O_RDWR), TIOCSCTTY, 0) < 0) return 9;
    close(t->master);
    dup2(fileno(t->job->out), STDOUT_FILENO);
    dup2(fileno(t->job->err), STDERR_FILENO);
    ls_log_init("launcher", -1, false);
    return ls_status_exit_code(ddp_launch(&t->job->options));
}

TEST(test_a_hang_up_reaches_the_ranks) {
    char *argv[] = {"sh", "-c", "exec 2>&-; trap 'echo told; exit 0' HUP; echo pid $$; while :; do sleep 0.05; done",
                    NULL};
    /* a rank without a signal would outlive the launcher, which a start_child's alarm ends with another status */
    run r = {.options = {.nproc = 1, .program = "sh", .argv = argv, .grace_s = 1000}};
    terminal t = {&r, posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    pid_t pids[PIDS_MAX];
    assert_true(t.master >= 0 && grantpt(t.master) == 0 && unlockpt(t.master) == 0);
    r.out = scratch_file();
    r.err = scratch_file();
    r.pid = start_child(launch_on_terminal, &t);
    await_pids(&r, 1, pids);
    close(t.master);
    assert_int_equal(finish_job(&r), 1);
    expect_message(&r, "launcher: error: the job was ended by signal 1 (Hangup)");
    assert_non_null(strstr(r.out_text, "told"));
    expect_gone(&r, 1);
}

/* Ctrl-Z and fg: ranks and launcher stop and continue together. */
TEST(test_a_pause_is_for_all) {
    char *argv[] = {"sh", "-c", "echo pid $$; exec sleep 60", NULL};
    run r = {.options = {.nproc = 2, .program = "sh", .argv = argv, .grace_s = 20}};
    pid_t pids[PIDS_MAX];
    int status;
    start_job(&r);
    setpgid(r.pid, r.pid); /* a group in this session, whose shell can continue it */
    await_pids(&r, 2, pids);
    kill(r.pid, SIGTSTP);
    assert_int_equal(waitpid(r.pid, &status, WUNTRACED), r.pid);
    assert_true(WIFSTOPPED(status));
    for (int i = 0; i < 2; i++) await_state(pids[i], 'T');
    kill(r.pid, SIGCONT);
    for (int i = 0; i < 2; i++) await_state(pids[i], 'S');
    kill(r.pid, SIGTERM);
    assert_int_equal(finish_job(&r), 1);
    expect_gone(&r, 2);
}

TEST(test_ranks_read_nothing_from_the_terminal) {
    run r;
    assert_int_equal(run_shells(&r, 1, "grep -E '^SigIgn' /proc/$$/status"), 0);
    unsigned long long ignored = 0;
    assert_int_equal(sscanf(r.out_text, "SigIgn: %llx", &ignored), 1);
    assert_true(ignored >> (SIGTTIN - 1) & 1); /* so a read fails, and does not stop the rank for ever */
    assert_true(ignored >> (SIGTTOU - 1) & 1);
}

static int count_entries(const char *folder) {
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

TEST(test_a_launch_leaves_nothing_in_its_process) {
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
    return run_added_tests();
}
