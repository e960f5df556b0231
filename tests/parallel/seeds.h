/* The race detector at work: one plan under many orders of its streams (LS_CPU_STREAMS=shuffle:SEED), no waiting
 * between the steps. */
#ifndef TESTS_PARALLEL_SEEDS_H
#define TESTS_PARALLEL_SEEDS_H

#include "tests/parallel/plan.h"

enum { SEEDS_MAX = 128 };

/* What each rank saw. */
struct seed_outcomes {
    ls_status status;                              /* the first failure */
    int done;                                      /* seeds that were run to the end */
    uint64_t weights[SEEDS_MAX], state[SEEDS_MAX]; /* hashes after the last step */
};

/* Runs the plan with the seeds 1 .. `seeds` in processes of their own; all events named `drop_wait` (NULL: none) lose
 * their waits. outcomes[rank], in shared memory. */
void run_seeds(const struct plan *plan, int seeds, const char *drop_wait, struct seed_outcomes *outcomes);

/* The first seed whose run failed or whose bits are not those of `expected`; 0: there is none. `same_mode`:
 * expected[rank] comes from the same plan, so each rank's buffers count too; otherwise only rank 0's do, whose
 * statistics are kept. */
int first_red_seed(const struct plan *plan, int seeds, const struct seed_outcomes *outcomes,
                   const struct outcome *expected, bool same_mode);

/* For a rank: what `run` returns for a process group and a mode of the streams (LS_CPU_STREAMS) must be the same
 * inline, with the seeds 1 .. `seeds` and with threads. All runs are in one group, which is opened here. */
void expect_same_bits_in_any_order(struct rank *rank, int seeds,
                                   uint64_t (*run)(struct rank *rank, ls_comm *comm, const char *streams));

#endif
