/* engine: lanes, devices, locks and meetings, against figures computed by hand; the rules of every timeline, on random
 *         scenes; and refusals. test_engine_links.c tests copies over links. */
#include <math.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/improvise.h"
#include "tests/replay/scene.h"

static const struct scene_link pair[] = {
    {"host", "switch", 10, 1, false}, {"gpu0", "switch", 10, 1, false}, {"gpu1", "switch", 10, 1, false}, {0}};

/* --- lanes -------------------------------------------------------------------------------------------------------- */

TEST(a_lane_does_one_task_after_another) {
    struct scene s;
    scene_begin(&s);
    int host = scene_lane(&s, LS_LANE_HOST, 0, 0), tasks[4];
    const double us[] = {1.5, 0, 2.25, 10};
    for (int i = 0; i < 4; i++) tasks[i] = scene_host(&s, host, us[i]);
    scene_run(&s);
    scene_expect(&s, tasks[0], 0, 1.5);
    scene_expect(&s, tasks[1], 1.5, 1.5);
    scene_expect(&s, tasks[2], 1.5, 3.75);
    scene_expect(&s, tasks[3], 3.75, 13.75);
    expect_us(s.timeline->makespan_us, 13.75);
    scene_check(&s);
    scene_end(&s);
}

TEST(nothing_takes_no_time) {
    struct scene s;
    scene_begin(&s);
    scene_lane(&s, LS_LANE_HOST, 0, 0);
    scene_run(&s);
    expect_us(s.timeline->makespan_us, 0);
    scene_end(&s);
}

/* One stream copies chunks to a device and the other processes them, with `buffers` buffers. */
static double pipeline(double copy_us, double kernel_us, int chunks, int buffers) {
    struct scene s;
    scene_begin(&s);
    int copy = scene_lane(&s, LS_LANE_COPY, 0, 0), compute = scene_lane(&s, LS_LANE_COMPUTE, 0, 0), kernels[32];
    for (int i = 0; i < chunks; i++) {
        int fetched = scene_copy(&s, copy, LS_HOST_MEMORY, 0, (uint64_t)(copy_us * 1e4));
        if (i >= buffers) scene_after(&s, kernels[i - buffers], fetched);
        kernels[i] = scene_after(&s, fetched, scene_kernel(&s, compute, kernel_us));
    }
    scene_node(&s, 1, 1, (struct scene_link[]){{"host", "gpu0", 10, 0, false}, {0}});
    scene_run(&s);
    scene_check(&s);
    double makespan_us = s.timeline->makespan_us;
    scene_end(&s);
    return makespan_us;
}

