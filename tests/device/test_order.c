/* The order in which work runs, for random programs of tasks, records and waits: declared order always holds, and tasks
 * whose order is not declared run in another order under some shuffle. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/flag.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/device/modes.h"

enum { STREAMS = DEVICE_COUNT * LS_STREAM_COUNT, EVENTS = 5, MAX_TASKS = 64 };

static uint64_t random_state = 1;

static int random_below(int limit) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (int)((random_state >> 33) % (uint64_t)limit);
}

/* A random program: for each task the tasks that must run before it, as bits, and its place in the order that ran. */
static struct program {
    int task_count;
    uint64_t before[MAX_TASKS];
    _Atomic int clock;
    _Atomic int place[MAX_TASKS];
    uint64_t stream_past[STREAMS], event_past[EVENTS];
} program;

static ls_status note_place(const void *argument) {
    const int *task = argument;
    atomic_store(&program.place[*task], 1 + atomic_fetch_add(&program.clock, 1));
    return LS_OK;
}

static void random_action(const struct devices *devices, ls_event *const events[EVENTS]) {
    int s = random_below(STREAMS), e = random_below(EVENTS), action = random_below(10);
    ls_stream *stream = stream_of(devices, s / LS_STREAM_COUNT, (ls_stream_kind)(s % LS_STREAM_COUNT));
    if (action < 4) {
        int task = program.task_count++;
        program.before[task] = program.stream_past[s];
        program.stream_past[s] |= UINT64_C(1) << task;
        ls_stream_launch(stream, "task", note_place, &task, sizeof task);
    } else if (action < 7) {
        ls_event_record(events[e], stream);
        program.event_past[e] = program.stream_past[s];
    } else {
        ls_stream_wait_event(stream, events[e]);
        program.stream_past[s] |= program.event_past[e];
    }
}

/* Runs a random program; returns how many pairs of tasks ran against the declared order. */
static int run_program(const struct devices *devices, const char *event_name) {
    ls_event *events[EVENTS];
    for (int e = 0; e < EVENTS; e++) events[e] = new_event(event_name);
    program.task_count = 0;
    atomic_store(&program.clock, 0);
    for (int s = 0; s < STREAMS; s++) program.stream_past[s] = 0;
    for (int e = 0; e < EVENTS; e++) program.event_past[e] = 0;
    for (int t = 0; t < MAX_TASKS; t++) atomic_store(&program.place[t], 0);
    int task_limit = 1 + random_below(MAX_TASKS);
    while (program.task_count < task_limit) random_action(devices, events);
    all_done(devices);
    assert_int_equal(atomic_load(&program.clock), program.task_count);
    int violations = 0;
    for (int t = 0; t < program.task_count; t++) {
        for (int earlier = 0; earlier < t; earlier++) {
            bool declared = program.before[t] >> earlier & 1;
            violations += declared && atomic_load(&program.place[earlier]) > atomic_load(&program.place[t]);
        }
    }
    for (int e = 0; e < EVENTS; e++) ls_event_destroy(events[e]);
    return violations;
}

/* True if the last program's tasks ran in another order than they were enqueued in. */
static bool was_reordered(void) {
    for (int t = 0; t < program.task_count; t++) {
        if (atomic_load(&program.place[t]) != t + 1) return true;
    }
    return false;
}

TEST_IN(scratch, declared_order_is_kept) {
    static const char *const modes[] = {"inline", "threads", "shuffle:1", "shuffle:4711",
                                        "shuffle:18446744073709551615"};
    random_state = 88172645463325252u;
    for (int m = 0; m < 5; m++) {
        struct devices devices = open_devices(modes[m]);
        int reordered = 0;
        for (int i = 0; i < 150; i++) {
            int violations = run_program(&devices, "declared");
            if (violations > 0) fail_msg("%s: %d pairs of tasks in program %d", modes[m], violations, i);
            reordered += was_reordered();
        }
        if (m == 0) assert_int_equal(reordered, 0);
        if (m >= 2) assert_true(reordered > 100);
        close_devices(&devices);
    }
}

