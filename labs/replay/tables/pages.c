/* pages: the book as aligned columns on stdout, as Markdown for the README, and as CSV. */
#include <math.h>
#include <string.h>

#include "labs/bench/shared/columns.h"
#include "labs/bench/shared/output.h"
#include "labs/replay/tables/book.h"

enum { TEXT_CAPACITY = 64, LINE_CAPACITY = 512, LINE_WIDTH = 110 };

/* --- cells -------------------------------------------------------------------------------------------------------- */

/* Integers and large numbers in full, others to four digits; NaN is left blank. */
static void put_number(char cell[BENCH_CELL], int decimals, double value) {
    bool whole = fabs(value) >= 1e4 || value == floor(value);
    (void)decimals;
    if (!isnan(value)) snprintf(cell, BENCH_CELL, whole ? "%.0f" : "%.4g", value);
}

static void put_deviation(char cell[BENCH_CELL], int decimals, double deviation) {
    if (!isnan(deviation)) snprintf(cell, BENCH_CELL, deviation == 0 ? "0" : "%+.*f %%", decimals, 100 * deviation);
}

/* The bound, and whether it holds: "within 5 %: held". */
static const char *bound_of(char cell[BENCH_CELL], const void *of) {
    const struct tables_row *row = of;
    const char *verdict =
        tables_holds(row) ? (row->claim ? "holds" : "held") : (row->claim ? "does not hold" : "MISSED");
    char limit[TEXT_CAPACITY] = "";
    switch (row->bound) {
    case TABLES_SHOWN: return "";
    case TABLES_WITHIN: snprintf(limit, sizeof limit, "within %.3g %%", 100 * row->tolerance); break;
    case TABLES_BELOW: snprintf(limit, sizeof limit, "below %.4g", row->reference); break;
    case TABLES_ABOVE: snprintf(limit, sizeof limit, "above %.4g", row->reference); break;
    }
    if (row->bound == TABLES_WITHIN && row->tolerance == 0) snprintf(limit, sizeof limit, "equal");
    snprintf(cell, BENCH_CELL, "%.40s: %s", limit, verdict);
    return cell;
}

BENCH_TEXT_OF(quantity_of, struct tables_row, row->quantity)
BENCH_TEXT_OF(mode_of, struct tables_row, row->mode)
BENCH_MADE_TEXT_OF(n_of, struct tables_row, row->n > 0, "%d", row->n)
BENCH_NUMBER_OF(deviation_of, struct tables_row, tables_deviation(row))

/* The columns of a row on stdout and in the README; the numbers are also in the CSV. */
#define AT(field) BENCH_AT(BENCH_DOUBLE, struct tables_row, field)
static const bench_column columns[] = {
    {.head = "quantity", .text = quantity_of},
    {.head = "mode", .text = mode_of},
    {.head = "N", .text = n_of, .align = LS_RIGHT},
    {.name = "reference", .head = "reference", AT(reference), .format = put_number},
    {.name = "ours", .head = "ours", AT(ours), .format = put_number},
    {.name = "deviation", .head = "deviation", .number = deviation_of, .decimals = 2, .format = put_deviation},
    {.head = "must be", .text = bound_of},
    {.kind = BENCH_END},
};
enum { COLUMNS = sizeof columns / sizeof *columns - 1 };

/* The end of the rows from `first` on with the same `how`. */
static size_t rows_end(const tables_book *book, size_t first) {
    size_t end = first;
    const char *how = book->items[first].row.how;
    while (end < book->count && book->items[end].kind == TABLES_ROW && strcmp(book->items[end].row.how, how) == 0)
        end++;
    return end;
}

/* Whether any of these rows is printed. */
static bool is_shown(const tables_book *book, size_t first, size_t end) {
    for (size_t i = first; i < end; i++)
        if (!book->items[i].row.aside) return true;
    return false;
}

static ls_status check_memory(const tables_book *book) {
    return book->out_of_memory ? ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the tables") : LS_OK;
}

/* --- for people, and as Markdown ---------------------------------------------------------------------------------- */

static ls_status print_rows(const tables_book *book, size_t first, size_t end, FILE *file) {
    bench_table table = {.columns = columns};
    const char *above = "";
    for (size_t i = first; i < end; i++) {
        struct tables_row row = book->items[i].row;
        if (row.aside) continue;
        if (strcmp(row.quantity, above) == 0) row.quantity = "";
        above = book->items[i].row.quantity;
        bench_table_line(&table, &row);
    }
    ls_status status = bench_table_finish(&table, file);
    fprintf(file, "(%s)\n", book->items[first].row.how);
    return status;
}

