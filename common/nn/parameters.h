/* Parameters: where the tensors of a network lie on one device: each one's value, its copy in half precision, and its gradient.
 *
 * At first all values lie in one allocation, the slab: parameters in the order of definition, then buffers, each at a multiple
 * of 64 bytes, zeros between them. So a replica is brought up to date by one flat copy. Gradients get memory of the same
 * layout, or a place elsewhere, each its own (DDP's buckets). Whoever cuts the slab among ranks has wider slots.
 *
 * Threads: one at a time. What is enqueued goes to the compute stream of the device. */
#ifndef LS_NN_PARAMETERS_H
#define LS_NN_PARAMETERS_H

#include <stdint.h>

#include "common/base/dtype.h"
#include "common/device/device.h"
#include "common/nn/network.h"

/* The tensors that a network declares. */
struct ls_declarations {
    const struct ls_declared *parameters;
    const struct ls_tensor *buffers;
    size_t parameter_count, buffer_count;
    int block_count;
};

enum ls_half_state { LS_HALF_FRESH, LS_HALF_STALE, LS_HALF_WANTED };

typedef struct ls_parameters {
    /* constant after create */
    ls_device *device;
    ls_dtype precision;
    size_t count, buffer_count;
    int block_count;
    struct ls_tensor *tensors; /* parameters, then buffers */
    int *block_of;             /* of each parameter */
    size_t slot_unit;          /* a parameter's slot has a multiple of so many floats */
    size_t *block_begins;      /* where in the slab block b's parameters begin, in floats; block_count + 1 */
    float *slab;
    size_t parameter_floats, slab_floats; /* with padding */
    void *half_slab;                      /* copies of the parameters, laid out like the slab; NULL in fp32 */
    /* set by the caller */
    float *gradient_slab; /* ls_parameters_alloc_gradients, or NULL */
    /* changes from step to step */
    int64_t *batches_tracked; /* per buffer: the training batches that have moved it (PyTorch's num_batches_tracked) */
    char *half_states;        /* per block, enum ls_half_state: whether the copy is that of the values */
} ls_parameters;

/* All zeros. On failure *out is NULL. */
ls_status ls_parameters_create(ls_parameters **out, ls_device *device, ls_dtype precision,
                               const struct ls_declarations *declared);
/* NULL is a no-op. */
void ls_parameters_destroy(ls_parameters *parameters);

/* Lays the slab out anew, with slots of a multiple of `unit` floats, itself a multiple of 64 bytes; the values stay, and
 * addresses change. Before gradients have memory. Host-blocking; the device never holds both slabs. */
ls_status ls_parameters_widen_slots(ls_parameters *parameters, size_t unit);

/* The values have been written: the next pass that needs a block's copies makes them anew (PyTorch's cache of casts). */
void ls_parameters_changed(ls_parameters *parameters);

/* A pass needs the copies of block `block`. Enqueued by renew: those that are needed and stale are made, neighbours in one
 * operation. */
void ls_parameters_want_half(ls_parameters *parameters, int block);
void ls_parameters_renew_half(ls_parameters *parameters, ls_stream *stream);

/* Gradients get one range laid out like the parameters, of category gradient. */
ls_status ls_parameters_alloc_gradients(ls_parameters *parameters);

#endif
