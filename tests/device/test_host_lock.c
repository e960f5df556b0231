/* The emulated interpreter's lock: one thread at a time launches, for the time that was set; switched off, there is no
 * lock. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/device/host_lock.h"
#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/device/modes.h"

#define US 30.0
#define CLOSE_US 1e-3 /* sums of times of day in microseconds are rounded */

enum { THREADS = DEVICE_COUNT, ROUNDS = 100, LAUNCHES = 3, COUNT = 64 };

/* --- the threads' work -------------------------------------------------------------------------------------------- */

static ls_status do_nothing(const void *argument) {
    (void)argument;
    return LS_OK;
}

/* One launch of each kind, and calls between them that do not launch. */
static ls_status launch_all(const struct devices *devices, int device, ls_event *event) {
    float numbers[COUNT], copies[COUNT];
    ls_stream *stream = stream_of(devices, device, LS_STREAM_COMPUTE);
    ls_fill(stream, numbers, 2, COUNT);
    ls_event_record(event, stream);
    ls_copy(stream, copies, numbers, sizeof copies);
    ls_copy(stream, copies, numbers, 0); /* not a launch either */
    ls_stream_wait_event(stream, event);
    ls_status status = ls_event_synchronize(event);
    ls_stream_launch(stream, "task", do_nothing, NULL, 0);
    ls_status done = ls_stream_synchronize(stream);
    if (status == LS_OK) status = done;
    return status == LS_OK && copies[COUNT - 1] != 2 ? LS_ERR_INVALID : status;
}

struct worker {
    pthread_t thread;
    const struct devices *devices;
    pthread_barrier_t *together;
    int device, rounds;
    ls_event *event;
    ls_status status;
    char error[300];
};

static void *worker_main(void *argument) {
    struct worker *worker = argument;
    ls_log_capture(worker->error, sizeof worker->error);
    pthread_barrier_wait(worker->together);
    for (int i = 0; worker->status == LS_OK && i < worker->rounds; i++)
        worker->status = launch_all(worker->devices, worker->device, worker->event);
    return NULL;
}

