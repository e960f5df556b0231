/* conv2d_product — a product whose left matrix is read through two offset tables.
 *   idea  : tile by tile (product_tile.h), with rows that are positions in the image
 *   cost  : that of the tiles. Steps in which a tile reads only padding, above or below the image, are a range at
 *           either end and are skipped (9 % for 5x5 on 14x14). Waste: rows rounded up to ROWS
 *   order : that of the tiles. (ROWS decides which products with padding are skipped. Such a product adds a zero, which
 *           can change only the sign of a zero sum, and the tiles make +0 of it. An infinite weight times padding may
 *           or may not give NaN.) */
#include "kernels/cpu/variant/conv2d_product.h"
#include "kernels/cpu/variant/product_tile.h"

void LS_CPU(conv2d_run_product)(const struct ls_conv2d_product *p) {
    for (int first = 0; first < p->rows; first += ROWS) {
        /* The last tile repeats the last row; the spare rows hold its surplus sums. */
        int last = first + ROWS < p->rows ? first + ROWS - 1 : p->rows - 1;
        const float *source[ROWS];
        for (int row = 0; row < ROWS; row++) {
            source[row] = p->image + p->row_offset[first + row < last ? first + row : last];
        }
        /* Steps that read only padding for every row of the tile would add zeros. */
        int low = first / p->row_group * p->row_lines, high = last / p->row_group * p->row_lines;
        int begin = 0, end = p->steps / p->step_group;
        while (begin < end && begin * p->step_lines + high < p->first_line) begin++;
        while (begin < end && (end - 1) * p->step_lines + low >= p->end_line) end--;
        begin *= p->step_group;
        end *= p->step_group;
        size_t columns = (size_t)p->columns;
        struct tile t = {.step_offset = p->step_offset + begin,
                         .steps = (size_t)(end - begin),
                         .matrix = p->matrix + (size_t)begin * columns,
                         .matrix_stride = columns,
                         .init = p->init,
                         .sums = p->sums + (size_t)first * columns,
                         .sums_stride = columns};
        multiply_row_of_tiles(&t, source, p->columns, true);
    }
}