/* Writes a cell's text; escapes bars, which would end the cell. */
static void put_cell(FILE *file, const char *text) {
    fputs(" ", file);
    for (; *text; text++) fprintf(file, *text == '|' ? "\\%c" : "%c", *text);
    fputs(" |", file);
}

static void put_markdown_rows(const tables_book *book, size_t first, size_t end, FILE *file) {
    char cell[BENCH_CELL];
    fputc('|', file);
    for (int c = 0; c < COLUMNS; c++) fprintf(file, " %s |", columns[c].head);
    fputs("\n|", file);
    for (int c = 0; c < COLUMNS; c++) fputs(bench_align(&columns[c]) == LS_RIGHT ? "--:|" : "---|", file);
    fputc('\n', file);
    for (size_t i = first; i < end; i++) {
        if (book->items[i].row.aside) continue;
        fputc('|', file);
        for (int c = 0; c < COLUMNS; c++) put_cell(file, bench_cell(cell, &columns[c], &book->items[i].row));
        fputc('\n', file);
    }
    fprintf(file, "\nHow: %s.\n", book->items[first].row.how);
}

/* A paragraph in lines of a terminal's width. */
static void print_wrapped(const char *text, FILE *file) {
    size_t width = 0;
    while (*text) {
        size_t length = strcspn(text, " ");
        bool next_line = width > 0 && width + 1 + length > LINE_WIDTH;
        fprintf(file, "%s%.*s", next_line ? "\n" : width > 0 ? " " : "", (int)length, text);
        width = next_line ? length : width + length + (width > 0);
        text += length + (text[length] == ' ');
    }
    fputc('\n', file);
}

/* Writes the items of a table; 0: of all tables. */
static ls_status put_items(const tables_book *book, int number, bool markdown, FILE *file) {
    ls_status status = check_memory(book);
    for (size_t i = 0, end; status == LS_OK && i < book->count; i = end) {
        const struct tables_item *item = &book->items[i];
        end = item->kind == TABLES_ROW ? rows_end(book, i) : i + 1;
        if ((number > 0 && item->table != number) || (item->kind == TABLES_ROW && !is_shown(book, i, end))) continue;
        fputc('\n', file);
        if (item->kind == TABLES_TITLE)
            fprintf(file, markdown ? "## %d. %s\n" : "Table %d: %s\n", item->table, item->text);
        else if (item->kind == TABLES_TEXT && markdown)
            fprintf(file, "%s\n", item->text);
        else if (item->kind == TABLES_TEXT)
            print_wrapped(item->text, file);
        else if (markdown)
            put_markdown_rows(book, i, end, file);
        else
            status = print_rows(book, i, end, file);
    }
    return status;
}

ls_status tables_print(const tables_book *book, int number, FILE *file) { return put_items(book, number, false, file); }

static ls_status put_markdown(FILE *file, const void *results) {
    fputs("# The tables\n\nWritten by `make tables`.\n", file);
    return put_items(results, 0, true, file);
}

/* --- for programs ------------------------------------------------------------------------------------------------- */

static ls_status put_csv(FILE *file, const void *results) {
    const tables_book *book = results;
    char cell[BENCH_CELL], joined[2 * LINE_CAPACITY];
    fputs("table,mode,n", file);
    bench_put_names(file, columns);
    fputs(",how\n", file);
    for (size_t i = 0; i < book->count; i++) {
        const struct tables_row *row = &book->items[i].row;
        if (book->items[i].kind != TABLES_ROW) continue;
        snprintf(joined, sizeof joined, "%d %s", book->items[i].table, row->quantity);
        bench_put_text(file, joined);
        fputc(',', file);
        bench_put_text(file, row->mode);
        fprintf(file, ",%s", n_of(cell, row));
        bench_put_columns(file, columns, row);
        bool bounded = row->bound != TABLES_SHOWN;
        snprintf(joined, sizeof joined, "%s%s%s", row->how,
                 bounded ? (row->claim ? "; claimed to be " : "; must be ") : "", bound_of(cell, row));
        fputc(',', file);
        bench_put_text(file, joined);
        fputc('\n', file);
    }
    return LS_OK;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const bench_file outputs[] = {{"tables.csv", put_csv}, {"tables.md", put_markdown}, {NULL, NULL}};

ls_status tables_prepare_files(const char *folder) {
    return bench_prepare_folder(&(ls_named_files){0}, folder, outputs);
}

ls_status tables_write_files(const tables_book *book, const char *folder) {
    ls_status status = check_memory(book);
    return status == LS_OK ? bench_write_outputs(folder, outputs, book) : status;
}
