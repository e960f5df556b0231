/* account: the parts of a step's time, against sums computed by hand. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/engine/account.h"
#include "tests/base/test.h"
#include "tests/replay/accounts.h"
#include "tests/replay/improvise.h"

static double phase_us(const struct ls_account *account, int place, const char *phase) {
    for (int i = 0; i < account->phase_count; i++)
        if (strcmp(account->phases[i], phase) == 0) return account->devices[place].phase_us[i];
    fail_msg("no phase %s", phase);
    return NAN;
}

TEST(each_moment_belongs_to_one_of_four) {
    struct scene s;
    account_begin(&s, 0);
    account_add_step(&s);
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    assert_int_equal(account->steps, 1);
    expect_us(account->step_us, 19);
    expect_us(account->median_step_us, 19);
    assert_int_equal(account->device_count, 2);
    assert_int_equal(account->devices[0].device, 3);
    assert_int_equal(account->devices[1].device, 9);
    account_expect_split(account, 0, 10, 3, 2 + 1, 3);
    account_expect_split(account, 1, 3, 0, 0, 16);
    assert_int_equal(account->phase_count, 3);
    expect_us(phase_us(account, 0, "forward"), 12);
    expect_us(phase_us(account, 0, "all-reduce"), 3);
    expect_us(phase_us(account, 0, "optimizer"), 1);
    expect_us(phase_us(account, 1, "forward"), 0);
    expect_us(phase_us(account, 1, "optimizer"), 3);
    expect_us(account->devices[0].communication_us, 6);
    expect_us(account->overlap, 0.5);
    expect_us(account->communication_share, 6.0 / 19 / 2);
    expect_us(account->busy_share, (10.0 + 3.0) / 19 / 2);
    assert_int_equal(account->link_count, 0);
    ls_account_free(account);
    scene_end(&s);
}

/* One of three steps takes 81 us more: it has a kernel of 90 us, 9 of which are hidden. */
TEST(a_median_leaves_out_the_step_that_was_disturbed) {
    struct scene s;
    account_begin(&s, 0);
    for (int step = 0; step < 4; step++) {
        if (step == 2) scene_kernel(&s, 2, 90);
        account_add_step(&s);
    }
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    assert_int_equal(account->steps, 3);
    expect_us(account->step_us, 19 + 81. / 3);
    expect_us(account->median_step_us, 19);
    ls_account_free(account);
    scene_end(&s);
}

/* The first step, a longer one, does not count; figures are per step. */
TEST(the_first_of_several_steps_does_not_count) {
    struct scene s;
    account_begin(&s, 10);
    scene_kernel(&s, 2, 100);
    for (int step = 0; step < 4; step++) account_add_step(&s);
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    assert_int_equal(account->steps, 3);
    expect_us(account->step_us, 19);
    expect_us(account->median_step_us, 19);
    account_expect_split(account, 0, 10, 3, 3, 3);
    expect_us(phase_us(account, 0, "forward"), 12);
    expect_us(account->devices[0].communication_us, 6);
    ls_account_free(account);
    scene_end(&s);
}

/* A task that begins before the counted time is cut off at its beginning: 6 of 10 us. */
TEST(what_reaches_out_of_the_time_is_cut_off) {
    struct scene s;
    account_begin(&s, 0);
    scene_host(&s, 0, 4);
    s.step = 1;
    scene_kernel(&s, 2, 10);
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    assert_int_equal(account->steps, 1);
    expect_us(account->step_us, 6);
    account_expect_split(account, 0, 6, 0, 0, 0);
    ls_account_free(account);
    scene_end(&s);
}

TEST(without_steps_everything_counts) {
    struct scene s;
    account_begin(&s, LS_NONE);
    scene_host(&s, 0, 4);
    scene_host(&s, 1, 5);
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    assert_int_equal(account->steps, 1);
    expect_us(account->step_us, 5);
    account_expect_split(account, 0, 0, 0, 4, 1);
    expect_us(account->overlap, 0); /* there is none */
    ls_account_free(account);
    scene_end(&s);
}

/* Two steps count, each with 30000 bytes from device 0 to device 1 and 10000 back at the same time: 3 us, 1 of them
 * with two copies. */
TEST(copies_are_of_both_ends) {
    for (int duplex = 0; duplex < 2; duplex++) {
        struct scene s;
        scene_begin(&s);
        int there = scene_lane(&s, LS_LANE_COPY, 0, 0), back = scene_lane(&s, LS_LANE_COPY, 0, 1), both[2] = {0};
        for (s.step = 0; s.step < 3; s.step++) {
            int sent = scene_copy(&s, there, 0, 1, 30000), answered = scene_copy(&s, back, 1, 0, 10000);
            for (int i = 0; i < 2 && s.step > 0; i++) {
                scene_after(&s, both[i], sent);
                scene_after(&s, both[i], answered);
            }
            scene_copy(&s, there, 0, 0, 70000); /* within a device: no time, and nothing sent */
            both[0] = sent;
            both[1] = answered;
        }
        scene_node(
            &s, 2, 1,
            (struct scene_link[]){
                {"gpu0", "gpu1", 10, 0, !duplex}, {"host", "gpu0", 10, 0, false}, {"host", "gpu1", 10, 0, false}, {0}});
        scene_run(&s);
        struct ls_account *account = account_of(&s);
        double step_us = duplex ? 3 : 4;
        assert_int_equal(account->steps, 2);
        expect_us(account->step_us, step_us);
        for (int i = 0; i < 2; i++) {
            account_expect_split(account, i, 0, step_us, 0, 0);
            expect_us(account->devices[i].communication_us, step_us);
            expect_us(account->devices[i].sent_bytes, i == 0 ? 30000 : 10000);
            expect_us(account->devices[i].received_bytes, i == 1 ? 30000 : 10000);
        }
        assert_int_equal(account->link_count, 3);
        expect_us(account->link_use[0], 1); /* 30000 of 30000, or 40000 of 40000 */
        expect_us(account->link_use[1], 0);
        expect_us(account->communication_share, 1);
        ls_account_free(account);
        scene_end(&s);
    }
}

