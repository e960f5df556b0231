/* columns: a row as text, as CSV and as JSON, from one list; and the texts around them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "labs/bench/shared/columns.h"
#include "labs/bench/shared/output.h"

struct row {
    int ranks;
    size_t nbytes;
    double time_us, rate;
    char host[8];
};

static double bits_of(const void *row) { return 8 * (double)((const struct row *)row)->nbytes; }

static const char *size_of(char cell[BENCH_CELL], const void *row) {
    snprintf(cell, BENCH_CELL, "%zu bytes", ((const struct row *)row)->nbytes);
    return cell;
}

static void put_or_minus(char cell[BENCH_CELL], int decimals, double value) {
    snprintf(cell, BENCH_CELL, "%.*f", decimals, isnan(value) ? -1 : value);
}

/* In files alone, in both, in text alone. */
static const bench_column columns[] = {
    {.name = "ranks", BENCH_AT(BENCH_INT, struct row, ranks)},
    {.name = "bytes", BENCH_AT(BENCH_SIZE, struct row, nbytes)},
    {.name = "time_ms",
     BENCH_AT(BENCH_DOUBLE, struct row, time_us),
     .unit = 1e-3,
     .head = "time\ns",
     .per = 1e6,
     .decimals = 4},
    {.name = "rate", BENCH_AT(BENCH_DOUBLE, struct row, rate), .head = "rate\n%", .percent = true, .decimals = 1},
    {.name = "host", BENCH_AT(BENCH_CHARS, struct row, host), .head = "host"},
    {.head = "bits", .number = bits_of},
    {.head = "size", .text = size_of, .align = LS_RIGHT},
    {.head = "rate", BENCH_AT(BENCH_DOUBLE, struct row, rate), .decimals = 1, .format = put_or_minus},
    {.kind = BENCH_END},
};

static const struct row example = {-4, 12345678901, 1500, NAN, "a\"b"};

static void check_csv(const struct row *row, const char *wanted) {
    bench_text text;
    FILE *file = bench_text_open(&text);
    assert_non_null(file);
    bench_put_names(file, columns);
    bench_put_columns(file, columns, row);
    char *written = bench_text_close(&text);
    assert_string_equal(written, wanted);
    free(written);
}

static void check_json(const struct row *row, const char *wanted) {
    cJSON *object = cJSON_CreateObject();
    bench_add_columns(object, columns, row);
    char *written = cJSON_PrintUnformatted(object);
    assert_string_equal(written, wanted);
    cJSON_free(written);
    cJSON_Delete(object);
}

static void csv_has_every_digit_of_whole_numbers_and_nothing_for_nan(void **state) {
    (void)state;
    check_csv(&example, ",ranks,bytes,time_ms,rate,host,-4,12345678901,1.5,,\"a\"\"b\"");
}

static void csv_of_no_row_is_commas(void **state) {
    (void)state;
    check_csv(NULL, ",ranks,bytes,time_ms,rate,host,,,,,");
}

static void json_has_null_for_nan(void **state) {
    (void)state;
    check_json(&example, "{\"ranks\":-4,\"bytes\":12345678901,\"time_ms\":1.5,\"rate\":null,\"host\":\"a\\\"b\"}");
}

static void json_of_no_row_is_empty(void **state) {
    (void)state;
    check_json(NULL, "{}");
}

/* --- text -------------------------------------------------------------------------------------------------------- */

static void check_table(ls_status (*put)(FILE *file), const char *wanted) {
    bench_text text;
    FILE *file = bench_text_open(&text);
    assert_non_null(file);
    assert_int_equal(put(file), LS_OK);
    char *written = bench_text_close(&text);
    assert_string_equal(written, wanted);
    free(written);
}

static ls_status print_two(FILE *file) {
    const struct row rows[] = {example, {1, 2, 2e6, 0.5, "c"}};
    return bench_print_rows(file, columns, rows, 2, sizeof rows[0]);
}

static void text_has_what_has_a_head(void **state) {
    (void)state;
    check_table(print_two, "  time  rate\n"
                           "     s     %  host         bits               size  rate\n"
                           "0.0015        a\"b   98765431208  12345678901 bytes  -1.0\n"
                           "2.0000  50.0  c              16            2 bytes   0.5\n");
}

/* A line of two lists, the second of which has no row. */
static ls_status print_parts(FILE *file) {
    static const bench_column first[] = {{.head = "N", BENCH_AT(BENCH_INT, struct row, ranks)}, {.kind = BENCH_END}};
    bench_table table = {.count = 0};
    bench_table_heads(&table, first);
    bench_table_heads(&table, columns);
    bench_table_cells(&table, first, &example);
    bench_table_cells(&table, columns, NULL);
    return bench_table_finish(&table, file);
}

static void text_of_no_row_is_empty(void **state) {
    (void)state;
    check_table(print_parts, "    time  rate\n"
                             " N     s     %  host  bits  size  rate\n"
                             "-4\n");
}

static ls_status print_none(FILE *file) { return bench_print_rows(file, columns, NULL, 0, sizeof(struct row)); }

static void text_without_rows_is_the_head(void **state) {
    (void)state;
    check_table(print_none, "time  rate\n   s     %  host  bits  size  rate\n");
}

static void too_many_columns_are_refused(void **state) {
    (void)state;
    bench_table table = {.count = 0};
    for (int i = 0; i < BENCH_HEADS_MAX; i++) bench_table_heads(&table, columns);
    bench_table_cells(&table, columns, &example);
    assert_int_equal(bench_table_finish(&table, stdout), LS_ERR_INVALID);
}

static void csv_doubles_quotes_in_texts(void **state) {
    (void)state;
    bench_text text;
    FILE *file = bench_text_open(&text);
    assert_non_null(file);
    bench_put_text(file, "a \"b\",\nc");
    char *written = bench_text_close(&text);
    assert_string_equal(written, "\"a \"\"b\"\",\nc\"");
    free(written);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_has_every_digit_of_whole_numbers_and_nothing_for_nan),
        cmocka_unit_test(csv_of_no_row_is_commas),
        cmocka_unit_test(json_has_null_for_nan),
        cmocka_unit_test(json_of_no_row_is_empty),
        cmocka_unit_test(text_has_what_has_a_head),
        cmocka_unit_test(text_of_no_row_is_empty),
        cmocka_unit_test(text_without_rows_is_the_head),
        cmocka_unit_test(too_many_columns_are_refused),
        cmocka_unit_test(csv_doubles_quotes_in_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
