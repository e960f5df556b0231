/* Described models: networks of which only is known which operations a step enqueues, in which order, and which
 * gradients are ready behind which of them. They are ls_models on meta devices, so the real steps run with them
 * (labs/replay/record), and what they enqueue bears the number of its operation: a replay can give it a price.
 *
 * They take the loss and the update, too, since a network's description has operations for both. */
#ifndef LS_NN_DESCRIBED_H
#define LS_NN_DESCRIBED_H

#include "common/nn/model.h"

typedef enum ls_described_part {
    LS_DESCRIBED_FORWARD,
    LS_DESCRIBED_LOSS,
    LS_DESCRIBED_BACKWARD,
    LS_DESCRIBED_UPDATE
} ls_described_part;

struct ls_described_op {
    const char *name; /* lives as long as probes' records do */
    ls_described_part part;
    uint64_t flops, bytes;
    int first_ready, ready_count; /* backward: parameters ready[first_ready ...], whose gradients are complete then */
    int channels; /* of batch norm, which ls_model_sync_batchnorm makes meet other ranks (batchnorm.c); else 0 */
};

/* What the network holds is accounted for, and so are parameters in half precision. All of it is borrowed, for the life
 * of the models that are made from it. */
struct ls_described {
    ls_dtype precision;
    size_t input_nbytes, answer_nbytes, outputs; /* of a sample */
    size_t activation_nbytes; /* of a sample: what forward leaves for backward, and what backward needs beside it */
    const char *const *parameter_names;
    const uint64_t *parameter_counts;     /* elements */
    size_t parameter_count, buffer_count; /* buffers: elements in all */
    const struct ls_described_op *ops;    /* in the order of execution; their place is the number that probes see */
    size_t op_count;
    const int *ready;
    bool hooks; /* each gradient that is ready costs an operation of its own, with number op_count (PyTorch's hooks) */
};

/* LS_ERR_INVALID on a device that computes. */
ls_status ls_model_create_described(ls_model **out, ls_device *device, const struct ls_described *described,
                                    size_t max_batch);

/* Enqueues what a described model has for this part; false, and nothing, if the model is a real one. */
bool ls_model_enqueue_described(ls_model *model, ls_stream *stream, ls_described_part part);

#endif
