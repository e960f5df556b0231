/* Ranks of a pipeline, with or without replicas, for tests that compare them with one device. */
#ifndef TESTS_DDP_PROCS_STAGES_H
#define TESTS_DDP_PROCS_STAGES_H

#include "common/comm/mesh.h"
#include "ddp_procs/pipeline_internal.h"
#include "tests/parallel/plan.h"

struct stage_plan {
    struct plan plan; /* of the reference: a single device, or DDP on as many as there are replicas */
    int stages;
    ddp_schedule_kind schedule;
    bool sharded;                   /* ZeRO-1 */
    const struct outcome *expected; /* of the reference's ranks */
};

/* A rank's whole life in a test. */
struct stage_job {
    ls_mesh mesh;
    ls_comm *beside, *sync_bn, *all;
    struct session session;
    struct samples samples; /* its replica's */
};

int stage_ranks(const struct stage_plan *plan);

/* Everything must go well (CHECK). Initial values are those of the plan's rank 0. */
void stage_job_open(struct rank *rank, struct stage_job *job, const struct stage_plan *plan);
/* Checks that everything has been given back to the device. */
void stage_job_close(const struct rank *rank, struct stage_job *job);

/* Runs the steps on all ranks: after each of them weights, buffers, loss scale and, where there is one replica, the loss are bit
 * by bit those that are expected. */
void stages_expect_bits(const struct stage_plan *plan);

/* The same with both schedules, against the plan's reference. */
void stages_expect_reference(struct stage_plan plan);

#endif
