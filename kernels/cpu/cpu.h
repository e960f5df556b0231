/* The kernels of CPU devices. kernels/cpu/variant/ is compiled once for each instruction set; every build gives the
 * same bits, because no order of summation depends on the vector width and every fused multiply-add is written as
 * fmaf. */
#ifndef LS_KERNELS_CPU_CPU_H
#define LS_KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

/* The table of the best build that this processor runs, or of the one that the environment's LS_CPU_ISA names (v2, v3,
 * v4, plain); chosen once. Any thread. */
const struct ls_kernels *ls_cpu_kernels(void);

/* LS_ERR_USAGE if LS_CPU_ISA names no build that runs here; LS_ERR_NO_MEMORY as ls_cpu_gemm_prepare, which it calls.
 * For programs, when they start. (Without this call the best build is used, after a warning.) */
ls_status ls_cpu_kernels_check(void);

/* Operations that are not in variant/ (nor in statistics.h): matrix multiplies, by oneDNN, and operations on a handful
 * of numbers. */
ls_status ls_cpu_gemm(const struct ls_gemm_arguments *a);

/* Under a limit on address space (ulimit -v): lets oneDNN generate its code now, while no other thread allocates
 * memory, since oneDNN crashes if that fails. Else a no-op. LS_ERR_NO_MEMORY. Call before the first multiply. */
ls_status ls_cpu_gemm_prepare(void);
ls_status ls_cpu_weigh_gradients(const struct ls_weigh_gradients_arguments *a);
ls_status ls_cpu_update_scale(const struct ls_update_scale_arguments *a);

/* ls_gemm_workspace_nbytes, ls_conv2d_workspace_nbytes and ls_attention_workspace_nbytes of CPU devices. */
size_t ls_cpu_gemm_workspace_nbytes(ls_dtype dtype, size_t m, size_t n, size_t k);
size_t ls_cpu_conv2d_workspace_nbytes(const struct ls_conv2d_shape *shape);
size_t ls_cpu_attention_workspace_nbytes(const struct ls_attention_shape *shape);

#endif
