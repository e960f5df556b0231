/* A table's file, labs/replay/tables/NAME.json, read and checked before anything is made.
 *
 *     {"title": "...",
 *      "source": "of published figures whose part names none",
 *      "compute": "memory",                                     a function (tables.h) that makes rows in groups; or none
 *      "parts": [
 *         {"text": "a paragraph"},
 *         {"from": "held", "how": "...", "tolerance": 0.01},     the rows of a group
 *         {"how": "...", "source": "...", "node": "dgx1-v100", "workload": "resnet50", "samples": 32, "plan": "ddp",
 *          "column": "step", "n": [2, 4], "rows": [{"quantity": "step, ms", "mode": "DDP", "published": [103, 103],
 *                                                   "must": "be within", "tolerance": 0.1}]},
 *         {"sums": "a scene", "unit": "ms", "mean_error": 0.1, "of_free": 0.5}],
 *      "lists": {"NAME": [rows of several parts, which have "rows": "NAME"]}}
 *
 * What the object of the rows says holds for each of them, unless the row says it itself: file.c has the list of
 * members, run.h says what those of a run mean. A row has one line for each N, and says what must hold of it, even if
 * nothing must. A published figure has a source. "source_of_..." may stand beside any other figure. */
#ifndef LABS_REPLAY_TABLES_FILE_H
#define LABS_REPLAY_TABLES_FILE_H

#include "common/base/json.h"
#include "labs/replay/tables/run.h"
#include "labs/replay/tables/tables.h"

enum { TABLES_PARTS_MAX = 64 };

/* The first four are those of enum tables_bound; a row that counts in the sums has no bound of its own. */
enum tables_must {
    TABLES_MUST_BE_SHOWN = 1,
    TABLES_MUST_BE_WITHIN,
    TABLES_MUST_BE_BELOW,
    TABLES_MUST_BE_ABOVE,
    TABLES_COUNTS_IN_SUMS
};

/* A paragraph, a group's rows, one row, or sums: the member that is not NULL. */
struct tables_part {
    const char *text, *from, *quantity, *sums;
    const char *how;    /* of a group or a row: how ours was obtained */
    const char *source; /* of the published figures, printed behind it; NULL: the file's, which is not printed */
    double tolerance;
    /* a row */
    const char *before, *mode;  /* before: put in front of the quantity; NULL: nothing */
    const cJSON *n, *published; /* as many as n, or one for all of them; NULL: none */
    int column, must;           /* enum tables_column, enum tables_must */
    int reference;              /* the column that ours is compared with, rather than `published`; 0: none */
    int free;                   /* enum tables_free; 0: not known */
    bool against_course;        /* compared with the same column of the course's times */
    bool claim;
    struct tables_run run;
    /* sums over the rows that count in them, since the last sums (table.c) */
    const char *unit;
    double mean_error, of_free; /* bounds; of_free 0: none on it */
};

typedef struct tables_file {
    ls_json *json;
    const char *title, *source, *compute; /* source and compute may be NULL */
    int count, run_count;
    struct tables_part parts[TABLES_PARTS_MAX];
} tables_file;

/* By name or path (library.h). LS_ERR_IO, LS_ERR_INVALID ("FILE:LINE: ..."); on failure there is nothing to close. */
ls_status tables_file_open(tables_file *file, const char *name);
void tables_file_close(tables_file *file);

/* The published figure of the row's line `index`; NAN if there is none. */
double tables_published(const struct tables_part *row, int index);

#endif
