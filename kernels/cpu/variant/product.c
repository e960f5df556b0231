/* product — small matrix multiplies, of the whole result or only a triangle of it; and transposition.
 *   idea  : tile by tile (product_tile.h). For a triangle, each row of tiles has only the columns or the steps that its
 *           rows need
 *   cost  : that of the tiles; for a triangle of n rows half of it, and about ROWS / n and 16 / n more
 *   order : that of the tiles */
#include "kernels/cpu/variant/product.h"

#include "kernels/cpu/variant/product_tile.h"

typedef float quad __attribute__((vector_size(16)));

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static void copy_rows(float *to, size_t to_stride, const float *from, size_t from_stride, size_t rows, size_t columns) {
    for (size_t row = 0; row < rows; row++)
        memcpy(to + row * to_stride, from + row * from_stride, columns * sizeof *to);
}

void LS_CPU(multiply)(const struct ls_product *p) {
    static const float zeros[LS_PRODUCT_MOST_COLUMNS];
    float spare[ROWS * LS_PRODUCT_MOST_COLUMNS]; /* for the last tile, which repeats the last row */
    for (size_t first = 0; first < p->rows; first += ROWS) {
        size_t end = min_size(first + ROWS, p->rows), begin_step = 0, end_step = p->steps, columns = p->columns;
        if (p->triangle == LS_LOWER_LEFT) end_step = min_size(end, p->steps);
        if (p->triangle == LS_UPPER_LEFT) begin_step = min_size(first, p->steps);
        if (p->triangle == LS_LOWER_RESULT) columns = min_size((end + LS_LANES - 1) / LS_LANES * LS_LANES, columns);
        const float *source[ROWS];
        for (size_t row = 0; row < ROWS; row++)
            source[row] = p->left + min_size(first + row, p->rows - 1) * p->left_row + begin_step * p->left_step;
        float *result = p->result + first * p->result_stride;
        struct tile t = {.step_stride = p->left_step,
                         .steps = end_step - begin_step,
                         .matrix = p->right + begin_step * p->right_stride,
                         .matrix_stride = p->right_stride,
                         .sums = result,
                         .sums_stride = p->result_stride};
        bool whole = end == first + ROWS;
        if (!whole) {
            memset(spare, 0, ROWS * columns * sizeof *spare);
            t.sums = spare, t.sums_stride = columns;
        }
        if (!whole && p->add) copy_rows(spare, t.sums_stride, result, p->result_stride, end - first, columns);
        t.init = p->add ? t.sums : zeros;
        t.init_stride = p->add ? t.sums_stride : 0;
        multiply_row_of_tiles(&t, source, (int)columns, false);
        if (!whole) copy_rows(result, p->result_stride, spare, t.sums_stride, end - first, columns);
    }
}

/* 4x4 values; strides in floats. */
ALWAYS_INLINE void transpose_block(const float *from, size_t from_stride, float *to, size_t to_stride) {
    quad a, b, c, d;
    memcpy(&a, from, sizeof a);
    memcpy(&b, from + from_stride, sizeof b);
    memcpy(&c, from + 2 * from_stride, sizeof c);
    memcpy(&d, from + 3 * from_stride, sizeof d);
    quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
    memcpy(to, &a, sizeof a);
    memcpy(to + to_stride, &b, sizeof b);
    memcpy(to + 2 * to_stride, &c, sizeof c);
    memcpy(to + 3 * to_stride, &d, sizeof d);
}

void LS_CPU(transpose)(const float *from, int from_stride, int rows, int columns, float *to, int to_stride) {
    size_t fs = (size_t)from_stride, ts = (size_t)to_stride;
    int row = 0;
    for (; row + 4 <= rows; row += 4) {
        const float *f = from + (size_t)row * fs;
        float *t = to + row;
        int column = 0;
        for (; column + 4 <= columns; column += 4, f += 4, t += 4 * ts) transpose_block(f, fs, t, ts);
        for (; column < columns; column++, f++, t += ts) {
            for (size_t k = 0; k < 4; k++) t[k] = f[k * fs];
        }
    }
    for (; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            to[(size_t)column * ts + (size_t)row] = from[(size_t)row * fs + (size_t)column];
        }
    }
}
