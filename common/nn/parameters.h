/* Parameters: where the tensors of a network lie on one device: each one's value, its copy in half precision, and its gradient.
 *
 * At first all values lie in one allocation, the slab: parameters in the order of definition, then buffers, each at a multiple
 * of 64 bytes, zeros between them. So a replica is brought up to date by one flat copy. Gradients get memory of the same
 * layout, or a place elsewhere, each its own (DDP's buckets). Whoever cuts the slab among ranks has wider slots.
 *
 * Or the values are placed by an owner, block by block, in memory that blocks may share in turn (ZeRO-3's units). The slab then
 * has the buffers only. A block's values are there while a pass is in it (the hooks of frame.h); between passes each rank has
 * its part of every parameter (`parts`), and read and write are how others reach the values.
 *
 * Threads: one at a time. What is enqueued goes to the compute stream of the device. */
#ifndef LS_NN_PARAMETERS_H
#define LS_NN_PARAMETERS_H

#include <stdint.h>

#include "common/base/dtype.h"
#include "common/comm/comm.h"
#include "common/device/device.h"
#include "common/nn/cut.h"
#include "common/nn/network.h"

/* The tensors that a network declares. */
struct ls_declarations {
    const struct ls_declared *parameters;
    const struct ls_tensor *buffers;
    size_t parameter_count, buffer_count;
    int block_count;
    /* of a part of a network (tensor_parallel.h): how each tensor, parameters first, lies in the whole one, and the ranks that
     * have the other parts; NULL: it is whole */
    const struct ls_cut *cuts;
    int cut_rank;
};

enum ls_half_state { LS_HALF_FRESH, LS_HALF_STALE, LS_HALF_WANTED };

/* What a rank has of a parameter that the ranks of a group share out: elements first .. first + count - 1, perhaps none. */
struct ls_part {
    float *values;
    size_t first, count;
};

typedef struct ls_parameters {
    /* constant after create */
    ls_device *device;
    ls_dtype precision;
    bool is_placed; /* by an owner: the slab has no parameters */
    size_t count, buffer_count;
    int block_count;
    struct ls_tensor *tensors; /* parameters, then buffers */
    int *block_of;             /* of each parameter */
    size_t slot_unit;          /* a parameter's slot has a multiple of so many floats */
    /* the layout, in floats, with padding: each tensor's place, where block b's parameters begin (block_count + 1), and what
     * all parameters and all tensors take */
    size_t *offsets, *block_begins, parameter_floats, all_floats;
    float *slab;
    size_t slab_floats;
    bool slab_is_shared;       /* the group's memory */
    const struct ls_cut *cuts; /* of each tensor, borrowed; NULL: the network is whole */
    int cut_rank;              /* whose part this is */
    ls_comm *cut_group;        /* of all parts; set by the caller (ls_tensor_meet); on the compute stream */
    void *half_slab;           /* copies of the parameters, laid out like the slab; NULL in fp32 */
    /* set by the caller */
    float *gradient_slab;  /* ls_parameters_alloc_gradients, or NULL */
    float **block_values;  /* ls_parameters_place_block ... */
    void **block_halves;   /* ... NULL: not placed, or fp32 */
    struct ls_part *parts; /* of each parameter, borrowed; NULL: this process has all of each */
    ls_comm *group;        /* that shares them out; on the compute stream */
    /* of each parameter, borrowed: another rank has the same part. Such copies are written, but not read. NULL: there are none */
    const bool *is_copy;
    /* changes from step to step */
    int64_t *batches_tracked; /* per buffer: the training batches that have moved it (PyTorch's num_batches_tracked) */
    char *half_states;        /* per block, enum ls_half_state: whether the copy is that of the values */
    uint64_t version;         /* counts ls_parameters_changed */
} ls_parameters;

/* All zeros; `placed`: without memory for parameters. On failure *out is NULL. */
ls_status ls_parameters_create(ls_parameters **out, ls_device *device, ls_dtype precision, bool placed,
                               const struct ls_declarations *declared);
/* NULL is a no-op. */
void ls_parameters_destroy(ls_parameters *parameters);

/* Lays the slab out anew, with slots of a multiple of `unit` floats, itself a multiple of 64 bytes; the values stay, and
 * addresses change. Before gradients have memory. Host-blocking; the device never holds both slabs. */
ls_status ls_parameters_widen_slots(ls_parameters *parameters, size_t unit);

/* On CPU devices: the slab lies in the group's memory from now on, where other ranks reach it directly. Values stay, and addresses
 * change; the device is charged as before. Before gradients have memory, and for as long as the group is there. Collective,
 * host-blocking. */
ls_status ls_parameters_share_slab(ls_parameters *parameters, ls_comm *comm);

/* For an owner: where block `block`'s values lie from now on, and their copies in half precision (NULL in fp32), as the layout
 * has them. Several blocks may have one place, if passes find each one's values there. */
void ls_parameters_place_block(ls_parameters *parameters, int block, float *values, void *half);

/* Name and shape of tensor `index` as a whole: what hashes, weights and checkpoints know. */
const struct ls_tensor *ls_parameters_whole(const ls_parameters *parameters, size_t index);
/* Whether reading a tensor takes other ranks. */
bool ls_parameters_are_collective(const ls_parameters *parameters);

/* All of tensor `index`, to the host: collective over the group if it is a parameter that is shared out, and over that of the
 * cut if it is cut. And what belongs here of a tensor that is whole on the host; ls_parameters_changed is to follow. Both are
 * host-blocking. */
ls_status ls_parameters_read(const ls_parameters *parameters, size_t index, float *host);
ls_status ls_parameters_write(ls_parameters *parameters, size_t index, const float *host);

/* All `count` floats of a tensor, on every rank, in `whole`, which has room for whole lines (ls_aligned_floats): zeros, this
 * rank's part, and what the others add to the zeros; as integers, for then any bits and 0 make these bits. Collective on
 * `stream`, host-blocking. */
ls_status ls_part_gather(ls_comm *group, ls_stream *stream, const struct ls_part *part, float *whole, size_t count);

/* The values have been written: the next pass that needs a block's copies makes them anew (PyTorch's cache of casts). */
void ls_parameters_changed(ls_parameters *parameters);
void ls_parameters_block_changed(ls_parameters *parameters, int block);

/* A pass needs the copies of block `block`. Enqueued by renew: those that are needed and stale are made, neighbours in one
 * operation. */
void ls_parameters_want_half(ls_parameters *parameters, int block);
void ls_parameters_renew_half(ls_parameters *parameters, ls_stream *stream);

/* Gradients get one range laid out like the parameters, of category gradient. */
ls_status ls_parameters_alloc_gradients(ls_parameters *parameters);

#endif
