#include "kernels/cuda/conv2d_plan.h"

bool ls_cuda_conv2d_make_plan(const struct ls_conv2d_shape *s, struct ls_cuda_conv2d_plan *plan) {
    *plan = (struct ls_cuda_conv2d_plan){0};
    if (s->in_height + 2 * s->padding < s->kernel_h || s->in_width + 2 * s->padding < s->kernel_w || s->stride < 1)
        return false;
    plan->taps = (size_t)s->in_channels * (size_t)s->kernel_h * (size_t)s->kernel_w;
    plan->out_plane = (size_t)ls_conv2d_out_height(s) * (size_t)ls_conv2d_out_width(s);
    size_t sample_nbytes = plan->taps * plan->out_plane * sizeof(float), batch = s->batch > 0 ? (size_t)s->batch : 1;
    plan->samples = sample_nbytes > 0 ? LS_CUDA_CONV2D_UNFOLDED_BYTES / sample_nbytes : 1;
    if (plan->samples > batch) plan->samples = batch;
    if (plan->samples < 1) plan->samples = 1;
    plan->unfolded_count = plan->samples * plan->taps * plan->out_plane;
    plan->partial_count = plan->samples * (size_t)s->out_channels * plan->taps;
    return true;
}

size_t ls_cuda_conv2d_workspace_nbytes(const struct ls_conv2d_shape *shape) {
    struct ls_cuda_conv2d_plan plan;
    if (!ls_cuda_conv2d_make_plan(shape, &plan)) return 0;
    return (ls_aligned_floats(plan.unfolded_count) + ls_aligned_floats(plan.partial_count)) * sizeof(float);
}
