/* Described networks: networks known only by the operations that a step enqueues, their order, and the gradients that
 * are ready after each. They behave like other networks, with layers whose passes enqueue the listed operations, so the
 * real steps run with them on meta devices (labs/replay/record). Each enqueued operation carries its number in the
 * description, from which replay computes its time.
 *
 * The loss and the update are also taken from the description. */
#ifndef LS_NN_DESCRIBED_H
#define LS_NN_DESCRIBED_H

#include "common/nn/model.h"

typedef enum ls_described_part {
    LS_DESCRIBED_FORWARD,
    LS_DESCRIBED_LOSS,
    LS_DESCRIBED_BACKWARD,
    LS_DESCRIBED_UPDATE
} ls_described_part;

/* A collective operation of tensor parallelism (tensor_layers.c); it has no flops or bytes. */
enum ls_described_meeting { LS_DESCRIBED_ALONE, LS_DESCRIBED_SUMS, LS_DESCRIBED_GATHERS, LS_DESCRIBED_SCATTERS };

struct ls_described_op {
    const char *name; /* valid as long as the probes' records */
    ls_described_part part;
    uint64_t flops, bytes;
    int first_ready, ready_count; /* backward: parameters ready[first_ready ...], whose gradients are complete then */
    int channels; /* of batch norm, which has collectives under ls_model_sync_batchnorm (batchnorm.c); else 0 */
    enum ls_described_meeting meeting;
    size_t elements; /* of a collective: all summed elements, or a rank's part of a gather or scatter */
    bool elements_fixed, elements_fp32; /* elements are in total, not per sample; in fp32 for any precision */
};

/* A layer. Its forward and backward enqueue the operations first .. end - 1 of their part. */
struct ls_described_node {
    const struct ls_described *network;
    size_t first_forward, end_forward, first_backward, end_backward;
    size_t parameter_count; /* the network's next parameters */
    size_t inputs, outputs; /* elements of a sample; gradients of inputs have memory for two at a time */
    size_t kept_nbytes;     /* of a sample: kept from forward to backward */
    bool begins_block;
};

/* A described network's memory is accounted for, including fp16 or bf16 parameters. All pointers are borrowed for the
 * life of the network created from this. */
struct ls_described {
    ls_dtype precision;
    size_t input_nbytes, answer_nbytes;    /* of a sample */
    const struct ls_described_node *nodes; /* in the order of the forward pass; each reads the one before */
    size_t node_count;
    const char *const *parameter_names;
    const uint64_t *parameter_counts;     /* elements */
    size_t parameter_count, buffer_count; /* buffers: elements in all */
    const struct ls_described_op *ops;    /* in the order of execution; the index is the number in probe records */
    size_t op_count;
    const int *ready;
    ls_comm *group; /* the tensor-parallel group; set before the first pass. NULL: the network is not split */
    bool hooks;     /* each ready gradient adds an operation, with number op_count (PyTorch's hooks) */
};

/* Creates the network. Use it in models of the description's precision (ls_model_create_of), on meta devices only: on
 * other devices a pass poisons the device. On failure *out is NULL. */
ls_status ls_network_create_described(ls_network **out, const struct ls_described *described);

/* Enqueues a described network's operations of this part (the loss of `samples` samples, or the update). A real
 * network: does nothing and returns false. */
bool ls_model_enqueue_described(ls_model *model, ls_stream *stream, ls_described_part part, size_t samples);

#endif
