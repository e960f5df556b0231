/* thread_vs_process: which memory is shared, and which crash is survived; times are printed, whatever their values. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "labs/bench/thread_vs_process/workers.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

TEST_IN(programs, test_memory_is_shared_by_threads_only) {
    bool seen = false;
    assert_int_equal(worker_shares(&seen, WORKER_THREAD), LS_OK);
    assert_true(seen);
    assert_int_equal(worker_shares(&seen, WORKER_PROCESS), LS_OK);
    assert_false(seen);
}

TEST_IN(programs, test_a_threads_crash_ends_all_and_a_processs_does_not) {
    worker_crash crash;
    assert_int_equal(worker_let_crash(&crash, WORKER_THREAD), LS_OK);
    assert_false(crash.survived);
    assert_int_equal(crash.signal, SIGSEGV);
    assert_int_equal(worker_let_crash(&crash, WORKER_PROCESS), LS_OK);
    assert_true(crash.survived);
    assert_int_equal(crash.worker_signal, SIGSEGV);
    assert_int_equal(crash.signal, 0);
}

/* Afterwards the affinity mask is as before. */
TEST_IN(programs, test_times_are_times) {
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int k = 0; k < WORKER_KINDS; k++) {
        double us = 0;
        assert_int_equal(worker_create(&us, (worker_kind)k), LS_OK);
        assert_true(us > 0);
        us = 0;
        assert_int_equal(worker_switch(&us, (worker_kind)k, 3), LS_OK);
        assert_true(us > 0);
    }
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

/* The cells of the table's row that begins with that: two medians with their quantiles, in order. */
static void expect_times(const program *p, const char *row) {
    const char *line = strstr(p->out_text, row);
    double median[2], low[2], high[2];
    assert_non_null(line);
    int cells = sscanf(line + strlen(row), " %lf us (%lf to %lf) %lf us (%lf to %lf)", &median[0], &low[0], &high[0],
                       &median[1], &low[1], &high[1]);
    if (cells != 6) fail_msg("%.120s", line);
    for (int k = 0; k < 2; k++) assert_true(low[k] <= median[k] && median[k] <= high[k] && high[k] > 0);
}

TEST_IN(programs, test_one_screen_says_it) {
    static program p;
    assert_int_equal(program_run(&p, "%s/thread_vs_process --runs=7 --trips=5", build_folder()), 0);
    program_expect_text(&p, "Measured over 7 runs: median (10 % to 90 % of the runs). A run hands over 5 times");
    expect_times(&p, "start it, and wait for its end");
    expect_times(&p, "hand over to it, or back");
    program_expect_text(&p, "its starter sees that");
    program_expect_text(&p, "its starter does not see that");
    program_expect_text(&p, "the whole process ends: signal 11");
    program_expect_text(&p, "its starter goes on, and is told: signal 11");
    assert_true(count_lines(p.out_text) <= 24);
    assert_int_equal(scratch_file_count(), 0);
    assert_int_equal(program_run(&p, "%s/thread_vs_process --runs=0", build_folder()), 2);
}
