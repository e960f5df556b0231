/* Segments: how a model runs its network, in frames of a few blocks each, one behind the other. Private to common/nn.
 *
 * One segment is a frame of all blocks: activations stay until backward. Several take turns with one arena: of each only the
 * input is kept, and what backward needs is made again before it (activation checkpointing; segments.c).
 *
 * Threads: one at a time. Passes are those of frames (frame.h), over all blocks. Where a segment runs forward again, hooks hear
 * that its blocks are entered and left again. */
#ifndef LS_NN_SEGMENTS_H
#define LS_NN_SEGMENTS_H

#include "common/nn/frame_internal.h"

typedef struct ls_segments ls_segments;

/* `every` blocks make a segment (the last has what is left); LS_EVERY_SQRT: the square root of their number; 0, or as many as
 * there are: one segment; LS_FORWARD_ONLY: one block, and there is no backward. Everything is placed. On failure *out is NULL. */
ls_status ls_segments_create(ls_segments **out, ls_device *device, const ls_network *network, ls_dtype precision,
                             int every, size_t max_batch);
/* NULL is a no-op. */
void ls_segments_destroy(ls_segments *segments);

ls_status ls_segments_sync_batchnorm(ls_segments *segments, ls_comm *group);

const void *ls_segments_forward(ls_segments *segments, ls_parameters *parameters, const struct ls_hooks *hooks,
                                const void *x, size_t batch, ls_forward_kind kind);
void ls_segments_backward(ls_segments *segments, ls_parameters *parameters, const struct ls_hooks *hooks, void *dy,
                          bool accumulate);

/* The first block that is not run forward again before its backward. */
int ls_segments_first_kept(const ls_segments *segments);

/* ls_model_visits: the order in which the two enter blocks. */
size_t ls_segments_visits(const ls_segments *segments, int *visits);

/* After a forward: calls `look` with each frame in turn while its activations are there, until *done. Those that have been
 * dropped are made again, unless other ranks would have to take part. `look` fails: so does this. Host-blocking as `look`. */
typedef ls_status (*ls_look_fn)(void *context, const ls_frame *frame, bool *done);
ls_status ls_segments_look(ls_segments *segments, ls_parameters *parameters, ls_look_fn look, void *context);

#endif