/* 5 us of a host, including 3 of a kernel, then 4 of a copy within the host's memory. */
TEST(kernels_are_before_hosts_and_copies_may_stay_there) {
    struct scene s;
    account_begin(&s, 0);
    int host = scene_host(&s, 0, 5);
    scene_kernel(&s, 2, 3);
    struct ls_task copy = ls_task_default(LS_TASK_COPY, "copy", 3);
    copy.from = copy.to = LS_HOST_MEMORY;
    copy.bytes = 1000;
    copy.us = 4;
    copy.step = 0;
    scene_after(&s, host, ls_trace_add_task(s.trace, &copy));
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    account_expect_split(account, 0, 3, 4, 2, 0);
    expect_us(account->devices[0].sent_bytes + account->devices[0].received_bytes, 0);
    ls_account_free(account);
    scene_end(&s);
}

/* Steps may be in the trace in any order: the second one's tasks may have been added first. */
TEST(steps_are_told_by_their_numbers) {
    struct scene s;
    account_begin(&s, 1);
    scene_host(&s, 0, 10);
    s.step = 0;
    scene_kernel(&s, 2, 4);
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    assert_int_equal(account->steps, 1);
    expect_us(account->step_us, 6);
    account_expect_split(account, 0, 0, 0, 6, 0);
    ls_account_free(account);
    scene_end(&s);
}

TEST(who_waits_for_the_lock_is_told) {
    struct scene s;
    scene_begin(&s);
    for (int i = 0; i < 3; i++) scene_lane(&s, LS_LANE_HOST, 0, i);
    for (int i = 0; i < 3; i++) scene_locked(&s, i, 0, 5);
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    for (int i = 0; i < 3; i++) {
        expect_us(account->devices[i].lock_us, 5 * i);
        account_expect_split(account, i, 0, 0, 5, 10);
    }
    ls_account_free(account);
    scene_end(&s);
}

TEST(random_scenes_add_up) {
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct scene s;
        scene_improvise(&s, seed, false);
        struct ls_account *account = account_of(&s);
        double sent = 0, received = 0, from_host = 0, to_host = 0;
        for (int i = 0; i < account->device_count; i++) {
            const struct ls_device_account *d = &account->devices[i];
            assert_true(d->compute_us >= 0 && d->exposed_us >= 0 && d->host_us >= 0 && d->idle_us >= 0 &&
                        d->lock_us >= 0);
            expect_us(d->compute_us + d->exposed_us + d->host_us + d->idle_us, account->step_us);
            double phases_us = 0;
            for (int p = 0; p < account->phase_count; p++) phases_us += d->phase_us[p];
            expect_us(phases_us + d->idle_us, account->step_us);
            assert_true(d->communication_us >= d->exposed_us && d->communication_us <= account->step_us * (1 + 1e-9));
            sent += d->sent_bytes;
            received += d->received_bytes;
        }
        for (int i = 0; i < s.timeline->task_count; i++) {
            const struct ls_task *task = ls_trace_task(s.trace, i);
            if (task->kind != LS_TASK_COPY || task->step == 0) continue;
            from_host += task->from < 0 && task->to >= 0 ? (double)task->bytes / account->steps : 0;
            to_host += task->to < 0 && task->from >= 0 ? (double)task->bytes / account->steps : 0;
        }
        expect_us(sent + from_host, received + to_host);
        assert_true(account->overlap >= 0 && account->overlap <= 1);
        for (int i = 0; i < account->link_count; i++) assert_true(account->link_use[i] >= 0);
        ls_account_free(account);
        scene_end(&s);
    }
}

/* If there are more phases than entries in the list, the rest share the last entry. */
TEST(no_phase_is_lost) {
    static char names[2 * LS_ACCOUNT_PHASES][24];
    struct scene s;
    account_begin(&s, 0);
    for (int i = 0; i < 2 * LS_ACCOUNT_PHASES; i++) {
        snprintf(names[i], sizeof names[i], "phase %d", i);
        s.phase = names[i];
        scene_kernel(&s, 2, 1);
    }
    scene_run(&s);
    struct ls_account *account = account_of(&s);
    assert_int_equal(account->phase_count, LS_ACCOUNT_PHASES);
    expect_us(phase_us(account, 0, "phase 3"), 1);
    expect_us(phase_us(account, 0, "further phases"), LS_ACCOUNT_PHASES + 1);
    ls_account_free(account);
    scene_end(&s);
}
