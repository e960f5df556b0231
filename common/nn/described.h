/* Described networks: of which only is known which operations a step enqueues, in which order, and which gradients are ready
 * behind which of them. They are networks like others, of layers whose passes enqueue what the description lists; so the
 * real steps run with them on meta devices (labs/replay/record), and what they enqueue bears the number of its
 * operation: a replay can give it a price.
 *
 * They take the loss and the update, too, since a description has operations for both. */
#ifndef LS_NN_DESCRIBED_H
#define LS_NN_DESCRIBED_H

#include "common/nn/model.h"

typedef enum ls_described_part {
    LS_DESCRIBED_FORWARD,
    LS_DESCRIBED_LOSS,
    LS_DESCRIBED_BACKWARD,
    LS_DESCRIBED_UPDATE
} ls_described_part;

/* An operation of the ranks that share the network (tensor_layers.c); it has no flops and bytes of its own. */
enum ls_described_meeting { LS_DESCRIBED_ALONE, LS_DESCRIBED_SUMS, LS_DESCRIBED_GATHERS, LS_DESCRIBED_SCATTERS };

struct ls_described_op {
    const char *name; /* lives as long as probes' records do */
    ls_described_part part;
    uint64_t flops, bytes;
    int first_ready, ready_count; /* backward: parameters ready[first_ready ...], whose gradients are complete then */
    int channels; /* of batch norm, which ls_model_sync_batchnorm makes meet other ranks (batchnorm.c); else 0 */
    enum ls_described_meeting meeting;
    size_t elements; /* of a meeting: all that are summed, or a rank's own part of what is gathered or scattered */
    bool elements_fixed, elements_fp32; /* in all, not of a sample; whatever the precision is */
};

/* A layer. Its forward and backward enqueue those of the operations first .. end - 1 that belong to the part. */
struct ls_described_node {
    const struct ls_described *network;
    size_t first_forward, end_forward, first_backward, end_backward;
    size_t parameter_count; /* the next ones of the network's */
    size_t inputs, outputs; /* elements of a sample. Of the inputs' gradients there is memory for two at a time */
    size_t kept_nbytes;     /* of a sample: what forward leaves for backward */
    bool begins_block;
};

/* What the network holds is accounted for, and so are parameters in half precision. All of it is borrowed, for the life
 * of the network that is made from it. */
struct ls_described {
    ls_dtype precision;
    size_t input_nbytes, answer_nbytes;    /* of a sample */
    const struct ls_described_node *nodes; /* in the order of the forward pass; each reads the one before */
    size_t node_count;
    const char *const *parameter_names;
    const uint64_t *parameter_counts;     /* elements */
    size_t parameter_count, buffer_count; /* buffers: elements in all */
    const struct ls_described_op *ops;    /* in the order of execution; their place is the number that probes see */
    size_t op_count;
    const int *ready;
    ls_comm *group; /* the ranks that share the network, which meet there; before its first pass. NULL: it is whole */
    bool hooks; /* each gradient that is ready costs an operation of its own, with number op_count (PyTorch's hooks) */
};

/* For models of the description's precision (ls_model_create_of), on devices that do not compute: a pass poisons others. On
 * failure *out is NULL. */
ls_status ls_network_create_described(ls_network **out, const struct ls_described *described);

/* Enqueues what a described network has for this part (the loss of so many samples, the update); false, and nothing, if it is a
 * real one. */
bool ls_model_enqueue_described(ls_model *model, ls_stream *stream, ls_described_part part, size_t samples);

#endif
