/* What the parts of `tables` share: the tables' files, and the book that they are written into.
 *
 *     tables.c          command line, and the use of the book
 *     file.c, file.h    NAME.json -> its parts: paragraphs, rows, sums     run.c      a row's step, and its columns
 *     table.c           parts -> the book                                  train.c    a run of dp_train or ddp_train
 *     book.c, book.h    rows: deviations, bounds, and whether they hold    pages.c    the book -> stdout, CSV, Markdown
 *     compute_NAME.c    parts that are not in a file: the course's fit (course.c, least_squares.c), counted and
 *                       replayed messages (count.c, messages.c), memory, and this machine (machine.c)
 *
 * A table is a file NAME.json and a name in TABLES_NAMES. A row compares a figure that was published, required or
 * computed by a formula (`reference`) with ours, and says how we obtained ours: measured, virtual or replayed, and on
 * which machine. It may have a bound. A bound that is missed is printed as missed, here and in both files, and with
 * --strict the program ends with status 1. Some bounds are known to be out of reach: the table's text names the missing
 * mechanism. A published claim is checked like a bound; if it does not hold, that is a result like any other. */
#ifndef LABS_REPLAY_TABLES_TABLES_H
#define LABS_REPLAY_TABLES_TABLES_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/status.h"

/* --- the book (one thread at a time) ------------------------------------------------------------------------------ */

/* The bound of a row. WITHIN: |ours / reference - 1| <= tolerance; with tolerance 0 both are equal. */
enum tables_bound { TABLES_SHOWN, TABLES_WITHIN, TABLES_BELOW, TABLES_ABOVE };

struct tables_row {
    const char *quantity;   /* with its unit: "step time, ms" */
    const char *mode;       /* "DP", "ring", "DDP, adam" */
    int n;                  /* devices or ranks; 0: not applicable, and left empty */
    double reference, ours; /* NAN: none, left empty */
    enum tables_bound bound;
    double tolerance;
    bool claim;      /* the bound is a published claim, which may be missed */
    const char *how; /* "replayed: workload course on node course" */
    bool aside;      /* in the CSV only: details, for pictures */
};

typedef struct tables_book tables_book;

ls_status tables_book_create(tables_book **out);
void tables_book_destroy(tables_book *book); /* NULL is a no-op */

/* Begins a table, to which all further items belong. */
void tables_begin(tables_book *book, int number, const char *title);

/* Adds a paragraph. If memory runs out, writing the book reports it; the same for tables_add. */
void tables_text(tables_book *book, const char *format, ...) LS_PRINTF(2, 3);

/* Copies the row, including its texts. Consecutive rows with the same `how` form one table. */
void tables_add(tables_book *book, const struct tables_row *row);

/* Further rows and texts belong to this group, a literal, until a table begins. */
void tables_group(tables_book *book, const char *group);

/* Copies a group from another book. Its rows get this `how`, and, if tolerance > 0, those with the bound WITHIN get
 * this tolerance. */
void tables_take(tables_book *book, const tables_book *from, const char *group, const char *how, double tolerance);

/* ours / reference - 1; 0 if both are equal; NAN if the reference is 0 or one of them is missing. */
double tables_deviation(const struct tables_row *row);

/* Whether the row's bound holds; NaN meets no bound. A row without a bound holds. */
bool tables_holds(const struct tables_row *row);

/* Rows with a bound that is (or is not) a claim, and how many of them miss it. `first_missed` (may be NULL) gets the
 * first of these as text. */
int tables_count_bounds(const tables_book *book, bool claims, int *missed, char *first_missed, size_t capacity);

/* Prints in one line how many of our bounds are missed and in which tables, and how many claims of others hold. With
 * `strict` LS_ERR_INVALID, after a line that names the first, if a bound is missed. */
ls_status tables_judge(const tables_book *book, bool strict, FILE *file);

/* --- pages -------------------------------------------------------------------------------------------------------- */

/* Prints all items since table `number` began. */
ls_status tables_print(const tables_book *book, int number, FILE *file);

/* FOLDER/tables.csv (columns table,mode,n,reference,ours,deviation,how) and FOLDER/tables.md, each completely or not at
 * all. In the CSV `table` is the number and the quantity ("1 step time, ms"), and `how` ends with the bound, if there
 * is one, and "held" or "MISSED". */
ls_status tables_prepare_files(const char *folder);
ls_status tables_write_files(const tables_book *book, const char *folder);

/* --- the tables --------------------------------------------------------------------------------------------------- */

typedef struct tables_settings {
    ls_int_list wanted; /* numbers of tables; none: all */
    bool quick;         /* smaller sizes and fewer N, for a trial; the bounds are the same */
    bool strict;        /* a missed bound is a failure */
    const char *folder;
    double timeout_s; /* of a training run */
} tables_settings;

/* The names of the files; table K is the K-th. */
#define TABLES_NAMES "course", "speedups", "allreduce", "memory", "published", "machine", "nodes"

/* Makes rows and texts in groups, for a file whose "compute" has this name. A missed bound is not a failure; an error
 * that prevents rows is reported, and rows already made remain. */
typedef ls_status (*tables_compute_fn)(tables_book *groups, const tables_settings *settings);
ls_status tables_compute_course(tables_book *groups, const tables_settings *settings);
ls_status tables_compute_allreduce(tables_book *groups, const tables_settings *settings);
ls_status tables_compute_memory(tables_book *groups, const tables_settings *settings);
ls_status tables_compute_machine(tables_book *groups, const tables_settings *settings);

/* Runs a table's computation, then adds the table's parts to the book. Fails as a computation does. */
struct tables_file;
ls_status tables_make(tables_book *book, const struct tables_file *file, const tables_settings *settings);

#endif
