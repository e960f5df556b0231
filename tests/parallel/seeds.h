/* The race detector in use: one plan under many orders of its streams (LS_CPU_STREAMS=shuffle:SEED), without waiting
 * between the steps. */
#ifndef TESTS_PARALLEL_SEEDS_H
#define TESTS_PARALLEL_SEEDS_H

#include "tests/parallel/plan.h"

enum { SEEDS_MAX = 128 };

/* Runs the plan with the seeds 1 .. `seeds` in separate processes; all events named `drop_wait` (NULL: none) lose their
 * waits. Returns the first seed whose run failed or whose bits differ from `expected`, or 0. `same_mode`:
 * expected[rank] is from the same plan, so each rank's buffers are compared; otherwise only rank 0's are, whose
 * statistics are kept. */
int red_seed(const struct plan *plan, int seeds, const char *drop_wait, const struct outcome *expected, bool same_mode);

/* For a rank: `run`, called with a process group and a mode of the streams (LS_CPU_STREAMS), must return the same
 * result inline, with the seeds 1 .. `seeds` and with threads. All runs use one group, which this function opens. */
void expect_same_bits_in_any_order(struct rank *rank, int seeds,
                                   uint64_t (*run)(struct rank *rank, ls_comm *comm, const char *streams));

#endif
