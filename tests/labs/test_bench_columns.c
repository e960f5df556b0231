/* columns: a row's numbers as CSV and as JSON, from one table; and the texts around them. */
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
};

static const bench_column columns[] = {
    BENCH_COLUMN("ranks", BENCH_INT, struct row, ranks),
    BENCH_COLUMN("bytes", BENCH_SIZE, struct row, nbytes),
    {"time_ms", BENCH_DOUBLE, offsetof(struct row, time_us), 1e-3},
    BENCH_COLUMN("rate", BENCH_DOUBLE, struct row, rate),
    {NULL, 0, 0, 0},
};

static const struct row example = {-4, 12345678901, 1500, NAN};

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
    check_csv(&example, ",ranks,bytes,time_ms,rate,-4,12345678901,1.5,");
}

static void csv_of_no_row_is_commas(void **state) {
    (void)state;
    check_csv(NULL, ",ranks,bytes,time_ms,rate,,,,");
}

static void json_has_null_for_nan(void **state) {
    (void)state;
    check_json(&example, "{\"ranks\":-4,\"bytes\":12345678901,\"time_ms\":1.5,\"rate\":null}");
}

static void json_of_no_row_is_empty(void **state) {
    (void)state;
    check_json(NULL, "{}");
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
        cmocka_unit_test(csv_doubles_quotes_in_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
