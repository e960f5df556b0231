/* What replays is the real step: DataParallel's, DistributedDataParallel's or another mode's own code runs with a
 * described network (common/nn/described.h) on meta devices of the node's shape, is recorded (common/base/probe.h), and
 * gets the node's times (labs/replay/engine/recost.h).
 *
 * Each device is given one sample: what grows with samples is priced, not recorded. Of DDP rank 0 is recorded, and all
 * ranks do as it does. Two steps are taken before the recorded ones: with the second, DDP has its buckets.
 *
 * One recording at a time: probes are the process's. */
#ifndef LABS_REPLAY_RECORD_RECORD_H
#define LABS_REPLAY_RECORD_RECORD_H

#include "common/comm/mesh.h"
#include "common/seam/parallel.h"
#include "labs/replay/engine/plan.h"

/* Of one process that is recorded. */
struct record_scene {
    const struct ls_plan *options;
    size_t samples;   /* of a micro-batch, over all devices of this process: room for so many */
    int device_count; /* of this process */
    ls_device *devices[LS_MAX_DEVICES];
    ls_network *network; /* described */
    ls_model *model;     /* of it, on devices[0] */
    ls_comm *comm;       /* DDP: all ranks that average gradients */
    ls_comm *beside;     /* DDP: the same, for batch norm and a sharded optimizer; NULL: neither is asked for */
    ls_mesh mesh;        /* DDP whose ranks share layers: has comm; else zero-filled */
    ls_optimizer_options optimizer;
};

/* Makes the mode that is to be recorded. */
typedef ls_status (*record_create_fn)(ls_parallel **out, const struct record_scene *scene);

/* The modes, by ls_plan_mode. */
struct record_mode {
    const struct ls_mode *mode;
    record_create_fn create;
};
extern const struct record_mode record_modes[LS_PLAN_DDP + 1];

enum { RECORD_SHARD_STAGES = 3 }; /* the highest stage of ls_plan's shard_state */

/* What devices held at most: of one process with all devices the first and the last of them, else a rank's twice. */
struct record_memory {
    ls_memory_report first, last;
    uint64_t sent_bytes; /* DDP: what rank 0 sends to others in a step, as its groups count it */
};

/* Takes the same steps with room for whole batches, and no probes: what the programs allocate, except for what kernels
 * need as scratch, which is their library's affair. Activations are as exact as the workload's activation_bytes. A
 * batch that is not whole is rounded up. As record_steps fails. */
ls_status record_memory(struct record_memory *memory, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options);

/* options->mode's own step, priced: a sealed trace. LS_ERR_INVALID as ls_plan_check says; LS_ERR_NO_MEMORY. */
ls_status record_steps(ls_trace **out, const ls_workload *workload, const ls_node *node, const struct ls_plan *options);

/* The same without times, for ls_recost (labs/replay/engine/recost.h): one recording does for all rates of a node's
 * devices and links. Of ranks that do not share layers. The caller owns it. */
ls_status record_unpriced(ls_trace **recorded, const ls_workload *workload, const ls_node *node,
                          const struct ls_plan *options);

/* Takes steps of a mode that is there already, with micro-batches of so many samples in this process, and adds what is
 * recorded to `trace`, which is not sealed, as the work of `rank`, whose devices begin at that number. NULL: the steps of the
 * warm-up, for what they allocate. */
ls_status record_rank(ls_trace *trace, ls_parallel *parallel, const struct ls_plan *options, size_t samples, int rank);

/* Another mode's. options->mode says whose shape it has: LS_PLAN_DP of one process with all devices, LS_PLAN_DDP of a
 * rank of which all others are alike. */
ls_status record_steps_of(ls_trace **out, record_create_fn create, const ls_workload *workload, const ls_node *node,
                          const struct ls_plan *options);

#endif
