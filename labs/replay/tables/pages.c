/* pages: the book as aligned columns for people, as Markdown for the README, and as CSV for programs. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/table.h"
#include "labs/bench/shared/output.h"
#include "labs/replay/tables/book.h"

enum { TEXT_CAPACITY = 64, LINE_CAPACITY = 512, LINE_WIDTH = 110 };

static const char csv_name[] = "tables.csv", markdown_name[] = "tables.md";

/* --- cells -------------------------------------------------------------------------------------------------------- */

/* Whole and large numbers in full, others to four digits; nothing for NaN. */
static const char *number_text(char text[TEXT_CAPACITY], double value) {
    bool whole = fabs(value) >= 1e4 || value == floor(value);
    text[0] = '\0';
    if (!isnan(value)) snprintf(text, TEXT_CAPACITY, whole ? "%.0f" : "%.4g", value);
    return text;
}

static const char *deviation_text(char text[TEXT_CAPACITY], const struct tables_row *row) {
    double deviation = tables_deviation(row);
    text[0] = '\0';
    if (!isnan(deviation)) snprintf(text, TEXT_CAPACITY, deviation == 0 ? "0" : "%+.2f %%", 100 * deviation);
    return text;
}

/* The bound, and whether it holds: "within 5 %: held". */
static const char *bound_text(char text[TEXT_CAPACITY], const struct tables_row *row) {
    const char *verdict =
        tables_holds(row) ? (row->claim ? "holds" : "held") : (row->claim ? "does not hold" : "MISSED");
    char limit[TEXT_CAPACITY] = "";
    switch (row->bound) {
    case TABLES_SHOWN: text[0] = '\0'; return text;
    case TABLES_WITHIN: snprintf(limit, sizeof limit, "within %.3g %%", 100 * row->tolerance); break;
    case TABLES_BELOW: snprintf(limit, sizeof limit, "below %.4g", row->reference); break;
    case TABLES_ABOVE: snprintf(limit, sizeof limit, "above %.4g", row->reference); break;
    }
    if (row->bound == TABLES_WITHIN && row->tolerance == 0) snprintf(limit, sizeof limit, "equal");
    snprintf(text, TEXT_CAPACITY, "%.40s: %s", limit, verdict);
    return text;
}

static const char *n_text(char text[TEXT_CAPACITY], const struct tables_row *row) {
    text[0] = '\0';
    if (row->n > 0) snprintf(text, TEXT_CAPACITY, "%d", row->n);
    return text;
}

/* The end of the rows from `first` on that were come by in the same way. */
static size_t rows_end(const tables_book *book, size_t first) {
    size_t end = first;
    const char *how = book->items[first].row.how;
    while (end < book->count && book->items[end].kind == TABLES_ROW && strcmp(book->items[end].row.how, how) == 0)
        end++;
    return end;
}

/* Whether any of these rows is for people. */
static bool is_shown(const tables_book *book, size_t first, size_t end) {
    for (size_t i = first; i < end; i++)
        if (!book->items[i].row.aside) return true;
    return false;
}

