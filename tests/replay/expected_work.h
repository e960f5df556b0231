/* What a workload's operations are to be. */
#ifndef TESTS_REPLAY_EXPECTED_WORK_H
#define TESTS_REPLAY_EXPECTED_WORK_H

#include "labs/replay/engine/workload.h"

/* Asserts that the workload has just these operations, in this order; first_ready counts only where one is ready. */
void expect_work(const ls_workload *workload, const struct ls_work *expected, int count);

#endif
