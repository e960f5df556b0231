/* The simulation of a pipeline's lists: times worked out by hand, and invalid lists. */
#include "ddp_procs/schedule_simulated.h"

#include "tests/base/test.h"
#include "tests/ddp_procs/lists.h"

/* Stage 1 takes twice as long: F0 F1 B0 B1 on stage 0 wait for it. */
TEST(the_slowest_stage_decides) {
    const double forward[] = {1, 2}, backward[] = {2, 4};
    struct lists *lists = lists_of(DDP_GPIPE, 2, 2);
    struct ddp_simulation how = {&lists->schedule, forward, backward, DDP_ANY_NUMBER};
    const double begins[2][4] = {{0, 1, 9, 13}, {1, 3, 5, 9}};
    ddp_simulated simulated;
    assert_int_equal(ddp_simulate(&simulated, lists->all, &how), LS_OK);
    assert_int_equal(simulated.outcome, DDP_RUNS_THROUGH);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 4; i++) assert_true(simulated.begins[4 * s + i] == begins[s][i]);
    assert_true(simulated.makespan == 15);
    assert_true(simulated.stages[0].busy == 6 && simulated.stages[1].busy == 12);
    assert_true(simulated.idle_share == 1 - 18.0 / 30);
    ddp_simulated_free(&simulated);
}

/* A send that blocks delays the stage until the slower stage after it receives. */
TEST(a_full_link_holds_its_sender_up) {
    const double forward[] = {1, 5}, backward[] = {1, 1};
    struct lists *lists = lists_of(DDP_GPIPE, 2, 4);
    const double begins[3][4] = {{0, 1, 6, 11}, {0, 1, 2, 6}, {0, 1, 2, 3}};
    for (int holds = 0; holds < 3; holds++) {
        struct ddp_simulation how = {&lists->schedule, forward, backward, holds};
        ddp_simulated simulated;
        assert_int_equal(ddp_simulate(&simulated, lists->all, &how), LS_OK);
        for (int i = 0; i < 4; i++)
            if (!(simulated.begins[i] == begins[holds][i]))
                fail_msg("link of %d: F%d begins at %g, not %g", holds, i, simulated.begins[i], begins[holds][i]);
        ddp_simulated_free(&simulated);
    }
}

TEST(a_deadlock_is_found_with_what_each_stage_is_at) {
    struct lists *lists = lists_of(DDP_1F1B, 2, 2);
    for (int i = 0; i < 8; i++) lists->all[i].exchanges = false;
    ddp_simulated simulated = simulate(lists, 0);
    assert_int_equal(simulated.outcome, DDP_DEADLOCK);
    assert_int_equal(simulated.stages[0].done, 1); /* of F0 F1 B0 B1 */
    assert_int_equal(simulated.stages[0].doing, DDP_SENDS);
    assert_int_equal(simulated.stages[1].done, 1); /* of F0 B0 F1 B1 */
    assert_int_equal(simulated.stages[1].doing, DDP_SENDS);
    assert_true(simulated.begins[1] == 1 && simulated.begins[2] < 0);
    ddp_simulated_free(&simulated);
}

TEST(a_list_in_another_order_receives_a_wrong_message) {
    struct lists *lists = lists_of(DDP_GPIPE, 2, 2);
    struct ddp_instruction first = lists->all[4];
    lists->all[4] = lists->all[5];
    lists->all[5] = first;
    assert_int_equal(outcome_of(lists, DDP_ANY_NUMBER), DDP_WRONG_MESSAGE);
}

/* A stage expects a gradient and receives an activation of the same micro-batch. */
TEST(a_message_of_the_other_direction_is_wrong) {
    struct lists *lists = lists_of(DDP_GPIPE, 2, 1);
    lists->all[2].backward = true;
    assert_int_equal(outcome_of(lists, DDP_ANY_NUMBER), DDP_WRONG_MESSAGE);
}

TEST(both_sides_exchange_or_none) {
    for (int i = 0; i < 8; i++) {
        struct lists *lists = lists_of(DDP_1F1B, 2, 2);
        if (!lists->all[i].exchanges) continue;
        lists->all[i].exchanges = false;
        assert_int_equal(outcome_of(lists, DDP_ANY_NUMBER), DDP_WRONG_MESSAGE);
    }
    struct lists *lists = lists_of(DDP_GPIPE, 2, 2);
    lists->all[3].exchanges = true; /* B1 has no next instruction */
    lists->all[3].to = 1;
    assert_int_equal(outcome_of(lists, DDP_ANY_NUMBER), DDP_WRONG_MESSAGE);
}

TEST(only_neighbours_are_linked) {
    static const int wrong[] = {0, 2, 3, -2, 1 << 30};
    for (size_t k = 0; k < COUNT_OF(wrong); k++) {
        struct lists *lists = lists_of(DDP_GPIPE, 3, 1);
        lists->all[0].to = wrong[k];
        assert_int_equal(outcome_of(lists, DDP_ANY_NUMBER), DDP_NO_NEIGHBOUR);
        lists = lists_of(DDP_GPIPE, 3, 1);
        lists->all[1].from = wrong[k];
        assert_int_equal(outcome_of(lists, DDP_ANY_NUMBER), DDP_NO_NEIGHBOUR);
    }
    struct lists *lists = lists_of(DDP_1F1B, 1, 2);
    lists->all[1].exchanges = true; /* with the stage before the first */
    assert_int_equal(outcome_of(lists, DDP_ANY_NUMBER), DDP_NO_NEIGHBOUR);
}
