/* Cut tensors: how a rank's part of a parameter or buffer lies in the whole one (tensor_parallel.h).
 *
 * A tensor is cut along one axis, or not at all. Rank r of W has the r-th part: of an axis of n elements, ceil(n / W), of
 * which what lies behind the n-th is padding, zeros. Query, key and value are three ranges of one axis, and each is cut for
 * itself. */
#ifndef LS_NN_CUT_H
#define LS_NN_CUT_H

#include "common/comm/comm.h"
#include "common/nn/tensor.h"

struct ls_cut {
    struct ls_tensor whole; /* name, shape and count */
    int axis;               /* LS_UNCUT: every rank has the whole */
    size_t ranges;          /* of the axis, equally long, each cut for itself */
    size_t held;            /* elements of the axis on each rank, with padding */
};

#define LS_UNCUT (-1)

static inline bool ls_cut_is_cut(const struct ls_cut *cut) { return cut && cut->axis != LS_UNCUT; }

/* From a whole tensor on the host to rank `rank`'s part, padding included; and from that to its places in the whole. */
void ls_cut_take(const struct ls_cut *cut, int rank, float *part, const float *whole);
void ls_cut_put(const struct ls_cut *cut, int rank, const float *part, float *whole);

/* The whole tensor on every rank of the group, from each one's part, both on the host. Collective on `stream`, host-blocking. */
ls_status ls_cut_gather(const struct ls_cut *cut, ls_comm *group, ls_stream *stream, const float *part, float *whole);

#endif
