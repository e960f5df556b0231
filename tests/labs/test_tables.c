#define _GNU_SOURCE
/* tables: deviations and bounds, what the files hold, and the fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/tables/least_squares.h"
#include "labs/replay/tables/tables.h"
#include "tests/base/scratch.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

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

static void test_deviations(void **state) {
    (void)state;
    struct tables_row row = row_of(60, 63, TABLES_SHOWN, 0);
    expect_near(tables_deviation(&row), 0.05);
    row = row_of(60, 57, TABLES_SHOWN, 0);
    expect_near(tables_deviation(&row), -0.05);
    row = row_of(0, 0, TABLES_SHOWN, 0);
    assert_true(tables_deviation(&row) == 0);
    row = row_of(0, 1, TABLES_SHOWN, 0);
    assert_true(isnan(tables_deviation(&row)));
    row = row_of(NAN, 1, TABLES_SHOWN, 0);
    assert_true(isnan(tables_deviation(&row)));
    row = row_of(1, NAN, TABLES_SHOWN, 0);
    assert_true(isnan(tables_deviation(&row)));
}

static void expect_holds(double reference, double ours, enum tables_bound bound, double tolerance, bool holds) {
    const struct tables_row row = row_of(reference, ours, bound, tolerance);
    assert_int_equal(tables_holds(&row), holds);
}

static void test_bounds(void **state) {
    (void)state;
    expect_holds(100, 104.9, TABLES_WITHIN, 0.05, true);
    expect_holds(100, 95.1, TABLES_WITHIN, 0.05, true);
    expect_holds(100, 105.1, TABLES_WITHIN, 0.05, false);
    expect_holds(100, 94.9, TABLES_WITHIN, 0.05, false);
    expect_holds(7, 7, TABLES_WITHIN, 0, true);
    expect_holds(7, 7.000001, TABLES_WITHIN, 0, false);
    expect_holds(0, 0, TABLES_WITHIN, 0, true);
    expect_holds(0, 1, TABLES_WITHIN, 0, false);
    expect_holds(0.1, 0.09, TABLES_BELOW, 0, true);
    expect_holds(0.1, 0.11, TABLES_BELOW, 0, false);
    expect_holds(0.8, 0.81, TABLES_ABOVE, 0, true);
    expect_holds(0.8, 0.79, TABLES_ABOVE, 0, false);
    expect_holds(100, NAN, TABLES_SHOWN, 0, true);
    for (enum tables_bound bound = TABLES_WITHIN; bound <= TABLES_ABOVE; bound++) {
        expect_holds(100, NAN, bound, 1e9, false);
        expect_holds(NAN, 100, bound, 1e9, false);
    }
}

/* A book with a row that holds and, if asked for, one that does not. */
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

/* Each table with its own, and tables where all hold are not named. */
static void test_tables_with_missed_bounds_are_named(void **state) {
    (void)state;
    char printed[300] = "";
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
    FILE *file = fmemopen(printed, sizeof printed, "w");
    assert_int_equal(tables_judge(book, false, file), LS_OK);
    fclose(file);
    assert_string_equal(printed, "\n3 of 5 bounds of ours are missed (1 in table 1, 2 in table 5); "
                                 "0 of 1 claims of others hold.\n");
    tables_book_destroy(book);
}

static void test_missed_bounds_are_counted_and_named(void **state) {
    (void)state;
    char first[300] = "", printed[300] = "";
    int missed;
    tables_book *book = example_book(true);
    assert_int_equal(tables_count_bounds(book, false, &missed, first, sizeof first), 2);
    assert_int_equal(missed, 1);
    assert_non_null(strstr(first, "N 4: 44, but 40"));
    FILE *file = fmemopen(printed, sizeof printed, "w");
    assert_int_equal(tables_judge(book, false, file), LS_OK); /* a result like others */
    fclose(file);
    assert_string_equal(printed, "\n1 of 2 bounds of ours are missed (1 in table 1).\n");
    file = fmemopen(printed, sizeof printed, "w");
    assert_int_equal(tables_judge(book, true, file), LS_ERR_INVALID);
    fclose(file);
    assert_string_equal(printed, "\n1 of 2 bounds of ours are missed (1 in table 1).\n");
    scratch_expect_error("1 of 2 bounds are missed", "table 1, step time, ms");
    tables_book_destroy(book);

    book = example_book(false);
    file = fmemopen(printed, sizeof printed, "w");
    assert_int_equal(tables_judge(book, true, file), LS_OK);
    fclose(file);
    assert_string_equal(printed, "\n0 of 2 bounds of ours are missed.\n");
    tables_book_destroy(book);
    tables_book_destroy(NULL);
}

