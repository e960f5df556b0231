/* Runs of plans whose ranks must agree, and what two runs must have in common. */
#ifndef TESTS_PARALLEL_OUTCOMES_H
#define TESTS_PARALLEL_OUTCOMES_H

#include "tests/parallel/plan.h"

/* Runs the plan. Every rank must end well, with rank 0's weights and loss scale after each step, and the first step must not
 * have been the last that changed weights: comparisons of runs that do not train are worth nothing. Release with
 * outcomes_free. */
struct outcome *outcomes_run(const struct plan *plan);
void outcomes_free(struct outcome *outcomes);

/* After each step both runs of the plan have the same weights, buffers, losses and loss scales on every rank, and they have
 * skipped the same updates. */
void outcomes_expect_equal(const struct plan *plan, const struct outcome *expected, const struct outcome *got);

/* Runs both plans: the loss of the whole batch at each step differs by at most `tolerance`, relative. */
void outcomes_expect_losses(const struct plan *plan, const struct plan *other, double tolerance);

#endif
