/* The expected operations of a workload. */
#ifndef TESTS_REPLAY_EXPECTED_WORK_H
#define TESTS_REPLAY_EXPECTED_WORK_H

#include "labs/replay/engine/workload.h"

/* Asserts that the workload has exactly these operations, in this order; compares first_ready only if a gradient is
 * ready. */
void expect_work(const ls_workload *workload, const struct ls_work *expected, int count);

#endif