static ls_status check_memory(const tables_book *book) {
    return book->out_of_memory ? ls_fail(LS_ERR_NO_MEMORY, "no memory for the tables") : LS_OK;
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static ls_status print_rows(const tables_book *book, size_t first, size_t end, FILE *file) {
    static const ls_column columns[] = {{"quantity", LS_LEFT},   {"mode", LS_LEFT},  {"N", LS_RIGHT},
                                        {"reference", LS_RIGHT}, {"ours", LS_RIGHT}, {"deviation", LS_RIGHT},
                                        {"must be", LS_LEFT}};
    ls_table *table;
    char text[TEXT_CAPACITY];
    const struct tables_row *above = NULL;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    for (size_t i = first; i < end; i++) {
        const struct tables_row *row = &book->items[i].row;
        if (row->aside) continue;
        bool again = above && strcmp(row->quantity, above->quantity) == 0;
        above = row;
        ls_table_cell(table, "%s", again ? "" : row->quantity);
        ls_table_cell(table, "%s", row->mode);
        ls_table_cell(table, "%s", n_text(text, row));
        ls_table_cell(table, "%s", number_text(text, row->reference));
        ls_table_cell(table, "%s", number_text(text, row->ours));
        ls_table_cell(table, "%s", deviation_text(text, row));
        ls_table_cell(table, "%s", bound_text(text, row));
    }
    status = ls_table_print(table, file);
    ls_table_destroy(table);
    fprintf(file, "(%s)\n", book->items[first].row.how);
    return status;
}

/* A paragraph in lines of a terminal's width. */
static void print_wrapped(const char *text, FILE *file) {
    size_t width = 0;
    while (*text) {
        size_t length = strcspn(text, " ");
        if (width > 0 && width + 1 + length > LINE_WIDTH) {
            fputc('\n', file);
            width = 0;
        }
        fprintf(file, "%s%.*s", width > 0 ? " " : "", (int)length, text);
        width += length + (width > 0);
        text += length + (text[length] == ' ');
    }
    fputc('\n', file);
}

ls_status tables_print(const tables_book *book, int number, FILE *file) {
    ls_status status = check_memory(book);
    for (size_t i = 0; status == LS_OK && i < book->count; i++) {
        const struct tables_item *item = &book->items[i];
        if (item->table != number) continue;
        size_t end = item->kind == TABLES_ROW ? rows_end(book, i) : i + 1;
        if (item->kind != TABLES_ROW || is_shown(book, i, end)) fputc('\n', file);
        if (item->kind == TABLES_TITLE) fprintf(file, "Table %d: %s\n", item->table, item->text);
        if (item->kind == TABLES_TEXT) print_wrapped(item->text, file);
        if (item->kind == TABLES_ROW && is_shown(book, i, end)) status = print_rows(book, i, end, file);
        i = end - 1;
    }
    return status;
}

/* --- for the README ----------------------------------------------------------------------------------------------- */

/* Text of a cell, in which a bar would end it. */
static void put_cell(FILE *file, const char *text) {
    fputs(" ", file);
    for (; *text; text++) fprintf(file, *text == '|' ? "\\%c" : "%c", *text);
    fputs(" |", file);
}

static void put_markdown_rows(FILE *file, const tables_book *book, size_t first, size_t end) {
    char text[TEXT_CAPACITY];
    fputs("| quantity | mode | N | reference | ours | deviation | must be |\n|---|---|--:|--:|--:|--:|---|\n", file);
    for (size_t i = first; i < end; i++) {
        const struct tables_row *row = &book->items[i].row;
        if (row->aside) continue;
        fputc('|', file);
        put_cell(file, row->quantity);
        put_cell(file, row->mode);
        put_cell(file, n_text(text, row));
        put_cell(file, number_text(text, row->reference));
        put_cell(file, number_text(text, row->ours));
        put_cell(file, deviation_text(text, row));
        put_cell(file, bound_text(text, row));
        fputc('\n', file);
    }
    fprintf(file, "\nHow: %s.\n", book->items[first].row.how);
}

static void put_markdown(FILE *file, const tables_book *book) {
    fputs("# The tables\n\nWritten by `make tables`.\n", file);
    for (size_t i = 0; i < book->count; i++) {
        const struct tables_item *item = &book->items[i];
        size_t end = item->kind == TABLES_ROW ? rows_end(book, i) : i + 1;
        if (item->kind != TABLES_ROW || is_shown(book, i, end)) fputc('\n', file);
        if (item->kind == TABLES_TITLE) fprintf(file, "## %d. %s\n", item->table, item->text);
        if (item->kind == TABLES_TEXT) fprintf(file, "%s\n", item->text);
        if (item->kind == TABLES_ROW && is_shown(book, i, end)) put_markdown_rows(file, book, i, end);
        i = end - 1;
    }
}

/* --- for programs ------------------------------------------------------------------------------------------------- */

static void put_csv(FILE *file, const tables_book *book) {
    char text[TEXT_CAPACITY], joined[2 * LINE_CAPACITY];
    fputs("table,mode,n,reference,ours,deviation,how\n", file);
    for (size_t i = 0; i < book->count; i++) {
        const struct tables_row *row = &book->items[i].row;
        if (book->items[i].kind != TABLES_ROW) continue;
        snprintf(joined, sizeof joined, "%d %s", book->items[i].table, row->quantity);
        bench_put_text(file, joined);
        fputc(',', file);
        bench_put_text(file, row->mode);
        fprintf(file, ",%s", n_text(text, row));
        bench_put_number(file, row->reference);
        bench_put_number(file, row->ours);
        bench_put_number(file, tables_deviation(row));
        bool bounded = row->bound != TABLES_SHOWN;
        snprintf(joined, sizeof joined, "%s%s%s", row->how,
                 bounded ? (row->claim ? "; claimed to be " : "; must be ") : "", bound_text(text, row));
        fputc(',', file);
        bench_put_text(file, joined);
        fputc('\n', file);
    }
}

/* --- files -------------------------------------------------------------------------------------------------------- */

ls_status tables_prepare_files(const char *folder) {
    const char *const names[] = {csv_name, markdown_name};
    return bench_prepare_folder(folder, names, 2);
}

static ls_status write_with(void (*put)(FILE *, const tables_book *), const tables_book *book, const char *folder,
                            const char *name) {
    bench_text written;
    FILE *file = bench_text_open(&written);
    if (!file) return ls_fail(LS_ERR_NO_MEMORY, "no memory for %s", name);
    put(file, book);
    char *text = bench_text_close(&written);
    ls_status status =
        text ? bench_write_file(folder, name, text) : ls_fail(LS_ERR_NO_MEMORY, "no memory for %s", name);
    free(text);
    return status;
}

ls_status tables_write_files(const tables_book *book, const char *folder) {
    ls_status status = check_memory(book);
    if (status == LS_OK) status = write_with(put_csv, book, folder, csv_name);
    if (status == LS_OK) status = write_with(put_markdown, book, folder, markdown_name);
    return status;
}
