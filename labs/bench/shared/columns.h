/* The columns of a kind of row, defined once for text, CSV and JSON: a column is a line of a list,
 *
 *     static const bench_column columns[] = {
 *         {.head = "algorithm", .text = algorithm_of},
 *         {.name = "ranks", BENCH_AT(BENCH_INT, row, n), .head = "N"},
 *         {.name = "time_ms", BENCH_AT(BENCH_DOUBLE, row, time_us), .unit = 1e-3, .head = "time\nus", .decimals = 2},
 *         {.name = "least_ms", BENCH_AT(BENCH_DOUBLE, row, least_us), .unit = 1e-3},
 *         BENCH_OF(row, machine, bench_machine_columns),
 *         {.kind = BENCH_END},
 *     };
 *
 * and all writers iterate over it. A column with a name is in CSV and JSON, one with a head is in text tables. A member
 * that is not set is zero, with the meaning below. */
#ifndef LABS_BENCH_SHARED_COLUMNS_H
#define LABS_BENCH_SHARED_COLUMNS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/base/table.h"

enum { BENCH_CELL = 256, BENCH_HEADS_MAX = 32 };

/* The type of the field at the offset. Integers (below 2^53) have all their digits in the files; CHARS is an array.
 * POINTED and WITHIN stand for all columns of another row: one that the field points to (NULL: there is none), or the
 * field itself. */
typedef enum bench_kind {
    BENCH_END,
    BENCH_DOUBLE,
    BENCH_INT,
    BENCH_INT64,
    BENCH_SIZE,
    BENCH_CHARS,
    BENCH_POINTED,
    BENCH_WITHIN
} bench_kind;

typedef struct bench_column {
    const char *name; /* in CSV and JSON; NULL: not in them */
    const char *head; /* in text tables; NULL: not in them */
    bench_kind kind;
    size_t offset;
    const struct bench_column *columns; /* POINTED, WITHIN: of the other row; NULL: none of them */
    /* One of these instead of an offset, if the value is derived from several fields; a text may be written to `cell`,
     * which is empty at first. */
    double (*number)(const void *row);
    const char *(*text)(char cell[BENCH_CELL], const void *row);
    double unit; /* CSV and JSON: the factor of the value, as 1e-3 from microseconds to milliseconds; 0: 1 */
    /* text tables */
    double per;                                                        /* the value is divided by this; 0: by 1 */
    bool percent;                                                      /* times 100 */
    int decimals;                                                      /* NaN is left blank */
    void (*format)(char cell[BENCH_CELL], int decimals, double value); /* instead; `cell` is empty at first */
    ls_align align;                                                    /* of texts; numbers are right-aligned */
} bench_column;

/* For macros that define a column. */
#define BENCH_COLUMN(...)                                                                                              \
    { __VA_ARGS__ }

#define BENCH_AT(what, type, field) .kind = what, .offset = offsetof(type, field)
#define BENCH_OF(type, field, list) BENCH_COLUMN(BENCH_AT(BENCH_POINTED, type, field), .columns = list)
#define BENCH_IN(type, field, list) BENCH_COLUMN(BENCH_AT(BENCH_WITHIN, type, field), .columns = list)

/* Define functions for .number and .text from an expression in `row`; a formatted text is a format and its arguments,
 * and empty if the value is unknown. */
#define BENCH_NUMBER_OF(function, type, value)                                                                         \
    static double function(const void *of) {                                                                           \
        const type *row = of;                                                                                          \
        return value;                                                                                                  \
    }
#define BENCH_TEXT_OF(function, type, value)                                                                           \
    static const char *function(char cell[BENCH_CELL], const void *of) {                                               \
        const type *row = of;                                                                                          \
        (void)cell;                                                                                                    \
        return value;                                                                                                  \
    }
#define BENCH_MADE_TEXT_OF(function, type, is_known, ...)                                                              \
    static const char *function(char cell[BENCH_CELL], const void *of) {                                               \
        const type *row = of;                                                                                          \
        cell[0] = '\0';                                                                                                \
        if (is_known) snprintf(cell, BENCH_CELL, __VA_ARGS__);                                                         \
        return cell;                                                                                                   \
    }

/* CSV after RFC 4180: ",name,name", and ",value,value" of a row, with nothing after the comma if a number is not
 * finite, or if there is no row. Texts are in quotes, with quotes doubled. */
void bench_put_names(FILE *file, const bench_column *columns);
void bench_put_columns(FILE *file, const bench_column *columns, const void *row);
void bench_put_text(FILE *file, const char *text);
void bench_put_number(FILE *file, double value); /* with its comma */

/* JSON: null if a number is not finite; adds nothing if there is no row. */
void bench_add_columns(cJSON *object, const bench_column *columns, const void *row);
void bench_add_number(cJSON *object, const char *name, double value);

/* A cell of a text table; the text may be in the row. */
const char *bench_cell(char cell[BENCH_CELL], const bench_column *column, const void *row);

ls_align bench_align(const bench_column *column);

/* A text table of one list; zero-filled at first, then its columns, then its lines. Finishing prints it and frees its
 * memory. A failure is reported once, and finishing returns it. */
typedef struct bench_table {
    const bench_column *columns;
    ls_column heads[BENCH_HEADS_MAX];
    size_t count;
    ls_table *cells;
    ls_status status;
} bench_table;
void bench_table_line(bench_table *table, const void *row);
ls_status bench_table_finish(bench_table *table, FILE *file);

/* Does all of this for a table of consecutive rows. */
ls_status bench_print_rows(FILE *file, const bench_column *columns, const void *rows, size_t count, size_t row_nbytes);

#endif
