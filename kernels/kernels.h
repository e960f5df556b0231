/* The operations, each with its formula.
 *
 * Every call enqueues one operation on a stream and returns. kernels.c generates its body from the row in ops.def; on
 * CPUs the operation is implemented in kernels/cpu/variant. The layers above check the arguments. Where a formula names
 * an error, the operation reports it and poisons the stream's device (ls_device_status). All pointers are memory of the
 * stream's device and must stay valid until the operation has completed. Matrices and images are dense, row-major
 * (NCHW); counts are elements. float means fp32.
 *
 * A result depends only on the operation's arguments (no atomics). An operation that works row by row gives a row the
 * same bits for any other rows.
 *
 * Activations, their gradients and the weights that matrix multiplies read are void *: elements of the operation's
 * `dtype` (shape.dtype if there is a shape), LS_FP32, LS_FP16 or LS_BF16. For all types, arithmetic and sums are fp32,
 * and a result is rounded once, when it is stored: to nearest even; beyond the type's largest value, to infinity.
 * Gradients of parameters, statistics and losses are always fp32.
 *
 * `accumulate` false: the gradient is overwritten; true: added to the present value. ops.def lists all operations with
 * costs and aliasing rules. Gradient formulas follow PyTorch (batch norm, max-pool ties, losses:
 * docs/pytorch.md#layers). */
#ifndef LS_KERNELS_KERNELS_H
#define LS_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/status.h"
#include "common/device/device.h"

struct ls_conv2d_shape {
    int batch, in_channels, in_height, in_width;
    int out_channels, kernel_h, kernel_w, stride, padding;
    ls_dtype dtype; /* of x, y, w, bias, dx and dy; dw and dbias are fp32 */
};

/* Output height and width: floor((in + 2 padding - kernel) / stride) + 1. */
int ls_conv2d_out_height(const struct ls_conv2d_shape *shape);
int ls_conv2d_out_width(const struct ls_conv2d_shape *shape);

/* For each of the three conv2d operations: flops, and the bytes that must be read or written at least once. */
size_t ls_conv2d_flops(const struct ls_conv2d_shape *shape);
size_t ls_conv2d_bytes(const struct ls_conv2d_shape *shape);

/* Bytes of `workspace` that any of the three conv2d operations of this shape needs on this kind of device. */
size_t ls_conv2d_workspace_nbytes(ls_device_kind kind, const struct ls_conv2d_shape *shape);

struct ls_batchnorm_shape {
    int batch, channels, plane; /* plane = height x width */
    float momentum, epsilon;
    bool relu;      /* y = max(y, 0) in the same pass; backward masks dy by y > 0 */
    ls_dtype dtype; /* of x, y, dx and dy */
};
size_t ls_batchnorm_count(const struct ls_batchnorm_shape *shape);
size_t ls_batchnorm_nbytes(const struct ls_batchnorm_shape *shape);           /* of x */
size_t ls_batchnorm_statistics_count(const struct ls_batchnorm_shape *shape); /* doubles: 2 channels + 1 */

#define LS_POOL_MAX_SIZE 15 /* so that an index in a window fits a byte */

/* Windows of size x size, stride = size, no padding; rows and columns that fill no window are ignored. */
struct ls_pool_shape {
    int planes, in_height, in_width, size; /* planes = batch x channels; 2 <= size <= LS_POOL_MAX_SIZE */
    ls_dtype dtype;                        /* of x, y, dx and dy */
};
size_t ls_pool_count(const struct ls_pool_shape *shape);   /* input elements */
size_t ls_pool_windows(const struct ls_pool_shape *shape); /* output elements */

/* A rank's part of the classes, or of a vocabulary, under tensor parallelism: first .. first + count - 1 of `whole`,
 * perhaps none. Its rows of logits, and its table, have `room` entries, the largest count of any rank: entries beyond
 * `count` are padding. */
struct ls_class_part {
    size_t first, count, room, whole;
};

/* Causal attention of `heads` heads over `batch` sequences of `context` positions. */
#define LS_ATTENTION_MAX_HEAD 128 /* channels of a head */
struct ls_attention_shape {
    int batch, context, heads;
    int channels;   /* of all heads together: heads divides it */
    ls_dtype dtype; /* of qkv, y and their gradients, and of scores in memory */
    bool tiled;     /* scores are computed tile by tile, and recomputed in backward; false: they are kept in memory */
};
size_t ls_attention_head(const struct ls_attention_shape *shape); /* channels of a head */
size_t ls_attention_pairs(
    const struct ls_attention_shape *shape); /* pairs of a position and one that it sees, over all heads */
