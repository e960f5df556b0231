/* launch: the ranks' output, on the console with their rank and in files; and the report of several failures. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ddp_procs/launch/launch_output.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/ddp_procs/children.h"
#include "tests/launch/launch_run.h"

static char *argv[] = {"sh", "-c", NULL, NULL};

static run make_job(int nproc, const char *script) {
    argv[2] = (char *)script;
    return (run){.options = {.nproc = nproc, .program = "sh", .argv = argv, .grace_s = 1, .run_id = "a/run"}};
}

static void show(run *r, int streams) { memset(r->options.tee, streams, sizeof r->options.tee); }

/* FOLDER/logs/a_run_XXXXXX/attempt_K/RANK/NAME. free() it. NULL if the file does not exist. */
static char *read_log(int attempt, int rank, const char *name) {
    char path[1024], *text = NULL;
    size_t nbytes;
    DIR *logs = opendir(scratch_path("logs"));
    assert_non_null(logs);
    for (struct dirent *entry; (entry = readdir(logs));) {
        if (strncmp(entry->d_name, "a_run_", 6) != 0) continue;
        assert_null(text); /* the run has one folder */
        snprintf(path, sizeof path, "%s/%s/attempt_%d/%d/%s", scratch_path("logs"), entry->d_name, attempt, rank, name);
        if (access(path, R_OK) == 0) text = scratch_read(path, &nbytes);
    }
    closedir(logs);
    return text;
}

static void expect_log(int attempt, int rank, const char *name, const char *expected) {
    char *text = read_log(attempt, rank, name);
    if (expected && !text) fail_msg("no %s of rank %d", name, rank);
    if (expected) assert_string_equal(text, expected);
    if (!expected) assert_null(text);
    free(text);
}

/* --- the console ------------------------------------------------------------------------------------------------------ */

