/* All that a rank needs in a test that takes its steps one at a time: groups, session and samples. */
#ifndef TESTS_DDP_PROCS_JOB_H
#define TESTS_DDP_PROCS_JOB_H

#include "tests/parallel/plan.h"

struct job {
    struct plan plan; /* with its groups */
    struct session session;
    struct samples samples; /* of this rank's replica, for each of the plan's steps */
};

/* Six steps of SGD with random samples and the all-reduce "direct". Change the plan before job_open. */
struct plan job_plan(const char *model, int ranks, size_t batch, size_t samples);

/* If `comm` is NULL, creates its own groups; otherwise uses that group, and leaves it open. The job_ functions CHECK
 * that each of their steps succeeds (tests/comm/ranks.h). */
void job_open(struct rank *rank, struct job *job, struct plan plan, ls_comm *comm);

/* One step with batch k, or the part of it before the update. Waits for the end. */
void job_step(const struct rank *rank, struct job *job, size_t k);
void job_gradients(const struct rank *rank, struct job *job, size_t k);

/* Checks that all device memory has been freed. */
void job_close(const struct rank *rank, struct job *job);

#endif
