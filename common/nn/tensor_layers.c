/* tensor_layers — the communication between the layers of a network under tensor parallelism: f and g, and gather and
 * scatter for rows that are split over ranks.
 *   f, g    : the distribution of a value changes at two places. The input of a column-parallel layer is the same on
 *             all ranks, and each rank computes its own term of its gradient; the outputs of a row-parallel layer are
 *             terms of a sum, whose gradient is the same on all ranks. So
 *
 *                             forward              backward
 *                 f           nothing              all-reduce          in front of column-parallel layers
 *                 g           all-reduce           nothing             after row-parallel layers
 *                 gather      all-gather           reduce-scatter      f, if each rank has rows of its own
 *                 scatter     reduce-scatter       all-gather          g, likewise
 *
 *   bias    : g adds the bias of a row-parallel layer once, after the sum: in each term it would count W times. Its
 *             gradient is that of the whole row, the same on all ranks: it is not reduced. A convolution's bias is in
 *             rank 0's term
 *   rows    : with sequence parallelism the rows of a batch are split evenly, in order: layers that work row by row
 *             (layer norm, addition) have 1/W of the work and of the memory. A layer norm's gradients are then sums
 *             over this rank's rows only: partial, and the only sums to reduce apart from f and g (tensor_parts.c)
 *   cost    : for each pair of layers one of these in forward and one in backward: batch x rows x channels elements, of
 *             which a rank sends 2 (W-1)/W, all-reduced or scattered and gathered. There is no overlap: the next layer
 *             waits
 *   order   : sums in rank order, or that of the group's algorithm: the same bits on all ranks
 *   fails   : the other ranks name a rank that does not arrive (comm.h) */
#include "common/base/log.h"
#include "common/nn/layer.h"

static size_t rows_of(struct ls_shape shape, size_t batch) { return batch * ls_shape_rows(shape); }

static void fail_with(const struct ls_pass *pass, ls_status status) {
    ls_device_fail(ls_stream_device(pass->stream), status);
}

static ls_status same_plan(ls_layer *layer) {
    layer->out = layer->in;
    return LS_OK;
}

/* --- f and g ---------------------------------------------------------------------------------------------------------- */

static void nothing(const ls_layer *layer, const struct ls_pass *pass) { (void)layer, (void)pass; }

static void sum_over_ranks(const ls_layer *layer, const struct ls_pass *pass, void *values) {
    size_t count = pass->batch * ls_shape_count(layer->out);
    ls_comm_label(pass->tensor, layer->name, -1);
    fail_with(pass, ls_comm_all_reduce(pass->tensor, pass->stream, values, count, pass->dtype, LS_REDUCE_SUM));
}

/* pass->dy is this rank's term of the gradient of f's input; it is replaced by the sum. */
static void f_backward(const ls_layer *layer, const struct ls_pass *pass) { sum_over_ranks(layer, pass, pass->dy); }

const struct ls_layer_kind ls_tensor_f = {
    .name = "f",
    .in_place = true,
    .leaves_input = true,
    .hands_on = true,
    .plan = same_plan,
    .forward = nothing,
    .backward = f_backward,
};

/* `units` is 0 without a bias; a ReLU may follow the bias (g only). */
static ls_status g_plan(ls_layer *layer) {
    if (layer->units > 0) ls_layer_add_parameter(layer, "bias", 1, (size_t[]){(size_t)layer->units});
    return same_plan(layer);
}

static void add_bias(const ls_layer *layer, const struct ls_pass *pass) {
    size_t rows = rows_of(layer->out, pass->batch), units = (size_t)layer->units;
    if (units > 0 && layer->relu)
        ls_add_bias_relu(pass->stream, pass->dtype, pass->y, pass->parameters[0].operand, rows, units);
    else if (units > 0)
        ls_add_bias(pass->stream, pass->dtype, pass->y, pass->parameters[0].operand, rows, units);
}

