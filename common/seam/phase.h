/* Times of a device by phase: one clock per device, switched from phase to phase by the thread that drives the device.
 *
 * On CPU devices work runs while it is enqueued (or the thread waits for it), so a phase's time is the time its work
 * took; with a shuffled or a CUDA device it is only the time to enqueue. A GPU's work in a phase is visible in a
 * profiler, to which the clock reports each switch, and in a trace, whose records have the phase of their thread. A
 * switch costs one reading of the clock, and on CPU devices two predicted branches. */
#ifndef LS_SEAM_PHASE_H
#define LS_SEAM_PHASE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/base/probe.h"
#include "common/device/device.h"

/* X(NAME, text, whether it is communication) */
#define LS_PHASE_MAP(X)                                                                                                \
    X(OTHER, "other", false)        /* between the phases: the loop, hand-offs between threads */                      \
    X(LOADER, "loader", false)      /* waiting for the next batch */                                                   \
    X(INPUT, "input", false)        /* host to device */                                                               \
    X(SCATTER, "scatter", true)     /* DP: device 0 to the others, inputs and later gradients */                       \
    X(REPLICATE, "replicate", true) /* DP: parameters from device 0 */                                                 \
    X(BROADCAST, "broadcast", true) /* DDP: buffers from rank 0 */                                                     \
    X(FORWARD, "forward", false)                                                                                       \
    X(GATHER, "gather", true) /* DP: outputs to the output device; ZeRO: parameters to all; top-k: lists to all */     \
    X(LOSS, "loss", false)                                                                                             \
    X(BACKWARD, "backward", false)                                                                                     \
    X(REDUCE, "reduce", true)         /* DP: gradients to device 0, and their sum; ZeRO: gradients to their owners */  \
    X(ALL_REDUCE, "all-reduce", true) /* DDP: the part of it that backward did not hide */                             \
    X(STAGES, "stages", true)         /* pipeline: activations and their gradients, from stage to stage */             \
    X(TENSOR, "tensor", true)         /* tensor parallelism: bytes; its time is that of forward, loss and backward */  \
    X(OPTIMIZER, "optimizer", false)                                                                                   \
    X(GRAPH, "graph", false) /* --cuda-graph: all from forward to optimizer, launched at once */

#define LS_PHASE_ENUM(name, text, communication) LS_PHASE_##name,
typedef enum ls_phase { LS_PHASE_MAP(LS_PHASE_ENUM) LS_PHASE_COUNT } ls_phase;
#undef LS_PHASE_ENUM

const char *ls_phase_name(ls_phase phase);
bool ls_phase_is_communication(ls_phase phase);

struct ls_phase_clock {
    double us[LS_PHASE_COUNT];
    uint64_t bytes[LS_PHASE_COUNT]; /* bytes that this device's thread moved in the phase */
    double begun_us;                /* when it was reset last */
    double since_us;
    ls_phase phase;
    const ls_device *marked; /* whose profiler marks follow the phases; NULL: none (CPU devices) */
};

/* Ends the present phase, begins `phase`, and returns the one that ended. */
static inline ls_phase ls_phase_enter(struct ls_phase_clock *clock, ls_phase phase) {
    double now_us = ls_now_us();
    ls_phase ended = clock->phase;
    clock->us[ended] += now_us - clock->since_us;
    clock->since_us = now_us;
    clock->phase = phase;
    if (clock->marked) ls_device_mark(clock->marked, ls_phase_name(phase));
    if (ls_probing()) ls_probe_phase(ls_phase_name(phase));
    return ended;
}

/* A clock for `device`, beginning now. */
void ls_phase_begin(struct ls_phase_clock *clock, const ls_device *device);

/* Sets all times and bytes to zero, beginning now. */
void ls_phase_reset(struct ls_phase_clock *clock);

#endif
