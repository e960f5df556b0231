/* Parameters: the memory of a network's tensors on one device: values, fp16 or bf16 copies, and gradients.
 *
 * By default all values are in one allocation, the slab: parameters in the order of definition, then buffers, each
 * aligned to 64 bytes, with zeros between them. So one flat copy updates a replica. Gradients have the same layout, or
 * each is placed elsewhere (DDP's buckets). A slab that is sharded over ranks has wider slots.
 *
 * Alternatively an owner places the values, block by block, in memory that blocks may share in turn (ZeRO-3's units).
 * The slab then has only the buffers. A block's values are in place while a pass is in the block (the hooks of
 * frame.h); between passes each rank has its shard of every parameter (`parts`), and ls_parameters_read and _write
 * access the values.
 *
 * Threads: one at a time. Work is enqueued on the compute stream of the device. */
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
    /* of a split network (tensor_parallel.h): the layout of each tensor, parameters first, within the whole one, and
     * this rank's part; NULL: not split */
    const struct ls_cut *cuts;
    int cut_rank;
};

enum ls_half_state { LS_HALF_FRESH, LS_HALF_STALE, LS_HALF_WANTED };

/* A rank's shard of a parameter: elements first .. first + count - 1, perhaps none. */
struct ls_part {
    float *values;
    size_t first, count;
};

typedef struct ls_parameters {
    /* constant after create */
    ls_device *device;
    ls_dtype precision;
    bool is_placed; /* an owner places the values: the slab has no parameters */
    size_t count, buffer_count;
    int block_count;
    struct ls_tensor *tensors; /* parameters, then buffers */
    int *block_of;             /* of each parameter */
    size_t slot_unit;          /* a parameter's slot has a multiple of so many floats */
    /* the layout, in floats, with padding: each tensor's offset, the offset of block b's parameters (block_count + 1
     * entries), and the size of all parameters and of all tensors */
    size_t *offsets, *block_begins, parameter_floats, all_floats;
    float *slab;
    size_t slab_floats;
    bool slab_is_shared;       /* the group's memory */
    const struct ls_cut *cuts; /* of each tensor, borrowed; NULL: the network is not split */
    int cut_rank;              /* this rank's part */
    ls_comm *cut_group;        /* of all parts; set by the caller (ls_tensor_meet); on the compute stream */
    void *half_slab;           /* copies of the parameters, laid out like the slab; NULL in fp32 */
    /* set by the caller */
    float *gradient_slab;  /* ls_parameters_alloc_gradients, or NULL */
    float **block_values;  /* ls_parameters_place_block ... */
    void **block_halves;   /* ... NULL: not placed, or fp32 */
    struct ls_part *parts; /* shard of each parameter, borrowed; NULL: not sharded */
    ls_comm *group;        /* over which they are sharded; used on the compute stream */
    /* per parameter, borrowed: another rank has the same shard. Such copies are written but not read. NULL: none */
    const bool *is_copy;
    /* changes from step to step */
    int64_t
        *batches_tracked; /* per buffer: the training batches that have updated it (PyTorch's num_batches_tracked) */
    char *half_states;    /* per block, enum ls_half_state: whether the copy equals the values */
    uint64_t version;     /* counts ls_parameters_changed */
} ls_parameters;

/* All zeros; `placed`: without memory for parameters. On failure *out is NULL. */
ls_status ls_parameters_create(ls_parameters **out, ls_device *device, ls_dtype precision, bool placed,
                               const struct ls_declarations *declared);
/* NULL is a no-op. */
void ls_parameters_destroy(ls_parameters *parameters);

/* Changes the slab's layout to slots of a multiple of `unit` floats, which is a multiple of 64 bytes; values are kept,
 * addresses change. Call before gradients are allocated. Host-blocking; the device never holds both slabs. */
ls_status ls_parameters_widen_slots(ls_parameters *parameters, size_t unit);

/* On CPU devices: moves the slab to the group's shared memory, where other ranks access it directly. Values are kept,
 * addresses change; the device accounts for it as before. Call before gradients are allocated; the group must outlive
 * the slab. Collective, host-blocking. */
ls_status ls_parameters_share_slab(ls_parameters *parameters, ls_comm *comm);

/* For an owner: places the values of block `block`, and their fp16 or bf16 copies (NULL in fp32), at these addresses,
 * in the layout's order. Several blocks may share one address, if each block's values are there during its passes. */
void ls_parameters_place_block(ls_parameters *parameters, int block, float *values, void *half);

/* Name and shape of the whole tensor `index`, which hashes, weights and checkpoints use. */
const struct ls_tensor *ls_parameters_whole(const ls_parameters *parameters, size_t index);
/* Whether reading a tensor is collective. */
bool ls_parameters_are_collective(const ls_parameters *parameters);

/* read copies the whole tensor `index` to the host: collective over the group if the parameter is sharded, and over
 * cut_group if it is split. write copies this rank's part of a whole tensor on the host to the device; call
 * ls_parameters_changed afterwards. Both are host-blocking. */
ls_status ls_parameters_read(const ls_parameters *parameters, size_t index, float *host);
ls_status ls_parameters_write(ls_parameters *parameters, size_t index, const float *host);

/* Gathers all `count` floats of a tensor on every rank, in `whole`, which has room for ls_aligned_floats(count).
 * Implemented as an all-reduce sum of zeros and each rank's shard, as integers, since any bits plus 0 are the same
 * bits. Collective on `stream`, host-blocking. */
ls_status ls_part_gather(ls_comm *group, ls_stream *stream, const struct ls_part *part, float *whole, size_t count);

/* Call after writing values: the next pass that needs a block's copies renews them (PyTorch's cache of casts). */
void ls_parameters_changed(ls_parameters *parameters);
void ls_parameters_block_changed(ls_parameters *parameters, int block);

/* want marks the copies of block `block` as needed by a pass; renew enqueues the conversion of all that are needed and
 * stale, neighbours in one operation. */
void ls_parameters_want_half(ls_parameters *parameters, int block);
void ls_parameters_renew_half(ls_parameters *parameters, ls_stream *stream);

/* Allocates the gradients: one range laid out like the parameters, of category gradient. */
ls_status ls_parameters_alloc_gradients(ls_parameters *parameters);

#endif
