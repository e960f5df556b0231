/* The lists of all stages of a pipeline, and their simulation. */
#ifndef TESTS_DDP_PROCS_LISTS_H
#define TESTS_DDP_PROCS_LISTS_H

#include "ddp_procs/schedule_simulated.h"

enum { MOST_MICRO_BATCHES = 64 };

struct lists {
    ddp_schedule schedule;
    int count; /* instructions of a stage; stage s has those from s * count on */
    struct ddp_instruction all[DDP_MOST_STAGES * 2 * MOST_MICRO_BATCHES];
};

/* The lists that ddp_procs makes; static, because they are large. */
struct lists *lists_of(ddp_schedule_kind kind, int stages, int micro_batches);

/* A forward pass takes 1 and a backward pass 2 on each stage. Call ddp_simulated_free on the result. */
ddp_simulated simulate(const struct lists *lists, int link_holds);

/* The same; returns the outcome only. */
ddp_outcome outcome_of(const struct lists *lists, int link_holds);

#endif
