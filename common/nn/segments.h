/* Segments: a model runs its network as a sequence of frames of a few blocks each. Private to common/nn.
 *
 * One segment is a frame of all blocks: activations are kept until backward. Several segments use one arena in turn:
 * only each segment's input is kept, and its activations are recomputed before its backward (activation checkpointing;
 * segments.c).
 *
 * Threads: one at a time. Passes are those of frames (frame.h), over all blocks. When a segment recomputes its forward,
 * the hooks for entering and leaving blocks are called again. */
#ifndef LS_NN_SEGMENTS_H
#define LS_NN_SEGMENTS_H

#include "common/nn/frame_internal.h"

typedef struct ls_segments ls_segments;

/* A segment has `every` blocks (the last has the rest); LS_EVERY_SQRT: the square root of their number; 0, or at least
 * their number: one segment; LS_FORWARD_ONLY: segments of one block, without backward. Allocates all memory. On failure
 * *out is NULL. */
ls_status ls_segments_create(ls_segments **out, ls_device *device, const ls_network *network, ls_dtype precision,
                             int every, size_t max_batch);
/* NULL is a no-op. */
void ls_segments_destroy(ls_segments *segments);

ls_status ls_segments_sync_batchnorm(ls_segments *segments, ls_comm *group);

const void *ls_segments_forward(ls_segments *segments, ls_parameters *parameters, const struct ls_hooks *hooks,
                                const void *x, size_t batch, ls_forward_kind kind);
void ls_segments_backward(ls_segments *segments, ls_parameters *parameters, const struct ls_hooks *hooks, void *dy,
                          bool accumulate);

/* The first block whose forward is not recomputed. */
int ls_segments_first_kept(const ls_segments *segments);

/* ls_model_visits, for forward and backward of these segments. */
size_t ls_segments_visits(const ls_segments *segments, int *visits);

/* After a forward: calls `look` with each frame in turn while its activations exist, until *done. Dropped activations
 * are recomputed, unless that needs other ranks. A failure of `look` is returned. Blocks the host as `look` does. */
typedef ls_status (*ls_look_fn)(void *context, const ls_frame *frame, bool *done);
ls_status ls_segments_look(ls_segments *segments, ls_parameters *parameters, ls_look_fn look, void *context);

#endif
