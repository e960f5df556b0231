/* Streams and events have CUDA's semantics, in each stream mode. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/device/modes.h"
#include "tests/device/tasks.h"

/* --- tasks ------------------------------------------------------------------------------------------------------- */

struct expect {
    const int *from;
    int value;
    _Atomic int *mistakes;
};

static _Atomic int mistakes;

static ls_status expect_task(const void *argument) {
    const struct expect *expect = argument;
    if (*expect->from != expect->value) atomic_fetch_add(expect->mistakes, 1);
    return LS_OK;
}

/* The task counts an error if *from is not `value` when it runs; no_mistakes() asserts that none did. */
static void expect(ls_stream *stream, const int *from, int value) {
    struct expect arguments = {from, value, &mistakes};
    ls_stream_launch(stream, "expect", expect_task, &arguments, sizeof arguments);
}

static void no_mistakes(void) { assert_int_equal(atomic_exchange(&mistakes, 0), 0); }

/* --- order within a stream --------------------------------------------------------------------------------------- */

/* More work than a queue holds, on all streams at once. */
static void check_order_within_streams(struct devices *devices) {
    enum { TASKS = 2500 };
    int counters[DEVICE_COUNT][LS_STREAM_COUNT] = {{0}};
    for (int i = 0; i < TASKS; i++) {
        for (int d = 0; d < DEVICE_COUNT; d++) {
            for (int s = 0; s < LS_STREAM_COUNT; s++) {
                ls_stream *stream = stream_of(devices, d, (ls_stream_kind)s);
                expect(stream, &counters[d][s], i);
                store(stream, &counters[d][s], i + 1, 0);
            }
        }
    }
    all_done(devices);
    no_mistakes();
    for (int d = 0; d < DEVICE_COUNT; d++) {
        for (int s = 0; s < LS_STREAM_COUNT; s++) assert_int_equal(counters[d][s], TASKS);
    }
}

TEST_IN(scratch, order_within_streams) { in_every_mode(check_order_within_streams); }

/* --- order across streams ---------------------------------------------------------------------------------------- */

/* One slot, passed back and forth between a producer and a consumer on another device; each event is recorded many
 * times. */
static void check_hand_over(struct devices *devices) {
    ls_stream *producer = stream_of(devices, 0, LS_STREAM_COMPUTE), *consumer = stream_of(devices, 1, LS_STREAM_COMM);
    ls_event *full = new_event("full"), *empty = new_event("empty");
    int slot = -1;
    for (int i = 0; i < 300; i++) {
        ls_stream_wait_event(producer, empty); /* before the first record: does nothing */
        store(producer, &slot, i, i % 50 == 0 ? 200 : 0);
        ls_event_record(full, producer);
        ls_stream_wait_event(consumer, full);
        expect(consumer, &slot, i);
        ls_event_record(empty, consumer);
    }
    all_done(devices);
    no_mistakes();
    ls_event_destroy(full);
    ls_event_destroy(empty);
}

TEST_IN(scratch, hand_over) { in_every_mode(check_hand_over); }

static void check_never_recorded(struct devices *devices) {
    ls_event *never = new_event("never");
    int value = 0;
    for (int s = 0; s < LS_STREAM_COUNT; s++) ls_stream_wait_event(stream_of(devices, 0, (ls_stream_kind)s), never);
    assert_int_equal(ls_event_synchronize(never), LS_OK);
    store(stream_of(devices, 0, LS_STREAM_COPY), &value, 1, 0);
    all_done(devices);
    assert_int_equal(value, 1);
    ls_event_destroy(never);
    ls_event_destroy(NULL);
}

TEST_IN(scratch, waiting_for_an_event_that_was_never_recorded_does_nothing) { in_every_mode(check_never_recorded); }

/* A wait refers to the latest record at the time of the call: not to an earlier or a later one. */
static void check_latest_record(struct devices *devices) {
    ls_stream *compute = stream_of(devices, 0, LS_STREAM_COMPUTE), *comm = stream_of(devices, 0, LS_STREAM_COMM);
    ls_stream *copy = stream_of(devices, 1, LS_STREAM_COPY);
    ls_event *event = new_event("event"), *back = new_event("back");
    int first = 0, second = 0, seen = 0;
    store(copy, &first, 1, 100);
    ls_event_record(event, copy);
    store(copy, &second, 2, 300);
    ls_event_record(event, copy);
    ls_stream_wait_event(comm, event); /* the second record */
    expect(comm, &first, 1);
    expect(comm, &second, 2);
    store(comm, &seen, 3, 0);
    ls_event_record(back, comm);
    ls_stream_wait_event(compute, back);
    expect(compute, &seen, 3);
    ls_stream_wait_event(copy, back); /* if comm waited for the third record, this would be a deadlock */
    store(copy, &second, 4, 0);
    ls_event_record(event, copy);
    ls_stream_wait_event(comm, event);
    expect(comm, &second, 4);
    all_done(devices);
    no_mistakes();
    ls_event_destroy(event);
    ls_event_destroy(back);
}