/* Two threads launch at the same time, each on its device. */
static void run_workers(struct worker workers[THREADS], const struct devices *devices, int rounds) {
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, THREADS);
    for (int t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){.devices = devices, .together = &together, .device = t, .rounds = rounds};
        workers[t].event = new_event("filled");
        assert_int_equal(pthread_create(&workers[t].thread, NULL, worker_main, &workers[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(workers[t].thread, NULL);
    all_done(devices);
    for (int t = 0; t < THREADS; t++) ls_event_destroy(workers[t].event);
    pthread_barrier_destroy(&together);
}

/* --- the records -------------------------------------------------------------------------------------------------- */

static const struct ls_probe_thread *threads;
static size_t thread_count;

static void record_workers(double us, bool by_cpu_time, int rounds) {
    struct worker workers[THREADS];
    struct devices devices = open_devices("inline");
    assert_int_equal(ls_host_lock_set(us, by_cpu_time), LS_OK);
    ls_probe_start(by_cpu_time);
    run_workers(workers, &devices, rounds);
    ls_probe_stop();
    assert_int_equal(ls_host_lock_set(0, false), LS_OK);
    for (int t = 0; t < THREADS; t++) assert_int_equal(workers[t].status, LS_OK);
    close_devices(&devices);
    assert_int_equal(ls_probe_read(&threads, &thread_count), LS_OK);
}

static int count_of(ls_probe_kind kind) {
    int count = 0;
    for (size_t t = 0; t < thread_count; t++)
        for (size_t i = 0; i < threads[t].count; i++) count += threads[t].records[i].kind == kind;
    return count;
}

/* The time for which one thread holds the lock. */
struct turn {
    double from_us, to_us;
};

static int by_time(const void *left, const void *right) {
    const struct turn *a = left, *b = right;
    return (a->from_us > b->from_us) - (a->from_us < b->from_us);
}

/* Each LOCK is followed by its UNLOCK, and the UNLOCK by the LAUNCH. Adds the thread's turns. */
static void read_turns(const struct ls_probe_thread *thread, double us, bool by_cpu_time, struct turn *turns,
                       int *count) {
    const struct ls_probe_record *lock = NULL, *last = NULL;
    for (size_t i = 0; i < thread->count; i++) {
        const struct ls_probe_record *record = &thread->records[i];
        if (record->kind == LS_PROBE_LOCK) {
            lock = record;
            assert_string_equal(lock->label, "host lock");
            assert_true(lock->begin_us <= lock->end_us);
        }
        if (record->kind == LS_PROBE_UNLOCK) {
            assert_ptr_equal(last, lock);
            assert_non_null(lock);
            assert_int_equal(record->object, lock->object);
            double busy_us = by_cpu_time ? record->end_cpu_us - lock->end_cpu_us : record->end_us - lock->end_us;
            assert_true(busy_us >= us - CLOSE_US);
            turns[(*count)++] = (struct turn){lock->end_us, record->begin_us};
        }
        if (record->kind == LS_PROBE_LAUNCH) { /* the RUN lies within the LAUNCH, and is written before it */
            assert_true(i >= 2);
            const struct ls_probe_record *before = record - 2;
            assert_int_equal(before->kind, LS_PROBE_UNLOCK);
            assert_true(before->end_us <= record->begin_us);
        }
        last = record;
    }
}

static void expect_turns(double us, bool by_cpu_time, int rounds) {
    static struct turn turns[THREADS * ROUNDS * LAUNCHES];
    assert_int_equal(count_of(LS_PROBE_LAUNCH), THREADS * rounds * LAUNCHES);
    assert_int_equal(count_of(LS_PROBE_LOCK), THREADS * rounds * LAUNCHES);
    assert_int_equal(count_of(LS_PROBE_UNLOCK), THREADS * rounds * LAUNCHES);
    int count = 0;
    for (size_t t = 0; t < thread_count; t++) read_turns(&threads[t], us, by_cpu_time, turns, &count);
    qsort(turns, (size_t)count, sizeof turns[0], by_time);
    for (int i = 1; i < count; i++) assert_true(turns[i - 1].to_us <= turns[i].from_us);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

TEST_CASE(test_one_thread_at_a_time) {
    record_workers(US, false, ROUNDS);
    expect_turns(US, false, ROUNDS);
    ls_probe_drop();
}

TEST_CASE(test_off_there_is_no_lock) {
    record_workers(0, false, ROUNDS);
    assert_int_equal(count_of(LS_PROBE_LAUNCH), THREADS * ROUNDS * LAUNCHES);
    assert_int_equal(count_of(LS_PROBE_LOCK) + count_of(LS_PROBE_UNLOCK), 0);
    ls_probe_drop();
}

static void launch_with_a_lock(struct devices *devices) {
    struct worker workers[THREADS];
    assert_int_equal(ls_host_lock_set(1, false), LS_OK);
    run_workers(workers, devices, 20);
    assert_int_equal(ls_host_lock_set(0, false), LS_OK);
    for (int t = 0; t < THREADS; t++) assert_int_equal(workers[t].status, LS_OK);
}

TEST_CASE(test_however_streams_run) { in_every_mode(launch_with_a_lock); }

/* Each turn takes 30 times the deadline. If the other thread is so late that it need not wait, they try again. */
TEST_CASE(test_a_turn_that_does_not_come) {
    double timeout_s = ls_wait_timeout_s();
    struct devices devices = open_devices("inline");
    struct worker workers[THREADS];
    int late = 0;
    for (int i = 0; late == 0 && i < 50; i++) {
        ls_set_wait_timeout_s(0.01);
        assert_int_equal(ls_host_lock_set(3e5, false), LS_OK);
        run_workers(workers, &devices, 1);
        for (int t = 0; t < THREADS; t++) late += workers[t].status == LS_ERR_TIMEOUT;
    }
    assert_true(late > 0);
    int told = 0;
    for (int t = 0; t < THREADS; t++)
        told += strcmp(workers[t].error,
                       "timed out after 0.01 s waiting for the host lock, which each launch holds for 300000 us") == 0;
    assert_int_equal(told, 1);
    ls_status after = launch_all(&devices, 0, workers[0].event = new_event("later"));
    assert_int_equal(after, LS_ERR_TIMEOUT); /* at once, and without a second message */
    ls_set_wait_timeout_s(timeout_s);
    assert_int_equal(ls_host_lock_set(1, false), LS_OK); /* a new one */
    assert_int_equal(launch_all(&devices, 0, workers[0].event), LS_OK);
    assert_int_equal(ls_host_lock_set(0, false), LS_OK);
    all_done(&devices);
    ls_event_destroy(workers[0].event);
    close_devices(&devices);
}

TEST_CASE(test_what_is_no_time) {
    const double wrong[] = {-1, NAN, INFINITY, 1.001e6};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ls_host_lock_set(wrong[i], false), LS_ERR_INVALID);
        scratch_expect_error("a host lock of", "expected 0 to 1e+06");
        assert_false(atomic_load(&ls_host_lock_is_on));
    }
}

static void *burn(void *argument) {
    const atomic_bool *over = argument;
    while (!atomic_load(over)) continue;
    return NULL;
}

/* Three threads on one core: a turn is longer than a thread's time slice, and the turns of other threads do not count.
 * The process stays on that core, so this test is the last. */
TEST_CASE(test_a_turn_in_cpu_time) {
    const double long_us = 20000;
    pthread_t burner;
    atomic_bool over = false;
    assert_true(ls_share_one_core());
    assert_int_equal(pthread_create(&burner, NULL, burn, &over), 0);
    record_workers(long_us, true, 2);
    atomic_store(&over, true);
    pthread_join(burner, NULL);
    expect_turns(long_us, true, 2);
    ls_probe_drop();
}

int main(void) {
#define ROW(name) cmocka_unit_test_setup_teardown(test_##name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        ROW(one_thread_at_a_time),      ROW(off_there_is_no_lock), ROW(however_streams_run),
        ROW(a_turn_that_does_not_come), ROW(what_is_no_time),      ROW(a_turn_in_cpu_time),
    };
    ls_set_wait_timeout_s(20); /* no turn of these tests takes that long */
    return cmocka_run_group_tests_name("host lock", tests, NULL, NULL);
}