/* From the gradients of `rows` rows, after the backward of the ReLU, if any. */
static void bias_gradient(const ls_layer *layer, const struct ls_pass *pass, void *dy, size_t rows) {
    const struct ls_pass_parameter *bias = &pass->parameters[0];
    size_t units = (size_t)layer->units;
    if (units > 0 && layer->relu)
        ls_relu_bias_gradient(pass->stream, pass->dtype, bias->gradient, dy, pass->y, rows, units, bias->adds);
    else if (units > 0)
        ls_bias_gradient(pass->stream, pass->dtype, bias->gradient, dy, rows, units, bias->adds);
}

/* pass->y is this rank's term; it is replaced by the sum, plus the bias. */
static void g_forward(const ls_layer *layer, const struct ls_pass *pass) {
    sum_over_ranks(layer, pass, pass->y);
    add_bias(layer, pass);
}

/* pass->dy is the same on all ranks, and is the gradient of each term. */
static void g_backward(const ls_layer *layer, const struct ls_pass *pass) {
    bias_gradient(layer, pass, pass->dy, rows_of(layer->out, pass->batch));
}

const struct ls_layer_kind ls_tensor_g = {
    .name = "g",
    .in_place = true,
    .hands_on = true,
    .plan = g_plan,
    .forward = g_forward,
    .backward = g_backward,
};

/* --- the same if ranks have rows of their own --------------------------------------------------------------------- */

/* `count`: elements of one rank. */
static void gather(const struct ls_pass *pass, const void *own, void *all, size_t count) {
    fail_with(pass, ls_comm_all_gather(pass->tensor, pass->stream, own, all, count, pass->dtype));
}

static void scatter(const struct ls_pass *pass, const void *terms, void *own, size_t count) {
    fail_with(pass, ls_comm_reduce_scatter(pass->tensor, pass->stream, terms, own, count, pass->dtype, LS_REDUCE_SUM));
}

static ls_status gather_plan(ls_layer *layer) {
    layer->out = layer->in;
    layer->out.rows = (int)ls_shape_rows(layer->in) * layer->part.ranks;
    return LS_OK;
}

/* From this rank's rows to all of them, in the order of the ranks. */
static void gather_forward(const ls_layer *layer, const struct ls_pass *pass) {
    gather(pass, pass->x[0], pass->y, pass->batch * ls_shape_count(layer->in));
}

/* From this rank's term of the gradient of all rows to the gradient of its own; dx[0] is NULL if no layer needs it. */
static void gather_backward(const ls_layer *layer, const struct ls_pass *pass) {
    if (pass->dx[0]) scatter(pass, pass->dy, pass->dx[0], pass->batch * ls_shape_count(layer->in));
}

const struct ls_layer_kind ls_sequence_gather = {
    .name = "gather",
    .plan = gather_plan,
    .forward = gather_forward,
    .backward = gather_backward,
};

static ls_status scatter_plan(ls_layer *layer) {
    ls_status status = g_plan(layer);
    layer->out.rows = (int)ls_shape_rows(layer->in) / layer->part.ranks;
    return status;
}

/* From this rank's term of all rows to its own rows of the sum, plus the bias. */
static void scatter_forward(const ls_layer *layer, const struct ls_pass *pass) {
    scatter(pass, pass->x[0], pass->y, pass->batch * ls_shape_count(layer->out));
    add_bias(layer, pass);
}

/* The bias's gradient is a sum over all rows, so it follows the gather. */
static void scatter_backward(const ls_layer *layer, const struct ls_pass *pass) {
    gather(pass, pass->dy, pass->dx[0], pass->batch * ls_shape_count(layer->out));
    bias_gradient(layer, pass, pass->dx[0], rows_of(layer->in, pass->batch));
}

const struct ls_layer_kind ls_sequence_scatter = {
    .name = "scatter",
    .plan = scatter_plan,
    .forward = scatter_forward,
    .backward = scatter_backward,
};
