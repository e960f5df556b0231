/* entries — the largest elements of an array, as a list; and sums of such lists.
 *   idea  : the bits of |x|, read as an integer, sort like the values, with NaN above infinity. So the k-th largest
 *           is found digit by digit: count how often each value of the highest digit occurs, walk down until k
 *           elements are reached, continue with the elements that have this digit. Elements above the k-th largest
 *           value are chosen, and the first ones of those equal to it. Nothing is sorted, and the list is in the order
 *           of the array
 *   cost  : top_k reads the array four times, with 8 KiB of counts; the sums touch only listed elements, and clear the
 *           rest
 *   order : of the sums: list after list
 *   fails : never: all floats are ordered, and counts are integers */
#include "kernels/cpu/variant/variant.h"

enum { FIRST_NAN = 0x7f800001, DIGITS = 3, MOST_VALUES = 1 << 11 };

/* Larger for a larger |x|; the same for all NaNs. */
static LS_ALWAYS_INLINE uint32_t key_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= INT32_MAX;
    return bits < FIRST_NAN ? bits : FIRST_NAN;
}

struct border {
    uint32_t key; /* of the k-th largest element */
    size_t equal; /* elements with that key that are among the k */
};

/* 31 bits: digits of 11, 10 and 10. */
static struct border find_border(const float *x, size_t count, size_t k) {
    static const int shifts[DIGITS] = {20, 10, 0};
    struct border border = {0, k};
    uint32_t known = 0; /* bits of the digits found so far */
    for (int d = 0; d < DIGITS; d++) {
        uint32_t counts[MOST_VALUES] = {0}, values = d == 0 ? MOST_VALUES : MOST_VALUES / 2, value = values - 1;
        for (size_t i = 0; i < count; i++) {
            uint32_t key = key_of(x[i]);
            if ((key & known) == border.key) counts[key >> shifts[d] & (values - 1)]++;
        }
        while (counts[value] < border.equal) border.equal -= counts[value--];
        border.key |= value << shifts[d];
        known |= (values - 1) << shifts[d];
    }
    return border;
}

ls_status LS_CPU(top_k)(const struct ls_top_k_arguments *a) {
    if (a->k == 0) return LS_OK;
    struct border border = find_border(a->x, a->count, a->k);
    struct ls_entry *entry = a->entries;
    for (size_t i = 0; i < a->count; i++) {
        uint32_t key = key_of(a->x[i]);
        if (key < border.key || (key == border.key && border.equal == 0)) continue;
        border.equal -= key == border.key;
        *entry++ = (struct ls_entry){(int32_t)i, a->x[i]};
    }
    return LS_OK;
}

ls_status LS_CPU(fill_entries)(const struct ls_fill_entries_arguments *a) {
    for (size_t j = 0; j < a->k; j++) a->y[a->entries[j].index] = a->value;
    return LS_OK;
}

ls_status LS_CPU(sum_entries)(const struct ls_sum_entries_arguments *a) {
    memset(a->y, 0, a->count * sizeof *a->y);
    for (size_t l = 0; l < a->list_count; l++) {
        const struct ls_entry *list = a->lists + l * a->stride;
        for (size_t j = 0; j < a->k; j++) a->y[list[j].index] += list[j].value;
    }
    return LS_OK;
}
