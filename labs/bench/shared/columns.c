#include "labs/bench/shared/columns.h"

#include <math.h>
#include <stdint.h>

#include "common/base/log.h"
#include "labs/bench/shared/output.h"

static bool is_last(const bench_column *column) {
    return column->kind == BENCH_END && !column->text && !column->number;
}
static bool is_text(const bench_column *column) { return column->kind == BENCH_CHARS || column->text; }
static bool is_whole(const bench_column *column) {
    return column->kind == BENCH_INT || column->kind == BENCH_INT64 || column->kind == BENCH_SIZE;
}

static double number_of(const bench_column *column, const void *row) {
    const void *field = (const char *)row + column->offset;
    if (column->number) return column->number(row);
    switch (column->kind) {
    case BENCH_INT: return *(const int *)field;
    case BENCH_INT64: return (double)*(const int64_t *)field;
    case BENCH_SIZE: return (double)*(const size_t *)field;
    case BENCH_DOUBLE: return *(const double *)field;
    case BENCH_CHARS:
    case BENCH_END: break;
    }
    return NAN;
}

static const char *text_of(char cell[BENCH_CELL], const bench_column *column, const void *row) {
    cell[0] = '\0';
    return column->text ? column->text(cell, row) : (const char *)row + column->offset;
}

/* As CSV and JSON have it. */
static double value_of(const bench_column *column, const void *row) {
    return (column->unit != 0 ? column->unit : 1) * number_of(column, row);
}

/* --- CSV --------------------------------------------------------------------------------------------------------- */

void bench_put_names(FILE *file, const bench_column *columns) {
    for (; !is_last(columns); columns++)
        if (columns->name) fprintf(file, ",%s", columns->name);
}

void bench_put_columns(FILE *file, const bench_column *columns, const void *row) {
    char cell[BENCH_CELL];
    for (; !is_last(columns); columns++) {
        if (!columns->name) continue;
        if (!row) {
            fputc(',', file);
        } else if (is_text(columns)) {
            fputc(',', file);
            bench_put_text(file, text_of(cell, columns, row));
        } else if (is_whole(columns)) { /* every digit */
            fprintf(file, ",%.0f", value_of(columns, row));
        } else {
            bench_put_number(file, value_of(columns, row));
        }
    }
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

void bench_add_columns(cJSON *object, const bench_column *columns, const void *row) {
    char cell[BENCH_CELL];
    for (; row && !is_last(columns); columns++) {
        if (!columns->name) continue;
        if (is_text(columns)) {
            cJSON_AddStringToObject(object, columns->name, text_of(cell, columns, row));
        } else {
            bench_add_number(object, columns->name, value_of(columns, row));
        }
    }
}

/* --- text -------------------------------------------------------------------------------------------------------- */

const char *bench_cell(char cell[BENCH_CELL], const bench_column *column, const void *row) {
    cell[0] = '\0';
    if (!row) return cell;
    if (is_text(column)) return text_of(cell, column, row);
    double value = number_of(column, row) / (column->per != 0 ? column->per : 1) * (column->percent ? 100 : 1);
    if (column->format) {
        column->format(cell, column->decimals, value);
    } else if (!isnan(value)) {
        snprintf(cell, BENCH_CELL, "%.*f", column->decimals, value);
    }
    return cell;
}

ls_align bench_align(const bench_column *column) { return is_text(column) ? column->align : LS_RIGHT; }

void bench_table_heads(bench_table *table, const bench_column *columns) {
    for (; table->status == LS_OK && !is_last(columns); columns++) {
        if (!columns->head) continue;
        if (table->count == BENCH_HEADS_MAX) {
            table->status = ls_fail(LS_ERR_INVALID, "a table has more than %d columns", BENCH_HEADS_MAX);
            continue;
        }
        table->heads[table->count++] = (ls_column){columns->head, bench_align(columns)};
    }
}

/* Once all heads are there. */
static bool is_begun(bench_table *table) {
    if (table->status == LS_OK && !table->cells)
        table->status = ls_table_create(&table->cells, table->heads, table->count);
    return table->status == LS_OK;
}

void bench_table_cells(bench_table *table, const bench_column *columns, const void *row) {
    char cell[BENCH_CELL];
    if (!is_begun(table)) return;
    for (; !is_last(columns); columns++)
        if (columns->head) ls_table_cell(table->cells, "%s", bench_cell(cell, columns, row));
}

ls_status bench_table_finish(bench_table *table, FILE *file) {
    if (is_begun(table)) table->status = ls_table_print(table->cells, file);
    ls_table_destroy(table->cells);
    table->cells = NULL;
    return table->status;
}

ls_status bench_print_rows(FILE *file, const bench_column *columns, const void *rows, size_t count, size_t row_nbytes) {
    bench_table table = {.count = 0};
    bench_table_heads(&table, columns);
    for (size_t i = 0; i < count; i++) bench_table_cells(&table, columns, (const char *)rows + i * row_nbytes);
    return bench_table_finish(&table, file);
}
