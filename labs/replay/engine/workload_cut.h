/* A rank's part of a described network, as common/nn/tensor_parallel.c splits real ones: replayed with --tensor.
 *
 * A file says which layers are split (labs/replay/workloads/README.md): by outputs, so that each rank has a part of
 * them and of the parameters, or by inputs, so that the outputs are terms of a sum. Layers between two such layers work
 * on parts. All others are the same on all ranks or, with `sequence`, each rank has some of their rows. */
#ifndef LABS_REPLAY_ENGINE_WORKLOAD_CUT_H
#define LABS_REPLAY_ENGINE_WORKLOAD_CUT_H

#include "labs/replay/engine/workload.h"

/* The part of one of `ranks` ranks, a workload of its own, whose operations include the ranks' collectives. Sizes that
 * do not divide are rounded up. LS_ERR_INVALID, with one line: a trace, or a file that does not say how layers are
 * split; heads or units that `ranks` does not divide; `sequence` for a network that is not for text; LS_ERR_NO_MEMORY.
 * Then *out is NULL. */
ls_status ls_workload_cut(ls_workload **out, const ls_workload *whole, int ranks, bool sequence);

#endif
