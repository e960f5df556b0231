/* The book's internals, for book.c, which fills it, and pages.c, which reads it. */
#ifndef LABS_REPLAY_TABLES_BOOK_H
#define LABS_REPLAY_TABLES_BOOK_H

#include <stddef.h>

#include "labs/replay/tables/tables.h"

enum tables_item_kind { TABLES_TITLE, TABLES_TEXT, TABLES_ROW };

struct tables_item {
    enum tables_item_kind kind;
    int table;
    const char *group;     /* "": none */
    char *text;            /* of a title or paragraph */
    struct tables_row row; /* its texts are the book's own */
};

struct tables_book {
    struct tables_item *items;
    size_t count, capacity;
    int table;         /* the current one */
    const char *group; /* of it */
    bool out_of_memory;
};

#endif
