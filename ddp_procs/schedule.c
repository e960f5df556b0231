/* schedule — the order in which each stage of a pipeline runs the passes of a step.
 *   idea  : a stage has at most n micro-batches in flight, whose forward pass has begun and whose backward pass has not
 *           ended. It runs forward passes until n are in flight, then backward and forward passes in turn, and when no
 *           forward pass is left the remaining backward passes. The two kinds differ only in n:
 *
 *               gpipe  all M micro-batches are in flight: F0 F1 F2 F3 B0 B1 B2 B3 on every stage
 *               1f1b   a micro-batch's gradient returns to a stage after it has passed all later stages, so a stage
 *                      needs no more in flight than there are stages from itself to the last, to be busy until then:
 *                      F0 F1 B0 F2 B1 F3 B2 B3 on the last but one, F0 B0 F1 B1 F2 B2 F3 B3 on the last
 *
 *   order : backward passes run in the order of the micro-batches, on all stages and for both kinds, and gradients are
 *           summed in this order. So they have the bits of --accumulate M on one device. PyTorch executes the same
 *           lists (tests/golden/pipeline_orders.json)
 *   slots : activations are stored in n slots. The backward pass of a micro-batch has ended when the n-th one after it
 *           begins
 *   cost  : the last stage waits for P - 1 forward passes before it has work, the first one for P - 1 backward passes
 *           before its last. That is idle time for both kinds; 1f1b needs less memory, not less time
 *   links : sends block until they are received (comm/comm.h). If two neighbours send to each other at the same time,
 *           both sends would wait for ever, so they exchange. They do so if the later stage has fewer in flight: a
 *           forward pass here is followed by the same backward pass that precedes it there. With equal numbers in
 *           flight all forward passes come first on both, and each send has a receive
 *   fails : a stage whose order differs from its neighbours' waits for ever, or computes with another micro-batch's
 *           activations; with one slot too few, an activation is overwritten before it is read. In all these cases the
 *           loss may look right: tests compare lists, and simulate them (schedule_simulated.h) */
#include "ddp_procs/schedule.h"

#include <stddef.h>

const char *const ddp_schedule_names[] = {[DDP_GPIPE] = "gpipe", [DDP_1F1B] = "1f1b", NULL};

int ddp_schedule_in_flight(const ddp_schedule *schedule, int stage) {
    int to_the_last = schedule->stages - stage;
    bool all = schedule->kind == DDP_GPIPE || schedule->micro_batches < to_the_last;
    return all ? schedule->micro_batches : to_the_last;
}

/* A pass, without `exchanges`. */
static struct ddp_instruction pass_of(const ddp_schedule *schedule, int stage, bool backward, int micro_batch) {
    int before = stage > 0 ? stage - 1 : DDP_NO_STAGE;
    int behind = stage + 1 < schedule->stages ? stage + 1 : DDP_NO_STAGE;
    return (struct ddp_instruction){.backward = backward,
                                    .micro_batch = micro_batch,
                                    .slot = micro_batch % ddp_schedule_in_flight(schedule, stage),
                                    .from = backward ? behind : before,
                                    .to = backward ? before : behind,
                                    .accumulates = backward && micro_batch > 0};
}

/* Whether the stage to which x sends, and from which `next` receives, sends at the same time. */
static bool exchange(const ddp_schedule *schedule, int stage, const struct ddp_instruction *x,
                     const struct ddp_instruction *next) {
    if (x->to == DDP_NO_STAGE || x->to != next->from) return false;
    return ddp_schedule_in_flight(schedule, stage) != ddp_schedule_in_flight(schedule, x->to);
}

void ddp_schedule_list(const ddp_schedule *schedule, int stage, struct ddp_instruction *list) {
    const int forwards = schedule->micro_batches, in_flight = ddp_schedule_in_flight(schedule, stage);
    int count = 0;
    for (int m = 0; count < 2 * forwards; m++) {
        if (m < forwards) list[count++] = pass_of(schedule, stage, false, m);
        if (m + 1 >= in_flight) list[count++] = pass_of(schedule, stage, true, m + 1 - in_flight);
    }
    for (int i = 0; i + 1 < count; i++) list[i].exchanges = exchange(schedule, stage, &list[i], &list[i + 1]);
}

double ddp_schedule_bubble(const ddp_schedule *schedule) {
    int waiting = schedule->stages - 1;
    return (double)waiting / (schedule->micro_batches + waiting);
}