size_t ls_attention_nbytes(const struct ls_attention_shape *shape); /* of y */

/* Bytes of `saved`: [batch, heads, context, context] of dtype; tiled: [batch, heads, context] floats. */
size_t ls_attention_saved_nbytes(const struct ls_attention_shape *shape);
/* Bytes of `workspace` that either of the two attention operations of this shape needs on this kind of device. */
size_t ls_attention_workspace_nbytes(ls_device_kind kind, const struct ls_attention_shape *shape);

/* The state of an optimizer step. It is on the device, so that no step waits for the host. */
struct ls_update_state {
    double learning_rate;  /* of the next update: ls_set_learning_rate */
    double step;           /* updates so far (skipped ones not counted) */
    float found_inf;       /* not 0: a gradient is not finite, and the update does nothing */
    float gradient_factor; /* by which the update multiplies gradients: 1, unless ls_weigh_gradients sets it */
    float norm;            /* of the gradients, unscaled, before clipping */
    float scale;           /* by which the loss was multiplied */
    float step_size;       /* Adam: learning_rate / (1 - beta1^step) */
    float bias2_sqrt;      /* Adam: sqrt(1 - beta2^step) */
};

/* Loss scaling (PyTorch's GradScaler): the state that lives on the device, and the rule by which it changes. */
struct ls_scaler_state {
    float scale;            /* by which the loss's gradient is multiplied */
    int32_t growth_tracker; /* updates in a row without infinities */
    int64_t skipped;        /* updates skipped because of infinities, over the whole run */
};

struct ls_scaler_rule {
    double growth_factor, backoff_factor;
    int32_t growth_interval;
};

/* One parameter in a list that is updated as a whole. Each tensor is cut into chunks of LS_UPDATE_CHUNK elements, the
 * last one possibly shorter. So a GPU updates the list in one launch, with a block or more for each chunk. */
#define LS_UPDATE_CHUNK 4096
struct ls_update_tensor {
    float *parameter;
    const float *gradient;
    float *first, *second; /* momentum, or Adam's moments; NULL where the rule has none */
    size_t count;
    size_t first_chunk; /* chunks of the tensors before this one */
};

/* An element of a sparse list of an array's elements. */
struct ls_entry {
    int32_t index;
    float value;
};

struct ls_sgd_rule {
    float momentum, dampening, weight_decay;
    bool nesterov;
};

struct ls_adam_rule {
    double beta1, beta2, epsilon, weight_decay;
    bool decoupled; /* true: AdamW */
};

/* --- elementwise ------------------------------------------------------------------------------------------------- */

/* y[i] = value */
void ls_fill(ls_stream *stream, float *y, float value, size_t count);
/* y[i] = y[i] * factor */
void ls_scale(ls_stream *stream, float *y, float factor, size_t count);
/* y[i] = y[i] / divisor */
void ls_divide(ls_stream *stream, float *y, float divisor, size_t count);
/* y[i] = x[i] in another type. LS_ERR_INVALID unless one of the two is LS_FP32 */
void ls_cast(ls_stream *stream, ls_dtype to, void *y, ls_dtype from, const void *x, size_t count);
/* The same for host memory, complete when the call returns; `to` is LS_FP16 or LS_BF16. Any thread. */
void ls_cast_now(ls_dtype to, void *y, const float *x, size_t count);
/* y[i] = round(round(x[i]) / divisor), both roundings to `to` (LS_FP16 or LS_BF16): cast, then average, as in PyTorch's
 * fp16_compress_hook */
void ls_cast_divide(ls_stream *stream, ls_dtype to, void *y, const float *x, float divisor, size_t count);
/* y[i] = (..((y[i] + sources[0][i]) + sources[1][i]) ..): in the order of the sources. The array `sources` itself is in
 * host memory. */
void ls_reduce_add(ls_stream *stream, float *y, const float *const *sources, int source_count, size_t count);
/* y[i] = y[i] * *factor */
void ls_scale_by(ls_stream *stream, float *y, const float *factor, size_t count);

/* --- linear ------------------------------------------------------------------------------------------------------ */

