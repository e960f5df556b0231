/* The schedule of a pipeline: the forward and backward passes of each stage, in order. (schedule.c)
 *
 * A network is split into P stages of consecutive blocks. A batch is split into M micro-batches. Stage s receives the
 * activations of a micro-batch from stage s - 1, runs its forward pass and sends the result to stage s + 1; gradients
 * are sent in the opposite direction. A schedule is data: a list of 2 M instructions for each stage. The executor makes
 * no decisions: for each instruction in turn it receives, runs and sends.
 *
 *     struct ddp_instruction *list = ...;                       2 M of them
 *     ddp_schedule_list(&schedule, stage, list);
 *     for each instruction x of the list, in order:
 *         if (x->from >= 0 && the one before did not exchange) ls_comm_recv(..., x->from)
 *         x->backward ? backward of frames[x->slot], x->accumulates : forward of frames[x->slot]
 *         if (x->exchanges) ls_comm_send_recv(..., x->to)       it receives what x[1] needs
 *         else if (x->to >= 0) ls_comm_send(..., x->to)
 *
 * Pure functions of their arguments: no state, no memory, any thread. The caller must check the arguments: 1 <= stages
 * <= DDP_MOST_STAGES, micro_batches >= 1, 0 <= stage < stages. */
#ifndef DDP_SCHEDULE_H
#define DDP_SCHEDULE_H

#include <stdbool.h>

enum { DDP_MOST_STAGES = 64, DDP_NO_STAGE = -1 };

typedef enum ddp_schedule_kind { DDP_GPIPE, DDP_1F1B } ddp_schedule_kind;

/* "gpipe", "1f1b", NULL: in the order of the kinds. */
extern const char *const ddp_schedule_names[];

typedef struct ddp_schedule {
    ddp_schedule_kind kind;
    int stages, micro_batches;
} ddp_schedule;

/* One pass of one micro-batch on one stage. */
struct ddp_instruction {
    bool backward;
    int micro_batch; /* 0 <= micro_batch < M */
    int slot;        /* the frame that holds its activations: 0 <= slot < ddp_schedule_in_flight */
    int from, to;    /* the stages that it receives from before and sends to afterwards, or DDP_NO_STAGE */
    bool
        exchanges; /* the send, and the receive of the next instruction from the same stage, are one operation: ls_comm_send_recv */
    bool
        accumulates; /* of a backward pass: add to the gradients; false: the first of the step, which overwrites them */
};

/* The largest number of micro-batches whose activations the stage holds at the same time; the number of slots
 * needed. */
int ddp_schedule_in_flight(const ddp_schedule *schedule, int stage);

/* Writes the 2 M instructions of a stage. */
void ddp_schedule_list(const ddp_schedule *schedule, int stage, struct ddp_instruction *list);

/* The bubble: the fraction of a step's time in which each stage is idle, if all stages take equally long and messages
 * take no time. The same for both kinds. */
double ddp_schedule_bubble(const ddp_schedule *schedule);

#endif
