/* An event-driven simulation that runs the instruction lists of a pipeline's stages.
 *
 *     double forward[] = {1, 1}, backward[] = {2, 2};
 *     struct ddp_simulation how = {&schedule, forward, backward, DDP_ANY_NUMBER};
 *     ddp_simulated simulated;
 *     ls_status status = ddp_simulate(&simulated, lists, &how);
 *     if (status == LS_OK && simulated.outcome == DDP_RUNS_THROUGH) printf("%g\n", simulated.makespan);
 *     ddp_simulated_free(&simulated);
 *
 * Lists may be right or wrong. All times have the same unit, any. One thread for each struct. */
#ifndef DDP_SCHEDULE_SIMULATED_H
#define DDP_SCHEDULE_SIMULATED_H

#include <limits.h>

#include "common/base/status.h"
#include "ddp_procs/schedule.h"

enum { DDP_ANY_NUMBER = INT_MAX };

struct ddp_simulation {
    const ddp_schedule *schedule;     /* only the numbers of stages and of micro-batches are used */
    const double *forward, *backward; /* duration of a pass, per stage, > 0; messages take no time */
    /* unreceived messages from one stage to a neighbour before the next send blocks; 0: each send blocks until it is
     * received, as ls_comm_send may */
    int link_holds;
};

typedef enum ddp_outcome {
    DDP_RUNS_THROUGH,
    DDP_DEADLOCK,      /* stages wait for each other */
    DDP_WRONG_MESSAGE, /* a stage receives another pass's message than it waits for, or only one side exchanges */
    DDP_NO_NEIGHBOUR,  /* an instruction receives from or sends to a stage that is not next to its own */
} ddp_outcome;

typedef enum ddp_doing { DDP_RECEIVES, DDP_RUNS, DDP_SENDS } ddp_doing;

typedef struct ddp_simulated {
    ddp_outcome outcome;
    double makespan;   /* until the last stage ends that can */
    double idle_share; /* of all stages' time */
    struct ddp_simulated_stage {
        int done;        /* finished instructions; 2 M: all */
        ddp_doing doing; /* of instruction `done`, unless all are finished */
        int stored;      /* the most micro-batches whose activations it holds at the same time */
        double busy;     /* time in passes */
    } stages[DDP_MOST_STAGES];
    double *begins; /* when instruction i of stage s begins: [2 M s + i]; below 0: never */
} ddp_simulated;

/* lists[2 M s + i] is instruction i of stage s. The result is the caller's to free, whatever its outcome. LS_ERR_NO_MEMORY:
 * *out is zero-filled. */
ls_status ddp_simulate(ddp_simulated *out, const struct ddp_instruction *lists, const struct ddp_simulation *how);

/* A zero-filled one is a no-op. */
void ddp_simulated_free(ddp_simulated *simulated);

#endif
