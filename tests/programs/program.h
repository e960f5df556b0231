/* The project's programs as a user runs them: started from a command line, watched, and leaving nothing behind.
 *
 * program_start starts a test's first child programs; the test process adopts their orphans, so that programs that
 * outlive their launcher are found. */
#ifndef TESTS_PROGRAMS_PROGRAM_H
#define TESTS_PROGRAMS_PROGRAM_H

#include <stdbool.h>
#include <sys/types.h>

/* No program of these tests takes that long, even under a sanitizer on a machine with six times as many processes as cores. */
#define PROGRAM_DEADLINE_S 150.0

enum { PROGRAM_TEXT_CAPACITY = 65536 };

typedef struct program {
    pid_t pid;
    int out, err; /* unnamed files */
    int status;   /* exit status, or 128 + the signal that ended it */
    char out_text[PROGRAM_TEXT_CAPACITY], err_text[PROGRAM_TEXT_CAPACITY];
} program;

/* scratch_setup (tests/base/scratch.h) for a test that runs programs: they get TMPDIR in the folder, and no launcher's
 * variables. The teardown also fails if a process is left, or anything new in /dev/shm. */
int programs_setup(void **state);
int programs_teardown(void **state);

/* programs_setup for programs that compute for a long time rather than start often: oneDNN uses all of this machine's
 * instructions. */
int programs_setup_to_compute(void **state);

/* The folder above this test program's, where the programs are. */
const char *build_folder(void);

/* Starts a program of the build folder. The words of the line are separated by blanks; words NAME=VALUE in front of the
 * program's name go into its environment (STREAMS=closed starts it without standard streams, STREAMS=full with a full
 * stdout; STDERR=PATH opens its stderr there); dp_train, ddp_train, ddprun, mkdigits, gpu_check, fit_tn, replay,
 * plan, hello, who_gets, who_holds, grade, bench_comm, bench_dp_vs_ddp, bench_memory, bench_gpt, bench_launch, calibrate, tables, course_report, flight, who_hangs and visits stand for
 * the built programs wherever they are. */
void program_start(program *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits for the end and reads the output; returns p->status. Past the deadline the program is killed and the test
 * fails. */
int program_finish(program *p);

/* The same with a different deadline than PROGRAM_DEADLINE_S. */
int program_finish_within(program *p, double deadline_s);

/* Removes the lines in which a launcher lists the ranks that failed from err_text. Returns their number. */
int program_take_failures(program *p);

/* start, then finish. */
int program_run(program *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits until the program has written that text to stdout. */
void program_await(program *p, const char *text);

/* The process of a launcher's rank, or 0. */
pid_t program_rank(const program *launcher, int rank);

/* Waits until all adopted processes have ended; fails past the deadline. */
void programs_await_orphans(void);

/* Checks that the process has no file in /tmp or /dev/shm, outside the test's folder, open or mapped, so that none can
 * be left. */
void program_expect_no_named_files(pid_t pid);

/* Fails unless the stdout of the program, which has ended, contains the text. */
void program_expect_text(const program *p, const char *text);

/* The hash of the weights in the stdout of a training run that has ended. */
enum { PROGRAM_HASH = 16 };
void program_read_hash(const program *p, char hash[PROGRAM_HASH + 1]);

/* The number of lines in a text. */
int count_lines(const char *text);

/* A TCP port that is unused now, and a different one at each call. */
int free_port(void);

#endif
