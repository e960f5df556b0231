/* fit_solve: the meaning of a weight, and undetermined systems. */
#include <math.h>

#include "labs/replay/engine/fit_solve.h"
#include "tests/base/test.h"

/* A row of weight 3 equals three rows, and one of weight 0 none. */
TEST(test_weights_are_numbers_of_rows) {
    struct ls_fit_row thrice[] = {{{1, 0}, 100, 1},   {{0.5L, 1}, 56, 1},  {{0.5L, 1}, 56, 1},
                                  {{0.5L, 1}, 56, 1}, {{0.25L, 1}, 29, 1}, {{0.125L, 1}, 14, 1}};
    struct ls_fit_row weighed[] = {
        {{1, 0}, 100, 1}, {{0.5L, 1}, 56, 3}, {{0.25L, 1}, 29, 1}, {{0.125L, 1}, 14, 1}, {{0.5L, 1}, 1e6L, 0}};
    long double one[LS_FIT_COLUMNS], other[LS_FIT_COLUMNS];
    assert_true(ls_fit_solve(one, thrice, 6, 2) && ls_fit_solve(other, weighed, 5, 2));
    for (int j = 0; j < 2; j++) assert_true(fabsl(other[j] - one[j]) <= 1e-12L);
    weighed[1].weight = 1;
    assert_true(ls_fit_solve(other, weighed, 5, 2));
    assert_true(fabsl(other[1] - one[1]) > 0.1L);
    for (int i = 1; i < 4; i++) weighed[i].weight = 0;
    assert_false(ls_fit_solve(other, weighed, 5, 2)); /* one row, two columns */
}

/* The best c of one column is <x, t> / <x, x>. */
TEST(test_one_column_by_hand) {
    const struct ls_fit_row rows[] = {{{1}, 10, 1}, {{2}, 26, 1}};
    long double c[LS_FIT_COLUMNS];
    assert_true(ls_fit_solve(c, rows, 2, 1));
    assert_true(fabsl(c[0] - 12.4L) <= 1e-15L); /* (10 + 52) / 5 */
}

/* Even if rounding leaves a remainder. */
TEST(test_a_column_that_is_another_one_is_refused) {
    struct ls_fit_row rows[] = {{{1, 0.1L}, 10, 1}, {{2, 0.2L}, 26, 1}, {{3, 0.3L}, 30, 1}};
    long double c[LS_FIT_COLUMNS];
    assert_false(ls_fit_solve(c, rows, 3, 2));
    rows[2].x[1] += 1e-6L;
    assert_true(ls_fit_solve(c, rows, 3, 2));
    rows[0].x[0] = rows[1].x[0] = rows[2].x[0] = 0;
    assert_false(ls_fit_solve(c, rows, 3, 1));
}