/* c[m,n] = op(a)[m,k] op(b)[k,n] + beta c; a is stored [m,k], or [k,m] if transpose_a; b [k,n], or [n,k] if
 * transpose_b. a and b have the type `dtype`; c has that type or LS_FP32. A beta other than 0 needs c in LS_FP32.
 * `workspace`: as many bytes as ls_gemm_workspace_nbytes says; NULL for 0. */
size_t ls_gemm_workspace_nbytes(ls_device_kind kind, ls_dtype dtype, size_t m, size_t n, size_t k);
void ls_gemm(ls_stream *stream, ls_dtype dtype, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
             const void *a, const void *b, float beta, ls_dtype c_dtype, void *c, void *workspace);
/* y[r,c] += bias[c] */
void ls_add_bias(ls_stream *stream, ls_dtype dtype, void *y, const void *bias, size_t rows, size_t columns);
/* y[r,c] = max(y[r,c] + bias[c], 0); the bits of add_bias followed by relu_forward */
void ls_add_bias_relu(ls_stream *stream, ls_dtype dtype, void *y, const void *bias, size_t rows, size_t columns);
/* dbias[c] = sum over r of dy[r,c], r ascending */
void ls_bias_gradient(ls_stream *stream, ls_dtype dtype, float *dbias, const void *dy, size_t rows, size_t columns,
                      bool accumulate);
/* dy[r,c] = 0 where y[r,c] <= 0; then dbias[c] = sum over r of dy[r,c]; the bits of relu_backward followed by
 * bias_gradient */
void ls_relu_bias_gradient(ls_stream *stream, ls_dtype dtype, float *dbias, void *dy, const void *y, size_t rows,
                           size_t columns, bool accumulate);

/* GELU in the tanh form: gelu(x) = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
/* x[r,c] += bias[c]; y[r,c] = gelu(x[r,c]) of the stored x */
void ls_add_bias_gelu(ls_stream *stream, ls_dtype dtype, void *y, void *x, const void *bias, size_t rows,
                      size_t columns);
/* dy[r,c] *= gelu'(x[r,c]); dbias[c] = sum over r of the stored dy[r,c], r ascending */
void ls_gelu_bias_gradient(ls_stream *stream, ls_dtype dtype, float *dbias, void *dy, const void *x, size_t rows,
                           size_t columns, bool accumulate);

/* --- residual connections, and values with several readers ------------------------------------------------------------ */

/* y = a + b, in fp16 and bf16 rounded once */
void ls_add(ls_stream *stream, ls_dtype dtype, void *y, const void *a, const void *b, size_t count);

/* --- activations ------------------------------------------------------------------------------------------------- */

/* A separate ReLU. After a linear layer or batch norm the fused operations above give the same bits. */
/* y = max(x, 0); NaN stays NaN */
void ls_relu_forward(ls_stream *stream, ls_dtype dtype, void *y, const void *x, size_t count);
/* dx = 0 where y <= 0, else dy */
void ls_relu_backward(ls_stream *stream, ls_dtype dtype, void *dx, const void *dy, const void *y, size_t count);

/* --- convolution: x [n,ci,h,w], w [co,ci,kh,kw], y and dy [n,co,oh,ow] ---------------------------------------------- */

/* y[n,o] = bias[o] + sum over i, kernel of w[o,i] x[n,i] (cross-correlation); bias may be NULL */
void ls_conv2d_forward(ls_stream *stream, struct ls_conv2d_shape shape, const void *x, const void *w, const void *bias,
                       void *y, void *workspace);
/* dx[n,i] = sum over o, kernel of w[o,i] dy[n,o] */
void ls_conv2d_backward_data(ls_stream *stream, struct ls_conv2d_shape shape, const void *dy, const void *w, void *dx,
                             void *workspace);
/* dw[o,i] = sum over n, pixels of dy[n,o] x[n,i]; dbias[o] = sum over n, pixels of dy[n,o]; dbias may be NULL */
void ls_conv2d_backward_weights(ls_stream *stream, struct ls_conv2d_shape shape, const void *x, const void *dy,
                                float *dw, float *dbias, bool accumulate, void *workspace);

/* --- batch normalisation: x [n,c,plane], statistics per channel over m = n x plane values ------------------------------ */

/* mean, var (biased) of x; invstd = 1/sqrt(var + epsilon); y = gamma (x - mean) invstd + beta;
 * running_mean += momentum (mean - running_mean); running_var likewise with var m/(m-1); both may be NULL: they are
 * then not updated. LS_ERR_INVALID if m < 2. */
