#include "tests/kernels/problem_parts.h"

#include <string.h>

const ls_dtype problem_dtypes[PROBLEM_DTYPES] = {LS_FP32, LS_FP16, LS_BF16};

void problem_output(struct problem *p, void *memory, size_t nbytes) {
    p->outputs[p->output_count].memory = memory;
    p->outputs[p->output_count++].nbytes = nbytes;
}

float *problem_floats(struct problem *p, size_t count, uint64_t seed) {
    float *values = kernel_random(count, seed);
    problem_output(p, values, count * sizeof *values);
    return values;
}

void *problem_values(const struct problem *p, size_t count, uint64_t seed) {
    return kernel_rounded(p->dtype, kernel_random(count, seed), count);
}

void *problem_results(struct problem *p, size_t count, uint64_t seed) {
    void *values = problem_values(p, count, seed);
    problem_output(p, values, count * ls_dtype_nbytes(p->dtype));
    return values;
}

void *problem_zeros(struct problem *p, size_t nbytes) {
    void *memory = kernel_bytes(nbytes);
    memset(memory, 0, nbytes);
    problem_output(p, memory, nbytes);
    return memory;
}

float *problem_positive(size_t count, uint64_t seed) {
    float *values = kernel_random(count, seed);
    for (size_t i = 0; i < count; i++) values[i] = values[i] * 0.5f + 1;
    return values;
}

/* --- elementwise and linear -------------------------------------------------------------------------------------- */

void problem_fill(struct problem *p, size_t n) {
    p->op.arguments.fill = (struct ls_fill_arguments){problem_floats(p, n, 1), 0.7f, n};
}

void problem_scale(struct problem *p, size_t n) {
    p->op.arguments.scale = (struct ls_scale_arguments){problem_floats(p, n, 1), 0.7f, n};
}

void problem_divide(struct problem *p, size_t n) {
    p->op.arguments.divide = (struct ls_divide_arguments){problem_floats(p, n, 1), 3, n};
}

void problem_scale_by(struct problem *p, size_t n) {
    p->op.arguments.scale_by = (struct ls_scale_by_arguments){problem_floats(p, n, 1), kernel_random(1, 2), n};
}

void problem_cast(struct problem *p, size_t n) {
    if (n % 2 == 0) {
        p->op.arguments.cast =
            (struct ls_cast_arguments){p->dtype, problem_results(p, n, 1), LS_FP32, kernel_random(n, 2), n};
    } else {
        p->op.arguments.cast =
            (struct ls_cast_arguments){LS_FP32, problem_floats(p, n, 1), p->dtype, problem_values(p, n, 2), n};
    }
}

void problem_cast_divide(struct problem *p, size_t n) {
    if (p->dtype == LS_FP32) p->dtype = LS_FP16;
    p->op.arguments.cast_divide =
        (struct ls_cast_divide_arguments){p->dtype, problem_results(p, n, 1), kernel_random(n, 2), 3, n};
}

void problem_reduce_add(struct problem *p, size_t n) {
    const float **sources = kernel_bytes(3 * sizeof *sources);
    for (uint64_t s = 0; s < 3; s++) sources[s] = kernel_random(n, 2 + s);
    p->op.arguments.reduce_add = (struct ls_reduce_add_arguments){problem_floats(p, n, 1), sources, 3, n};
}

/* For halves: odd sizes give halves, and even ones add to floats, as a gradient does. */
void problem_gemm(struct problem *p, size_t n) {
    ls_dtype c_dtype = n % 2 ? p->dtype : LS_FP32;
    const void *a = problem_values(p, n * (n + 2), 2), *b = problem_values(p, (n + 1) * (n + 2), 3);
    size_t workspace_nbytes = ls_gemm_workspace_nbytes(LS_DEVICE_CPU, p->dtype, n, n + 1, n + 2);
    p->op.arguments.gemm = (struct ls_gemm_arguments){
        .dtype = p->dtype,
        .transpose_b = true,
        .m = n,
        .n = n + 1,
        .k = n + 2,
        .a = a,
        .b = b,
        .beta = c_dtype == LS_FP32 ? 1 : 0,
        .c_dtype = c_dtype,
        .c = c_dtype == LS_FP32 ? problem_floats(p, n * (n + 1), 1) : problem_results(p, n * (n + 1), 1),
        .workspace = workspace_nbytes > 0 ? kernel_bytes(workspace_nbytes) : NULL};
}

void problem_add_bias(struct problem *p, size_t n) {
    size_t columns = 2 * n + 1;
    p->op.arguments.add_bias = (struct ls_add_bias_arguments){p->dtype, problem_results(p, n * columns, 1),
                                                              problem_values(p, columns, 2), n, columns};
}