TEST_IN(scratch, a_wait_refers_to_the_latest_record) { in_every_mode(check_latest_record); }

/* An event that is recorded on a slow stream and then on a fast one: waits for either see the work before that
 * record. */
static void check_event_that_moves(struct devices *devices) {
    ls_stream *compute = stream_of(devices, 0, LS_STREAM_COMPUTE), *comm = stream_of(devices, 0, LS_STREAM_COMM);
    ls_stream *copy = stream_of(devices, 0, LS_STREAM_COPY), *other = stream_of(devices, 1, LS_STREAM_COMM);
    ls_event *event = new_event("event");
    int slow = 0, quick = 0;
    for (int i = 1; i < 20; i++) {
        store(copy, &slow, i, 300);
        ls_event_record(event, copy);
        ls_stream_wait_event(comm, event);
        store(other, &quick, i, 0);
        ls_event_record(event, other);
        ls_stream_wait_event(compute, event);
        expect(comm, &slow, i);
        expect(compute, &quick, i);
        ls_event_record(event, comm); /* order the next round after this one */
        ls_stream_wait_event(copy, event);
        ls_event_record(event, compute);
        ls_stream_wait_event(other, event);
    }
    all_done(devices);
    no_mistakes();
    ls_event_destroy(event);
}

TEST_IN(scratch, an_event_may_be_recorded_on_several_streams) { in_every_mode(check_event_that_moves); }

static void check_host_waits(struct devices *devices) {
    ls_stream *comm = stream_of(devices, 1, LS_STREAM_COMM);
    ls_event *event = new_event("event");
    int value = 0;
    for (int i = 1; i < 30; i++) {
        store(comm, &value, i, 50);
        ls_event_record(event, comm);
        assert_int_equal(ls_event_synchronize(event), LS_OK);
        assert_int_equal(value, i);
        store(comm, &value, -i, 50);
        assert_int_equal(ls_stream_synchronize(comm), LS_OK);
        assert_int_equal(value, -i);
    }
    ls_event_destroy(event);
}

TEST_IN(scratch, the_host_waits_for_events_and_streams) { in_every_mode(check_host_waits); }

/* --- copies ------------------------------------------------------------------------------------------------------ */

static void check_copies(struct devices *devices) {
    enum { NBYTES = 300000 };
    void *memory[DEVICE_COUNT] = {NULL};
    static unsigned char host[NBYTES], back[NBYTES];
    for (size_t i = 0; i < NBYTES; i++) host[i] = (unsigned char)(i * 7 + i / 251);
    for (int d = 0; d < DEVICE_COUNT; d++) {
        assert_int_equal(ls_device_alloc(devices->device[d], LS_MEMORY_INPUT, NBYTES, "copied bytes", &memory[d]),
                         LS_OK);
    }
    ls_stream *to = stream_of(devices, 0, LS_STREAM_COPY), *across = stream_of(devices, 1, LS_STREAM_COMM);
    ls_event *there = new_event("there"), *crossed = new_event("crossed");
    memset(back, 0, NBYTES);
    ls_copy(to, memory[0], host, NBYTES);
    ls_copy(to, memory[0], host + 1, 0);
    ls_event_record(there, to);
    ls_stream_wait_event(across, there);
    ls_copy(across, memory[1], memory[0], NBYTES);
    ls_event_record(crossed, across);
    ls_stream_wait_event(to, crossed);
    ls_copy(to, back, memory[1], 1000); /* a short copy */
    ls_copy(to, back + 1000, (char *)memory[1] + 1000, NBYTES - 1000);
    all_done(devices);
    assert_memory_equal(back, host, NBYTES);
    for (int d = 0; d < DEVICE_COUNT; d++) ls_device_free(devices->device[d], memory[d]);
    ls_event_destroy(there);
    ls_event_destroy(crossed);
}

TEST_IN(scratch, copies_run_in_stream_order) { in_every_mode(check_copies); }
