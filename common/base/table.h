/* ls_table: text in aligned columns, for the results that programs print.
 *
 *     const ls_column columns[] = {{"mode", LS_LEFT}, {"step time\nms", LS_RIGHT}};
 *     ls_table *table;
 *     ls_status status = ls_table_create(&table, columns, 2);
 *     if (status != LS_OK) return status;
 *     ls_table_cell(table, "%s", "DP");
 *     ls_table_number(table, 3, 0.5);
 *     return ls_table_finish(table, stdout);
 *
 * A title may have several lines; titles are aligned at the bottom of the head. Widths are counted in UTF-8 characters.
 * One thread at a time. */
#ifndef LS_BASE_TABLE_H
#define LS_BASE_TABLE_H

#include <stddef.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/status.h"

typedef enum ls_align { LS_LEFT, LS_RIGHT } ls_align;

typedef struct ls_column {
    const char *title;
    ls_align align;
} ls_column;

typedef struct ls_table ls_table;

/* `columns` (`count` >= 1 of them) must outlive the table. On failure *out is NULL. */
ls_status ls_table_create(ls_table **out, const ls_column *columns, size_t count);

/* Fills the next cell, from left to right and row by row. A failure (no memory) shows in ls_table_print. */
void ls_table_cell(ls_table *table, const char *format, ...) LS_PRINTF(2, 3);

/* The same for a number with `decimals` decimals. NaN (undefined in this row) leaves the cell empty. */
void ls_table_number(ls_table *table, int decimals, double value);

/* Writes the head and the rows; a last row that is not complete ends where its cells end. */
ls_status ls_table_print(const ls_table *table, FILE *file);

/* Prints the table and destroys it, even if printing fails. */
ls_status ls_table_finish(ls_table *table, FILE *file);

/* NULL is a no-op. */
void ls_table_destroy(ls_table *table);

#endif
