/* batchnorm — the batch norm layer, followed by a ReLU if layer->relu; on one rank, or on all ranks of a group
 * (SyncBatchNorm).
 *   terms : W ranks, C channels; statistics = mean and M2 (the sum of squared deviations from it) of each channel, and
 *           the number of values, 2C + 1 doubles; sums = of dy and of dy x̂ over each channel, 2C floats
 *   idea  : normalising by the whole batch needs two results that no rank has alone, one in forward and one in
 *           backward:
 *
 *               forward                            backward
 *               statistics of my samples           sums over my samples
 *               all_gather                         all_reduce
 *               merge into mean, invstd, m         input gradient from the sums and m
 *               normalise my samples
 *
 *           The gradients of gamma and beta are the sums of this rank alone: DDP averages them with all other gradients
 *   cost  : each rank sends (2C + 1) x 8 bytes to each other rank, and all-reduces 2C floats, on the compute stream,
 *           which waits for the slowest rank twice per layer and step: in the convnet 1.2 KB a rank, so latency
 *           dominates
 *   order : each rank merges the statistics of all ranks itself, in rank order and in double: mean, invstd and the
 *           running statistics have the same bits on all ranks, and differ from those of one device only by the
 *           rounding of doubles. (PyTorch gathers float means and inverse deviations and converts those back to
 *           variances: the same formula, less exact.)
 *   fails : the other ranks name a rank that does not arrive (comm.h). If all ranks together have at most one value per
 *           channel, all of them report it */
#include "common/comm/values.h"
#include "common/nn/layer.h"

static struct ls_batchnorm_shape batchnorm_shape(const ls_layer *layer, const struct ls_pass *pass) {
    return (struct ls_batchnorm_shape){
        .batch = (int)(pass->batch * ls_shape_rows(layer->in)),
        .channels = layer->in.channels,
        .plane = layer->in.height * layer->in.width,
        .momentum = 0.1f,
        .epsilon = 1e-5f,
        .relu = layer->relu,
        .dtype = pass->dtype,
    };
}

/* saved = mean [channels], invstd [channels] */
static ls_status batchnorm_plan(ls_layer *layer) {
    size_t shape[] = {(size_t)layer->in.channels};
    layer->out = layer->in;
    layer->batchnorm_count = 1;
    layer->saved_nbytes = 2 * shape[0] * sizeof(float);
    ls_layer_add_parameter(layer, "weight", 1, shape);
    ls_layer_add_parameter(layer, "bias", 1, shape);
    ls_layer_add_buffer(layer, "running_mean", 1, shape);
    ls_layer_add_buffer(layer, "running_var", 1, shape);
    return LS_OK;
}

static void batchnorm_init(const ls_layer *layer, ls_generator *g, float *const *parameters) {
    (void)g; /* no random draws */
    for (size_t i = 0; i < layer->parameters[0].count; i++) parameters[0][i] = 1;
}

/* --- together with other ranks ----------------------------------------------------------------------------------- */

/* Layout of pass->shared. */
struct shared {
    size_t statistics_count;
    double *everybodys, *mine; /* statistics of all ranks, consecutive, and this rank's among them */
    double *count;             /* m, from forward to backward */
    float *sums;
};

static size_t statistics_count(const ls_layer *layer) {
    return ls_batchnorm_statistics_count(&(struct ls_batchnorm_shape){.channels = layer->in.channels});
}

/* For --debug-values: on the tensor axis, the input's label. After the collective, each value covers all samples. */
static void label(const ls_layer *layer, const struct ls_pass *pass, const struct shared *s) {
    const struct ls_labels *x = ls_values_find(pass->x[0]);
    ls_value tensor = x ? x->on[LS_MESH_TENSOR] : LS_REPLICATED;
    ls_values_set(s->mine, s->statistics_count * sizeof *s->mine, ls_labels_of(tensor, LS_VARYING), false,
                  "the statistics of %s", layer->name);
    ls_values_set(s->sums, 2 * (size_t)layer->in.channels * sizeof *s->sums, ls_labels_of(tensor, LS_PARTIAL), false,
                  "the sums of %s", layer->name);
}

static void need_all(const ls_layer *layer, const struct ls_pass *pass, const void *statistics) {
    const struct ls_labels *labels = ls_values_find(statistics);
    if (labels)
        ls_device_fail(ls_stream_device(pass->stream), ls_values_need("the statistics of the batch", labels,
                                                                      LS_MESH_DATA, 1u << LS_REPLICATED, layer->name));
}

static struct shared shared_of(const ls_layer *layer, const struct ls_pass *pass) {
    struct shared s = {.statistics_count = statistics_count(layer), .everybodys = pass->shared};
    s.mine = s.everybodys + (size_t)ls_comm_rank(pass->group) * s.statistics_count;
    s.count = s.everybodys + (size_t)ls_comm_world_size(pass->group) * s.statistics_count;
    s.sums = (float *)(s.count + 1);
    if (ls_values_on()) label(layer, pass, &s);
    return s;
}

