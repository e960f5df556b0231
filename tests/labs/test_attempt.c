/* When the grader considers a probe hung. This program is also that probe: with --check=NAME. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "labs/course/grade/attempt.h"
#include "tests/base/test.h"

/* --- the probe; the seed is a pipe, to which each start writes a byte --------------------------------------------------- */

#define DEADLINE_S 0.5

static void compute(double cpu_us) {
    while (ls_thread_cpu_us() < cpu_us) {
    }
}

static void wait_for_ever(void) {
    for (;;) pause();
}

static void wait_in_slices(double us) {
    for (double until_us = ls_now_us() + us; ls_now_us() < until_us;) usleep(200000);
}

static void write_lines(const char *out) {
    int fd = open(out, O_WRONLY | O_APPEND | O_CLOEXEC);
    for (int i = 0; i < 15; i++) {
        usleep(100000);
        if (write(fd, "case\tN = 2\n", 11) != 11) _exit(1);
    }
    close(fd);
}

static int be_guest(char **argv) {
    const char *check = argv[1] + strlen("--check="), *out = argv[3] + strlen("--out=");
    int fd = atoi(argv[2] + strlen("--seed="));
    if (write(fd, ".", 1) != 1) return 1;
    if (strcmp(check, "spins") == 0) compute(1e12);
    if (strcmp(check, "waits") == 0) wait_for_ever();
    if (strcmp(check, "waits-in-slices") == 0) wait_in_slices(3 * DEADLINE_S * 1e6);
    if (strcmp(check, "computes") == 0) compute(0.3 * DEADLINE_S * 1e6);
    if (strcmp(check, "writes") == 0) write_lines(out);
    if (strcmp(check, "waits-once") == 0) { /* both tries share its other end */
        int flags = fcntl(fd, F_GETFL);
        if (!(flags & O_NONBLOCK)) {
            fcntl(fd, F_SETFL, flags | O_NONBLOCK);
            wait_for_ever();
        }
    }
    return 0;
}

/* --- tests ------------------------------------------------------------------------------------------------------------- */

/* Returns how often the probe was started; *timed_out: whether it hung. */
static ssize_t try_guest(const char *check, bool *timed_out) {
    int ends[2];
    char starts[8];
    attempt a;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[1], F_SETFD, 0), 0);
    attempt_request request = {
        .program = "/proc/self/exe", .check = check, .seed = ends[1], .deadline_s = DEADLINE_S, .asan = true};
    assert_int_equal(attempt_run(&a, &request), LS_OK);
    *timed_out = a.timed_out;
    assert_int_equal(a.timed_out ? a.signal : a.exit_status, a.timed_out ? SIGKILL : 0);
    attempt_close(&a);
    close(ends[1]);
    ssize_t count = read(ends[0], starts, sizeof starts);
    close(ends[0]);
    return count;
}

TEST_CASE(an_endless_loop_hangs_at_once) {
    bool timed_out;
    assert_int_equal(try_guest("spins", &timed_out), 1);
    assert_true(timed_out);
}

TEST_CASE(standstill_is_tried_once_more) {
    bool timed_out;
    assert_int_equal(try_guest("waits", &timed_out), 2);
    assert_true(timed_out);
    assert_int_equal(try_guest("waits-in-slices", &timed_out), 2);
    assert_true(timed_out);
    assert_int_equal(try_guest("waits-once", &timed_out), 2);
    assert_false(timed_out);
}

TEST_CASE(lines_are_progress) {
    bool timed_out;
    assert_int_equal(try_guest("writes", &timed_out), 1);
    assert_false(timed_out);
}

/* Six other processes use the processor most of the time: by the clock the probe takes longer than the deadline.
 * (attempt_run kills all children of this process, including these.) */
TEST_CASE(a_busy_machine_costs_nobody_points) {
    cpu_set_t all, one;
    bool timed_out;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 6; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile int forever = 1; forever;) {
            }
        }
    ssize_t starts = try_guest("computes", &timed_out);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(starts >= 1);
    assert_false(timed_out);
}

int main(int argc, char **argv) {
    if (argc == 4 && strncmp(argv[1], "--check=", strlen("--check=")) == 0) return be_guest(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endless_loop_hangs_at_once),
        cmocka_unit_test(standstill_is_tried_once_more),
        cmocka_unit_test(lines_are_progress),
        cmocka_unit_test(a_busy_machine_costs_nobody_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
