/* account: of recorded traces, and of scenes without an account. */
#include <math.h>

#include "labs/replay/engine/account.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/accounts.h"
#include "tests/replay/improvise.h"

static void record(struct scene *s, int task, double start_us, double end_us) {
    ls_trace_set_times(s->trace, task, start_us, start_us, end_us);
}

/* Two ranks, recorded from 1000 on: kernels end at 10 and 14 us, their common all-reduce ends at 20, and the hosts,
 * which have waited for it since 1 us, take 2 us to wake up. */
TEST(recorded_waits_are_not_work) {
    struct scene s;
    scene_begin(&s);
    for (int rank = 0; rank < 2; rank++) {
        int host = scene_lane(&s, LS_LANE_HOST, rank, rank), compute = scene_lane(&s, LS_LANE_COMPUTE, rank, rank);
        int comm = scene_lane(&s, LS_LANE_COMM, rank, rank);
        double done_us = rank == 0 ? 1010 : 1014;
        int launch = scene_host(&s, host, 1),
            kernel = scene_after(&s, launch, scene_kernel(&s, compute, done_us - 1001));
        int reduce = scene_after(&s, kernel, scene_collective(&s, comm, 0, 2, 6));
        int woken = scene_after(&s, reduce, scene_host(&s, host, 2));
        record(&s, launch, 1000, 1001);
        record(&s, kernel, 1001, done_us);
        record(&s, reduce, done_us, 1020);
        record(&s, woken, 1001, 1022);
        if (rank == 0) scene_host(&s, host, 3); /* was not recorded */
    }
    scene_seal(&s);
    struct ls_account *account;
    assert_int_equal(ls_account_recorded(&account, s.trace), LS_OK);
    expect_us(account->step_us, 22);
    account_expect_split(account, 0, 9, 6, 3, 4); /* idle from 10 to 14: it waits for the other rank */
    account_expect_split(account, 1, 13, 6, 3, 0);
    ls_account_free(account);
    scene_end(&s);
}

/* A replayed timeline has the same account if it is stored as a recorded one; a task without times changes nothing. */
TEST(a_replayed_timeline_gives_the_same_recorded) {
    struct scene s;
    account_begin(&s, 0);
    for (int step = 0; step < 3; step++) account_add_step(&s);
    int unknown = scene_host(&s, 1, 0); /* of a fourth step */
    scene_run(&s);
    for (int i = 0; i < unknown; i++) record(&s, i, 5e6 + s.timeline->start_us[i], 5e6 + s.timeline->end_us[i]);
    record(&s, unknown, 5e6, INFINITY);
    struct ls_account *account;
    assert_int_equal(ls_account_recorded(&account, s.trace), LS_OK);
    assert_int_equal(account->steps, 2);
    expect_us(account->step_us, 19);
    account_expect_split(account, 0, 10, 3, 3, 3);
    ls_account_free(account);
    scene_end(&s);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, a_trace_without_times_is_refused) {
    struct scene s;
    account_begin(&s, 0);
    account_add_step(&s);
    scene_seal(&s);
    struct ls_account *account = (struct ls_account *)&s; /* to be overwritten */
    assert_int_equal(ls_account_recorded(&account, s.trace), LS_ERR_INVALID);
    assert_null(account);
    scratch_expect_error("no task with known times", NULL);
    scene_end(&s);
}

TEST_IN(scratch, steps_with_gaps_are_refused) {
    struct scene s;
    account_begin(&s, 0);
    account_add_step(&s);
    s.step = 2000000000;
    account_add_step(&s);
    scene_run(&s);
    struct ls_account *account = (struct ls_account *)&s;
    assert_int_equal(ls_account_make(&account, s.trace, s.timeline, NULL), LS_ERR_INVALID);
    assert_null(account);
    scratch_expect_error("steps have gaps", "2000000000");
    scene_end(&s);
}
