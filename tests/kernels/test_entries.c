/* The largest elements of an array as a list, and sums of lists, compared with sorted entries and simple loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/kernels/backends.h"

/* --- the largest -------------------------------------------------------------------------------------------------- */

static int by_index(const void *left, const void *right) {
    const struct ls_entry *a = left, *b = right;
    return a->index - b->index;
}

/* NaNs first, then the larger, of equals the lower index. */
static int by_size(const void *left, const void *right) {
    const struct ls_entry *a = left, *b = right;
    if (isnan(a->value) || isnan(b->value)) {
        if (isnan(a->value) && isnan(b->value)) return by_index(a, b);
        return isnan(a->value) ? -1 : 1;
    }
    if (fabsf(a->value) != fabsf(b->value)) return fabsf(a->value) > fabsf(b->value) ? -1 : 1;
    return by_index(a, b);
}

static void expect_largest(const float *x, size_t count, size_t k) {
    struct ls_entry *got = kernel_bytes(k * sizeof *got), *want = kernel_bytes(count * sizeof *want);
    ls_top_k(kernel_stream(), got, x, count, k);
    kernel_done();
    for (size_t i = 0; i < count; i++) want[i] = (struct ls_entry){(int32_t)i, x[i]};
    qsort(want, count, sizeof *want, by_size);
    qsort(want, k, sizeof *want, by_index);
    kernel_expect_same("the largest", got, want, k * sizeof *got);
}

static void expect_all_numbers(const float *x, size_t count) {
    const size_t numbers[] = {0, 1, count / 10, count / 2, count - 1, count};
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        if (numbers[i] <= count) expect_largest(x, count, numbers[i]);
}

TEST_CASE(the_largest_by_size) {
    static const size_t counts[] = {1, 2, 3, 10, 31, 32, 33, 255, 257, 1000};
    for (size_t c = 0; c < COUNT_OF(counts); c++) expect_all_numbers(kernel_random(counts[c], c + 1), counts[c]);
}

/* PyTorch's topk takes 3 and 5 of [1 2 2 2 1 2]. */
TEST_CASE(of_equals_the_lower_index) {
    float *x = kernel_floats(6);
    memcpy(x, (float[]){1, 2, -2, 2, 1, 2}, 6 * sizeof *x);
    for (size_t k = 0; k <= 6; k++) expect_largest(x, 6, k);
    for (size_t seed = 1; seed < 4; seed++) expect_all_numbers(kernel_integers(600, seed, 2), 600);
    x = kernel_floats(300);
    memset(x, 0, 300 * sizeof *x);
    x[7] = -0.0f;
    expect_all_numbers(x, 300);
}

TEST_CASE(a_nan_is_larger_than_infinity) {
    float *x = kernel_random(40, 1);
    uint32_t payload = 0xffc12345;
    x[9] = NAN;
    memcpy(&x[30], &payload, sizeof payload); /* more mantissa bits than x[9], but treated as equally large */
    x[20] = -INFINITY;
    x[25] = INFINITY;
    x[33] = 1e-42f;
    for (size_t k = 0; k <= 5; k++) expect_largest(x, 40, k);
    expect_all_numbers(x, 40);
}

/* Several parts of a GPU's blocks; the last element of one part and the first of the next are equal. */
TEST_CASE(long_arrays) {
    enum { COUNT = 20000 };
    float *x = kernel_integers(COUNT, 3, 1000);
    for (size_t k = 1; k < COUNT; k = 140 * k + 1) {
        struct ls_entry *got = kernel_bytes(k * sizeof *got);
        ls_top_k(kernel_stream(), got, x, COUNT, k);
        kernel_done();
        size_t counts[1001] = {0}, j = 0, equal = k, border = 1000;
        for (size_t i = 0; i < COUNT; i++) counts[(size_t)fabsf(x[i])]++;
        while (counts[border] < equal) equal -= counts[border--];
        for (size_t i = 0; i < COUNT; i++) {
            size_t size = (size_t)fabsf(x[i]);
            if (size < border || (size == border && equal == 0)) continue;
            equal -= size == border;
            if (got[j].index != (int32_t)i || got[j].value != x[i])
                fail_msg("of %zu: entry %zu is element %d, not %zu", k, j, (int)got[j].index, i);
            j++;
        }
        assert_int_equal(j, k);
    }
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* Where the order of three terms matters. */
TEST_CASE(lists_are_added_in_their_order) {
    static const float big[3] = {0x1p24f, 1, 1}, small[3] = {1, 1, 0x1p24f};
    struct ls_entry *lists = kernel_bytes(9 * sizeof *lists);
    float *y = kernel_floats(7);
    for (int l = 0; l < 3; l++) {
        lists[3 * l] = (struct ls_entry){1, big[l]};
        lists[3 * l + 1] = (struct ls_entry){5, small[l]};
        lists[3 * l + 2] = (struct ls_entry){2, NAN}; /* in the gap between the lists */
    }
    ls_sum_entries(kernel_stream(), y, lists, 3, 3, 2, 7);
    kernel_done();
    const float want[7] = {[1] = 0x1p24f, [5] = 0x1p24f + 2};
    kernel_expect_same("sum", y, want, sizeof want);
    ls_sum_entries(kernel_stream(), y, lists, 0, 3, 2, 7);
    kernel_done();
    kernel_expect_same("a sum of nothing", y, (const float[7]){0}, sizeof want);
}

TEST_CASE(entries_are_filled) {
    struct ls_entry *entries = kernel_bytes(2 * sizeof *entries);
    float *y = kernel_random(5, 1), *want = kernel_copy(y, 5);
    entries[0] = (struct ls_entry){4, 7};
    entries[1] = (struct ls_entry){0, 7};
    ls_fill_entries(kernel_stream(), y, entries, 2, 0);
    kernel_done();
    want[0] = want[4] = 0;
    kernel_expect_same("filled", y, want, 5 * sizeof *y);
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(the_largest_by_size), ROW(of_equals_the_lower_index), ROW(a_nan_is_larger_than_infinity),
        ROW(long_arrays),         ROW(entries_are_filled),        ROW(lists_are_added_in_their_order),
    };
    return RUN_EVERYWHERE("entries", tests);
}
