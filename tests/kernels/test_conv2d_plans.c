/* How a GPU's convolutions cut a batch (kernels/cuda_conv2d_plan.c). */

#include "kernels/cuda/conv2d_plan.h"
#include "tests/base/test.h"

/* The pieces cover the batch and keep to the limit, and memory that a layer allocated for its largest batch is enough
 * for every other. */
TEST(plans_fit) {
    size_t before = 0;
    for (int batch = 0; batch < 70; batch++) {
        struct ls_conv2d_shape s = {batch, 3, 9, 7, 5, 3, 2, 1, 1, LS_FP32};
        struct ls_cuda_conv2d_plan p, whole;
        const size_t limit = 11 * 20 * 72 * sizeof(float); /* eleven samples of 18 taps (20 rows) and 9 x 8 pixels */
        assert_true(ls_cuda_conv2d_make_plan(&s, limit, &p));
        assert_int_equal(p.taps, 18);
        assert_int_equal(p.rows, 20);
        assert_int_equal(p.out_plane, 72);
        assert_true(p.samples >= 1 && p.samples <= 11);
        size_t all = batch > 0 ? (size_t)batch : 1, pieces = (all + p.samples - 1) / p.samples;
        assert_int_equal(pieces, (all + 10) / 11); /* as few as possible */
        assert_true(p.unfolded_count >= p.samples * p.rows * p.out_plane && p.unfolded_count * sizeof(float) <= limit);
        assert_true(p.partial_count >= p.samples * 5 * p.rows && p.weight_count == 5 * p.rows);
        assert_true(p.unfolded_count + p.partial_count >= before);
        before = p.unfolded_count + p.partial_count;
        assert_true(ls_cuda_conv2d_make_plan(&s, 1, &p) && p.samples == 1);
        assert_true(ls_cuda_conv2d_make_plan(&s, LS_CUDA_CONV2D_UNFOLDED_NBYTES, &whole) && whole.samples == all);
        size_t floats = ls_aligned_floats(whole.unfolded_count) + ls_aligned_floats(whole.partial_count) +
                        ls_aligned_floats(whole.weight_count);
        assert_int_equal(ls_conv2d_workspace_nbytes(LS_DEVICE_CUDA, &s), floats * sizeof(float));
    }
}

/* Matrices begin where cuBLAS reads them fastest. The unfolded array has room for floats: products are folded before
 * they are rounded. */
TEST(plans_of_halves) {
    struct ls_conv2d_shape s = {100, 3, 9, 7, 33, 3, 3, 1, 1, LS_FP32};
    struct ls_cuda_conv2d_plan p;
    const size_t limit = 11 * 32 * 63 * sizeof(float); /* eleven samples of 27 taps and one of ones in 32 rows */
    assert_true(ls_cuda_conv2d_make_plan(&s, limit, &p));
    assert_true(!p.is_direct && p.rows == 28 && p.weight_count == 33 * 28);
    s.dtype = LS_BF16;
    assert_true(ls_cuda_conv2d_make_plan(&s, limit, &p));
    assert_true(!p.is_direct && p.rows == 32 && p.weight_count == 33 * 32 / 2);
    assert_true(p.samples == 10 && p.unfolded_count == 11 * 32 * 63); /* 11 at a time, 100 in ten equal pieces */
}

/* The blocks cover all lines, there are as many as an H100 has multiprocessors, and memory that a layer allocated for
 * its largest batch is enough for every other. */
static void check_shares(struct ls_conv2d_shape s, size_t most) {
    size_t before = 0;
    for (s.batch = 0; s.batch < 300; s.batch++) {
        struct ls_cuda_conv2d_plan p;
        assert_true(ls_cuda_conv2d_make_plan(&s, 1, &p)); /* unfolds nothing */
        assert_true(p.is_direct && p.unfolded_count == 0 && p.weight_count == 0);
        size_t quads = (size_t)(ls_conv2d_out_width(&s) + 3) / 4;
        assert_true(p.strip_quads <= 8 && p.strips * p.strip_quads >= quads && (p.strips - 1) * p.strip_quads < quads);
        size_t lines = (size_t)s.batch * p.strips * (size_t)ls_conv2d_out_height(&s);
        assert_true(p.shares <= most && p.shares * p.share_lines >= lines);
        assert_true(p.shares == 0 ? lines == 0 : (p.shares - 1) * p.share_lines < lines);
        assert_true(lines < most || 2 * p.shares > most);
        assert_true(p.partial_count >= p.shares * (size_t)s.out_channels * p.rows && p.partial_count >= before);
        assert_int_equal(ls_conv2d_workspace_nbytes(LS_DEVICE_CUDA, &s),
                         ls_aligned_floats(p.partial_count) * sizeof(float));
        before = p.partial_count;
    }
}

TEST(shares_of_lines) {
    check_shares((struct ls_conv2d_shape){0, 1, 28, 28, 16, 5, 5, 1, 2, LS_FP32}, 132);
    check_shares((struct ls_conv2d_shape){0, 16, 14, 14, 32, 5, 5, 1, 2, LS_BF16}, 132);
    check_shares((struct ls_conv2d_shape){0, 33, 7, 70, 29, 3, 3, 1, 0, LS_FP32}, 44);
    check_shares((struct ls_conv2d_shape){0, 5000, 3, 3, 2, 3, 3, 1, 1, LS_FP32}, 1);
}
