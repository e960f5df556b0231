/* columns: a row as text, as CSV and as JSON, from one list, with headings and separators. */
#include <math.h>
#include <stdlib.h>

#include "labs/bench/shared/columns.h"
#include "labs/bench/shared/output.h"
#include "tests/base/test.h"

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

#define AT(kind, field) BENCH_AT(BENCH_##kind, struct row, field)

/* In files only, in both, in text only. */
static const bench_column columns[] = {
    {.name = "ranks", AT(INT, ranks)},
    {.name = "bytes", AT(SIZE, nbytes)},
    {.name = "time_ms", AT(DOUBLE, time_us), .unit = 1e-3, .head = "time\ns", .per = 1e6, .decimals = 4},
    {.name = "rate", AT(DOUBLE, rate), .head = "rate\n%", .percent = true, .decimals = 1},
    {.name = "host", AT(CHARS, host), .head = "host"},
    {.head = "bits", .number = bits_of},
    {.head = "size", .text = size_of, .align = LS_RIGHT},
    {.head = "rate", AT(DOUBLE, rate), .decimals = 1, .format = put_or_minus},
    {.kind = BENCH_END},
};

/* The columns of other rows, one of which may be missing, and a list that is left out. */
struct line {
    struct row own;
    const struct row *other;
};
static const bench_column own_columns[] = {{.name = "n", .head = "N", AT(INT, ranks)}, {.kind = BENCH_END}};
static const bench_column line_columns[] = {
    BENCH_IN(struct line, own, own_columns),
    BENCH_OF(struct line, other, columns),
    BENCH_OF(struct line, other, NULL),
    {.kind = BENCH_END},
};

static const struct row example = {-4, 12345678901, 1500, NAN, "a\"b"};
static const struct line with = {{2, 0, 0, 0, ""}, &example}, without = {{2, 0, 0, 0, ""}, NULL};

static ls_status put_csv(FILE *file, const void *line) {
    bench_put_names(file, line_columns);
    bench_put_columns(file, line_columns, line);
    return LS_OK;
}

static ls_status put_json(FILE *file, const void *line) {
    cJSON *object = cJSON_CreateObject();
    bench_add_columns(object, line_columns, line);
    return bench_put_json(file, object);
}

static ls_status put_two(FILE *file, const void *none) {
    const struct row rows[] = {example, {1, 2, 2e6, 0.5, "c"}};
    (void)none;
    return bench_print_rows(file, columns, rows, 2, sizeof rows[0]);
}

static ls_status put_line(FILE *file, const void *line) {
    bench_table table = {.columns = line_columns};
    if (line) bench_table_line(&table, line);
    return bench_table_finish(&table, file);
}

static void check(bench_put *put, const void *line, const char *wanted) {
    char *written = bench_text_of(put, line);
    assert_string_equal(written, wanted);
    free(written);
}

/* All digits of integers, nothing for NaN, quotes doubled; without a row only the commas. */
TEST(csv) {
    check(put_csv, &with, ",n,ranks,bytes,time_ms,rate,host,2,-4,12345678901,1.5,,\"a\"\"b\"");
    check(put_csv, &without, ",n,ranks,bytes,time_ms,rate,host,2,,,,,");
}

TEST(json) {
    check(put_json, &with,
          "{\n\t\"n\":\t2,\n\t\"ranks\":\t-4,\n\t\"bytes\":\t12345678901,\n\t\"time_ms\":\t1.5,\n\t\"rate\":\tnull,\n"
          "\t\"host\":\t\"a\\\"b\"\n}");
    check(put_json, &without, "{\n\t\"n\":\t2\n}");
}

/* Only columns with a heading; without rows only the headings. */
TEST(text) {
    check(put_two, NULL,
          "  time  rate\n"
          "     s     %  host         bits               size  rate\n"
          "0.0015        a\"b   98765431208  12345678901 bytes  -1.0\n"
          "2.0000  50.0  c              16            2 bytes   0.5\n");
    check(put_line, &without,
          "   time  rate\n"
          "N     s     %  host  bits  size  rate\n"
          "2\n");
    check(put_line, NULL,
          "   time  rate\n"
          "N     s     %  host  bits  size  rate\n");
}

TEST(too_many_columns_are_refused) {
    bench_column many[BENCH_HEADS_MAX + 2] = {{.kind = BENCH_END}};
    for (int i = 0; i <= BENCH_HEADS_MAX; i++) many[i] = own_columns[0];
    assert_int_equal(bench_print_rows(stdout, many, &example, 1, sizeof example), LS_ERR_INVALID);
}
