#define _GNU_SOURCE
/* tables: deviations and bounds, the contents of the files, and the fit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/tables/least_squares.h"
#include "labs/replay/tables/tables.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"

/* --- rows --------------------------------------------------------------------------------------------------------- */

static struct tables_row row_of(double reference, double ours, enum tables_bound bound, double tolerance) {
    return (struct tables_row){.quantity = "step time, ms",
                               .mode = "DP",
                               .n = 2,
                               .reference = reference,
                               .ours = ours,
                               .bound = bound,
                               .tolerance = tolerance,
                               .how = "replayed: an example"};
}

TEST_IN(scratch, test_deviations) {
    static const struct {
        double reference, ours, deviation;
    } cases[] = {{60, 63, 0.05}, {60, 57, -0.05}, {0, 0, 0}, {0, 1, NAN}, {NAN, 1, NAN}, {1, NAN, NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tables_row row = row_of(cases[i].reference, cases[i].ours, TABLES_SHOWN, 0);
        if (isnan(cases[i].deviation))
            assert_true(isnan(tables_deviation(&row)));
        else
            expect_near(tables_deviation(&row), cases[i].deviation);
    }
}

static bool holds(double reference, double ours, enum tables_bound bound, double tolerance) {
    const struct tables_row row = row_of(reference, ours, bound, tolerance);
    return tables_holds(&row);
}

TEST_IN(scratch, test_bounds) {
    assert_true(holds(100, 104.9, TABLES_WITHIN, 0.05) && holds(100, 95.1, TABLES_WITHIN, 0.05));
    assert_false(holds(100, 105.1, TABLES_WITHIN, 0.05) || holds(100, 94.9, TABLES_WITHIN, 0.05));
    assert_true(holds(7, 7, TABLES_WITHIN, 0) && holds(0, 0, TABLES_WITHIN, 0));
    assert_false(holds(7, 7.000001, TABLES_WITHIN, 0) || holds(0, 1, TABLES_WITHIN, 0));
    assert_true(holds(0.1, 0.09, TABLES_BELOW, 0) && holds(0.8, 0.81, TABLES_ABOVE, 0));
    assert_false(holds(0.1, 0.11, TABLES_BELOW, 0) || holds(0.8, 0.79, TABLES_ABOVE, 0));
    assert_true(holds(100, NAN, TABLES_SHOWN, 0));
    for (enum tables_bound bound = TABLES_WITHIN; bound <= TABLES_ABOVE; bound++)
        assert_false(holds(100, NAN, bound, 1e9) || holds(NAN, 100, bound, 1e9));
}

/* A book with a row that holds and, if `missed`, one that does not. */
static tables_book *example_book(bool missed) {
    tables_book *book;
    assert_int_equal(tables_book_create(&book), LS_OK);
    tables_begin(book, 1, "an example");
    tables_text(book, "A paragraph of %d words.", 5);
    struct tables_row row = row_of(60, 61.5, TABLES_WITHIN, 0.05);
    tables_add(book, &row);
    row = row_of(40, missed ? 44 : 40, TABLES_WITHIN, 0.05);
    row.n = 4;
    row.mode = "DP, \"quoted\" | barred";
    tables_add(book, &row);
    row = row_of(NAN, 0.25, TABLES_SHOWN, 0);
    row.n = 0;
    row.aside = true;
    row.quantity = "aside";
    tables_add(book, &row);
    return book;
}

static void expect_judged(tables_book *book, bool strict, ls_status status, const char *line) {
    char printed[300] = "";
    FILE *file = fmemopen(printed, sizeof printed, "w");
    assert_int_equal(tables_judge(book, strict, file), status);
    fclose(file);
    assert_string_equal(printed, line);
}

/* Each table with its own number; tables without missed bounds are not named. A published claim that does not hold is a
 * result, not a failure. */
TEST_IN(scratch, test_tables_with_missed_bounds_are_named) {
    tables_book *book = example_book(true);
    struct tables_row row = row_of(1, 2, TABLES_BELOW, 0);
    tables_begin(book, 3, "another");
    row.bound = TABLES_ABOVE;
    tables_add(book, &row);
    tables_begin(book, 5, "a third");
    row.bound = TABLES_BELOW;
    tables_add(book, &row);
    tables_add(book, &row);
    row.claim = true;
    tables_add(book, &row);
    expect_judged(book, false, LS_OK,
                  "\n3 of 5 bounds of ours are missed (1 in table 1, 2 in table 5); 0 of 1 claims of others hold.\n");
    tables_book_destroy(book);
}

TEST_IN(scratch, test_missed_bounds_are_counted_and_named) {
    char first[300] = "";
    int missed;
    tables_book *book = example_book(true);
    assert_int_equal(tables_count_bounds(book, false, &missed, first, sizeof first), 2);
    assert_int_equal(missed, 1);
    assert_non_null(strstr(first, "N 4: 44, but 40"));
    expect_judged(book, false, LS_OK,
                  "\n1 of 2 bounds of ours are missed (1 in table 1).\n"); /* a result like any other */
    expect_judged(book, true, LS_ERR_INVALID, "\n1 of 2 bounds of ours are missed (1 in table 1).\n");
    scratch_expect_error("1 of 2 bounds were missed", "table 1, step time, ms");
    tables_book_destroy(book);
    book = example_book(false);
    expect_judged(book, true, LS_OK, "\n0 of 2 bounds of ours are missed.\n");
    tables_book_destroy(book);
    tables_book_destroy(NULL);
}

TEST_IN(scratch, test_claims_are_counted_apart) {
    char text[2000] = "";
    int missed;
    tables_book *book = example_book(false);
    struct tables_row row = row_of(0.1, 0.3, TABLES_BELOW, 0);
    row.claim = true;
    tables_add(book, &row);
    row.ours = 0.05;
    tables_add(book, &row);
    assert_int_equal(tables_count_bounds(book, false, &missed, NULL, 0), 2);
    assert_int_equal(missed, 0);
    assert_int_equal(tables_count_bounds(book, true, &missed, NULL, 0), 2);
    assert_int_equal(missed, 1);
    expect_judged(book, true, LS_OK, "\n0 of 2 bounds of ours are missed; 1 of 2 claims of others hold.\n");
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_int_equal(tables_print(book, 1, file), LS_OK);
    fclose(file);
    assert_non_null(strstr(text, "below 0.1: does not hold\n"));
    assert_non_null(strstr(text, "below 0.1: holds\n"));
    tables_book_destroy(book);
}

/* A group's rows get the file's words and tolerance; without one, exact rows stay exact. */
TEST_IN(scratch, test_groups_are_taken) {
    int missed;
    tables_book *groups = example_book(true), *book;
    struct tables_row row = row_of(100, 104, TABLES_WITHIN, 0);
    tables_group(groups, "wanted");
    tables_add(groups, &row);
    tables_text(groups, "100 %% of it");
    assert_int_equal(tables_book_create(&book), LS_OK);
    tables_begin(book, 1, "a table");
    tables_take(book, groups, "wanted", "counted", 0.05);
    assert_int_equal(tables_count_bounds(book, false, &missed, NULL, 0), 1);
    assert_int_equal(missed, 0);
    tables_take(book, groups, "wanted", "counted", 0.03);
    tables_take(book, groups, "wanted", "counted", 0);
    tables_take(book, groups, "no such group", "counted", 0);
    expect_judged(book, false, LS_OK, "\n2 of 3 bounds of ours are missed (2 in table 1).\n");
    assert_int_equal(tables_write_files(book, scratch_folder()), LS_OK);
    char *csv = scratch_read_text("tables.csv"), *text = scratch_read_text("tables.md");
    assert_non_null(strstr(csv, "\"counted; must be within 3 %: MISSED\""));
    assert_non_null(strstr(text, "\n100 % of it\n"));
    free(csv);
    free(text);
    tables_book_destroy(groups);
    tables_book_destroy(book);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, test_pages) {
    static const char *const in_markdown[] = {
        "\n## 1. an example\n\nA paragraph of 5 words.\n\n| quantity | mode | N |",
        "\n| step time, ms | DP | 2 | 60 | 61.5 | +2.50 % | within 5 %: held |\n",
        "| step time, ms | DP, \"quoted\" \\| barred | 4 | 40 | 44 | +10.00 % | within 5 %: MISSED |\n",
        "\nHow: replayed: an example.\n"};
    static const char *const in_print[] = {"\nTable 1: an example\n\nA paragraph of 5 words.\n", "MISSED\n",
                                           "\n(replayed: an example)\n"};
    char printed[2000] = "";
    FILE *file = fmemopen(printed, sizeof printed, "w");
    tables_book *book = example_book(true);
    assert_int_equal(tables_prepare_files(scratch_folder()), LS_OK);
    assert_int_equal(tables_write_files(book, scratch_folder()), LS_OK);
    assert_int_equal(tables_print(book, 1, file), LS_OK);
    fclose(file);
    tables_book_destroy(book);
    assert_int_equal(scratch_file_count(), 2);
    char *csv = scratch_read_text("tables.csv"), *text = scratch_read_text("tables.md");
    assert_string_equal(csv, "table,mode,n,reference,ours,deviation,how\n"
                             "\"1 step time, ms\",\"DP\",2,60,61.5,0.025,"
                             "\"replayed: an example; must be within 5 %: held\"\n"
                             "\"1 step time, ms\",\"DP, \"\"quoted\"\" | barred\",4,40,44,0.1,"
                             "\"replayed: an example; must be within 5 %: MISSED\"\n"
                             "\"1 aside\",\"DP\",,,0.25,,\"replayed: an example\"\n");
    for (size_t i = 0; i < sizeof in_markdown / sizeof *in_markdown; i++) assert_non_null(strstr(text, in_markdown[i]));
    for (size_t i = 0; i < sizeof in_print / sizeof *in_print; i++) assert_non_null(strstr(printed, in_print[i]));
    assert_null(strstr(text, "aside"));
    assert_null(strstr(printed, "aside"));
    free(csv);
    free(text);
}

TEST_IN(scratch, test_folder_that_cannot_be_written) {
    scratch_write("file", "x", 1);
    assert_int_equal(tables_prepare_files(scratch_path("file")), LS_ERR_IO);
    scratch_expect_error("file", NULL);
}

/* --- least squares ------------------------------------------------------------------------------------------------ */

/* y = a x^b, whose logarithm is a straight line; with `bend` no such curve passes through all points. */
struct curve {
    double bend;
};

static ls_status curve_residuals(void *context, const double *p, double *residual) {
    const struct curve *curve = context;
    for (int i = 0; i < 5; i++) {
        double x = i + 1;
        double y = 3 * pow(x, 0.5) + (i == 2 ? curve->bend : 0);
        residual[i] = p[0] * pow(x, p[1]) - y;
    }
    return LS_OK;
}

TEST_IN(scratch, test_least_squares_finds_what_made_the_points) {
    struct curve curve = {0};
    struct tables_fit fit = {.parameters = 2, .points = 5, .value = {0.2, 4}};
    assert_int_equal(tables_fit_least_squares(&fit, curve_residuals, &curve), LS_OK);
    assert_true(fabs(fit.value[0] - 3) < 1e-6);
    assert_true(fabs(fit.value[1] - 0.5) < 1e-6);
    assert_int_equal(fit.degrees_of_freedom, 3);
    assert_true(fit.sum < 1e-12);
}

/* At the minimum, no small change of a parameter lowers the sum. */
TEST_IN(scratch, test_least_squares_ends_at_the_least) {
    struct curve curve = {.bend = 1};
    struct tables_fit fit = {.parameters = 2, .points = 5, .value = {1, 1}};
    assert_int_equal(tables_fit_least_squares(&fit, curve_residuals, &curve), LS_OK);
    assert_true(fit.sum > 0.1);
    for (int k = 0; k < 4; k++) {
        double moved[2] = {fit.value[0], fit.value[1]}, residual[5], sum = 0;
        moved[k / 2] *= k % 2 ? 1.003 : 0.997;
        curve_residuals(&curve, moved, residual);
        for (int i = 0; i < 5; i++) sum += residual[i] * residual[i];
        assert_true(sum > fit.sum);
    }
    assert_true(fit.error[0] > 0 && fit.error[0] < 1);
    struct tables_fit again = {.parameters = 2, .points = 5, .value = {1, 1}};
    assert_int_equal(tables_fit_least_squares(&again, curve_residuals, &curve), LS_OK);
    assert_memory_equal(&again.sum, &fit.sum, sizeof fit.sum);
}

TEST_IN(scratch, test_least_squares_refuses) {
    struct curve curve = {.bend = NAN};
    struct tables_fit fit = {.parameters = 2, .points = 5, .value = {1, 1}};
    assert_int_equal(tables_fit_least_squares(&fit, curve_residuals, &curve), LS_ERR_INVALID);
    scratch_expect_error("not finite", NULL);
    fit = (struct tables_fit){.parameters = 3, .points = 2, .value = {1, 1, 1}};
    assert_int_equal(tables_fit_least_squares(&fit, curve_residuals, &curve), LS_ERR_INVALID);
    scratch_expect_error("3 parameters with 2 points", NULL);
}
