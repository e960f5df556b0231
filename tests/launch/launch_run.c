#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"
#include "tests/launch/launch_run.h"

static int launcher(void *argument) {
    run *r = argument;
    dup2(fileno(r->out), STDOUT_FILENO);
    dup2(fileno(r->err), STDERR_FILENO);
    ls_log_capture(NULL, 0); /* lines that a fixture has captured stay with the test */
    ls_log_init("launcher", -1, false);
    return ls_status_exit_code(ddp_launch(&r->options));
}

FILE *scratch_file(void) {
    FILE *file = tmpfile();
    assert_non_null(file);
    fcntl(fileno(file), F_SETFD, FD_CLOEXEC);
    return file;
}

void start_job_with_files(run *r) {
    r->pid = start_child(launcher, r);
    assert_true(r->pid > 0);
}

void start_job(run *r) {
    r->out = scratch_file();
    r->err = scratch_file();
    start_job_with_files(r);
}

static void read_text(FILE *file, char text[TEXT_CAPACITY]) {
    ssize_t got = pread(fileno(file), text, TEXT_CAPACITY - 1, 0); /* pread: the ranks share the offset */
    text[got > 0 ? got : 0] = '\0';
}

int finish_job(run *r) {
    int status = finish_child(r->pid);
    read_text(r->out, r->out_text);
    read_text(r->err, r->err_text);
    fclose(r->out);
    fclose(r->err);
    return status;
}

int run_shells(run *r, int nproc, const char *script) {
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    *r = (run){.options = {.nproc = nproc, .program = "sh", .argv = argv, .grace_s = 10}};
    start_job(r);
    return finish_job(r);
}

/* The ranks' scripts print their process numbers as "pid N". */
static int read_pids(const char *text, pid_t pids[PIDS_MAX]) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, "pid ")) && count < PIDS_MAX; at += 4) pids[count++] = atoi(at + 4);
    return count;
}

void await_pids(run *r, int wanted, pid_t pids[PIDS_MAX]) {
    int count = 0;
    for (double until_us = ls_now_us() + 20e6; count < wanted && ls_now_us() < until_us; usleep(5000)) {
        read_text(r->out, r->out_text);
        count = strchr(r->out_text, '\0')[-1] == '\n' ? read_pids(r->out_text, pids) : 0;
    }
    assert_int_equal(count, wanted);
}

void expect_gone(const run *r, int wanted) {
    pid_t pids[PIDS_MAX];
    assert_int_equal(read_pids(r->out_text, pids), wanted);
    for (int i = 0; i < wanted; i++) {
        assert_int_equal(kill(pids[i], 0), -1);
        assert_int_equal(errno, ESRCH);
    }
}

static int compare_lines(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

void expect_lines(char *text, size_t count, const char *const *expected) {
    char *lines[16];
    size_t found = 0;
    for (char *line = strtok(text, "\n"); line && found < 16; line = strtok(NULL, "\n")) lines[found++] = line;
    assert_int_equal(found, count);
    qsort(lines, found, sizeof lines[0], compare_lines);
    for (size_t i = 0; i < count; i++) assert_string_equal(lines[i], expected[i]);
}

/* The launcher's error is preceded by the list of ranks that failed. */
static const char *skip_failures(const char *text) {
    while (strncmp(text, "launcher: rank", 14) == 0 &&
           (strstr(text, ") failed ") || strstr(text, " failed after it, ")))
        text = strchr(text, '\n') + 1;
    return text;
}

static bool matches(const char *text, const char *expected) {
    for (const char *e = expected; *e; e++) {
        if (*e == '#' && *text >= '0' && *text <= '9')
            text += strspn(text, "0123456789");
        else if (*e == *text)
            text++;
        else
            return false;
    }
    return strcmp(text, "\n") == 0;
}

void expect_message(const run *r, const char *expected) {
    const char *text = skip_failures(r->err_text);
    if (!matches(text, expected)) assert_string_equal(text, expected);
}

void expect_all(const run *r, const char *expected) {
    if (!matches(r->err_text, expected)) assert_string_equal(r->err_text, expected);
}
