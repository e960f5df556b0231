/* Errors are sticky: a task that is refused, fails or times out poisons its device, and later work there does
 * nothing. */
#define _GNU_SOURCE

#include "common/base/clock.h"
#include "common/base/flag.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/device/modes.h"
#include "tests/device/tasks.h"

static ls_status failing_task(const void *argument) {
    (void)argument;
    return LS_ERR_FORMAT;
}

static void check_failure(struct devices *devices) {
    ls_stream *compute = stream_of(devices, 0, LS_STREAM_COMPUTE), *comm = stream_of(devices, 0, LS_STREAM_COMM);
    ls_stream *elsewhere = stream_of(devices, 1, LS_STREAM_COMPUTE);
    ls_event *failed = new_event("failed");
    int busy = 0, skipped = 0, late = 0, unharmed = 0;
    struct store to_late = {&late, 1, 0}, to_skipped = {&skipped, 1, 0};
    store(comm, &busy, 1, 20000); /* keeps a worker busy, so that later work is still queued */
    ls_stream_launch(compute, "fails", failing_task, "", 1);
    ls_event_record(failed, compute);
    ls_stream_wait_event(comm, failed);
    ls_stream_launch(comm, "skipped", store_task, &to_late, sizeof to_late);
    ls_stream_launch(compute, "skipped", store_task, &to_skipped, sizeof to_skipped);
    store(elsewhere, &unharmed, 1, 0);
    assert_int_equal(ls_device_synchronize(devices->device[0]), LS_ERR_FORMAT);
    assert_int_equal(ls_device_synchronize(devices->device[1]), LS_OK);
    assert_int_equal(skipped + late, 0);
    assert_int_equal(unharmed, 1);
    assert_int_equal(ls_device_synchronize(devices->device[0]), LS_OK); /* cleared */
    store(comm, &late, 2, 0);
    store(compute, &skipped, 2, 0);
    all_done(devices);
    assert_int_equal(skipped + late, 4);
    ls_event_destroy(failed);
}

static const char too_many[LS_TASK_ARGUMENTS_NBYTES + 1] = {0};