void ls_batchnorm_train(ls_stream *stream, struct ls_batchnorm_shape shape, void *y, const void *x, const float *gamma,
                        const float *beta, float *mean, float *invstd, float *running_mean, float *running_var);
/* y = gamma (x - running_mean) / sqrt(running_var + epsilon) + beta */
void ls_batchnorm_eval(ls_stream *stream, struct ls_batchnorm_shape shape, void *y, const void *x, const float *gamma,
                       const float *beta, const float *running_mean, const float *running_var);
/* dbeta = sum dy; dgamma = sum dy (x - mean) invstd; dx = gamma invstd (dy - dbeta/m - (x - mean) invstd dgamma/m).
 * With shape.relu, dy counts only where y > 0. y is recomputed from x with the forward pass's arithmetic, which saves
 * reading it. The test is on the stored y: a y that fp16 or bf16 rounds to 0 (up to 2^-25 in fp16, 2^-134 in bf16)
 * passes no gradient, as in PyTorch. */
void ls_batchnorm_backward(ls_stream *stream, struct ls_batchnorm_shape shape, void *dx, float *dgamma, float *dbeta,
                           const void *dy, const void *x, const float *gamma, const float *beta, const float *mean,
                           const float *invstd, bool accumulate);

/* The same for a batch that is distributed over several ranks (SyncBatchNorm), divided at the points where a collective
 * must run. Forward: statistics, all_gather, merge, normalize. Backward: sums, all_reduce (sum), input_gradient. A
 * rank's batch may be
 * 0. */

/* statistics = this rank's [mean of each channel, sum of (x - mean)^2 of each channel, number of values per channel
 * n] */
void ls_batchnorm_statistics(ls_stream *stream, struct ls_batchnorm_shape shape, double *statistics, const void *x);
/* `statistics` holds those of `ranks` ranks, in rank order. *count = m = sum of n. From n = mean = M2 = 0 on, each rank
 * r with n_r > 0 is merged in (Chan's formula):
 *     M2 += M2_r + (mean_r - mean)^2 n n_r/(n + n_r);  mean += (mean_r - mean) n_r/(n + n_r);  n += n_r
 * This gives mean, var = M2/m, invstd and the running statistics as in ls_batchnorm_train. LS_ERR_INVALID if m = 1. If
 * m = 0, only *count is written. shape.batch is not used. */
void ls_batchnorm_merge(ls_stream *stream, struct ls_batchnorm_shape shape, float *mean, float *invstd, double *count,
                        float *running_mean, float *running_var, const double *statistics, int ranks);
/* y = gamma (x - mean) invstd + beta */
void ls_batchnorm_normalize(ls_stream *stream, struct ls_batchnorm_shape shape, void *y, const void *x,
                            const float *gamma, const float *beta, const float *mean, const float *invstd);
/* dbeta = sum dy and dgamma = sum dy (x - mean) invstd over this rank's values; sums = [dbeta, dgamma], always
 * overwritten */
void ls_batchnorm_sums(ls_stream *stream, struct ls_batchnorm_shape shape, float *sums, float *dgamma, float *dbeta,
                       const void *dy, const void *x, const float *gamma, const float *beta, const float *mean,
                       const float *invstd, bool accumulate);
/* dx as in ls_batchnorm_backward, with m = *count and dbeta, dgamma = the sum of `sums` over all ranks */
void ls_batchnorm_input_gradient(ls_stream *stream, struct ls_batchnorm_shape shape, void *dx, const void *dy,
                                 const void *x, const float *gamma, const float *beta, const float *mean,
                                 const float *invstd, const float *sums, const double *count);

/* --- layer normalisation: x [rows,channels], statistics of each row ---------------------------------------------------- */

/* mean, var (biased) of a row; invstd = 1/sqrt(var + epsilon); y = (x - mean) invstd gamma + beta. mean and invstd have a
 * float for each row. */
void ls_layernorm_forward(ls_stream *stream, ls_dtype dtype, void *y, const void *x, const float *gamma,
                          const float *beta, float *mean, float *invstd, size_t rows, size_t channels, float epsilon);
/* With xhat = (x - mean) invstd: dbeta[c] = sum over r of dy[r,c]; dgamma[c] = sum over r of dy[r,c] xhat[r,c], r
 * ascending; dx = invstd (dy gamma - average of dy gamma - xhat (average of dy gamma xhat)), averages over the row */