static size_t batchnorm_shared_nbytes(const ls_layer *layer, int world_size) {
    size_t doubles = (size_t)world_size * statistics_count(layer) + 1;
    return doubles * sizeof(double) + 2 * (size_t)layer->in.channels * sizeof(float);
}

static void forward_together(const ls_layer *layer, const struct ls_pass *pass) {
    struct ls_batchnorm_shape shape = batchnorm_shape(layer, pass);
    struct shared s = shared_of(layer, pass);
    float *mean = pass->saved, *invstd = mean + layer->in.channels;
    ls_stream *stream = pass->stream;
    ls_batchnorm_statistics(stream, shape, s.mine, pass->x[0]);
    /* gathered as 8-byte elements: for a copy their type does not matter */
    ls_device_fail(ls_stream_device(stream),
                   ls_comm_all_gather(pass->group, stream, s.mine, s.everybodys, s.statistics_count, LS_INT64));
    ls_batchnorm_merge(stream, shape, mean, invstd, s.count, pass->buffers[0], pass->buffers[1], s.everybodys,
                       ls_comm_world_size(pass->group));
    ls_batchnorm_normalize(stream, shape, pass->y, pass->x[0], pass->parameters[0].data, pass->parameters[1].data, mean,
                           invstd);
}

static void backward_together(const ls_layer *layer, const struct ls_pass *pass) {
    struct ls_batchnorm_shape shape = batchnorm_shape(layer, pass);
    struct shared s = shared_of(layer, pass);
    const float *mean = pass->saved, *invstd = mean + layer->in.channels;
    const struct ls_pass_parameter *gamma = &pass->parameters[0], *beta = &pass->parameters[1];
    ls_stream *stream = pass->stream;
    ls_batchnorm_sums(stream, shape, s.sums, gamma->gradient, beta->gradient, pass->dy, pass->x[0], gamma->data,
                      beta->data, mean, invstd, gamma->adds);
    size_t sum_count = 2 * (size_t)shape.channels;
    ls_device_fail(ls_stream_device(stream),
                   ls_comm_all_reduce(pass->group, stream, s.sums, sum_count, LS_FP32, LS_REDUCE_SUM));
    ls_batchnorm_input_gradient(stream, shape, pass->dx[0], pass->dy, pass->x[0], gamma->data, beta->data, mean, invstd,
                                s.sums, s.count);
}

/* --- the two passes ---------------------------------------------------------------------------------------------- */

static void batchnorm_forward(const ls_layer *layer, const struct ls_pass *pass) {
    struct ls_batchnorm_shape shape = batchnorm_shape(layer, pass);
    float *mean = pass->saved, *invstd = mean + layer->in.channels;
    const float *gamma = pass->parameters[0].data, *beta = pass->parameters[1].data;
    float *running_mean = pass->buffers[0], *running_var = pass->buffers[1];
    if (!pass->training) {
        ls_batchnorm_eval(pass->stream, shape, pass->y, pass->x[0], gamma, beta, running_mean, running_var);
    } else if (pass->group) {
        ls_comm_label(pass->group, layer->name, -1);
        forward_together(layer, pass);
        if (ls_values_on()) need_all(layer, pass, pass->shared);
    } else {
        ls_batchnorm_train(pass->stream, shape, pass->y, pass->x[0], gamma, beta, mean, invstd, running_mean,
                           running_var);
    }
}

/* The gradient of the network's input is not needed: dy, which may be overwritten, has room for it. */
static void batchnorm_backward(const ls_layer *layer, const struct ls_pass *given) {
    struct ls_pass own = *given, *pass = &own;
    if (!own.dx[0]) own.dx[0] = own.dy;
    if (pass->group) {
        ls_comm_label(pass->group, layer->name, -1);
        backward_together(layer, pass);
        return;
    }
    const float *mean = pass->saved, *invstd = mean + layer->in.channels;
    const struct ls_pass_parameter *gamma = &pass->parameters[0], *beta = &pass->parameters[1];
    ls_batchnorm_backward(pass->stream, batchnorm_shape(layer, pass), pass->dx[0], gamma->gradient, beta->gradient,
                          pass->dy, pass->x[0], gamma->data, beta->data, mean, invstd, gamma->adds);
}

const struct ls_layer_kind ls_batchnorm2d = {
    .name = "batchnorm2d",
    .plan = batchnorm_plan,
    .init = batchnorm_init,
    .forward = batchnorm_forward,
    .backward = batchnorm_backward,
    .shared_nbytes = batchnorm_shared_nbytes,
};
