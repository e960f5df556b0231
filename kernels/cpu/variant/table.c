/* table — this build's kernels, in the order of ops.def. */
#include "kernels/cpu/variant/variant.h"

#define LS_TEXT2(x) #x
#define LS_TEXT(x) LS_TEXT2(x)

extern const struct ls_kernels LS_CPU(kernels);

const struct ls_kernels LS_CPU(kernels) = {
    .name = LS_TEXT(LS_ISA),
#define LS_OP(op, flops, bytes, aliasing) .op = LS_CPU(op),
#include "kernels/ops.def"
#undef LS_OP
};

/* The matrix multiply is oneDNN's, which chooses its own instruction set; a few scalar operations need none. */
ls_status LS_CPU(gemm)(const struct ls_gemm_arguments *a) { return ls_cpu_gemm(a); }
ls_status LS_CPU(weigh_gradients)(const struct ls_weigh_gradients_arguments *a) { return ls_cpu_weigh_gradients(a); }
ls_status LS_CPU(update_scale)(const struct ls_update_scale_arguments *a) { return ls_cpu_update_scale(a); }
