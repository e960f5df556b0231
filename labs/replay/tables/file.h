/* A table's file, labs/replay/tables/NAME.json, read and checked before any table is made.
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
 *         {"sums": "a scene", "how": "...", "unit": "ms", "mean_error": 0.1, "of_free": 0.5}],
 *      "lists": {"NAME": [rows of several parts, which have "rows": "NAME"]}}
 *
 * Members of the object of the rows hold for each row that does not have them. TABLES_PART_MAP and TABLES_RUN_MAP
 * (run.h) list the members. A row has one line for each N, and a "must", even if it has no bound. A published figure
 * has a source. Any other figure may have a "source_of_...". */
#ifndef LABS_REPLAY_TABLES_FILE_H
#define LABS_REPLAY_TABLES_FILE_H

#include "common/base/json.h"
#include "labs/replay/tables/run.h"

enum { TABLES_PARTS_MAX = 64, TABLES_DEVICES_MAX = 1024 };

/* The first four are those of enum tables_bound; a row that counts in the sums has no bound of its own. */
enum tables_must {
    TABLES_MUST_BE_SHOWN = 1,
    TABLES_MUST_BE_WITHIN,
    TABLES_MUST_BE_BELOW,
    TABLES_MUST_BE_ABOVE,
    TABLES_COUNTS_IN_SUMS
};

/* The computations that a table's file may name. */
#define TABLES_COMPUTATION_MAP(X) X(COURSE, course) X(ALLREDUCE, allreduce) X(MEMORY, memory) X(MACHINE, machine)
#define TABLES_COMPUTATION_ENUM(name, function) TABLES_COMPUTE_##name,
enum tables_computation { TABLES_COMPUTE_NOTHING, TABLES_COMPUTATION_MAP(TABLES_COMPUTATION_ENUM) };
#undef TABLES_COMPUTATION_ENUM

/* X(KIND, name, description): the other members; exactly one of the first four is present. */
#define TABLES_PART_MAP(X)                                                                                             \
    X(TEXT, text, "a paragraph")                                                                                       \
    X(TEXT, from, "or: the rows of this group")                                                                        \
    X(TEXT, sums, "or: the sums over this scene's rows (table.c)")                                                     \
    X(TEXT, quantity, "or: a row, with its unit")                                                                      \
    X(TEXT, how, "of rows, a group or sums: how ours was obtained")                                                    \
    X(TEXT, source, "of the published figures, printed behind it; left out: the file's, which is not printed")         \
    X(NUMBER, tolerance, "of a row or a group: of what must be within")                                                \
    X(TEXT, before, "of a row, as all below: put in front of the quantity")                                            \
    X(TEXT, mode, "what was done")                                                                                     \
    X(NUMBERS, n, "numbers of devices, a line for each")                                                               \
    X(NUMBERS, published, "as many, or one for all of them")                                                           \
    X(COLUMN, column, "ours")                                                                                          \
    X(MUST, must, "be shown, be within, be below, be above, or count in the sums")                                     \
    X(COLUMN, reference, "a column, rather than published")                                                            \
    X(FREE, free, "what ours were if communication were free")                                                         \
    X(FLAG, claim, "the bound is another author's claim")                                                              \
    X(TEXT, unit, "of sums, as all below: the rows'")                                                                  \
    X(NUMBER, mean_error, "a bound")                                                                                   \
    X(NUMBER, of_free, "a bound: of the error of free communication; left out: none")
struct tables_part {
    TABLES_PART_MAP(TABLES_FIELD)
    struct tables_run run;
};

typedef struct tables_file {
    ls_json *json;
    const char *title, *source; /* source may be NULL */
    int compute;                /* enum tables_computation; 0: nothing */
    int count, run_count;
    struct tables_part parts[TABLES_PARTS_MAX];
} tables_file;

/* By name or path (library.h). LS_ERR_IO, LS_ERR_INVALID ("FILE:LINE: ..."); on failure nothing needs to be closed. */
ls_status tables_file_open(tables_file *file, const char *name);
void tables_file_close(tables_file *file);

/* The published figure of the row's line `index`; NAN if there is none. */
double tables_published(const struct tables_part *row, int index);

#endif
