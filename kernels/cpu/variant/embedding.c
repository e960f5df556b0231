/* embedding — adds rows of a table, selected by tokens, and rows of the positions.
 *   cost  : forward and backward each touch rows x channels elements; backward clears the table's gradient first
 *   order : backward adds rows in ascending order, each to the gradient of its token: no list of a token's rows is
 *           needed
 *   parts : a part of the table has rows for its own tokens only; for other tokens it has rows of zeros
 *   fails : a token out of range fails the operation */
#include "common/base/log.h"
#include "kernels/cpu/variant/half.h"

static ls_status check_token(size_t row, int32_t token, size_t vocabulary) {
    if (token >= 0 && (size_t)token < vocabulary) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "row %zu has token %d, which is out of range; the vocabulary has %zu tokens", row,
                   (int)token, vocabulary);
}

/* A row of the token table; NULL if another part has the token. */
static const float *row_of(const float *table, int32_t token, struct ls_class_part part, size_t channels) {
    size_t place = (size_t)token - part.first;
    return (size_t)token >= part.first && place < part.count ? table + place * channels : NULL;
}

/* y = a + b; NULL is zeros. */
static void add_two(float *restrict y, const float *restrict a, const float *restrict b, size_t count) {
    if (a && b)
        for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
    else if (a || b)
        memcpy(y, a ? a : b, count * sizeof *y);
    else
        memset(y, 0, count * sizeof *y);
}

static const float *offset_or_null(const float *row, size_t i) { return row ? row + i : NULL; }

ls_status LS_CPU(embedding_part_forward)(const struct ls_embedding_part_forward_arguments *a) {
    float out[LS_BLOCK];
    for (size_t r = 0; r < a->rows; r++) {
        ls_status status = check_token(r, a->tokens[r], a->part.whole);
        if (status != LS_OK) return status;
        const float *token = row_of(a->token_table, a->tokens[r], a->part, a->channels),
                    *position = offset_or_null(a->position_table, r % a->context * a->channels);
        for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count) {
            float *y = ls_block_to_fill(a->dtype, a->y, r * a->channels + i, out);
            add_two(y, offset_or_null(token, i), offset_or_null(position, i), count);
            ls_store_block(a->dtype, a->y, r * a->channels + i, y, count);
        }
    }
    return LS_OK;
}

ls_status LS_CPU(embedding_part_backward)(const struct ls_embedding_part_backward_arguments *a) {
    float in[LS_BLOCK];
    if (!a->accumulate) memset(a->dtable, 0, a->part.room * a->channels * sizeof *a->dtable);
    for (size_t r = 0; r < a->rows; r++) {
        ls_status status = check_token(r, a->tokens[r], a->part.whole);
        if (status != LS_OK) return status;
        const float *row = row_of(a->dtable, a->tokens[r], a->part, a->channels);
        if (!row) continue;
        float *dtable = a->dtable + (row - a->dtable);
        for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count)
            ls_add_floats(dtable + i, ls_block(a->dtype, a->dy, r * a->channels + i, count, in), count);
    }
    return LS_OK;
}

/* --- the whole vocabulary ----------------------------------------------------------------------------------------- */

static struct ls_class_part all(size_t vocabulary) {
    return (struct ls_class_part){0, vocabulary, vocabulary, vocabulary};
}

ls_status LS_CPU(embedding_forward)(const struct ls_embedding_forward_arguments *a) {
    const struct ls_embedding_part_forward_arguments whole = {
        a->dtype, a->y,       a->tokens,          a->token_table, a->position_table,
        a->rows,  a->context, all(a->vocabulary), a->channels};
    return LS_CPU(embedding_part_forward)(&whole);
}

ls_status LS_CPU(embedding_backward)(const struct ls_embedding_backward_arguments *a) {
    const struct ls_embedding_part_backward_arguments whole = {
        a->dtype, a->dtable, a->dy, a->tokens, a->rows, all(a->vocabulary), a->channels, a->accumulate};
    return LS_CPU(embedding_part_backward)(&whole);
}