/* A refused task poisons its device, is reported once, and its error is kept until the host synchronises. */
static void check_refusal(struct devices *devices) {
    ls_device *device = devices->device[0];
    ls_stream *compute = stream_of(devices, 0, LS_STREAM_COMPUTE), *copy = stream_of(devices, 0, LS_STREAM_COPY);
    ls_event *recorded = new_event("recorded");
    int skipped = 0, copied = 0, one = 1, unharmed = 0;
    struct store to_skipped = {&skipped, 1, 0};
    assert_int_equal(ls_device_status(device), LS_OK);
    ls_stream_launch(compute, "large", store_task, too_many, sizeof too_many);
    scratch_expect_error("large", "at most");
    ls_stream_launch(compute, "large", store_task, too_many, sizeof too_many); /* not reported again */
    ls_stream_launch(compute, "skipped", store_task, &to_skipped, sizeof to_skipped);
    ls_stream_launch_meeting(copy, "skipped", store_task, &to_skipped, sizeof to_skipped);
    ls_copy(copy, &copied, &one, sizeof one);
    ls_event_record(recorded, copy); /* events are recorded all the same, so that no thread waits for ever */
    store(stream_of(devices, 1, LS_STREAM_COMM), &unharmed, 1, 0);
    assert_int_equal(ls_event_synchronize(recorded), LS_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(ls_device_status(device), LS_ERR_INVALID); /* reading keeps it */
    ls_device_fail(device, LS_ERR_IO);
    ls_device_fail(device, LS_OK);
    assert_int_equal(ls_device_status(device), LS_ERR_INVALID); /* the first error */
    assert_int_equal(ls_device_synchronize(devices->device[1]), LS_OK);
    assert_int_equal(ls_stream_synchronize(copy), LS_ERR_INVALID);
    assert_int_equal(ls_device_status(device), LS_OK);
    all_done(devices);
    assert_int_equal(skipped + copied, 0);
    assert_int_equal(unharmed, 1);
    store(compute, &skipped, 2, 0);
    ls_device_fail(device, LS_ERR_IO); /* it is unknown whether earlier work has run */
    assert_int_equal(ls_device_synchronize(device), LS_ERR_IO);
    store(compute, &skipped, 3, 0);
    all_done(devices);
    assert_int_equal(skipped, 3);
    ls_event_destroy(recorded);
}

TEST_IN(scratch, what_is_refused_sticks_to_its_device) { in_every_mode(check_refusal); }

TEST_IN(scratch, a_failure_poisons_the_device_until_it_is_synchronised) { in_every_mode(check_failure); }

struct blocked {
    ls_flag *gate;
};

static ls_status blocked_task(const void *argument) {
    const struct blocked *blocked = argument;
    (void)ls_flag_wait(blocked->gate, 1, 0, ls_now_us() + 20e6);
    return LS_OK;
}

TEST_IN(scratch, waits_have_a_deadline) {
    ls_set_wait_timeout_s(0.2);
    struct devices devices = open_devices("threads");
    ls_stream *copy = stream_of(&devices, 0, LS_STREAM_COPY), *compute = stream_of(&devices, 1, LS_STREAM_COMPUTE);
    ls_event *late = new_event("late event");
    ls_flag gate = {0};
    struct blocked arguments = {&gate};
    int value = 0;
    ls_stream_launch(copy, "blocked", blocked_task, &arguments, sizeof arguments);
    ls_event_record(late, copy);
    double start_us = ls_now_us();
    assert_int_equal(ls_event_synchronize(late), LS_ERR_TIMEOUT);
    scratch_expect_error("\"late event\"", "0.2 s");
    double waited_us = ls_now_us() - start_us;
    assert_true(waited_us >= 0.19e6);
    assert_int_equal(ls_stream_synchronize(copy), LS_ERR_TIMEOUT);
    scratch_expect_error("device 0 made no progress", NULL);
    ls_stream_wait_event(compute, late);
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_TIMEOUT);
    scratch_expect_error("\"late event\"", NULL);
    struct store to_value = {&value, 1, 0};
    ls_stream_launch(compute, "skipped", store_task, &to_value, sizeof to_value);
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_TIMEOUT);
    assert_int_equal(ls_device_synchronize(devices.device[1]), LS_ERR_TIMEOUT);
    assert_int_equal(value, 0);
    ls_flag_raise(&gate);
    all_done(&devices);
    assert_int_equal(ls_event_synchronize(late), LS_OK);
    ls_event_destroy(late);
    close_devices(&devices);
    ls_set_wait_timeout_s(300);
}

/* The worker hangs, and its queue, whose capacity is limited, fills up. */
TEST_IN(scratch, a_queue_that_stays_full_poisons_its_device) {
    ls_set_wait_timeout_s(0.1);
    struct devices devices = open_devices("threads");
    ls_device *device = devices.device[0];
    ls_stream *copy = stream_of(&devices, 0, LS_STREAM_COPY);
    ls_flag gate = {0};
    struct blocked arguments = {&gate};
    int skipped = 0;
    for (int i = 0; ls_device_status(device) == LS_OK && i < 1040; i++)
        ls_stream_launch(copy, "blocked", blocked_task, &arguments, sizeof arguments);
    scratch_expect_error("device 0 made no progress for 0.1 s", NULL);
    assert_int_equal(ls_device_status(device), LS_ERR_TIMEOUT);
    store(copy, &skipped, 1, 0); /* does not wait for a free place again */
    ls_set_wait_timeout_s(300);
    ls_flag_raise(&gate);
    assert_int_equal(ls_device_synchronize(device), LS_ERR_TIMEOUT);
    assert_int_equal(skipped, 0);
    store(copy, &skipped, 1, 0);
    all_done(&devices);
    assert_int_equal(skipped, 1);
    close_devices(&devices);
}
