#include "common/base/chunk.h"

#include <stdbool.h>

/* torch.chunk's rule: the first pieces have ceil(length / pieces) elements, the last one that is not empty has the rest,
 * and those after it are empty: 5 in 4 pieces are 2, 2, 1, 0. Written so that it cannot overflow. */
static size_t piece_length(size_t length, int pieces) {
    return length / (size_t)pieces + (length % (size_t)pieces != 0);
}

size_t ls_chunk_count(size_t length, int pieces) {
    if (length == 0) return (size_t)pieces;
    size_t each = piece_length(length, pieces);
    return length / each + (length % each != 0);
}

void ls_chunk(size_t length, int pieces, int index, size_t *begin, size_t *count) {
    size_t each = piece_length(length, pieces);
    bool beyond = (size_t)index >= ls_chunk_count(length, pieces);
    *begin = beyond ? length : (size_t)index * each;
    size_t left = length - *begin;
    *count = left < each ? left : each;
}
