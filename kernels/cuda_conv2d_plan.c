/* cuda_conv2d_plan — how a GPU's convolutions cut a batch.
 *   unfolded: into pieces of equal size, as few as the limit allows, so that no piece is a small remainder. There is
 *             always room for as many samples as the limit allows: a smaller batch of the same layer may be cut into
 *             fewer, larger pieces, which fit into the same workspace
 *   direct  : only the weights' gradient needs a workspace. Its lines are cut into shares, each with separate sums.
 *             The number of shares does not depend on the GPU: the GPU is unknown when the workspace is allocated,
 *             and the sums' bits must not depend on it */
#include "kernels/cuda/conv2d_plan.h"

#include <limits.h>

/* cuBLAS accepts more in one call; its limit is not documented. */
#define MOST_SAMPLES 32768

/* The largest number of output channels for the direct method: see kernels/cuda/conv2d_direct.cu. */
#define MOST_DIRECT_CHANNELS 32

/* See kernels/cuda/conv2d_direct_weights.cu. */
#define BLOCKS 132 /* one for each multiprocessor of an H100 */
#define MOST_STRIP_QUADS 8
#define MOST_BANDS_TIMES_CHANNELS 128 /* of a block */
#define MOST_GROUP_CHANNELS 32

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static size_t divide_up(size_t count, size_t by) { return (count + by - 1) / by; }

static bool has_output(const struct ls_conv2d_shape *s) {
    if (s->batch < 0 || s->in_channels < 1 || s->out_channels < 1 || s->kernel_h < 1 || s->kernel_w < 1 ||
        s->stride < 1 || s->padding < 0 || s->in_height < 1 || s->in_width < 1) {
        return false;
    }
    return s->in_height + 2 * s->padding >= s->kernel_h && s->in_width + 2 * s->padding >= s->kernel_w;
}

static bool goes_directly(const struct ls_conv2d_shape *s) {
    bool kernel = s->kernel_h == s->kernel_w && (s->kernel_h == 3 || s->kernel_h == 5) && s->stride == 1;
    return kernel && s->padding < s->kernel_h && s->out_channels <= MOST_DIRECT_CHANNELS;
}

static size_t floats_for(size_t count, ls_dtype dtype) {
    return (count * ls_dtype_nbytes(dtype) + sizeof(float) - 1) / sizeof(float);
}

/* Shares and groups of channels: about one block for each multiprocessor, all with the same amount of work. */
static void cut_weights(const struct ls_conv2d_shape *s, struct ls_cuda_conv2d_plan *plan) {
    size_t quads = divide_up((size_t)ls_conv2d_out_width(s), 4);
    plan->strip_quads = divide_up(quads, divide_up(quads, MOST_STRIP_QUADS));
    plan->strips = divide_up(quads, plan->strip_quads);
    size_t bands = divide_up((size_t)s->out_channels, 4), channels = (size_t)s->in_channels;
    size_t groups = divide_up(channels, min_size(MOST_BANDS_TIMES_CHANNELS / bands, MOST_GROUP_CHANNELS));
    plan->group_channels = divide_up(channels, groups);
    groups = divide_up(channels, plan->group_channels);
    size_t lines = (size_t)s->batch * plan->strips * (size_t)ls_conv2d_out_height(s);
    size_t most_shares = min_size(max_size(lines, 1), max_size(BLOCKS / groups, 1));
    plan->share_lines = max_size(divide_up(lines, most_shares), 1);
    plan->shares = divide_up(lines, plan->share_lines);
    plan->partial_count = most_shares * (size_t)s->out_channels * plan->rows;
}

bool ls_cuda_conv2d_make_plan(const struct ls_conv2d_shape *s, size_t unfolded_nbytes,
                              struct ls_cuda_conv2d_plan *plan) {
    *plan = (struct ls_cuda_conv2d_plan){0};
    if (!has_output(s)) return false;
    size_t in_plane = (size_t)s->in_height * (size_t)s->in_width, channels = (size_t)s->out_channels;
    size_t batch = max_size((size_t)s->batch, 1);
    plan->is_direct = goes_directly(s);
    const ls_dtype unfolded_dtype = LS_FP32; /* backward data folds fp32 products */
    const size_t alignment = 16 / ls_dtype_nbytes(s->dtype);
    plan->taps = (size_t)s->in_channels * (size_t)s->kernel_h * (size_t)s->kernel_w;
    plan->rows = (plan->taps + alignment) / alignment * alignment;
    plan->out_plane = (size_t)ls_conv2d_out_height(s) * (size_t)ls_conv2d_out_width(s);
    size_t unfolded = plan->rows * plan->out_plane,
           image = max_size((size_t)s->in_channels * in_plane, channels * plan->out_plane);
    if (max_size(max_size(unfolded, image), channels * plan->rows) > INT_MAX) return false;
    if (plan->is_direct) {
        cut_weights(s, plan);
        return true;
    }
    size_t most = min_size(
        batch, min_size(MOST_SAMPLES, max_size(unfolded_nbytes / ls_dtype_nbytes(unfolded_dtype) / unfolded, 1)));
    plan->samples = divide_up(batch, divide_up(batch, most));
    plan->unfolded_count = floats_for(most * unfolded, unfolded_dtype);
    plan->partial_count = most * channels * plan->rows;
    plan->weight_count = floats_for(channels * plan->rows, s->dtype);
    return true;
}

size_t ls_cuda_conv2d_workspace_nbytes(const struct ls_conv2d_shape *shape) {
    struct ls_cuda_conv2d_plan plan;
    if (!ls_cuda_conv2d_make_plan(shape, LS_CUDA_CONV2D_UNFOLDED_NBYTES, &plan)) return 0;
    size_t floats = ls_aligned_floats(plan.unfolded_count) + ls_aligned_floats(plan.partial_count) +
                    ls_aligned_floats(plan.weight_count);
    return floats * sizeof(float);
}
