/* class_loss — cross entropy of logits whose classes are split over ranks, and the whole logits of an evaluation.
 *   idea  : the softmax of a row needs two numbers that no rank has alone, the largest logit and the sum of
 *           exponentials, and the loss a third, the label's logit. Only these are reduced; the logits are not
 *           communicated:
 *
 *               largest of the part                        -> all-reduce MAX, a float a row
 *               sum of exp(logit - largest), label's logit -> all-reduce SUM, two floats a row
 *               loss; gradient of the part
 *
 *   cost  : 3 floats a row in place of V; one more pass over the logits than on one device
 *           (kernels/cpu/variant/class_loss.c)
 *   order : the largest logit of all parts is reduced first: the parts' sums of exponentials must use the same one
 *   evaluation: evaluating and generating text need whole rows of logits. They are computed from the whole table, which
 *           is gathered: parts are consecutive ranges of its rows, so gathering concatenates them, with padding after
 *           the last. The bits are those of one device
 *   fails : as any collective (comm.h) */
#include "common/nn/class_loss.h"

#include "common/base/log.h"
#include "common/nn/frame_internal.h"

size_t ls_class_loss_nbytes(const ls_network *network, size_t max_batch) {
    return 3 * max_batch * ls_shape_rows(network->class_cut->out) * sizeof(float);
}

static void reduce(const ls_network *network, ls_stream *stream, float *values, size_t count, ls_reduce_op op) {
    if (count == 0) return;
    ls_comm_label(network->tensor, "loss", -1);
    ls_device_fail(ls_stream_device(stream), ls_comm_all_reduce(network->tensor, stream, values, count, LS_FP32, op));
}

void ls_class_loss_of(const ls_network *network, ls_stream *stream, float *loss, float *dy, const float *y,
                      const int64_t *labels, size_t rows, double weight, float *sums) {
    struct ls_class_part part = network->class_cut->part.classes;
    float *maxima = sums + 2 * rows;
    ls_class_maxima(stream, maxima, y, rows, part);
    reduce(network, stream, maxima, rows, LS_REDUCE_MAX);
    ls_class_sums(stream, sums, y, maxima, labels, rows, part);
    reduce(network, stream, sums, 2 * rows, LS_REDUCE_SUM);
    ls_class_loss(stream, loss, dy, y, maxima, sums, labels, rows, part, (float)weight);
}

/* --- whole rows of logits ------------------------------------------------------------------------------------------------ */

struct whole {
    size_t rows, classes, channels, table_nbytes, logits_nbytes, workspace_nbytes;
};

static struct whole plan_whole(const ls_frame *frame) {
    const ls_layer *head = frame->network->class_cut;
    struct whole w = {.rows = frame->max_batch * ls_shape_rows(head->out),
                      .classes = head->part.classes.whole,
                      .channels = ls_shape_row_count(head->in)};
    size_t room = head->part.classes.room * (size_t)head->part.ranks;
    w.table_nbytes = ls_frame_aligned(room * w.channels * ls_dtype_nbytes(frame->precision));
    w.logits_nbytes = ls_frame_aligned(w.rows * w.classes * sizeof(float));
    w.workspace_nbytes =
        ls_gemm_workspace_nbytes(ls_device_kind_of(frame->device), frame->precision, w.rows, w.classes, w.channels);
    return w;
}

const float *ls_frame_gather_classes(ls_frame *frame, const ls_parameters *parameters) {
    const ls_layer *head = frame->network->class_cut;
    const struct whole w = plan_whole(frame);
    size_t nbytes = w.table_nbytes + w.logits_nbytes + w.workspace_nbytes;
    ls_status status = LS_OK;
    if (!frame->gathered)
        status = ls_device_alloc(frame->device, LS_MEMORY_WORKSPACE, nbytes, "logits of all classes", &frame->gathered);
    if (status != LS_OK) {
        ls_device_fail(frame->device, status);
        return NULL;
    }
    char *table = frame->gathered, *logits = table + w.table_nbytes;
    const struct ls_tensor *weight = &parameters->tensors[head->parameter_numbers[0]];
    ls_comm_label(frame->network->tensor, weight->name, -1);
    ls_device_fail(frame->device, ls_comm_all_gather(frame->network->tensor, frame->compute,
                                                     weight->half ? weight->half : weight->data, table,
                                                     head->part.classes.room * w.channels, frame->precision));
    ls_gemm(frame->compute, frame->precision, false, true, frame->batch * ls_shape_rows(head->out), w.classes,
            w.channels, ls_frame_output(frame, head->inputs[0]), table, 0, LS_FP32, logits, logits + w.logits_nbytes);
    return (const float *)(const void *)logits;
}
