/* The race detector at work: one plan under many orders of its streams (LS_CPU_STREAMS=shuffle:SEED), no waiting
 * between the steps. */
#ifndef TESTS_PARALLEL_SEEDS_H
#define TESTS_PARALLEL_SEEDS_H

#include "tests/parallel/plan.h"

enum { SEEDS_MAX = 128 };

/* Runs the plan with the seeds 1 .. `seeds` in processes of their own; all events named `drop_wait` (NULL: none) lose
 * their waits. Returns the first seed whose run failed or whose bits are not those of `expected`; 0: there is none.
 * `same_mode`: expected[rank] comes from the same plan, so each rank's buffers count too; otherwise only rank 0's do,
 * whose statistics are kept. */
int red_seed(const struct plan *plan, int seeds, const char *drop_wait, const struct outcome *expected, bool same_mode);

/* For a rank: what `run` returns for a process group and a mode of the streams (LS_CPU_STREAMS) must be the same
 * inline, with the seeds 1 .. `seeds` and with threads. All runs are in one group, which is opened here. */
void expect_same_bits_in_any_order(struct rank *rank, int seeds,
                                   uint64_t (*run)(struct rank *rank, ls_comm *comm, const char *streams));

#endif