void ls_layernorm_backward(ls_stream *stream, ls_dtype dtype, void *dx, float *dgamma, float *dbeta, const void *dy,
                           const void *x, const float *gamma, const float *mean, const float *invstd, size_t rows,
                           size_t channels, bool accumulate);

/* --- max-pooling ------------------------------------------------------------------------------------------------- */

/* y = the largest of each window; choice = its index in the window, row-major (the first of equal ones; a NaN wins) */
void ls_maxpool_forward(ls_stream *stream, struct ls_pool_shape shape, void *y, uint8_t *choice, const void *x);
/* dx = dy at the chosen index, 0 elsewhere */
void ls_maxpool_backward(ls_stream *stream, struct ls_pool_shape shape, void *dx, const void *dy,
                         const uint8_t *choice);

/* --- global average pooling: planes = batch x channels, of `plane` elements each ------------------------------------- */

/* y[p] = (sum over i of x[p,i], i ascending) / plane */
void ls_avgpool_forward(ls_stream *stream, ls_dtype dtype, void *y, const void *x, size_t planes, size_t plane);
/* dx[p,i] = dy[p] / plane */
void ls_avgpool_backward(ls_stream *stream, ls_dtype dtype, void *dx, const void *dy, size_t planes, size_t plane);

/* --- embedding: tables [vocabulary,channels] and [context,channels], fp32; y and dy [rows,channels] ------------------- */

/* y[r] = token_table[tokens[r]] + position_table[r mod context]. A token outside [0, vocabulary) is LS_ERR_INVALID, in
 * both. */
void ls_embedding_forward(ls_stream *stream, ls_dtype dtype, void *y, const int32_t *tokens, const float *token_table,
                          const float *position_table, size_t rows, size_t context, size_t vocabulary, size_t channels);
/* dtable[v] = sum of dy[r] over the rows with tokens[r] = v, r ascending, added one by one to the present value, which
 * is 0 unless `accumulate`. (The gradient of the position table is a sum over sequences: ls_bias_gradient of
 * [sequences, context x channels].) */
void ls_embedding_backward(ls_stream *stream, ls_dtype dtype, float *dtable, const void *dy, const int32_t *tokens,
                           size_t rows, size_t vocabulary, size_t channels, bool accumulate);

/* The same for a part of the vocabulary, token_table and dtable [part.room,channels]: a token of another part gives a
 * row of zeros, to which the position's row is added unless position_table is NULL, and has no gradient here. So the y
 * of all parts sum to the whole y, if exactly one part has the positions. A token outside [0, part.whole) is
 * LS_ERR_INVALID. */
void ls_embedding_part_forward(ls_stream *stream, ls_dtype dtype, void *y, const int32_t *tokens,
                               const float *token_table, const float *position_table, size_t rows, size_t context,
                               struct ls_class_part part, size_t channels);
void ls_embedding_part_backward(ls_stream *stream, ls_dtype dtype, float *dtable, const void *dy, const int32_t *tokens,
                                size_t rows, struct ls_class_part part, size_t channels, bool accumulate);

/* --- causal attention: qkv [batch, context, 3 channels], a position's row being q, k, v; y [batch, context, channels] --- */

/* Each head has d = channels/heads channels of q, of k, of v and of y, head after head. For each sequence and head, and
 * for positions t and u <= t:
 *     s[t,u] = q[t] k[u] / sqrt(d);  p[t,u] = exp(s[t,u]) / sum over u of exp(s[t,u]);  y[t] = sum over u of p[t,u] v[u]
 * `saved` is kept for backward: p, 0 for u > t; tiled: log(sum over u of exp(s[t,u])). s, softmax and all sums are
 * fp32. A p in memory is rounded to dtype, as operand of the matrix multiplies; tiled, only y is rounded. The largest s
 * of a row is subtracted before exp. The input at a position does not change a result at an earlier one (unless it is
 * not finite). */
void ls_attention_forward(ls_stream *stream, struct ls_attention_shape shape, void *y, const void *qkv, void *saved,
                          void *workspace);
