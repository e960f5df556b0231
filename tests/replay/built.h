/* Programs that are built, not run: a small network whose operations take times that a test chooses, on devices
 * around one switch. */
#ifndef TESTS_REPLAY_BUILT_H
#define TESTS_REPLAY_BUILT_H

#include "labs/replay/engine/build.h"
#include "labs/replay/engine/engine.h"

enum { BUILT_MAX_LAYERS = 16, BUILT_MAX_DEVICES = 16 };

/* A layer has one operation forward, one backward, and one parameter. */
struct built_layer {
    double forward_us, backward_us;
    uint64_t count; /* of the parameter's elements */
};

struct built {
    ls_node *node;
    ls_workload workload;
    struct ls_build_options options;
    ls_trace *trace;
    ls_timeline *timeline;
    /* what the workload's arrays are */
    struct ls_work work[2 * BUILT_MAX_LAYERS + 2];
    uint64_t counts[BUILT_MAX_LAYERS];
    const char *names[BUILT_MAX_LAYERS];
    int ready[BUILT_MAX_LAYERS];
};

/* Devices with links of GBps each to a switch that the host hangs on, too; everything else costs nothing, and compute
 * streams are their own. The network has a loss of `loss_us` and an optimizer of `optimizer_us`. */
void built_begin(struct built *b, ls_build_mode mode, int devices, double batch, double GBps);
void built_network(struct built *b, const struct built_layer *layers, int count, double loss_us, double optimizer_us);
void built_end(struct built *b);

/* Builds; and replays. Assert that it succeeds. */
void built_make(struct built *b);
void built_run(struct built *b);

/* The n-th task (from 0) of a device's lane of this kind, in a step and phase (NULL: any), with this name (NULL:
 * any); LS_NONE. */
int built_find(const struct built *b, int device, ls_lane_kind lane, int step, const char *phase, const char *name,
               int n);
/* How many there are. */
int built_count(const struct built *b, int device, ls_lane_kind lane, int step, const char *phase, const char *name);

/* Whether one must end before the other begins; asserts that both exist. */
bool built_before(const struct built *b, int first, int second);

/* Compares to rounding. */
void built_expect_us(double got_us, double wanted_us);

#endif
