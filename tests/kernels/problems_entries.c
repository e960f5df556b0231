#include "tests/kernels/problem_parts.h"

/* --- lists of a few elements --------------------------------------------------------------------------------------- */

/* `lists` lists of every second element; the l-th begins at element l modulo 2. */
static const struct ls_entry *make_lists(size_t lists, size_t stride, size_t k) {
    struct ls_entry *entries = kernel_bytes(lists * stride * sizeof *entries);
    const float *values = kernel_random(lists * k, 5);
    for (size_t l = 0; l < lists; l++)
        for (size_t j = 0; j < k; j++) entries[l * stride + j] = (struct ls_entry){(int32_t)(2 * j + l % 2), *values++};
    return entries;
}

/* Many equal magnitudes. */
void problem_top_k(struct problem *p, size_t n) {
    size_t k = (n + 2) / 3;
    struct ls_entry *entries = kernel_bytes(k * sizeof *entries);
    problem_output(p, entries, k * sizeof *entries);
    p->op.arguments.top_k = (struct ls_top_k_arguments){entries, kernel_integers(n, 1, 4), n, k};
}

void problem_fill_entries(struct problem *p, size_t n) {
    float *y = problem_floats(p, n, 1);
    p->op.arguments.fill_entries = (struct ls_fill_entries_arguments){y, make_lists(1, n / 2, n / 2), n / 2, 0.5f};
}

void problem_sum_entries(struct problem *p, size_t n) {
    size_t lists = 1 + n % 4, stride = n / 2 + n % 3;
    float *y = problem_floats(p, n, 1);
    p->op.arguments.sum_entries =
        (struct ls_sum_entries_arguments){y, make_lists(lists, stride, n / 2), lists, stride, n / 2, n};
}
