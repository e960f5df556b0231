/* The numbers of a kind of row, told once for CSV and JSON: a column is a line of a table,
 *
 *     static const bench_column columns[] = {
 *         BENCH_COLUMN("ranks", BENCH_INT, row, n),
 *         BENCH_COLUMN("time_us", BENCH_DOUBLE, row, time_us),
 *         {NULL, 0, 0, 0},
 *     };
 *
 * and both emitters walk along it. A table is one run of neighbours: CSV and JSON put their runs in orders of their
 * own. Texts, and what follows from more than the row, are written by output.h. */
#ifndef LABS_BENCH_SHARED_COLUMNS_H
#define LABS_BENCH_SHARED_COLUMNS_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdio.h>

/* What lies at the offset: double, int or size_t (below 2^53). Whole numbers have all their digits in the files. */
typedef enum bench_kind { BENCH_DOUBLE, BENCH_INT, BENCH_SIZE } bench_kind;

typedef struct bench_column {
    const char *name; /* NULL: the table ends */
    bench_kind kind;
    size_t offset;
    double unit; /* times the value of BENCH_DOUBLE: 1e-3 where the row has microseconds and the file milliseconds */
} bench_column;

#define BENCH_COLUMN(name, kind, type, field)                                                                          \
    { name, kind, offsetof(type, field), 1 }

/* CSV: ",name,name", and ",value,value" of a row, with nothing behind the comma where a number is not finite. row NULL,
 * for a row that has no such values: the commas alone. */
void bench_put_names(FILE *file, const bench_column *columns);
void bench_put_columns(FILE *file, const bench_column *columns, const void *row);

/* JSON: null where a number is not finite; row NULL: adds nothing. */
void bench_add_columns(cJSON *object, const bench_column *columns, const void *row);

#endif
