/* A rank's part of a described network, as common/nn/tensor_parallel.c cuts real ones: what --tensor replays.
 *
 * A file says which layers are cut (labs/replay/workloads/README.md): by outputs, and then each rank has a part of them and
 * of the parameters, or by inputs, and then what comes out are terms of a sum. What lies between two such layers works on
 * parts. The rest is alike on all ranks or, with `sequence`, rows of it lie on each. */
#ifndef LABS_REPLAY_ENGINE_WORKLOAD_CUT_H
#define LABS_REPLAY_ENGINE_WORKLOAD_CUT_H

#include "labs/replay/engine/workload.h"

/* One of `ranks` ranks' part, a workload of its own, whose operations contain those in which the ranks meet. What does not
 * divide is rounded up. LS_ERR_INVALID, with one line: a trace or a file that does not say how layers are cut; heads or units that
 * `ranks` does not divide; `sequence` of what is no text; LS_ERR_NO_MEMORY. Then *out is NULL. */
ls_status ls_workload_cut(ls_workload **out, const ls_workload *whole, int ranks, bool sequence);

#endif
