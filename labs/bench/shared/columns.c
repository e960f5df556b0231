#include "labs/bench/shared/columns.h"

#include "labs/bench/shared/output.h"

static double double_of(const bench_column *column, const void *row) {
    const void *field = (const char *)row + column->offset;
    switch (column->kind) {
    case BENCH_INT: return *(const int *)field;
    case BENCH_SIZE: return (double)*(const size_t *)field;
    case BENCH_DOUBLE: break;
    }
    return column->unit * *(const double *)field;
}

void bench_put_names(FILE *file, const bench_column *columns) {
    for (; columns->name; columns++) fprintf(file, ",%s", columns->name);
}

void bench_put_columns(FILE *file, const bench_column *columns, const void *row) {
    for (; columns->name; columns++) {
        if (!row) {
            fputc(',', file);
        } else if (columns->kind == BENCH_DOUBLE) {
            bench_put_number(file, double_of(columns, row));
        } else { /* every digit */
            fprintf(file, ",%.0f", double_of(columns, row));
        }
    }
}

void bench_add_columns(cJSON *object, const bench_column *columns, const void *row) {
    for (; row && columns->name; columns++) bench_add_number(object, columns->name, double_of(columns, row));
}
