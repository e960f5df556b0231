/* Replays use the real step: the code of DataParallel, DistributedDataParallel or another mode runs with a described
 * network (common/nn/described.h) on meta devices, as many as the node's, is recorded (common/base/probe.h), and gets
 * the node's times (labs/replay/engine/recost.h).
 *
 * Each device gets one sample: the price accounts for the number of samples. Of DDP, rank 0 is recorded, and all ranks
 * do the same. Two steps run before the recorded ones: with the second, DDP has its buckets.
 *
 * Only one recording at a time: probes belong to the process. */
#ifndef LABS_REPLAY_RECORD_RECORD_H
#define LABS_REPLAY_RECORD_RECORD_H

#include "common/comm/mesh.h"
#include "common/seam/parallel.h"
#include "labs/replay/engine/plan.h"

/* The objects of the process that is recorded. */
struct record_scene {
    const struct ls_plan *options;
    size_t samples;   /* of a micro-batch, over all devices of this process: the capacity */
    int device_count; /* of this process */
    ls_device *devices[LS_MAX_DEVICES];
    ls_network *network; /* described */
    ls_model *model;     /* of the network, on devices[0] */
    ls_comm *comm;       /* DDP: all ranks that average gradients */
    ls_comm *beside;     /* DDP: the same, for batch norm and a sharded optimizer; NULL: neither is requested */
    ls_mesh mesh;        /* if DDP's ranks share layers: contains comm; else zero-filled */
    ls_optimizer_options optimizer;
};

/* Creates the mode that is to be recorded. */
typedef ls_status (*record_create_fn)(ls_parallel **out, const struct record_scene *scene);

/* The modes, by ls_plan_mode. */
struct record_mode {
    const struct ls_mode *mode;
    record_create_fn create;
};
extern const struct record_mode record_modes[LS_PLAN_DDP + 1];

enum { RECORD_SHARD_STAGES = 3 }; /* the highest stage of ls_plan's shard_state */

/* The devices' peak memory: of the first and the last device, if one process has all; else that of a rank, twice. */
struct record_memory {
    ls_memory_report first, last;
    uint64_t sent_bytes; /* DDP: the bytes that rank 0 sends to others in a step, by its groups' counts */
};

/* Runs the same steps with room for whole batches, and no probes: counts the programs' allocations, except for the
 * scratch memory of kernels, which their libraries choose. Activations are as exact as the workload's activation_bytes.
 * A batch that is not whole is rounded up. Fails as record_steps does. */
ls_status record_memory(struct record_memory *memory, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options);

/* options->mode's own step, priced: a sealed trace. LS_ERR_INVALID as ls_plan_check says; LS_ERR_NO_MEMORY. */
ls_status record_steps(ls_trace **out, const ls_workload *workload, const ls_node *node, const struct ls_plan *options);

/* The same without times, for ls_recost (labs/replay/engine/recost.h): one recording suffices for all rates of a node's
 * devices and links. Only if ranks do not share layers. The caller owns it. */
ls_status record_unpriced(ls_trace **recorded, const ls_workload *workload, const ls_node *node,
                          const struct ls_plan *options);

/* Runs steps of an existing mode, with micro-batches of that many samples in this process, and adds the recording to
 * `trace`, which is not sealed, as the work of `rank`, whose devices begin at that number. NULL: only the warm-up
 * steps, for their allocations. */
ls_status record_rank(ls_trace *trace, ls_parallel *parallel, const struct ls_plan *options, size_t samples, int rank);

/* The same for another mode. options->mode gives its structure: LS_PLAN_DP for one process with all devices,
 * LS_PLAN_DDP for identical ranks. */
ls_status record_steps_of(ls_trace **out, record_create_fn create, const ls_workload *workload, const ls_node *node,
                          const struct ls_plan *options);

#endif