/* dv[u] = sum over t of p[t,u] dy[t];  ds[t,u] = p[t,u] (dy[t] v[u] - dy[t] y[t]) / sqrt(d);
 * dq[t] = sum over u of ds[t,u] k[u];  dk[u] = sum over t of ds[t,u] q[t]
 * Tiled, p is computed from q, k and `saved`; otherwise ds is rounded to dtype, like p. */
void ls_attention_backward(ls_stream *stream, struct ls_attention_shape shape, void *dqkv, const void *dy,
                           const void *qkv, const void *y, const void *saved, void *workspace);

/* --- losses; each computes the loss and its gradient in one pass -------------------------------------------------- */

/* *loss = scale x sum over rows of -log softmax(logits)[label]; dlogits = scale (softmax(logits) - onehot). With scale
 * = 1/rows this is PyTorch's mean. A label outside [0, classes) is LS_ERR_INVALID. */
void ls_cross_entropy(ls_stream *stream, float *loss, float *dlogits, const float *logits, const int64_t *labels,
                      size_t rows, size_t classes, float scale);
/* Vocabulary-parallel cross entropy: the classes of the logits are split over ranks, logits and dlogits are
 * [rows,part.room]. Three steps; after each of the first two an all-reduce combines its results over the ranks:
 *     class_maxima  maxima[r] = the largest logit of the part, -infinity if it has none; NaN if one is
 *     class_sums    sums[r] = sum of exp(logits - maxima[r]); sums[rows + r] = logits[label] - maxima[r], 0 if the
 *                   label is in another part. A label outside [0, part.whole) is LS_ERR_INVALID
 *     class_loss    *loss = scale x sum over rows of log(sums[r]) - sums[rows + r];
 *                   dlogits = scale (exp(logits - maxima) / sums - onehot); padding gets 0 */
void ls_class_maxima(ls_stream *stream, float *maxima, const float *logits, size_t rows, struct ls_class_part part);
void ls_class_sums(ls_stream *stream, float *sums, const float *logits, const float *maxima, const int64_t *labels,
                   size_t rows, struct ls_class_part part);
void ls_class_loss(ls_stream *stream, float *loss, float *dlogits, const float *logits, const float *maxima,
                   const float *sums, const int64_t *labels, size_t rows, struct ls_class_part part, float scale);
/* *loss = scale x sum (prediction - target)^2; dprediction = 2 scale (prediction - target); scale = 1/count is the
 * mean */
void ls_squared_error(ls_stream *stream, float *loss, float *dprediction, const float *prediction, const float *target,
                      size_t count, float scale);
/* *correct += rows whose (first) largest logit is the label's */
void ls_count_correct(ls_stream *stream, int64_t *correct, const float *logits, const int64_t *labels, size_t rows,
                      size_t classes);

/* --- optimizers: PyTorch's rules, with g = gradient x state->gradient_factor; nothing is changed if state->found_inf ------ */

/* learning_rate = rate in each of the states */
void ls_set_learning_rate(ls_stream *stream, struct ls_update_state *states, size_t state_count, double rate);

/* If found_inf, nothing; else state->step += 1, then sets step_size and bias2_sqrt. Call once per step, before the
 * updates of its parameters. */
void ls_begin_update(ls_stream *stream, struct ls_update_state *state, double beta1, double beta2);
/* d = g + weight_decay p; m = d at step 1, else momentum m + (1 - dampening) d; d = nesterov ? d + momentum m : m;
 * p -= learning_rate d. `momentum` buffer may be NULL if rule.momentum is 0. */
void ls_sgd(ls_stream *stream, struct ls_sgd_rule rule, const struct ls_update_state *state, float *parameter,
            const float *gradient, float *momentum, size_t count);
/* decoupled: p *= 1 - learning_rate weight_decay, otherwise g += weight_decay p;
 * m = beta1 m + (1-beta1) g; v = beta2 v + (1-beta2) g^2; p -= step_size m / (sqrt(v)/bias2_sqrt + epsilon) */
void ls_adam(ls_stream *stream, struct ls_adam_rule rule, const struct ls_update_state *state, float *parameter,
             const float *gradient, float *first_moment, float *second_moment, size_t count);

/* The same for every tensor of a list, with the same bits as one call per tensor. `tensors` is an array in the device's
 * memory; the list has tensor_count tensors with chunk_count chunks and `total` elements in all. */
void ls_sgd_list(ls_stream *stream, struct ls_sgd_rule rule, const struct ls_update_state *state,
                 const struct ls_update_tensor *tensors, size_t tensor_count, size_t chunk_count, size_t total);
