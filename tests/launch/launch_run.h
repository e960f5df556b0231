/* Jobs of a test: each is launched by its own child process, whose output is read back. */
#ifndef TESTS_LAUNCH_LAUNCH_RUN_H
#define TESTS_LAUNCH_LAUNCH_RUN_H

#include <stdio.h>
#include <sys/types.h>

#include "ddp_procs/launch/launch.h"

enum { TEXT_CAPACITY = 8192, PIDS_MAX = 8 };

typedef struct run {
    ddp_launch_options options; /* set by the caller, the rest by start_job and finish_job */
    FILE *out, *err;
    pid_t pid;
    char out_text[TEXT_CAPACITY], err_text[TEXT_CAPACITY];
} run;

/* An unlinked file, closed on exec. */
FILE *scratch_file(void);

void start_job(run *r);

/* The same, with the caller's `out` and `err`. */
void start_job_with_files(run *r);

/* Waits for the launcher and reads the output of launcher and ranks. Returns the exit status. */
int finish_job(run *r);

/* Runs a job of `nproc` shells from start to end. Returns its exit status. */
int run_shells(run *r, int nproc, const char *script);

/* Waits until the ranks have printed `wanted` lines "pid N". */
void await_pids(run *r, int wanted, pid_t pids[PIDS_MAX]);

/* Asserts that the `wanted` ranks that have printed "pid N" have all ended. */
void expect_gone(const run *r, int wanted);

/* Asserts that the text's lines, in any order, are the expected ones (which are sorted). Changes the text. */
void expect_lines(char *text, size_t count, const char *const *expected);

/* Asserts that the launcher's last line is `expected`, in which # stands for any number, and that the lines before it
 * only list the failures. */
void expect_message(const run *r, const char *expected);

/* The same for all of stderr. */
void expect_all(const run *r, const char *expected);

#endif