/* Without its waits a program runs in a wrong order under some seed: this makes shuffling a race detector. */
TEST_IN(scratch, dropped_waits_are_noticed) {
    assert_int_equal(setenv("LS_CPU_DROP_WAIT", "forgotten", 1), 0);
    struct devices devices = open_devices("shuffle:3");
    random_state = 88172645463325252u;
    int wrong = 0, right = 0;
    for (int i = 0; i < 50; i++) {
        wrong += run_program(&devices, "forgotten") > 0;
        right += run_program(&devices, "kept") == 0;
    }
    assert_true(wrong > 25);
    assert_int_equal(right, 50);
    close_devices(&devices);
    unsetenv("LS_CPU_DROP_WAIT");
}

/* Two tasks without a declared order: some seed runs the first one first, another seed the second. */
TEST_IN(scratch, seeds_find_both_orders) {
    int second_first = 0;
    for (int seed = 0; seed < 32; seed++) {
        char mode[32];
        snprintf(mode, sizeof mode, "shuffle:%d", seed);
        for (int repeat = 0; repeat < 2; repeat++) {
            struct devices devices = open_devices(mode);
            atomic_store(&program.clock, 0);
            for (int task = 0; task < 2; task++) {
                ls_stream *stream = stream_of(&devices, task, LS_STREAM_COPY);
                ls_stream_launch(stream, "task", note_place, &task, sizeof task);
            }
            assert_int_equal(atomic_load(&program.clock), 0); /* nothing runs until the host waits */
            all_done(&devices);
            if (repeat == 0) {
                second_first += atomic_load(&program.place[1]) == 1;
                program.task_count = atomic_load(&program.place[1]);
            }
            assert_int_equal(atomic_load(&program.place[1]), program.task_count); /* a seed repeats its order */
            close_devices(&devices);
        }
    }
    assert_in_range(second_first, 4, 28);
}

/* --- tasks that wait for each other -------------------------------------------------------------------------------- */

/* The number of tasks that have arrived at their meeting, and of tasks that have run after it on the same stream. */
static struct meeting {
    ls_flag arrived;
    _Atomic int after;
} meeting;

static ls_status meet(const void *argument) {
    const uint32_t *awaited = argument;
    ls_flag_raise(&meeting.arrived);
    return ls_flag_wait(&meeting.arrived, *awaited, 0, ls_now_us() + 10e6) ? LS_OK : LS_ERR_TIMEOUT;
}

static ls_status come_after(const void *argument) {
    const uint32_t *awaited = argument;
    if (!ls_flag_reached(&meeting.arrived, *awaited)) return LS_ERR_INVALID;
    atomic_fetch_add(&meeting.after, 1);
    return LS_OK;
}

/* Like the collectives of a group inside this process; one thread waits for all of them. */
TEST_IN(scratch, tasks_that_meet_each_other_come_to_an_end) {
    for (int seed = 0; seed < 20; seed++) {
        char mode[32];
        snprintf(mode, sizeof mode, "shuffle:%d", seed);
        struct devices devices = open_devices(mode);
        meeting = (struct meeting){0};
        for (uint32_t round = 1; round <= 3; round++) {
            uint32_t awaited = round * DEVICE_COUNT;
            for (int d = 0; d < DEVICE_COUNT; d++) {
                ls_stream *stream = stream_of(&devices, d, LS_STREAM_COMPUTE);
                ls_stream_launch_meeting(stream, "meet", meet, &awaited, sizeof awaited);
                ls_stream_launch(stream, "after", come_after, &awaited, sizeof awaited);
            }
        }
        all_done(&devices);
        assert_int_equal(atomic_load(&meeting.after), 3 * DEVICE_COUNT);
        close_devices(&devices);
    }
}
