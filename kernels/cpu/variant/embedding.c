/* embedding — rows of a table, chosen by tokens, and the rows of the positions.
 *   cost  : forward and backward each touch rows x channels elements; backward clears the table's gradient first
 *   order : backward adds rows in ascending order, each to the gradient of its token: no list of a token's rows is needed
 *   fails : a token outside of the table ends the operation */
#include "common/base/log.h"
#include "kernels/cpu/variant/half.h"

static ls_status check_token(size_t row, int32_t token, size_t vocabulary) {
    if (token >= 0 && (size_t)token < vocabulary) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "row %zu has token %d, outside of the vocabulary of %zu", row, (int)token,
                   vocabulary);
}

static void add_two(float *restrict y, const float *restrict a, const float *restrict b, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

ls_status LS_CPU(embedding_forward)(const struct ls_embedding_forward_arguments *a) {
    float out[LS_BLOCK];
    for (size_t r = 0; r < a->rows; r++) {
        ls_status status = check_token(r, a->tokens[r], a->vocabulary);
        if (status != LS_OK) return status;
        const float *token = a->token_table + (size_t)a->tokens[r] * a->channels,
                    *position = a->position_table + r % a->context * a->channels;
        for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count) {
            float *y = ls_block_to_fill(a->dtype, a->y, r * a->channels + i, out);
            add_two(y, token + i, position + i, count);
            ls_store_block(a->dtype, a->y, r * a->channels + i, y, count);
        }
    }
    return LS_OK;
}

ls_status LS_CPU(embedding_backward)(const struct ls_embedding_backward_arguments *a) {
    float in[LS_BLOCK];
    if (!a->accumulate) memset(a->dtable, 0, a->vocabulary * a->channels * sizeof *a->dtable);
    for (size_t r = 0; r < a->rows; r++) {
        ls_status status = check_token(r, a->tokens[r], a->vocabulary);
        if (status != LS_OK) return status;
        float *dtable = a->dtable + (size_t)a->tokens[r] * a->channels;
        for (size_t i = 0, count; (count = ls_block_count(a->dtype, a->channels - i)) > 0; i += count)
            ls_add_floats(dtable + i, ls_block(a->dtype, a->dy, r * a->channels + i, count, in), count);
    }
    return LS_OK;
}
