/* Split tensors: the layout of a rank's part within a whole parameter or buffer (tensor_parallel.h).
 *
 * A tensor is split along one axis, or not at all. Rank r of W has the r-th part, ceil(n / W) elements of an axis of n;
 * elements beyond the n-th are padding, zeros. Query, key and value are three ranges of one axis, each split
 * separately. */
#ifndef LS_NN_CUT_H
#define LS_NN_CUT_H

#include "common/comm/comm.h"
#include "common/nn/tensor.h"

struct ls_cut {
    struct ls_tensor whole; /* name, shape and count */
    int axis;               /* LS_UNCUT: every rank has the whole tensor */
    size_t ranges;          /* of the axis, of equal length, each split separately */
    size_t held;            /* elements of the axis on each rank, with padding */
};

#define LS_UNCUT (-1)

static inline bool ls_cut_is_cut(const struct ls_cut *cut) { return cut && cut->axis != LS_UNCUT; }

/* Copy rank `rank`'s part, with padding, out of a whole tensor on the host; and back into the whole. */
void ls_cut_take(const struct ls_cut *cut, int rank, float *part, const float *whole);
void ls_cut_put(const struct ls_cut *cut, int rank, const float *part, float *whole);

/* Gathers the whole tensor on every rank of the group from the ranks' parts, both on the host. Collective on `stream`,
 * host-blocking. */
ls_status ls_cut_gather(const struct ls_cut *cut, ls_comm *group, ls_stream *stream, const float *part, float *whole);

#endif
