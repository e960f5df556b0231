/* book: the contents of the tables, in order. */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/tables/book.h"

enum { ROW_TEXT_CAPACITY = 512 };

ls_status tables_book_create(tables_book **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the tables");
    (*out)->group = "";
    return LS_OK;
}

void tables_book_destroy(tables_book *book) {
    if (!book) return;
    for (size_t i = 0; i < book->count; i++) {
        free(book->items[i].text);
        free((char *)book->items[i].row.quantity);
        free((char *)book->items[i].row.mode);
        free((char *)book->items[i].row.how);
    }
    free(book->items);
    free(book);
}

/* Appends a new item; if it returns NULL, the book records the failure. */
static struct tables_item *append(tables_book *book, enum tables_item_kind kind) {
    if (book->count == book->capacity) {
        size_t capacity = book->capacity ? 2 * book->capacity : 64;
        struct tables_item *items = realloc(book->items, capacity * sizeof *items);
        if (!items) {
            book->out_of_memory = true;
            return NULL;
        }
        book->items = items;
        book->capacity = capacity;
    }
    struct tables_item *item = &book->items[book->count++];
    *item = (struct tables_item){.kind = kind, .table = book->table, .group = book->group};
    return item;
}

static char *copy(tables_book *book, const char *text) {
    char *copied = strdup(text);
    if (!copied) book->out_of_memory = true;
    return copied;
}

void tables_begin(tables_book *book, int number, const char *title) {
    book->table = number;
    book->group = "";
    struct tables_item *item = append(book, TABLES_TITLE);
    if (item) item->text = copy(book, title);
}

void tables_text(tables_book *book, const char *format, ...) {
    struct tables_item *item = append(book, TABLES_TEXT);
    va_list arguments;
    va_start(arguments, format);
    if (item && vasprintf(&item->text, format, arguments) < 0) {
        item->text = NULL;
        book->out_of_memory = true;
    }
    va_end(arguments);
}

void tables_add(tables_book *book, const struct tables_row *row) {
    struct tables_item *item = append(book, TABLES_ROW);
    if (!item) return;
    item->row = *row;
    item->row.quantity = copy(book, row->quantity);
    item->row.mode = copy(book, row->mode);
    item->row.how = copy(book, row->how ? row->how : "");
}

void tables_group(tables_book *book, const char *group) { book->group = group; }

void tables_take(tables_book *book, const tables_book *from, const char *group, const char *how, double tolerance) {
    book->out_of_memory |= from->out_of_memory;
    for (size_t i = 0; i < from->count; i++) {
        const struct tables_item *item = &from->items[i];
        if (strcmp(item->group, group) != 0) continue;
        struct tables_row row = item->row;
        row.how = how;
        if (row.bound == TABLES_WITHIN && tolerance > 0) row.tolerance = tolerance;
        if (item->kind == TABLES_TEXT) tables_text(book, "%s", item->text);
        if (item->kind == TABLES_ROW) tables_add(book, &row);
    }
}

double tables_deviation(const struct tables_row *row) {
    if (row->ours == row->reference) return 0;
    return row->reference != 0 ? row->ours / row->reference - 1 : NAN;
}

bool tables_holds(const struct tables_row *row) {
    switch (row->bound) {
    case TABLES_SHOWN: return true;
    case TABLES_WITHIN: return fabs(tables_deviation(row)) <= row->tolerance;
    case TABLES_BELOW: return row->ours < row->reference;
    case TABLES_ABOVE: return row->ours > row->reference;
    }
    return false;
}

int tables_count_bounds(const tables_book *book, bool claims, int *missed, char *first_missed, size_t capacity) {
    int bounds = 0;
    *missed = 0;
    for (size_t i = 0; i < book->count; i++) {
        const struct tables_item *item = &book->items[i];
        if (item->kind != TABLES_ROW || item->row.bound == TABLES_SHOWN || item->row.claim != claims) continue;
        bounds++;
        if (tables_holds(&item->row)) continue;
        if (++*missed == 1 && first_missed) {
            snprintf(first_missed, capacity, "table %d, %s, %s, N %d: %g, but %g was asked for", item->table,
                     item->row.quantity, item->row.mode, item->row.n, item->row.ours, item->row.reference);
        }
    }
    return bounds;
}

static bool misses_bound(const struct tables_item *item) {
    return item->kind == TABLES_ROW && !item->row.claim && !tables_holds(&item->row);
}

/* "3 in table 5, 1 in table 6", of the bounds that are missed. */
static void put_missed(const tables_book *book, FILE *file) {
    const char *before = "";
    for (int table = 1; table <= book->table; table++) { /* ascending, in the order in which they are made */
        int missed = 0;
        for (size_t i = 0; i < book->count; i++)
            missed += book->items[i].table == table && misses_bound(&book->items[i]);
        if (missed == 0) continue;
        fprintf(file, "%s%d in table %d", before, missed, table);
        before = ", ";
    }
}

ls_status tables_judge(const tables_book *book, bool strict, FILE *file) {
    char first[ROW_TEXT_CAPACITY];
    int missed, wrong, bounds = tables_count_bounds(book, false, &missed, first, sizeof first);
    int claims = tables_count_bounds(book, true, &wrong, NULL, 0);
    fprintf(file, "\n%d of %d bounds of ours are missed", missed, bounds);
    if (missed > 0) {
        fputs(" (", file);
        put_missed(book, file);
        fputc(')', file);
    }
    fprintf(file, claims > 0 ? "; %d of %d claims of others hold.\n" : ".\n", claims - wrong, claims);
    if (missed == 0 || !strict) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%d of %d bounds were missed, first %s", missed, bounds, first);
}
