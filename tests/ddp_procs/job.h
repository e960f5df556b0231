/* A rank's whole life in a test, for tests that take its steps one at a time: groups, session and samples in one. */
#ifndef TESTS_DDP_PROCS_JOB_H
#define TESTS_DDP_PROCS_JOB_H

#include "tests/parallel/plan.h"

struct job {
    struct plan plan; /* with its groups */
    struct session session;
    struct samples samples; /* of this rank's replica, for each of the plan's steps */
};

/* Six steps of SGD with random samples, summed by "direct"; to be changed before job_open. */
struct plan job_plan(const char *model, int ranks, size_t batch, size_t samples);

/* `comm` NULL: in groups of its own; otherwise in one that is there already, and stays. All that the job_ functions
 * need to go well is checked (CHECK, tests/comm/ranks.h). */
void job_open(struct rank *rank, struct job *job, struct plan plan, ls_comm *comm);

/* One step with batch k, or what comes before its update; waits for the end. */
void job_step(const struct rank *rank, struct job *job, size_t k);
void job_gradients(const struct rank *rank, struct job *job, size_t k);

/* Checks that everything has been given back to the device. */
void job_close(const struct rank *rank, struct job *job);

#endif
