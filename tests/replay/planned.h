/* Synthetic traces: a small network whose operations take the times that a test chooses, on devices around one
 * switch. */
#ifndef TESTS_REPLAY_PLANNED_H
#define TESTS_REPLAY_PLANNED_H

#include "labs/replay/engine/engine.h"
#include "labs/replay/engine/plan.h"

enum { PLANNED_MAX_LAYERS = 16, PLANNED_MAX_DEVICES = 16 };

/* A layer has one operation forward, one backward, and one parameter. */
struct planned_layer {
    double forward_us, backward_us;
    uint64_t count; /* of the parameter's elements */
};

struct planned {
    ls_node *node;
    ls_workload workload;
    struct ls_plan options;
    ls_trace *trace;
    ls_timeline *timeline;
    /* memory for the workload's arrays */
    struct ls_work work[2 * PLANNED_MAX_LAYERS + 2];
    uint64_t counts[PLANNED_MAX_LAYERS];
    const char *names[PLANNED_MAX_LAYERS];
    int ready[PLANNED_MAX_LAYERS];
};

/* Begins a plan on devices with a link of GBps each to a switch, to which the host is connected, too; nothing else
 * takes time, and each device has its own compute stream. The network has a loss of `loss_us` and an optimizer of
 * `optimizer_us`. */
void planned_begin(struct planned *b, ls_plan_mode mode, int devices, double batch, double GBps);
void planned_network(struct planned *b, const struct planned_layer *layers, int count, double loss_us,
                     double optimizer_us);
void planned_end(struct planned *b);

/* planned_make builds the trace; planned_run replays it. Both assert success. */
void planned_make(struct planned *b);
void planned_run(struct planned *b);

/* The n-th task (from 0) of a device's lane of this kind, in a step and phase (NULL: any), with this name (NULL: any);
 * LS_NONE if there is none. */
int planned_find(const struct planned *b, int device, ls_lane_kind lane, int step, const char *phase, const char *name,
                 int n);
/* The number of such tasks. */
int planned_count(const struct planned *b, int device, ls_lane_kind lane, int step, const char *phase,
                  const char *name);

/* Whether task `first` must end before `second` begins; asserts that both exist. */
bool planned_before(const struct planned *b, int first, int second);

/* Compares within rounding. */
void planned_expect_us(double got_us, double wanted_us);

#endif
