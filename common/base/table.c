#include "common/base/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CELL_CAPACITY = 256, COLUMN_GAP = 2 };

struct ls_table {
    const ls_column *columns;
    size_t column_count;
    char (*cells)[CELL_CAPACITY];
    size_t cell_count, cell_capacity;
    bool failed; /* there was no memory for a cell */
};

ls_status ls_table_create(ls_table **out, const ls_column *columns, size_t count) {
    ls_table *table = *out = calloc(1, sizeof *table);
    if (!table) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a table");
    table->columns = columns;
    table->column_count = count;
    return LS_OK;
}

void ls_table_destroy(ls_table *table) {
    if (!table) return;
    free(table->cells);
    free(table);
}

static bool make_room(ls_table *table) {
    if (table->cell_count < table->cell_capacity) return true;
    size_t capacity = table->cell_capacity ? 2 * table->cell_capacity : 8 * table->column_count;
    void *cells = realloc(table->cells, capacity * sizeof *table->cells);
    if (!cells) return false;
    table->cells = cells;
    table->cell_capacity = capacity;
    return true;
}

void ls_table_cell(ls_table *table, const char *format, ...) {
    if (table->failed || !make_room(table)) {
        table->failed = true;
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(table->cells[table->cell_count++], CELL_CAPACITY, format, arguments);
    va_end(arguments);
}

void ls_table_number(ls_table *table, int decimals, double value) {
    if (isnan(value)) {
        ls_table_cell(table, "%s", "");
    } else {
        ls_table_cell(table, "%.*f", decimals, value);
    }
}

/* Characters of the first `nbytes` of a UTF-8 text: all bytes except continuation bytes. */
static size_t text_width(const char *text, size_t nbytes) {
    size_t width = 0;
    for (size_t i = 0; i < nbytes; i++) width += ((unsigned char)text[i] & 0xC0) != 0x80;
    return width;
}

static size_t line_count(const char *title) {
    size_t count = 1;
    for (const char *at = title; (at = strchr(at, '\n')); at++) count++;
    return count;
}

/* Line `index` of the head in this column: nothing above the title's first line. */
static const char *title_line(const char *title, size_t index, size_t head_height, size_t *nbytes) {
    size_t above = head_height - line_count(title);
    *nbytes = 0;
    if (index < above) return "";
    for (size_t i = above; i < index; i++) title = strchr(title, '\n') + 1;
    *nbytes = strcspn(title, "\n");
    return title;
}

static size_t column_width(const ls_table *table, size_t column, size_t head_height) {
    size_t widest = 0, nbytes;
    for (size_t line = 0; line < head_height; line++) {
        const char *text = title_line(table->columns[column].title, line, head_height, &nbytes);
        size_t width = text_width(text, nbytes);
        if (width > widest) widest = width;
    }
    for (size_t i = column; i < table->cell_count; i += table->column_count) {
        size_t width = text_width(table->cells[i], strlen(table->cells[i]));
        if (width > widest) widest = width;
    }
    return widest;
}

/* Spaces are held back until text follows, so that no line ends with one. */
static void put_cell(FILE *file, const char *text, size_t nbytes, size_t width, ls_align align, size_t *owed) {
    size_t spaces = width - text_width(text, nbytes);
    if (align == LS_RIGHT) *owed += spaces;
    if (nbytes > 0) {
        fprintf(file, "%*s%.*s", (int)*owed, "", (int)nbytes, text);
        *owed = 0;
    }
    if (align == LS_LEFT) *owed += spaces;
    *owed += COLUMN_GAP;
}

static void print_all(const ls_table *table, FILE *file, const size_t *widths, size_t head_height) {
    for (size_t line = 0; line < head_height; line++) {
        size_t owed = 0, nbytes;
        for (size_t c = 0; c < table->column_count; c++) {
            const char *text = title_line(table->columns[c].title, line, head_height, &nbytes);
            put_cell(file, text, nbytes, widths[c], table->columns[c].align, &owed);
        }
        fputc('\n', file);
    }
    size_t owed = 0;
    for (size_t i = 0; i < table->cell_count; i++) {
        size_t c = i % table->column_count;
        put_cell(file, table->cells[i], strlen(table->cells[i]), widths[c], table->columns[c].align, &owed);
        if (c + 1 < table->column_count && i + 1 < table->cell_count) continue;
        fputc('\n', file);
        owed = 0;
    }
}

ls_status ls_table_print(const ls_table *table, FILE *file) {
    size_t *widths = calloc(table->column_count, sizeof *widths), head_height = 1;
    if (!widths || table->failed) {
        free(widths);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a table of %zu cells", table->cell_count);
    }
    for (size_t c = 0; c < table->column_count; c++) {
        size_t lines = line_count(table->columns[c].title);
        if (lines > head_height) head_height = lines;
    }
    for (size_t c = 0; c < table->column_count; c++) widths[c] = column_width(table, c, head_height);
    print_all(table, file, widths, head_height);
    free(widths);
    return LS_OK;
}

ls_status ls_table_finish(ls_table *table, FILE *file) {
    ls_status status = ls_table_print(table, file);
    ls_table_destroy(table);
    return status;
}
