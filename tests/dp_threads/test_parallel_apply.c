/* The hand-off of work to one thread per device. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "dp_threads/parallel_apply.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"
#include "tests/nn/models.h"

enum { COUNT = 4, FIRST_DEVICE = 10 };

struct work {
    _Atomic int calls[COUNT];
    pthread_t threads[COUNT];
    ls_status answers[COUNT];
    bool silent; /* failing replicas report no error */
    int64_t sum; /* written by the caller, read by replicas */
    int64_t seen[COUNT];
};

static ls_device *devices[COUNT];

static int open_devices(void **state) {
    (void)state;
    for (int i = 0; i < COUNT; i++) devices[i] = open_device(FIRST_DEVICE + i);
    return 0;
}

static int close_devices(void **state) {
    (void)state;
    for (int i = 0; i < COUNT; i++) close_empty_device(devices[i]);
    return 0;
}

static ls_status replica(void *context, int i) {
    struct work *work = context;
    atomic_fetch_add(&work->calls[i], 1);
    work->threads[i] = pthread_self();
    work->seen[i] += work->sum;
    if (work->answers[i] != LS_OK && i == 1) usleep(20000); /* so that the first in order is not the first in time */
    if (work->answers[i] == LS_OK || work->silent) return work->answers[i];
    return ls_fail(work->answers[i], "trouble number %d", i);
}

static dp_workers *start(void) {
    dp_workers *workers;
    assert_int_equal(dp_workers_create(&workers, devices, COUNT), LS_OK);
    return workers;
}

TEST_CASE(each_replica_runs_once_in_its_thread) {
    dp_workers *workers = start();
    struct work first = {.sum = 1}, second = {.sum = 1};
    assert_int_equal(dp_parallel_apply(workers, COUNT, replica, &first), LS_OK);
    assert_int_equal(dp_parallel_apply(workers, COUNT, replica, &second), LS_OK);
    assert_true(pthread_equal(first.threads[0], pthread_self()));
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(first.calls[i], 1);
        assert_int_equal(second.calls[i], 1);
        assert_true(pthread_equal(first.threads[i], second.threads[i]));
        for (int j = 0; j < i; j++) assert_false(pthread_equal(first.threads[i], first.threads[j]));
    }
    dp_workers_destroy(workers);
}

TEST_CASE(fewer_replicas_leave_the_others_alone) {
    dp_workers *workers = start();
    for (int replicas = 1; replicas <= COUNT; replicas++) {
        struct work work = {.sum = 1};
        assert_int_equal(dp_parallel_apply(workers, replicas, replica, &work), LS_OK);
        for (int i = 0; i < COUNT; i++) assert_int_equal(work.calls[i], i < replicas ? 1 : 0);
    }
    dp_workers_destroy(workers);
}

/* Values that the caller wrote are seen by the replicas, and their values by the caller, call after call. */
TEST_CASE(memory_is_handed_over_with_the_work) {
    dp_workers *workers = start();
    struct work work = {0};
    int64_t total = 0;
    for (int k = 1; k <= 500; k++) {
        work.sum = k;
        total += k;
        assert_int_equal(dp_parallel_apply(workers, COUNT, replica, &work), LS_OK);
        for (int i = 0; i < COUNT; i++) assert_int_equal(work.seen[i], total);
    }
    dp_workers_destroy(workers);
}

static void expect_report(struct work *work, ls_status status, const char *expected) {
    dp_workers *workers = start();
    stderr_begin();
    ls_status got = dp_parallel_apply(workers, COUNT, replica, work);
    const char *text = stderr_end();
    assert_string_equal(text, expected);
    assert_int_equal(got, status);
    for (int i = 0; i < COUNT; i++) assert_int_equal(work->calls[i], 1); /* all have run, whichever failed */
    /* the next call works like the first */
    struct work good = {.sum = 1};
    assert_int_equal(dp_parallel_apply(workers, COUNT, replica, &good), LS_OK);
    dp_workers_destroy(workers);
}

TEST_CASE(the_first_failing_replica_is_reported) {
    ls_log_init("test", -1, false);
    struct work one = {.answers = {LS_OK, LS_OK, LS_ERR_IO, LS_OK}};
    expect_report(&one, LS_ERR_IO, "test: error: replica 2 on device 12: trouble number 2\n");
    struct work three = {.answers = {LS_OK, LS_ERR_NO_MEMORY, LS_ERR_IO, LS_ERR_PEER}};
    expect_report(&three, LS_ERR_NO_MEMORY, "test: error: replica 1 on device 11: trouble number 1\n");
    struct work own = {.answers = {LS_ERR_INVALID, LS_OK, LS_OK, LS_ERR_PEER}};
    expect_report(&own, LS_ERR_INVALID, "test: error: replica 0 on device 10: trouble number 0\n");
    /* a replica that gives up because another has failed is not the cause, though its error may be the first */
    struct work victims = {.answers = {LS_ERR_PEER, LS_ERR_PEER, LS_ERR_IO, LS_ERR_NO_MEMORY}};
    expect_report(&victims, LS_ERR_IO, "test: error: replica 2 on device 12: trouble number 2\n");
}

TEST_CASE(a_silent_failure_gets_its_status_as_text) {
    struct work work = {.answers = {LS_OK, LS_OK, LS_OK, LS_ERR_NO_MEMORY}, .silent = true};
    expect_report(&work, LS_ERR_NO_MEMORY, "test: error: replica 3 on device 13: out of memory\n");
}

/* --- a replica that hangs ---------------------------------------------------------------------------------------- */

static ls_status hang(void *context, int i) {
    (void)context;
    if (i == 2) sleep(50);
    return LS_OK;
}

static int run_hanging(void *argument) {
    (void)argument;
    ls_device *own[COUNT];
    for (int i = 0; i < COUNT; i++) own[i] = open_device(FIRST_DEVICE + i);
    dp_workers *workers;
    char message[512];
    ls_log_capture(message, sizeof message);
    ls_set_wait_timeout_s(0.2);
    if (dp_workers_create(&workers, own, COUNT) != LS_OK) return 1;
    stderr_begin();
    ls_status status = dp_parallel_apply(workers, COUNT, hang, NULL);
    const char *text = stderr_end();
    /* the close must not wait for the thread that hangs, nor free the memory that it uses */
    if (!dp_workers_stuck(workers) || dp_workers_destroy(workers)) return 4;
    const char *expected = "test: error: replica 2 on device 12 did not return within 0.4 s\n";
    if (strcmp(text, expected) != 0) return 2;
    return status == LS_ERR_TIMEOUT ? 0 : 3;
}

TEST_CASE(a_replica_that_hangs_is_named_at_the_deadline) {
    ls_log_init("test", -1, false);
    assert_int_equal(finish_child(start_child(run_hanging, NULL)), 0);
}

#define with_devices(test) cmocka_unit_test_setup_teardown(test, open_devices, close_devices)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_that_hangs_is_named_at_the_deadline), /* forks, so it precedes all threads */
        with_devices(each_replica_runs_once_in_its_thread),
        with_devices(fewer_replicas_leave_the_others_alone),
        with_devices(memory_is_handed_over_with_the_work),
        with_devices(the_first_failing_replica_is_reported),
        with_devices(a_silent_failure_gets_its_status_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