void problem_add_bias_relu(struct problem *p, size_t n) {
    size_t columns = 2 * n + 1;
    p->op.arguments.add_bias_relu = (struct ls_add_bias_relu_arguments){p->dtype, problem_results(p, n * columns, 1),
                                                                        problem_values(p, columns, 2), n, columns};
}

void problem_relu_bias_gradient(struct problem *p, size_t n) {
    size_t columns = 5 * n + 1;
    float *dbias = problem_floats(p, columns, 1);
    void *dy = problem_results(p, n * columns, 2);
    p->op.arguments.relu_bias_gradient = (struct ls_relu_bias_gradient_arguments){
        p->dtype, dbias, dy, problem_values(p, n * columns, 3), n, columns, n % 2 == 1};
}

void problem_bias_gradient(struct problem *p, size_t n) {
    size_t columns = 5 * n + 1;
    p->op.arguments.bias_gradient = (struct ls_bias_gradient_arguments){
        p->dtype, problem_floats(p, columns, 1), problem_values(p, n * columns, 2), n, columns, n % 2 == 1};
}

void problem_add_bias_gelu(struct problem *p, size_t n) {
    size_t columns = n + 3;
    void *y = problem_results(p, n * columns, 1), *x = problem_results(p, n * columns, 2);
    p->op.arguments.add_bias_gelu =
        (struct ls_add_bias_gelu_arguments){p->dtype, y, x, problem_values(p, columns, 3), n, columns};
}

void problem_gelu_bias_gradient(struct problem *p, size_t n) {
    size_t columns = 5 * n + 1;
    float *dbias = problem_floats(p, columns, 1);
    void *dy = problem_results(p, n * columns, 2);
    p->op.arguments.gelu_bias_gradient = (struct ls_gelu_bias_gradient_arguments){
        p->dtype, dbias, dy, problem_values(p, n * columns, 3), n, columns, n % 2 == 1};
}

void problem_add(struct problem *p, size_t n) {
    p->op.arguments.add = (struct ls_add_arguments){p->dtype, problem_results(p, n, 1), problem_values(p, n, 2),
                                                    problem_values(p, n, 3), n};
}

void problem_relu_forward(struct problem *p, size_t n) {
    p->op.arguments.relu_forward =
        (struct ls_relu_forward_arguments){p->dtype, problem_results(p, n, 1), problem_values(p, n, 2), n};
}

void problem_relu_backward(struct problem *p, size_t n) {
    p->op.arguments.relu_backward = (struct ls_relu_backward_arguments){
        p->dtype, problem_results(p, n, 1), problem_values(p, n, 2), problem_values(p, n, 3), n};
}

/* --- the list ---------------------------------------------------------------------------------------------------- */

bool op_has_dtype(ls_op_id id) {
    switch (id) {
    case LS_OP_cast:
    case LS_OP_cast_divide:
    case LS_OP_gemm:
    case LS_OP_add:
    case LS_OP_add_bias:
    case LS_OP_add_bias_relu:
    case LS_OP_bias_gradient:
    case LS_OP_relu_bias_gradient:
    case LS_OP_relu_forward:
    case LS_OP_relu_backward:
    case LS_OP_avgpool_forward:
    case LS_OP_avgpool_backward:
    case LS_OP_conv2d_forward:
    case LS_OP_conv2d_backward_data:
    case LS_OP_conv2d_backward_weights:
    case LS_OP_add_bias_gelu:
    case LS_OP_gelu_bias_gradient:
    case LS_OP_layernorm_forward:
    case LS_OP_layernorm_backward:
    case LS_OP_embedding_forward:
    case LS_OP_embedding_backward:
    case LS_OP_embedding_part_forward:
    case LS_OP_embedding_part_backward:
    case LS_OP_attention_forward:
    case LS_OP_attention_backward:
    case LS_OP_batchnorm_train:
    case LS_OP_batchnorm_eval:
    case LS_OP_batchnorm_backward:
    case LS_OP_batchnorm_statistics:
    case LS_OP_batchnorm_normalize:
    case LS_OP_batchnorm_sums:
    case LS_OP_batchnorm_input_gradient:
    case LS_OP_maxpool_forward:
    case LS_OP_maxpool_backward: return true;
    default: return false;
    }
}

struct problem make_problem(ls_op_id id, int size, ls_dtype dtype) {
    struct problem problem;
    memset(&problem, 0, sizeof problem);
    problem.op.id = id;
    problem.dtype = op_has_dtype(id) ? dtype : LS_FP32;
    switch (id) {
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    case LS_OP_##name:                                                                                                 \
        problem_##name(&problem, (size_t)size);                                                                        \
        break;
#include "kernels/ops.def"
#undef LS_OP
    case LS_OP_COUNT: break;
    }
    return problem;
}
