/* Runs of plans whose ranks must agree, and comparisons of two runs. */
#ifndef TESTS_PARALLEL_OUTCOMES_H
#define TESTS_PARALLEL_OUTCOMES_H

#include "tests/parallel/plan.h"

/* Runs the plan. Every rank must succeed, with rank 0's weights and loss scale after each step, and a step after the
 * first must have changed weights: comparisons of runs that do not train prove nothing. Release with outcomes_free. */
struct outcome *outcomes_run(const struct plan *plan);
void outcomes_free(struct outcome *outcomes);

/* Asserts that after each step both runs of the plan have the same weights, buffers, losses and loss scales on every
 * rank, and that they have skipped the same updates. */
void outcomes_expect_equal(const struct plan *plan, const struct outcome *expected, const struct outcome *got);

/* Runs both plans. Asserts that the loss of the whole batch at each step differs by at most `tolerance`, relative. */
void outcomes_expect_losses(const struct plan *plan, const struct plan *other, double tolerance);

#endif
