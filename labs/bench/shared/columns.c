#include "labs/bench/shared/columns.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/base/log.h"

static bool is_last(const bench_column *column) {
    return column->kind == BENCH_END && !column->text && !column->number;
}
static bool is_text(const bench_column *column) { return column->kind == BENCH_CHARS || column->text; }
static bool is_whole(const bench_column *column) {
    return column->kind == BENCH_INT || column->kind == BENCH_INT64 || column->kind == BENCH_SIZE;
}
static bool is_list(const bench_column *column) {
    return column->kind == BENCH_POINTED || column->kind == BENCH_WITHIN;
}

static double number_of(const bench_column *column, const void *row) {
    const void *field = (const char *)row + column->offset;
    if (column->number) return column->number(row);
    switch (column->kind) {
    case BENCH_INT: return *(const int *)field;
    case BENCH_INT64: return (double)*(const int64_t *)field;
    case BENCH_SIZE: return (double)*(const size_t *)field;
    case BENCH_DOUBLE: return *(const double *)field;
    default: return NAN;
    }
}

static const char *text_of(char cell[BENCH_CELL], const bench_column *column, const void *row) {
    cell[0] = '\0';
    return column->text ? column->text(cell, row) : (const char *)row + column->offset;
}

/* The value in CSV and JSON. */
static double value_of(const bench_column *column, const void *row) {
    return (column->unit != 0 ? column->unit : 1) * number_of(column, row);
}

/* Called for each column of a list and of the lists in it; row is NULL if there is none. */
typedef void do_with(void *with, const bench_column *column, const void *row);
static void walk(const bench_column *columns, const void *row, do_with *each, void *with) {
    for (; !is_last(columns); columns++) {
        const void *field = row ? (const char *)row + columns->offset : NULL;
        if (field && columns->kind == BENCH_POINTED) memcpy(&field, field, sizeof field);
        if (!is_list(columns)) {
            each(with, columns, row);
        } else if (columns->columns) {
            walk(columns->columns, field, each, with);
        }
    }
}

/* --- CSV --------------------------------------------------------------------------------------------------------- */

void bench_put_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) fputs((char[]){*text, *text == '"' ? '"' : '\0', '\0'}, file);
    fputc('"', file);
}

void bench_put_number(FILE *file, double value) {
    fputc(',', file);
    if (isfinite(value)) fprintf(file, "%.9g", value);
}

static void put_name(void *file, const bench_column *column, const void *row) {
    (void)row;
    if (column->name) fprintf(file, ",%s", column->name);
}

static void put_value(void *file, const bench_column *column, const void *row) {
    char cell[BENCH_CELL];
    if (!column->name) return;
    if (!row) {
        fputc(',', file);
    } else if (is_text(column)) {
        fputc(',', file);
        bench_put_text(file, text_of(cell, column, row));
    } else if (is_whole(column)) { /* every digit */
        fprintf(file, ",%.0f", value_of(column, row));
    } else {
        bench_put_number(file, value_of(column, row));
    }
}

void bench_put_names(FILE *file, const bench_column *columns) { walk(columns, NULL, put_name, file); }
void bench_put_columns(FILE *file, const bench_column *columns, const void *row) {
    walk(columns, row, put_value, file);
}

/* --- JSON -------------------------------------------------------------------------------------------------------- */

void bench_add_number(cJSON *object, const char *name, double value) {
    isfinite(value) ? cJSON_AddNumberToObject(object, name, value) : cJSON_AddNullToObject(object, name);
}

static void add(void *object, const bench_column *column, const void *row) {
    char cell[BENCH_CELL];
    if (!column->name || !row) return;
    if (is_text(column)) {
        cJSON_AddStringToObject(object, column->name, text_of(cell, column, row));
    } else {
        bench_add_number(object, column->name, value_of(column, row));
    }
}

void bench_add_columns(cJSON *object, const bench_column *columns, const void *row) { walk(columns, row, add, object); }

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

static void add_head(void *with, const bench_column *column, const void *row) {
    bench_table *table = with;
    (void)row;
    if (!column->head || table->status != LS_OK) return;
    if (table->count == BENCH_HEADS_MAX) {
        table->status = ls_fail(LS_ERR_INVALID, "a table has more than %d columns", BENCH_HEADS_MAX);
    } else {
        table->heads[table->count++] = (ls_column){column->head, bench_align(column)};
    }
}

static void add_cell(void *with, const bench_column *column, const void *row) {
    char cell[BENCH_CELL];
    if (column->head) ls_table_cell(((bench_table *)with)->cells, "%s", bench_cell(cell, column, row));
}

static bool is_begun(bench_table *table) {
    if (table->status != LS_OK || table->cells) return table->status == LS_OK;
    walk(table->columns, NULL, add_head, table);
    if (table->status == LS_OK) table->status = ls_table_create(&table->cells, table->heads, table->count);
    return table->status == LS_OK;
}

void bench_table_line(bench_table *table, const void *row) {
    if (is_begun(table)) walk(table->columns, row, add_cell, table);
}

ls_status bench_table_finish(bench_table *table, FILE *file) {
    if (is_begun(table)) table->status = ls_table_print(table->cells, file);
    ls_table_destroy(table->cells);
    table->cells = NULL;
    return table->status;
}

ls_status bench_print_rows(FILE *file, const bench_column *columns, const void *rows, size_t count, size_t row_nbytes) {
    bench_table table = {.columns = columns};
    for (size_t i = 0; i < count; i++) bench_table_line(&table, (const char *)rows + i * row_nbytes);
    return bench_table_finish(&table, file);
}