TEST(two_streams_make_a_pipeline) {
    for (int chunks = 1; chunks <= 32; chunks += 5) {
        expect_us(pipeline(3, 5, chunks, 2), 3 + (chunks - 1) * 5 + 5);
        expect_us(pipeline(5, 3, chunks, 2), 5 + (chunks - 1) * 5 + 3);
        expect_us(pipeline(3, 5, chunks, 1), chunks * (3 + 5));
    }
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

TEST(a_device_runs_one_kernel_at_a_time) {
    struct scene s;
    scene_begin(&s);
    int late = scene_lane(&s, LS_LANE_COMPUTE, 0, 0), early = scene_lane(&s, LS_LANE_COMM, 0, 0);
    int other = scene_lane(&s, LS_LANE_COMPUTE, 0, 1), host = scene_lane(&s, LS_LANE_HOST, 0, 0);
    int first = scene_kernel(&s, early, 10), second = scene_kernel(&s, early, 1);
    int waits = scene_kernel(&s, late, 4), beside = scene_kernel(&s, other, 7);
    scene_after(&s, scene_host(&s, host, 3), waits);
    scene_run(&s);
    scene_expect(&s, first, 0, 10);
    scene_expect(&s, waits, 10, 14); /* ready at 3: before `second`, which is ready at 10 */
    expect_us(s.timeline->ready_us[waits], 3);
    scene_expect(&s, second, 14, 15);
    scene_expect(&s, beside, 0, 7);
    scene_check(&s);
    scene_end(&s);
}

/* Of tasks that are ready at the same moment, the one of the lower lane is first, whatever the order of tasks or of the
 * ends at that moment. */
TEST(ties_go_to_the_lower_lane) {
    struct scene s;
    scene_begin(&s);
    int low = scene_lane(&s, LS_LANE_COMPUTE, 0, 0), high = scene_lane(&s, LS_LANE_COMM, 0, 0);
    int host = scene_lane(&s, LS_LANE_HOST, 0, 0), other_host = scene_lane(&s, LS_LANE_HOST, 0, 0);
    int b = scene_kernel(&s, high, 5), a = scene_kernel(&s, low, 3);
    scene_after(&s, scene_host(&s, host, 2), b);
    scene_after(&s, scene_host(&s, other_host, 2), a);
    scene_run(&s);
    scene_expect(&s, a, 2, 5);
    scene_expect(&s, b, 5, 10);
    scene_end(&s);
}

/* A collective of 6 us runs from 4 to 10; during it kernels take 1.5 times as long. */
TEST(collectives_slow_kernels_down) {
    struct scene s;
    scene_begin(&s);
    int compute = scene_lane(&s, LS_LANE_COMPUTE, 0, 0), comm = scene_lane(&s, LS_LANE_COMM, 0, 0);
    int more_comm = scene_lane(&s, LS_LANE_COMM, 0, 0), other = scene_lane(&s, LS_LANE_COMPUTE, 0, 1);
    int host = scene_lane(&s, LS_LANE_HOST, 0, 0);
    int begun = scene_host(&s, host, 4);
    scene_after(&s, begun, scene_collective(&s, comm, 0, 1, 6));
    int across = scene_kernel(&s, compute, 5); /* 4 us of it before, 1 us takes 1.5 */
    int inside = scene_kernel(&s, compute, 2); /* from 5.5 to 8.5 */
    int out = scene_kernel(&s, compute, 3);    /* 1 us of it takes 1.5, the other 2 follow */
    int again = scene_kernel(&s, compute, 10); /* a second one from 14 to 18, a third from 16 to 20: slow for 6 us */
    int elsewhere = scene_kernel(&s, other, 12);
    int at_14 = scene_host(&s, host, 10), at_16 = scene_host(&s, host, 2);
    scene_after(&s, at_14, scene_collective(&s, comm, 1, 1, 4));
    scene_after(&s, at_16, scene_collective(&s, more_comm, 2, 1, 4));
    scene_node(&s, 2, 1.5, pair);
    scene_run(&s);
    scene_expect(&s, across, 0, 5.5);
    scene_expect(&s, inside, 5.5, 8.5);
    scene_expect(&s, out, 8.5, 12);
    scene_expect(&s, again, 12, 24); /* 2 + 6 / 1.5 + 4 */
    scene_expect(&s, elsewhere, 0, 12);
    scene_check(&s);
    scene_end(&s);
}

/* --- locks -------------------------------------------------------------------------------------------------------- */

TEST(locked_launches_make_a_convoy) {
    for (int threads = 1; threads <= 8; threads *= 2) {
        enum { LAUNCHES = 6 };
        struct scene s;
        scene_begin(&s);
        int tasks[8][LAUNCHES], free_of_it[LAUNCHES];
        for (int t = 0; t < threads; t++) scene_lane(&s, LS_LANE_HOST, 0, t);
        int other_rank = scene_lane(&s, LS_LANE_HOST, 1, threads);
        for (int t = 0; t < threads; t++)
            for (int i = 0; i < LAUNCHES; i++) tasks[t][i] = scene_locked(&s, t, 0, 2.5);
        for (int i = 0; i < LAUNCHES; i++) free_of_it[i] = scene_locked(&s, other_rank, 0, 2.5);
        scene_run(&s);
        for (int t = 0; t < threads; t++)
            for (int i = 0; i < LAUNCHES; i++)
                scene_expect(&s, tasks[t][i], (i * threads + t) * 2.5, (i * threads + t + 1) * 2.5);
        for (int i = 0; i < LAUNCHES; i++) scene_expect(&s, free_of_it[i], i * 2.5, (i + 1) * 2.5);
        expect_us(s.timeline->makespan_us, threads * LAUNCHES * 2.5);
        scene_check(&s);
        scene_end(&s);
    }
}

TEST(a_lock_goes_to_who_came_first) {
    struct scene s;
    scene_begin(&s);
    for (int lane = 0; lane < 4; lane++) scene_lane(&s, LS_LANE_HOST, 0, 0);
    const double before_us[] = {3, 2, 1, 0};
    int tasks[4];
    for (int lane = 0; lane < 4; lane++) {
        scene_host(&s, lane, before_us[lane]);
        tasks[lane] = scene_locked(&s, lane, 7, 10);
    }
    int another = scene_locked(&s, scene_lane(&s, LS_LANE_HOST, 0, 0), 8, 10);
    scene_run(&s);
    for (int lane = 0; lane < 4; lane++) scene_expect(&s, tasks[lane], 10 * (3 - lane), 10 * (4 - lane));
    scene_expect(&s, another, 0, 10);
    scene_end(&s);
}

/* --- meetings ----------------------------------------------------------------------------------------------------- */

/* Another thread signals at 10, 13 and 100 us; the waiting one sleeps from 5 us on. A signal before the wait costs
 * nothing. */
TEST(who_waits_briefly_is_still_awake) {
    for (int spins = 0; spins < 3; spins++) {
        struct scene s;
        scene_begin(&s);
        int speaker = scene_lane(&s, LS_LANE_HOST, 0, 0), waiter = scene_lane(&s, LS_LANE_HOST, 0, 1);
        scene_star(&s, 2, 1, 0);
        ls_node_change_host(s.node)->spin_us = spins ? 5 : 0;
        ls_node_change_host(s.node)->awake_us = 1;
        if (spins == 2) ls_node_change_host(s.node)->awake_us = 99; /* not longer than waking from sleep */
        int words[3], heard[3];
        for (int i = 0; i < 3; i++) words[i] = scene_host(&s, speaker, i == 0 ? 10 : i == 1 ? 3 : 87);
        (void)scene_host(&s, waiter, 9);
        for (int i = 0; i < 3; i++) heard[i] = scene_after(&s, words[i], scene_hand_over(&s, waiter, 30));
        scene_run(&s);
        scene_expect(&s, heard[0], 10, spins == 1 ? 11 : 40);
        scene_expect(&s, heard[1], spins == 1 ? 13 : 40, spins == 1 ? 14 : 40);
        scene_expect(&s, heard[2], 100, 130);
        scene_end(&s);
    }
}

TEST(a_meeting_waits_for_the_last_and_takes_the_longest) {
    struct scene s;
    scene_begin(&s);
    int tasks[3];
    for (int rank = 0; rank < 3; rank++) {
        int host = scene_lane(&s, LS_LANE_HOST, rank, rank), comm = scene_lane(&s, LS_LANE_COMM, rank, rank);
        tasks[rank] = scene_collective(&s, comm, 5, 3, rank == 1 ? 9 : 2);
        scene_after(&s, scene_host(&s, host, 10.0 * (rank + 1)), tasks[rank]);
    }
    scene_run(&s);
    for (int rank = 0; rank < 3; rank++) {
        scene_expect(&s, tasks[rank], 30, 39);
        expect_us(s.timeline->ready_us[tasks[rank]], 10.0 * (rank + 1));
    }
    scene_check(&s);
    scene_end(&s);
}

/* Only one of 8 ranks was recorded. */
TEST(a_meeting_waits_for_nobody_who_is_not_there) {
    struct scene s;
    scene_begin(&s);
    int comm = scene_lane(&s, LS_LANE_COMM, 0, 0);
    scene_host(&s, comm, 4);
    int task = scene_collective(&s, comm, 0, 8, 3);
    scene_run(&s);
    scene_expect(&s, task, 4, 7);
    scene_end(&s);
}

/* --- random scenes ------------------------------------------------------------------------------------------------ */

static void same_bits(const double *a, const double *b, int count) {
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
}

TEST(random_scenes_keep_the_rules_and_come_out_the_same) {
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct scene one, same, permuted;
        scene_improvise(&one, seed, false);
        scene_improvise(&same, seed, false);
        scene_improvise(&permuted, seed, true);
        scene_check(&one);
        scene_check(&permuted);
        const ls_timeline *a = one.timeline, *b = same.timeline;
        same_bits(a->ready_us, b->ready_us, a->task_count);
        same_bits(a->start_us, b->start_us, a->task_count);
        same_bits(a->end_us, b->end_us, a->task_count);
        for (int way = 0; way < 2; way++) {
            same_bits(a->link_bytes[way], b->link_bytes[way], a->link_count);
            same_bits(a->link_busy_us[way], b->link_busy_us[way], a->link_count);
        }
        for (int i = 0; i < a->task_count; i++) expect_us(permuted.timeline->end_us[i], a->end_us[i]);
        expect_us(permuted.timeline->makespan_us, a->makespan_us);
        scene_end(&one);
        scene_end(&same);
        scene_end(&permuted);
    }
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, tasks_without_duration_are_refused) {
    struct scene s;
    const ls_lane_kind kinds[] = {LS_LANE_HOST, LS_LANE_COMPUTE, LS_LANE_COMM};
    for (int i = 0; i < 3; i++) {
        scene_begin(&s);
        int lane = scene_lane(&s, kinds[i], 0, 0);
        if (i == 0) scene_host(&s, lane, -1);
        if (i == 1) scene_kernel(&s, lane, -1);
        if (i == 2) scene_collective(&s, lane, 0, 1, -1);
        scene_expect_refusal(&s, "task 0", "no duration; derive one from its flops");
        scene_end(&s);
    }
    scene_begin(&s);
    scene_kernel(&s, scene_lane(&s, LS_LANE_HOST, 0, LS_NONE), 1);
    scene_expect_refusal(&s, "task 0 (kernel", "no device");
    scene_end(&s);
}

