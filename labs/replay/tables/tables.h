/* What the parts of `tables` share: the list of tables, and the book that they write into.
 *
 *     tables.c          command line, and what is done with the book
 *     book.c, book.h    rows: deviations, bounds, and whether they hold
 *     pages.c           the book -> stdout, CSV and Markdown
 *     table_NAME.c      one table each, with the help of
 *         train.c       a short run of dp_train or ddp_train            count.c     an all-reduce that is counted
 *         replayed.c    a step that is replayed                         messages.c  one that is replayed by message
 *         course.c      the course's cells, and their model             least_squares.c   its fit
 *         scenes.c      published figures beside ours                   scene_NAME.c      those of one source
 *         published.c   what is known of them                           machine.c         what this machine takes
 *
 * A table is a file with one function that adds text and rows to the book, and a line in TABLES_MAP. A row compares a
 * figure that was published, asked for or computed by a formula (`reference`) with ours, and says how we obtained ours:
 * measured, virtual or replayed, and on what. It may have a bound. A bound that is missed is printed as missed, here
 * and in both files, and with --strict the program ends with status 1. Some are known to be out of reach: the table's
 * text names the mechanism that is missing. A claim of somebody else is checked like a bound; if it does not hold, that
 * is a result like others. */
#ifndef LABS_REPLAY_TABLES_TABLES_H
#define LABS_REPLAY_TABLES_TABLES_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/status.h"

/* --- the book (one thread at a time) ------------------------------------------------------------------------------ */

/* What must hold of a row. WITHIN: |ours / reference - 1| <= tolerance, and with tolerance 0 both are the same. */
enum tables_bound { TABLES_SHOWN, TABLES_WITHIN, TABLES_BELOW, TABLES_ABOVE };

struct tables_row {
    const char *quantity;   /* with its unit: "step time, ms" */
    const char *mode;       /* what was done: "DP", "ring", "DDP, adam" */
    int n;                  /* devices or ranks; 0: of no meaning here, and left empty */
    double reference, ours; /* NAN: there is none, and it stays empty */
    enum tables_bound bound;
    double tolerance;
    bool claim;      /* the bound is somebody else's claim, which need not hold */
    const char *how; /* "replayed: workload course on node course" */
    bool aside;      /* in the CSV only: details, for pictures */
};

typedef struct tables_book tables_book;

ls_status tables_book_create(tables_book **out);
void tables_book_destroy(tables_book *book); /* NULL is a no-op */

/* What follows belongs to this table. */
void tables_begin(tables_book *book, int number, const char *title);

/* A paragraph. Out of memory: writing the book says so; the same for tables_add. */
void tables_text(tables_book *book, const char *format, ...) LS_PRINTF(2, 3);

/* Copies the row, texts included. Consecutive rows with the same `how` make up one table. */
void tables_add(tables_book *book, const struct tables_row *row);

/* ours / reference - 1; 0 where both are the same; NAN where the reference is 0 or one of them is missing. */
double tables_deviation(const struct tables_row *row);

/* Whether the row's bound holds; NaN holds no bound. A row without one holds. */
bool tables_holds(const struct tables_row *row);

/* Rows with a bound that is (or is not) a claim, and how many of them miss it. `first_missed` (may be NULL) gets the
 * first of these as text. */
int tables_count_bounds(const tables_book *book, bool claims, int *missed, char *first_missed, size_t capacity);

/* Prints in one line how many of our bounds are missed and in which tables, and how many claims of others hold. With
 * `strict` LS_ERR_INVALID, after a line that names the first, if a bound is missed. */
ls_status tables_judge(const tables_book *book, bool strict, FILE *file);

/* --- pages -------------------------------------------------------------------------------------------------------- */

/* Prints what was written since table `number` began. */
ls_status tables_print(const tables_book *book, int number, FILE *file);

/* FOLDER/tables.csv (columns table,mode,n,reference,ours,deviation,how) and FOLDER/tables.md, each as a whole or not at
 * all. In the CSV `table` is the number and the quantity ("1 step time, ms"), and `how` ends with the bound, where
 * there is one, and "held" or "MISSED". */
ls_status tables_prepare_files(const char *folder);
ls_status tables_write_files(const tables_book *book, const char *folder);

/* --- the tables --------------------------------------------------------------------------------------------------- */

typedef struct tables_settings {
    ls_int_list wanted; /* numbers of tables; none: all */
    bool quick;         /* smaller sizes and fewer N, for trying; the bounds are the same */
    bool strict;        /* a bound that is missed is a failure */
    const char *folder;
    double timeout_s; /* of a training run */
} tables_settings;

/* Adds a table's text and rows. A bound that is missed is no failure; what keeps the table from being made is,
 * reported. */
typedef ls_status (*tables_make_fn)(tables_book *book, const tables_settings *settings);

/* X(number, NAME, title): a file table_NAME.c with a tables_make_NAME. A new table is that file and a line here. */
#define TABLES_MAP(X)                                                                                                  \
    X(1, course, "the course's step times, from one workload, one node and three rates")                               \
    X(2, speedups, "the course's speed-ups, and what devices do meanwhile")                                            \
    X(3, allreduce, "all-reduce: messages, bytes and steps, formula against count")                                    \
    X(4, memory, "memory per device, DP against DDP")                                                                  \
    X(5, published, "machines that others measured, from one device's step")                                           \
    X(6, machine, "this machine: replayed and predicted against measured")

#define TABLES_DECLARE(number, name, title)                                                                            \
    ls_status tables_make_##name(tables_book *book, const tables_settings *settings);
TABLES_MAP(TABLES_DECLARE)
#undef TABLES_DECLARE

struct tables_table {
    int number;
    const char *title;
    tables_make_fn make;
};

/* The map's lines, in its order; ends with a row whose title is NULL. */
extern const struct tables_table tables_all[];

#endif
