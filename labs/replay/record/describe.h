/* A workload as a described network (common/nn/described.h). */
#ifndef LABS_REPLAY_RECORD_DESCRIBE_H
#define LABS_REPLAY_RECORD_DESCRIBE_H

#include "common/nn/described.h"
#include "labs/replay/engine/plan.h"

/* Refers to the workload's texts and lists, so the workload must outlive it. */
ls_status record_describe(struct ls_described *described, const ls_workload *workload, const struct ls_plan *options);
void record_describe_free(struct ls_described *described);

#endif
