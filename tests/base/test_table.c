#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/table.h"
#include "tests/base/test.h"

static const ls_column columns[] = {{"mode", LS_LEFT}, {"step\nms", LS_RIGHT}, {"note", LS_LEFT}};

static void expect_text(const ls_table *table, const char *expected) {
    char *text = NULL;
    size_t nbytes = 0;
    FILE *file = open_memstream(&text, &nbytes);
    assert_non_null(file);
    assert_int_equal(ls_table_print(table, file), LS_OK);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, expected);
    free(text);
}

/* As expect_text, and then frees the table. */
static void expect_last_text(ls_table *table, const char *expected) {
    char text[200] = "";
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    assert_int_equal(ls_table_finish(table, file), LS_OK);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, expected);
}

TEST(test_columns_are_as_wide_as_their_widest_text) {
    ls_table *table;
    assert_int_equal(ls_table_create(&table, columns, 3), LS_OK);
    for (int row = 0; row < 20; row++) { /* more than the initial capacity */
        ls_table_cell(table, "%s", row == 7 ? "single" : "DP");
        ls_table_cell(table, "%.2f", row == 9 ? 1234.5 : 0.25);
        ls_table_cell(table, "%s", row == 3 ? "here" : "");
    }
    char expected[1024] = "           step\n"
                          "mode         ms  note\n";
    for (int row = 0; row < 20; row++) {
        strcat(expected, row == 7 ? "single  " : "DP      ");
        strcat(expected, row == 9 ? "1234.50" : "   0.25");
        strcat(expected, row == 3 ? "  here\n" : "\n");
    }
    expect_text(table, expected);
    ls_table_destroy(table);
}

TEST(test_empty_cells_and_wide_characters) {
    ls_table *table;
    assert_int_equal(ls_table_create(&table, columns, 3), LS_OK);
    expect_text(table, "      step\nmode    ms  note\n");
    ls_table_cell(table, "%s", "µs"); /* two characters in three bytes */
    ls_table_cell(table, "%s", "");
    ls_table_cell(table, "%s", "last");
    ls_table_cell(table, "%s", "part of a row");
    expect_text(table, "               step\n"
                       "mode             ms  note\n"
                       "µs                   last\n"
                       "part of a row\n");
    ls_table_number(table, 2, 1234.567);
    ls_table_number(table, 0, NAN); /* not defined: also empty */
    ls_table_number(table, 0, -INFINITY);
    ls_table_number(table, 3, -0.5);
    expect_last_text(table, "                  step\n"
                            "mode                ms  note\n"
                            "µs                      last\n"
                            "part of a row  1234.57\n"
                            "-inf            -0.500\n");
    ls_table_destroy(NULL);
}