/* Pieces of different lines alternate; each printed line is whole. */
TEST_IN(scratch, test_lines_are_whole_and_bear_their_rank) {
    enum { RANKS = 4, LINES = 40 };
    run r =
        make_job(RANKS, "i=0; while [ $i -lt 40 ]; do printf \"begin $RANK \"; printf 'middle '; printf \"end $i\\n\"; "
                        "i=$((i + 1)); done; printf 'no end'");
    show(&r, DDP_STDOUT);
    start_job(&r);
    assert_int_equal(finish_job(&r), 0);
    assert_string_equal(r.err_text, "");
    int lines = 0, last[RANKS] = {-1, -1, -1, -1};
    for (char *line = strtok(r.out_text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        int rank = -1, own = -1, number = -1;
        if (strstr(line, "no end")) {
            assert_int_equal(sscanf(line, "[rank %d] no end", &rank), 1);
            assert_int_equal(last[rank], LINES - 1);
            continue;
        }
        if (sscanf(line, "[rank %d] begin %d middle end %d", &rank, &own, &number) != 3) fail_msg("'%s'", line);
        assert_int_equal(rank, own);
        assert_int_equal(number, ++last[rank]); /* in their order */
    }
    assert_int_equal(lines, RANKS * (LINES + 1));
}

TEST_IN(scratch, test_streams_and_ranks_apart) {
    run r = make_job(2, "echo out; echo err >&2");
    r.options.tee[0] = DDP_STDERR;
    r.options.tee[1] = DDP_STDOUT;
    start_job(&r);
    assert_int_equal(finish_job(&r), 0);
    static const char *const out[] = {"[rank 1] out", "out"}, *const err[] = {"[rank 0] err", "err"};
    expect_lines(r.out_text, 2, out);
    expect_lines(r.err_text, 2, err);
}

TEST_IN(scratch, test_a_line_that_is_too_long_comes_in_pieces) {
    run r = make_job(1, "head -c 70000 /dev/zero | tr '\\0' x; echo");
    show(&r, DDP_STDOUT);
    start_job(&r);
    int status = finish_child(r.pid);
    static char text[80000];
    ssize_t got = pread(fileno(r.out), text, sizeof text - 1, 0);
    fclose(r.out);
    fclose(r.err);
    assert_int_equal(status, 0);
    assert_true(got > 0);
    assert_int_equal(count_text(text, "x"), 70000);
    assert_int_equal(count_text(text, "[rank 0] "), 2);
    assert_int_equal(count_text(text, "\n"), 2);
}

/* If the reader of the console does not read, the job can end all the same. */
TEST_IN(scratch, test_a_console_that_takes_nothing) {
    int ends[2];
    run r = make_job(1, "echo pid $$ >&2; yes");
    r.options.grace_s = 0.2;
    r.options.tee[0] = DDP_STDOUT;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    r.out = fdopen(ends[1], "w");
    r.err = scratch_file();
    start_job_with_files(&r);
    usleep(300000); /* the pipe is full, or will be soon */
    kill(r.pid, SIGTERM);
    assert_int_equal(finish_child(r.pid), 1);
    char text[TEXT_CAPACITY] = "";
    assert_true(pread(fileno(r.err), text, sizeof text - 1, 0) > 0);
    assert_non_null(strstr(text, "error: the job was ended by signal 15"));
    fclose(r.out);
    fclose(r.err);
    close(ends[0]);
}

/* --- files ------------------------------------------------------------------------------------------------------------ */

TEST_IN(scratch, test_files_of_each_rank_and_attempt) {
    char logs[600];
    snprintf(logs, sizeof logs, "%s", scratch_path("logs"));
    run r =
        make_job(2, "echo out $RANK; echo err $RANK >&2; echo '{}' > $TORCHELASTIC_ERROR_FILE;"
                    "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exec sleep 60; sleep 0.2; exit 1");
    r.options.log_dir = logs;
    r.options.max_restarts = 1;
    r.options.tee[0] = DDP_STDOUT;
    r.options.redirects[1] = DDP_STDOUT + DDP_STDERR;
    start_job(&r);
    assert_int_equal(finish_job(&r), 0);
    assert_string_equal(r.out_text, "[rank 0] out 0\n[rank 0] out 0\n");
    assert_int_equal(count_text(r.err_text, "err 0\n"), 2);
    assert_null(strstr(r.err_text, "err 1\n"));
    for (int attempt = 0; attempt < 2; attempt++) {
        expect_log(attempt, 0, "stdout.log", "out 0\n");
        expect_log(attempt, 0, "stderr.log", NULL);
        expect_log(attempt, 0, "error.json", "{}\n");
        expect_log(attempt, 1, "stdout.log", "out 1\n");
        expect_log(attempt, 1, "stderr.log", "err 1\n");
    }
}

/* If a program reports no error to the launcher, its last line is printed as the cause. */
TEST_IN(scratch, test_the_last_line_of_stderr_is_the_cause) {
    char logs[600], wanted[700];
    snprintf(logs, sizeof logs, "%s", scratch_path("logs"));
    run r =
        make_job(2, "[ $RANK = 1 ] || exec sleep 60; { echo Traceback; echo 'ValueError: bad  '; echo; } >&2; exit 1");
    memset(r.options.redirects, 3, sizeof r.options.redirects);
    r.options.log_dir = logs;
    start_job(&r);
    assert_int_equal(finish_job(&r), 1);
    snprintf(wanted, sizeof wanted, "launcher: the log files of rank 1: %s/a_run_", logs);
    assert_non_null(strstr(r.err_text, wanted));
    assert_non_null(strstr(r.err_text, "/attempt_0/1/\n"));
    assert_non_null(strstr(r.err_text, "exited with status 1: ValueError: bad\n"));
}

TEST_IN(scratch, test_files_that_cannot_be_made) {
    scratch_write("file", "", 0);
    char logs[600];
    snprintf(logs, sizeof logs, "%s/below", scratch_path("file"));
    run r = make_job(1, "echo started");
    r.options.log_dir = logs;
    show(&r, 3);
    start_job(&r);
    assert_int_equal(finish_job(&r), 1);
    assert_string_equal(r.out_text, "");
    assert_non_null(strstr(r.err_text, "cannot make the folder "));
}

/* --- the report ------------------------------------------------------------------------------------------------------- */

TEST(test_several_failures_are_listed_first_to_last) {
    run r;
    assert_int_equal(
        run_shells(&r, 3,
                   "case $RANK in 0) echo 'rank 2 did not come' >/proc/self/fd/$LS_CAUSE_FD; exit 3;;"
                   "1) sleep 0.4; kill -9 $$;; 2) sleep 0.2; echo 'no memory' >/proc/self/fd/$LS_CAUSE_FD; "
                   "echo later >/proc/self/fd/$LS_CAUSE_FD; exit 1;; esac"),
        1);
    expect_all(&r, "launcher: rank 0 (pid #) failed first, at #:#:#.#: exit status 3: rank 2 did not come\n"
                   "launcher: rank 2 (pid #) failed at #:#:#.#: the cause\n"
                   "launcher: rank 1 (pid #) failed at #:#:#.#: signal 9 (Killed)\n"
                   "launcher: error: rank 2 (pid #) exited with status 1: no memory");
}

/* The cause is any rank that failed, but not one that lost a peer: which failed first is unknown. */
TEST_IN(scratch, test_failures_that_are_seen_together) {
    char script[900];
    pid_t pids[PIDS_MAX];
    snprintf(script, sizeof script,
             "echo pid $$; while [ ! -e %s ]; do sleep 0.02; done; [ $RANK = 1 ] && exit 1; exit 3",
             scratch_path("gate"));
    run r = make_job(3, script);
    start_job(&r);
    await_pids(&r, 3, pids);
    kill(r.pid, SIGSTOP);
    await_state(r.pid, 'T');
    scratch_write("gate", "", 0);
    for (int i = 0; i < 3; i++) await_state(pids[i], 'Z');
    kill(r.pid, SIGCONT);
    assert_int_equal(finish_job(&r), 1);
    expect_all(&r, "launcher: rank 1 (pid #) failed first, at #:#:#.#\n"
                   "launcher: ranks #, # failed after it, the last at #:#:#.#: exit status #, a peer failed\n"
                   "launcher: error: rank 1 (pid #) exited with status 1");
}

/* At most a screen of many failures; the beginning of a long message; one line for all ranks that lost a peer. */
TEST(test_a_report_of_many_failures_is_short) {
    run r;
    assert_int_equal(
        run_shells(&r, 20,
                   "head -c 500 /dev/zero | tr '\\0' x >/proc/self/fd/$LS_CAUSE_FD; [ $RANK = 7 ] || exit 1; "
                   "sleep 0.8; exit 3"),
        1);
    assert_int_equal(count_text(r.err_text, ") failed "), 8);
    assert_non_null(strstr(r.err_text, "launcher: and 11 more ranks failed after these\n"));
    assert_non_null(strstr(r.err_text, "launcher: rank 7 failed after it, at "));
    for (char *line = strtok(r.err_text, "\n"); line && strstr(line, "failed"); line = strtok(NULL, "\n"))
        assert_true(strlen(line) < 240);
}

int main(void) {
    alarm(150);
    return run_added_tests();
}
