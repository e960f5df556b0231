/* avgpool — the mean of each plane. order: one chain of additions, then a division, as in kernels/cuda's naive rung. In
 * half precision planes are widened block by block, and a mean is rounded once. */
#include "kernels/cpu/variant/half.h"

ls_status LS_CPU(avgpool_forward)(const struct ls_avgpool_forward_arguments *a) {
    float in[LS_BLOCK], buffer[1];
    for (size_t p = 0; p < a->planes; p++) {
        float sum = 0;
        for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->plane - i)) > 0; i += count) {
            const float *x = ls_block(a->dtype, a->x, p * a->plane + i, count, in);
            for (size_t k = 0; k < count; k++) sum += x[k];
        }
        float *y = ls_block_to_fill(a->dtype, a->y, p, buffer);
        *y = sum / (float)a->plane;
        ls_store_block(a->dtype, a->y, p, y, 1);
    }
    return LS_OK;
}

ls_status LS_CPU(avgpool_backward)(const struct ls_avgpool_backward_arguments *a) {
    float in[1], out[LS_BLOCK];
    for (size_t p = 0; p < a->planes; p++) {
        float share = *ls_block(a->dtype, a->dy, p, 1, in) / (float)a->plane;
        for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->plane - i)) > 0; i += count) {
            float *dx = ls_block_to_fill(a->dtype, a->dx, p * a->plane + i, out);
            for (size_t k = 0; k < count; k++) dx[k] = share;
            ls_store_block(a->dtype, a->dx, p * a->plane + i, dx, count);
        }
    }
    return LS_OK;
}
