#include "tests/ddp_procs/lists.h"

#include "tests/base/test.h"

struct lists *lists_of(ddp_schedule_kind kind, int stages, int micro_batches) {
    static struct lists lists;
    assert_in_range(stages, 1, DDP_MOST_STAGES);
    assert_in_range(micro_batches, 1, MOST_MICRO_BATCHES);
    lists.schedule = (ddp_schedule){kind, stages, micro_batches};
    lists.count = 2 * micro_batches;
    for (int s = 0; s < stages; s++) ddp_schedule_list(&lists.schedule, s, &lists.all[s * lists.count]);
    return &lists;
}

ddp_simulated simulate(const struct lists *lists, int link_holds) {
    double forward[DDP_MOST_STAGES], backward[DDP_MOST_STAGES];
    struct ddp_simulation how = {&lists->schedule, forward, backward, link_holds};
    ddp_simulated simulated;
    for (int s = 0; s < lists->schedule.stages; s++) {
        forward[s] = 1;
        backward[s] = 2;
    }
    assert_int_equal(ddp_simulate(&simulated, lists->all, &how), LS_OK);
    return simulated;
}

ddp_outcome outcome_of(const struct lists *lists, int link_holds) {
    ddp_simulated simulated = simulate(lists, link_holds);
    ddp_outcome outcome = simulated.outcome;
    ddp_simulated_free(&simulated);
    return outcome;
}
