/* Re-costing: gives a step that was recorded on meta devices (labs/replay/record) the times that it would take on a
 * node.
 *
 * The recording has lanes, tasks and edges, and no times. Each task gets its price: an operation of the workload by its
 * index (cost.h; by its measured time, if any), other kernels by their bytes, copies by the links or a device's memory,
 * collectives by the node, host tasks by their launches, waits and events.
 *
 * If one rank of several was recorded, all ranks get its tasks, each with its own samples. Collectives may be sent
 * message by message. On CPU nodes host threads wait for work that they run themselves. */
#ifndef LABS_REPLAY_ENGINE_RECOST_H
#define LABS_REPLAY_ENGINE_RECOST_H

#include "labs/replay/engine/plan.h"

/* A sealed trace, with lanes by device and kind, and tasks numbered lane by lane: two recordings of one program give
 * the same bits. `recorded` is sealed; each device with samples was recorded with one sample, and an unsplit batch with
 * one for each device. LS_ERR_NO_MEMORY, LS_ERR_INVALID. */
ls_status ls_recost(ls_trace **out, const ls_trace *recorded, const ls_workload *workload, const ls_node *node,
                    const struct ls_plan *options);

#endif
