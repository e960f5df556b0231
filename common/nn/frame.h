/* Frames: the activations of one micro-batch, and other data that backward needs, for a range of blocks of a network.
 *
 * Plain training has one frame of all blocks per device. A pipeline has several at a time; with activation
 * checkpointing, frames share one memory in turn. All activations of a frame are in one arena, whose layout is planned
 * when the frame is created, so that nothing is allocated in a step. Each frame has its own memory for synchronised
 * batch norm.
 *
 * Threads: one at a time for each frame. Passes enqueue on the device's compute stream and return; a failure poisons
 * the device (device.h). */
#ifndef LS_NN_FRAME_H
#define LS_NN_FRAME_H

#include "common/comm/comm.h"
#include "common/nn/parameters.h"

typedef struct ls_frame ls_frame;

/* Plans a frame for batches of up to `max_batch` samples, without allocating memory. Device and network are borrowed
 * for its life. On failure *out is NULL. */
ls_status ls_frame_create(ls_frame **out, ls_device *device, const ls_network *network, ls_dtype precision,
                          struct ls_blocks blocks, size_t max_batch);
/* Bytes of the arena, and of scratch memory for matrix multiplies (0: none needed). */
size_t ls_frame_nbytes(const ls_frame *frame);
size_t ls_frame_workspace_nbytes(const ls_frame *frame);
/* Sets the frame's memory: borrowed, the arena aligned to 64 bytes; NULL: allocated by the frame. Call once, before the
 * first pass. */
ls_status ls_frame_place(ls_frame *frame, void *arena, void *workspace);
/* NULL is a no-op. */
void ls_frame_destroy(ls_frame *frame);

/* Synchronises batch norm over the ranks of `group` (ls_model_sync_batchnorm). */
ls_status ls_frame_sync_batchnorm(ls_frame *frame, ls_comm *group);

/* Hooks that passes call; each is optional. ls_model_hooks returns a model's. None is called on a failed device; a
 * failure of grad_ready poisons the device. */
struct ls_hooks {
    ls_status (*grad_ready)(void *context, size_t parameter); /* its gradient's last operation has been enqueued */
    void *context;                                            /* of grad_ready */
    void (*enter)(void *context, int block, bool backward);   /* before the first operation of a block ... */
    void (*leave)(void *context, int block, bool backward);   /* ... and after the last one */
    void *block_context;
};

/* Recomputing does not update batch norm's running statistics and counts, which the first forward of the same samples
 * has updated. It repeats the collectives of ls_frame_sync_batchnorm. */
typedef enum ls_forward_kind { LS_EVALUATING, LS_TRAINING, LS_RECOMPUTING } ls_forward_kind;

/* Runs the frame's blocks on `batch` samples of x, in the model's precision. Returns the output, valid in the frame's
 * memory until its next forward: fp32 after a network's last block, else in the model's precision. A batch larger than
 * max_batch poisons the device, and NULL is returned. x must not change until backward has run. */
const void *ls_frame_forward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks, const void *x,
                             size_t batch, ls_forward_kind kind);

/* Computes the gradients of all parameters of these blocks from dy (overwritten), the gradient of forward's output;
 * adds to the present gradients if `accumulate`. Returns the gradient of x, valid in the frame's memory (or in dy)
 * until the next pass; NULL if x is the network's input. */
void *ls_frame_backward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks, void *dy,
                        bool accumulate);

#endif
