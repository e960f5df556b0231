/* Frames: the activations of one micro-batch, and what backward needs beside them, for a range of blocks of a network.
 *
 * A device that trains step by step has one frame of all blocks. A pipeline has several at a time; whoever drops activations
 * and makes them again lets frames take turns with one memory. All activations of a frame lie in one arena, whose places are
 * worked out when the frame is made, so that nothing is allocated in a step. What batch norm's ranks tell each other is each
 * frame's own.
 *
 * Threads: one at a time for each frame. Passes enqueue on the device's compute stream and return; what fails in them poisons
 * the device (device.h). */
#ifndef LS_NN_FRAME_H
#define LS_NN_FRAME_H

#include "common/comm/comm.h"
#include "common/nn/parameters.h"

typedef struct ls_frame ls_frame;

/* Plans a frame with room for batches of up to `max_batch` samples, without memory. Device and network are borrowed for its
 * life. On failure *out is NULL. */
ls_status ls_frame_create(ls_frame **out, ls_device *device, const ls_network *network, ls_dtype precision,
                          struct ls_blocks blocks, size_t max_batch);
/* Bytes of the arena, and of the scratch memory of products (0: there are none). */
size_t ls_frame_nbytes(const ls_frame *frame);
size_t ls_frame_workspace_nbytes(const ls_frame *frame);
/* Gives it memory: both borrowed, the arena aligned to 64 bytes; NULL: memory of its own. Once, before the first pass. */
ls_status ls_frame_place(ls_frame *frame, void *arena, void *workspace);
/* NULL is a no-op. */
void ls_frame_destroy(ls_frame *frame);

/* Batch norm together with the ranks of `group` (ls_model_sync_batchnorm). */
ls_status ls_frame_sync_batchnorm(ls_frame *frame, ls_comm *group);

/* What passes tell whoever asks; each member is optional. A model's own are ls_model_hooks. On a device that has failed none is called; what grad_ready fails with
 * poisons the device. */
struct ls_hooks {
    ls_status (*grad_ready)(void *context, size_t parameter); /* its gradient's last operation has been enqueued */
    void *context;                                            /* of grad_ready */
    void (*enter)(void *context, int block, bool backward);   /* before the first operation of a block ... */
    void (*leave)(void *context, int block, bool backward);   /* ... and behind the last one */
    void *block_context;
};

/* In recomputing, batch norm's running statistics and counts stay as they are: they have moved when the same samples went
 * through for the first time. The ranks of ls_frame_sync_batchnorm meet once more. */
typedef enum ls_forward_kind { LS_EVALUATING, LS_TRAINING, LS_RECOMPUTING } ls_forward_kind;

/* Runs the frame's blocks on `batch` samples of x, in the model's precision. Returns the output, in the frame's memory until
 * its next forward: of the last block of a network in fp32, else in the model's precision. More samples than there is room
 * for poison the device (and it is NULL). x must stay as it is until backward has run. */
const void *ls_frame_forward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks, const void *x,
                             size_t batch, ls_forward_kind kind);

/* Back from dy (overwritten), the gradient of what forward returned, to the gradients of all parameters of these blocks, added
 * to what is there if `accumulate`. Returns the gradient of x, in the frame's memory (or that of dy) until its next pass; NULL
 * where x is the network's input. */
void *ls_frame_backward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks, void *dy,
                        bool accumulate);

#endif