void ls_adam_list(ls_stream *stream, struct ls_adam_rule rule, const struct ls_update_state *state,
                  const struct ls_update_tensor *tensors, size_t tensor_count, size_t chunk_count, size_t total);

/* --- clipping and loss scaling ------------------------------------------------------------------------------------- */

/* *sum = sum of gradient[i]^2 over all tensors of a list (as in ls_sgd_list), in double: finite if, and only if, all
 * gradients are */
void ls_square_sum_list(ls_stream *stream, double *sum, const struct ls_update_tensor *tensors, size_t tensor_count,
                        size_t chunk_count, size_t total);
/* Sets in each of the states how the update uses the gradients:
 *     inverse = (float)(1 / (double)scaler->scale), or 1 without a scaler (NULL); scale = scaler->scale, or 1
 *     found_inf = 1 if there is a scaler and *square_sum is not finite, else 0
 *     norm = (float)(sqrt(*square_sum) inverse)
 *     gradient_factor = inverse x min(1, max_norm / (norm + 1e-6f)), in fp32, the second factor only if max_norm > 0; a
 *     NaN norm makes it NaN, as in PyTorch */
void ls_weigh_gradients(ls_stream *stream, struct ls_update_state *states, size_t state_count,
                        const struct ls_scaler_state *scaler, const double *square_sum, float max_norm);
/* GradScaler.update(). With state->found_inf: scale *= backoff_factor, growth_tracker = 0, skipped += 1. Otherwise
 * growth_tracker += 1; at growth_interval: scale *= growth_factor (if the product is finite), growth_tracker = 0. Products in
 * double, stored as fp32. */
void ls_update_scale(ls_stream *stream, struct ls_scaler_state *scaler, const struct ls_update_state *state,
                     struct ls_scaler_rule rule);

/* --- lists of a few elements ------------------------------------------------------------------------------------- */

/* The k elements of largest |x|, in ascending order of their indices: entries[j] = {i, x[i]}. In a tie the lower index
 * wins. NaN counts as larger than infinity, and all NaNs as equal. k <= count < 2^31. */
void ls_top_k(ls_stream *stream, struct ls_entry *entries, const float *x, size_t count, size_t k);
/* y[entries[j].index] = value, for k entries */
void ls_fill_entries(ls_stream *stream, float *y, const struct ls_entry *entries, size_t k, float value);
/* For list_count lists of k entries, the l-th of which begins at lists + l stride, each with different indices below
 * count: y[i] = (..((0 + value of i in list 0) + value of i in list 1) ..), where a list without i is skipped */
void ls_sum_entries(ls_stream *stream, float *y, const struct ls_entry *lists, size_t list_count, size_t stride,
                    size_t k, size_t count);

/* --- operations as data ------------------------------------------------------------------------------------------ */

#define LS_FIELD_MEMBER(type, name) type name;
#define LS_OP(op, flops, bytes, aliasing)                                                                              \
    struct ls_##op##_arguments {                                                                                       \
        LS_FIELDS_##op(LS_FIELD_MEMBER)                                                                                \
    };
#include "kernels/ops.def"
#undef LS_OP
#undef LS_FIELD_MEMBER

#define LS_OP(op, flops, bytes, aliasing) LS_OP_##op,
typedef enum ls_op_id {
#include "kernels/ops.def"
    LS_OP_COUNT
} ls_op_id;
#undef LS_OP

struct ls_op {
    ls_op_id id;
    union {
#define LS_OP(op, flops, bytes, aliasing) struct ls_##op##_arguments op;
#include "kernels/ops.def"
#undef LS_OP
    } arguments;
};

/* A back-end's table: one function per operation. */
struct ls_kernels {
    const char *name;
#define LS_OP(op, flops, bytes, aliasing) ls_status (*op)(const struct ls_##op##_arguments *arguments);
#include "kernels/ops.def"
#undef LS_OP
};

/* The single dispatcher: every typed call above calls it. */
void ls_enqueue(ls_stream *stream, const struct ls_op *op);

/* The same for host memory, with the CPU's implementation, complete when the call returns. Any thread. */
ls_status ls_run_op(const struct ls_op *op);

const char *ls_op_name(ls_op_id id);
uint64_t ls_op_flops(const struct ls_op *op);
uint64_t ls_op_bytes(const struct ls_op *op);

#endif