TEST_IN(scratch, copies_that_no_node_can_carry_are_refused) {
    for (int i = 0; i < 3; i++) {
        struct scene s;
        scene_begin(&s);
        int lane = scene_lane(&s, LS_LANE_COPY, 0, 0);
        scene_copy(&s, lane, 0, 1, 10);
        scene_copy(&s, lane, i == 1 ? 2 : 0, i == 2 ? 5 : 1, 10);
        if (i > 0) scene_node(&s, 2, 1, pair);
        if (i == 0) scene_expect_refusal(&s, "task 0 (copy", "no node");
        if (i == 1) scene_expect_refusal(&s, "task 1 (copy)", "from device 2 to device 1");
        if (i == 2) scene_expect_refusal(&s, "task 1 (copy)", "2 devices (0 to 1)");
        scene_end(&s);
    }
}

TEST_IN(scratch, times_that_numbers_cannot_say_are_refused) {
    struct scene s;
    scene_begin(&s);
    int lane = scene_lane(&s, LS_LANE_HOST, 0, 0);
    scene_host(&s, lane, 1e308);
    scene_host(&s, lane, 1e308);
    scene_host(&s, lane, 1);
    scene_expect_refusal(&s, "task 1 (host", "later than the clock can represent");
    scene_end(&s);
}

TEST_IN(scratch, nodes_that_were_changed_for_the_worse_are_refused) {
    for (int i = 0; i < 7; i++) {
        struct scene s;
        scene_begin(&s);
        scene_copy(&s, scene_lane(&s, LS_LANE_COPY, 0, 0), 0, 1, 10);
        scene_node(&s, 2, 1, pair);
        const double factors[][2] = {{0, 1}, {1, -1}, {NAN, 1}, {1, INFINITY}}, slow_downs[] = {NAN, 0, INFINITY};
        if (i < 4)
            ls_node_change_links(s.node, factors[i][0], factors[i][1]);
        else
            ls_node_change_collectives(s.node)->slow_down = slow_downs[i - 4];
        scene_expect_refusal(&s, "node scene", i < 4 ? "link 0" : "slow_down is");
        scene_end(&s);
    }
}
