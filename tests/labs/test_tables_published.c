/* Table 5: published figures are read with care, inputs and rows are kept apart, and the table is made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/engine/node.h"
#include "labs/replay/tables/published.h"
#include "labs/replay/tables/tables.h"
#include "tests/base/scratch.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

/* --- the file ----------------------------------------------------------------------------------------------------- */

#define FIGURE(what, n, value, use)                                                                                    \
    "{\"what\": \"" what "\", \"mode\": \"DDP\", \"n\": " n ", \"value\": " value ", \"use\": \"" use                  \
    "\", \"source\": \"an example\"}"

static ls_status open_text(published *p, const char *figures) {
    char text[2000];
    int nbytes = snprintf(text, sizeof text, "{\"about\": \"\", \"figures\": [%s]}\n", figures);
    scratch_write("published.json", text, (size_t)nbytes);
    return published_open(p, scratch_path("published.json"));
}

static void test_inputs_and_rows_are_apart(void **state) {
    (void)state;
    published p;
    double value = NAN;
    assert_int_equal(
        open_text(&p, FIGURE("a step, ms", "1", "97", "input") "," FIGURE("a step, ms", "2", "103", "row")), LS_OK);
    assert_int_equal(p.count, 2);
    assert_int_equal(published_input(&value, &p, "a step, ms", "DDP", 1), LS_OK);
    expect_near(value, 97);
    assert_int_equal(published_input(&value, &p, "a step, ms", "DDP", 2), LS_ERR_INVALID);
    scratch_expect_error("is a row", NULL);
    assert_int_equal(published_input(&value, &p, "a step, ms", "DDP", 4), LS_ERR_INVALID);
    scratch_expect_error("no published figure", NULL);
    expect_near(value, 97);
    published_close(&p);
}

static void test_refused_files(void **state) {
    (void)state;
    static const char *const texts[] = {
        FIGURE("a step, ms", "2", "97", "input"),                                          /* N > 1 never calibrates */
        FIGURE("an epoch, s", "2", "97", "input"),                                         /* nor here */
        FIGURE("a step, ms", "1", "97", "both"),                                           /* neither of the two */
        FIGURE("a step, ms", "0", "97", "row"),                                            /* no device */
        FIGURE("a step, ms", "2", "-1", "row"),                                            /* no time */
        FIGURE("a step, ms", "2", "1", "row") "," FIGURE("a step, ms", "2", "1", "row"),   /* twice */
        FIGURE("a step, ms", "1", "1", "row") "," FIGURE("a step, ms", "1", "1", "input"), /* input and row */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        published p;
        assert_int_equal(open_text(&p, texts[i]), LS_ERR_INVALID);
        scratch_expect_error("published.json:1", NULL);
        assert_null(p.storage);
    }
    published p;
    assert_int_equal(published_open(&p, "no such file"), LS_ERR_IO);
    scratch_expect_error("no such file", NULL);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct tables_table *table_5(void) {
    const struct tables_table *table = tables_all;
    while (table->title && table->number != 5) table++;
    assert_non_null(table->title);
    return table;
}

/* The line of the CSV that begins so; NULL. */
static char *line_of(char *csv, const char *begin) {
    for (char *line = csv; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, begin, strlen(begin)) == 0) return line;
    }
    return NULL;
}

/* Every published row is there, with its own figure for reference and ours / reference - 1 for deviation. */
static void test_every_figure_has_its_row(void **state) {
    (void)state;
    char begin[200];
    size_t nbytes;
    tables_book *book;
    published p;
    const tables_settings settings = {.quick = true, .folder = scratch_folder(), .timeout_s = 60};
    assert_int_equal(tables_book_create(&book), LS_OK);
    tables_begin(book, 5, "an example");
    assert_int_equal(table_5()->make(book, &settings), LS_OK);
    assert_int_equal(tables_write_files(book, scratch_folder()), LS_OK);
    tables_book_destroy(book);
    char *csv = scratch_read(scratch_path("tables.csv"), &nbytes);
    assert_int_equal(published_open(&p, "published"), LS_OK);
    int rows = 0;
    for (int i = 0; i < p.count; i++) {
        const struct published_figure *figure = &p.figures[i];
        snprintf(begin, sizeof begin, "\"5 %s\",\"%s\",%d,", figure->what, figure->mode, figure->n);
        const char *line = line_of(csv, begin);
        assert_int_equal(line != NULL, figure->is_row);
        if (!line) continue;
        double reference, ours, deviation;
        assert_int_equal(sscanf(line + strlen(begin), "%lf,%lf,%lf,", &reference, &ours, &deviation), 3);
        expect_near(reference, figure->value);
        assert_true(fabs(deviation - (ours / reference - 1)) < 1e-6);
        assert_true(ours > 0);
        rows++;
    }
    assert_true(rows >= 15);
    assert_non_null(line_of(csv, "\"5 mean absolute error\""));
    assert_non_null(line_of(csv, "\"5 pairs of rows in the right order\""));
    published_close(&p);
    free(csv);
}

/* ResNet50 with DDP on one GPU is where the hooks' time comes from: it comes out, and is no row. */
static void test_hooks_come_from_one_gpu(void **state) {
    (void)state;
    static const char begin[] = "\"5 one GPU with DDP, resnet50 step, ms\",\"DDP\",1,";
    size_t nbytes;
    tables_book *book;
    double reference = NAN, ours = NAN;
    const tables_settings settings = {.folder = scratch_folder(), .timeout_s = 60};
    assert_int_equal(tables_book_create(&book), LS_OK);
    tables_begin(book, 5, "an example");
    assert_int_equal(table_5()->make(book, &settings), LS_OK);
    assert_int_equal(tables_write_files(book, scratch_folder()), LS_OK);
    tables_book_destroy(book);
    char *csv = scratch_read(scratch_path("tables.csv"), &nbytes);
    const char *line = line_of(csv, begin);
    assert_non_null(line);
    assert_int_equal(sscanf(line + sizeof begin - 1, "%lf,%lf,", &reference, &ours), 2);
    expect_near(reference, 100);
    assert_true(fabs(ours - 100) < 0.1);
    free(csv);
}

/* Missed bounds are a result, and with --strict a failure. */
static void test_exit_status(void **state) {
    (void)state;
    static program run;
    const char *folder = scratch_folder();
    assert_int_equal(program_run(&run, "%s/tables --tables=5 --out=%s", build_folder(), folder), 0);
    bool missed = strstr(run.out_text, "MISSED") != NULL;
    assert_int_equal(strstr(run.out_text, " in table 5)") != NULL, missed);
    assert_int_equal(program_run(&run, "%s/tables --tables=5 --strict --out=%s", build_folder(), folder), missed);
    assert_int_equal(strstr(run.err_text, "bounds are missed, first table 5") != NULL, missed);
}

/* A scene whose node is not there ends with one line. */
static void test_a_node_that_is_missing(void **state) {
    (void)state;
    ls_node *node;
    assert_int_equal(ls_node_open(&node, "no-such-machine"), LS_ERR_IO);
    assert_null(node);
    scratch_expect_error("no-such-machine", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_inputs_and_rows_are_apart, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_refused_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_every_figure_has_its_row, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_hooks_come_from_one_gpu, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_exit_status, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_node_that_is_missing, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
