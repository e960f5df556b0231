#include "kernels/cpu/cpu.h"

size_t ls_cpu_attention_workspace_nbytes(const struct ls_attention_shape *s) {
    return ((size_t)s->context * (8 * ls_attention_head(s) + 3)) * sizeof(float);
}
