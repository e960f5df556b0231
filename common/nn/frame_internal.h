/* The state of a frame, shared by frame.c (its plan and memory), passes.c and nonfinite.c. Private to common/nn. */
#ifndef LS_NN_FRAME_INTERNAL_H
#define LS_NN_FRAME_INTERNAL_H

#include "common/nn/frame.h"
#include "common/nn/network_internal.h"

/* The location of an activation's gradient: a slot's number, or LS_GIVEN: the caller's memory. */
enum { LS_NO_SLOT = -1, LS_GIVEN = -2 };

/* What a layer's backward does with the gradient of an input. */
struct ls_route {
    enum {
        LS_ROUTE_NOWHERE, /* not needed */
        LS_ROUTE_WRITE,   /* into `slot` */
        LS_ROUTE_ADD, /* added to `slot`, which later readers have written; a layer that computes it uses `spare` first */
        LS_ROUTE_COPY, /* a layer that passes dy through: copied to `slot` */
        LS_ROUTE_KEEP  /* the same: dy's memory becomes the input's gradient */
    } how;
    int slot, spare;
};

/* A layer in a frame. */
struct ls_frame_layer {
    size_t y_offset, saved_offset; /* in the arena */
    void *y, *saved;               /* y: NULL: the frame's input, left in place */
    void *shared;                  /* ls_frame_sync_batchnorm */
    int dy;                        /* the slot of its output's gradient */
    struct ls_route routes[LS_LAYER_MAX_INPUTS];
};

struct ls_frame {
    /* constant after create */
    ls_device *device;
    ls_stream *compute;
    const ls_network *network;
    ls_dtype precision;
    struct ls_blocks blocks;
    size_t first, end; /* layers */
    size_t max_batch;
    struct ls_frame_layer *layers; /* for all of the network: layers[l] of layer l */
    size_t nbytes;                 /* of the arena, whose entries are aligned to 64 bytes */
    size_t used_nbytes;            /* without the padding between entries */
    size_t slots_offset, slot_nbytes, outputs_offset;
    int slot_count;
    int input_slot; /* of the gradient of the frame's input, LS_NO_SLOT at the network's */
    /* memory */
    char *arena, *owned;               /* owned: NULL: the arena is borrowed */
    void *workspace, *owned_workspace; /* likewise */
    float *outputs;                    /* the network's output in fp32, if layers compute in fp16 or bf16 */
    ls_comm *group;                    /* batch norm's, or NULL */
    void *gathered;                    /* class_loss.c; NULL: nothing has been evaluated */
    /* the last forward */
    const void *x;
    size_t batch;
};

/* Rounds up to the arena's alignment. */
static inline size_t ls_frame_aligned(size_t nbytes) { return (nbytes + 63) / 64 * 64; }

/* Whether the output is converted to fp32, and its gradient from fp32: in fp16 or bf16, at the network's end. */
static inline bool ls_frame_casts_output(const struct ls_frame *frame) {
    return frame->precision != LS_FP32 && frame->end == frame->network->layer_count && !frame->network->casts_itself;
}

/* For a network whose classes are split: gathers the last forward's output for all classes, into memory that the first
 * call allocates. (class_loss.c) */
const float *ls_frame_gather_classes(ls_frame *frame, const ls_parameters *parameters);

/* The memory of a layer's output (that of its input if the layer works in place). LS_NETWORK_INPUT, or a layer before
 * the frame: the frame's input. */
static inline void *ls_frame_output(const struct ls_frame *frame, int layer) {
    void *y = layer < (int)frame->first ? NULL : frame->layers[layer].y;
    return y ? y : (void *)frame->x;
}

#endif