/* That somebody's claim does not hold is a result, and no failure. */
static void test_claims_are_counted_apart(void **state) {
    (void)state;
    char printed[300] = "", text[2000] = "";
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
    FILE *file = fmemopen(printed, sizeof printed, "w");
    assert_int_equal(tables_judge(book, true, file), LS_OK);
    fclose(file);
    assert_string_equal(printed, "\n0 of 2 bounds of ours are missed; 1 of 2 claims of others hold.\n");
    file = fmemopen(text, sizeof text, "w");
    assert_int_equal(tables_print(book, 1, file), LS_OK);
    fclose(file);
    assert_non_null(strstr(text, "below 0.1: does not hold\n"));
    assert_non_null(strstr(text, "below 0.1: holds\n"));
    tables_book_destroy(book);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const char *line_of(const char *text, int number) {
    for (; number > 0 && text; number--) text = (text = strchr(text, '\n')) ? text + 1 : NULL;
    assert_non_null(text);
    return text;
}

static void expect_field(const char *line, int index, const char *expected) {
    char field[CSV_FIELD_CAPACITY];
    csv_field(field, line, index);
    assert_string_equal(field, expected);
}

static void test_csv(void **state) {
    (void)state;
    size_t nbytes;
    tables_book *book = example_book(true);
    assert_int_equal(tables_prepare_files(scratch_folder()), LS_OK);
    assert_int_equal(tables_write_files(book, scratch_folder()), LS_OK);
    tables_book_destroy(book);
    assert_int_equal(scratch_file_count(), 2);
    char *csv = scratch_read(scratch_path("tables.csv"), &nbytes);
    assert_int_equal(count_lines(csv), 4);
    static const char head[] = "table,mode,n,reference,ours,deviation,how\n";
    assert_memory_equal(csv, head, sizeof head - 1);
    const char *line = line_of(csv, 1);
    assert_int_equal(csv_fields(line), 7);
    expect_field(line, 0, "\"1 step time, ms\"");
    expect_field(line, 1, "\"DP\"");
    expect_field(line, 2, "2");
    expect_field(line, 3, "60");
    expect_field(line, 4, "61.5");
    expect_field(line, 5, "0.025");
    expect_field(line, 6, "\"replayed: an example; must be within 5 %: held\"");
    line = line_of(csv, 2);
    assert_int_equal(csv_fields(line), 7);
    expect_field(line, 5, "0.1");
    expect_field(line, 6, "\"replayed: an example; must be within 5 %: MISSED\"");
    line = line_of(csv, 3);
    expect_field(line, 2, "");
    expect_field(line, 3, "");
    expect_field(line, 5, "");
    expect_field(line, 6, "\"replayed: an example\"");
    free(csv);
}

static void test_markdown(void **state) {
    (void)state;
    size_t nbytes;
    tables_book *book = example_book(true);
    assert_int_equal(tables_write_files(book, scratch_folder()), LS_OK);
    tables_book_destroy(book);
    char *text = scratch_read(scratch_path("tables.md"), &nbytes);
    assert_non_null(strstr(text, "\n## 1. an example\n\nA paragraph of 5 words.\n\n| quantity | mode | N |"));
    assert_non_null(strstr(text, "\n| step time, ms | DP | 2 | 60 | 61.5 | +2.50 % | within 5 %: held |\n"));
    assert_non_null(
        strstr(text, "| step time, ms | DP, \"quoted\" \\| barred | 4 | 40 | 44 | +10.00 % | within 5 %: MISSED |\n"));
    assert_non_null(strstr(text, "\nHow: replayed: an example.\n"));
    assert_null(strstr(text, "aside"));
    free(text);
}

static void test_printed(void **state) {
    (void)state;
    char text[2000] = "";
    FILE *file = fmemopen(text, sizeof text, "w");
    tables_book *book = example_book(true);
    assert_int_equal(tables_print(book, 1, file), LS_OK);
    fclose(file);
    tables_book_destroy(book);
    assert_non_null(strstr(text, "\nTable 1: an example\n\nA paragraph of 5 words.\n"));
    assert_non_null(strstr(text, "MISSED\n"));
    assert_non_null(strstr(text, "\n(replayed: an example)\n"));
    assert_null(strstr(text, "aside"));
}

static void test_folder_that_cannot_be_written(void **state) {
    (void)state;
    scratch_write("file", "x", 1);
    assert_int_equal(tables_prepare_files(scratch_path("file")), LS_ERR_IO);
    scratch_expect_error("file", NULL);
}

/* --- least squares ------------------------------------------------------------------------------------------------ */

/* y = a x^b, whose logarithm is a straight line; with `bend` no such curve goes through all points. */
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

static void test_least_squares_finds_what_made_the_points(void **state) {
    (void)state;
    struct curve curve = {0};
    struct tables_fit fit = {.parameters = 2, .points = 5, .value = {0.2, 4}};
    assert_int_equal(tables_fit_least_squares(&fit, curve_residuals, &curve), LS_OK);
    assert_true(fabs(fit.value[0] - 3) < 1e-6);
    assert_true(fabs(fit.value[1] - 0.5) < 1e-6);
    assert_int_equal(fit.degrees_of_freedom, 3);
    assert_true(fit.sum < 1e-12);
}

/* At the least sum no small change of a parameter lowers it. */
static void test_least_squares_ends_at_the_least(void **state) {
    (void)state;
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

static void test_least_squares_refuses(void **state) {
    (void)state;
    struct curve curve = {.bend = NAN};
    struct tables_fit fit = {.parameters = 2, .points = 5, .value = {1, 1}};
    assert_int_equal(tables_fit_least_squares(&fit, curve_residuals, &curve), LS_ERR_INVALID);
    scratch_expect_error("not finite", NULL);
    fit = (struct tables_fit){.parameters = 3, .points = 2, .value = {1, 1, 1}};
    assert_int_equal(tables_fit_least_squares(&fit, curve_residuals, &curve), LS_ERR_INVALID);
    scratch_expect_error("3 parameters to 2 points", NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_deviations),
        TEST(test_bounds),
        TEST(test_missed_bounds_are_counted_and_named),
        TEST(test_tables_with_missed_bounds_are_named),
        TEST(test_claims_are_counted_apart),
        TEST(test_csv),
        TEST(test_markdown),
        TEST(test_printed),
        TEST(test_folder_that_cannot_be_written),
        TEST(test_least_squares_finds_what_made_the_points),
        TEST(test_least_squares_ends_at_the_least),
        TEST(test_least_squares_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
