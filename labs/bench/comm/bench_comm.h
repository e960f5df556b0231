/* What the parts of bench_comm share: the settings, the table of operations, and the rows that are measured.
 *
 *     settings.c    command line -> comm_settings         operations.c  the operations: sizes, data, calls, formulas
 *     data.c        exact contents of buffers             sweep.c       the work of each rank: check, time, count
 *     group.c       the ranks, as processes or threads    rows.c        the rows to measure, and derived figures
 *     others.c      Open MPI and gloo beside ours         tables.c      rows -> stdout
 *     files.c       rows -> CSV and JSON
 *
 * Words. A variant is where ranks and buffers live: processes with buffers in shared memory or private ones, or
 * threads, or processes whose messages Open MPI carries (ls_mpi.so). A case is an operation, for all_reduce with an
 * algorithm. The size S of an operation is defined as in nccl-tests: the bytes of the buffer if the operation works in place, else the bytes of all ranks' parts together.
 * With t the time: algbw = S / t; busbw = algbw times a factor that makes it the bandwidth of the busiest link for any
 * number of ranks: 2 (N - 1) / N for all_reduce, (N - 1) / N where S is all ranks' parts, else 1.
 *
 * A run is a loop of operations, back to back, which all ranks begin together after a barrier. Its time is the slowest
 * rank's, divided by the number of operations. Every figure is the median over a row's runs. Other libraries alternate
 * with ours in several rounds, so that all run under the same load of the machine. */
#ifndef LABS_BENCH_COMM_BENCH_COMM_H
#define LABS_BENCH_COMM_BENCH_COMM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/options.h"
#include "common/comm/allreduce.h"
#include "common/comm/comm.h"
#include "labs/bench/shared/columns.h"
#include "labs/bench/shared/machine.h"

enum {
    COMM_SIZES_MAX = 64,
    COMM_RUNS_MAX = 99,
    COMM_CASES_MAX = 32,
    COMM_GROUPS_MAX = 4 * LS_INT_LIST_MAX,
    COMM_LIBRARY_CAPACITY = 64
};

/* --- operations ---------------------------------------------------------------------------------------------------- */

typedef struct comm_call {
    ls_comm *comm;
    ls_stream *stream;
    void *send, *receive; /* equal if the operation works in place */
    size_t count;         /* elements of a part */
    ls_dtype dtype;
    ls_reduce_op reduce;
} comm_call;

/* The contents of a part of a buffer: a rank's values from element `offset_parts` x count on, or their reduction over
 * all ranks, or the part's previous contents. */
typedef struct comm_content {
    enum { COMM_OF_RANK, COMM_REDUCED, COMM_UNTOUCHED } kind;
    int rank, offset_parts;
} comm_content;

typedef struct comm_operation {
    const char *name;
    bool in_place;                                     /* one buffer, of one part */
    bool send_all, receive_all;                        /* whether that buffer has world_size parts; else it has one */
    bool latency_only;                                 /* no elements: one row, no sizes */
    double (*bus_factor)(int n);                       /* busbw / algbw */
    comm_content (*result)(int n, int rank, int part); /* of the receive buffer; the send buffer is not changed */
    ls_status (*enqueue)(const comm_call *call);
    /* The closed formula of the bytes and messages of `rank`; all_reduce has a formula per algorithm instead. */
    void (*cost)(struct ls_allreduce_cost *cost, int n, int rank, size_t count, size_t element_nbytes);
} comm_operation;

/* Roots are rank 0. Ends with a row whose name is NULL. */
extern const comm_operation comm_operations[];

const comm_operation *comm_operation_find(const char *name);
bool comm_is_all_reduce(const comm_operation *operation);

/* Parts of the send and of the receive buffer in a group of n, and of the larger one, which the size counts. */
size_t comm_send_parts(const comm_operation *operation, int n);
size_t comm_receive_parts(const comm_operation *operation, int n);
size_t comm_size_parts(const comm_operation *operation, int n);

/* --- exact contents -------------------------------------------------------------------------------------------------- */

/* Small integers for every rank, whose reductions are exact in every type; created once per group. */
typedef struct comm_patterns comm_patterns;
ls_status comm_patterns_create(comm_patterns **out, int n, ls_dtype dtype, ls_reduce_op reduce);
void comm_patterns_destroy(comm_patterns *patterns);

/* A slot of an operation as one rank holds it. `salt` makes the contents of slots differ. */
typedef struct comm_slot {
    const comm_operation *operation;
    int n, rank;
    size_t count, salt;
    char *send, *receive;
} comm_slot;

/* Fills the buffers before the operation; a separate receive buffer is filled with NaN, or -1. */
void comm_fill(const comm_patterns *patterns, const comm_slot *slot);

/* Checks every bit of the buffers after the operation. LS_ERR_INVALID: one line with the rank, the first wrong element,
 * its value and the expected value; `what` names the operation. */
ls_status comm_check(const comm_patterns *patterns, const comm_slot *slot, const char *what);

/* --- settings -------------------------------------------------------------------------------------------------------- */

typedef enum comm_variant {
    COMM_SHM_SHARED,
    COMM_SHM_PRIVATE,
    COMM_THREADS,
    COMM_MPI,
    COMM_VARIANT_COUNT
} comm_variant;

/* "shm", "threads", "mpi"; "shared", "private" */
const char *comm_variant_backend(comm_variant variant);
const char *comm_variant_buffers(comm_variant variant);
bool comm_is_private(comm_variant variant);

typedef struct comm_case {
    const comm_operation *operation;
    const char *algorithm; /* of all_reduce: a row of ls_allreduce_algorithms; else "" */
    bool unrecorded;       /* the group keeps no flight record */
} comm_case;

/* Whether the variant has the case: Open MPI carries direct and naive. */
bool comm_has_case(comm_variant variant, const comm_case *what);

typedef struct comm_settings {
    bool variants[COMM_VARIANT_COUNT];
    int case_count;
    comm_case cases[COMM_CASES_MAX];
    ls_int_list n; /* ascending, each once */
    int size_count;
    size_t sizes[COMM_SIZES_MAX]; /* ascending, each once */
    ls_dtype dtype;
    ls_reduce_op reduce;
    int runs, rounds;          /* the runs are spread over `rounds` rounds */
    double run_ms;             /* the intended length of a run */
    bool check_only;           /* no times */
    double timeout_s;          /* of every wait */
    bool compare;              /* with Open MPI and gloo */
    bool flight_cost;          /* each all_reduce case is followed by an unrecorded one */
    const char *folder, *json; /* NULL: not written */
    bool quiet;
    int cores;
    size_t cache_bytes; /* of the last-level cache */
} comm_settings;

/* Fills in the settings. *help: the usage page was printed, and nothing else is to be done. LS_ERR_USAGE after one
 * line. */
ls_status comm_parse(comm_settings *settings, int argc, char **argv, bool *help);

/* "8:64M", "8:64M:2" (from, to, factor) or "8,1K,64M"; ascending, each once. */
ls_status comm_parse_sizes(comm_settings *settings, const char *text);

/* --- rows ------------------------------------------------------------------------------------------------------------ */

typedef enum comm_agreement { COMM_NOT_COMPARED, COMM_EQUAL, COMM_DIFFERS } comm_agreement;

/* One measurement. Rows are in memory that the ranks' processes share. */
typedef struct comm_row {
    /* the case */
    char library[COMM_LIBRARY_CAPACITY]; /* "lockstep", "Open MPI 4.1.4", ... */
    comm_variant variant;
    int case_index, size_index; /* in the settings; the rows of a size are neighbours */
    const comm_operation *operation;
    char algorithm[32]; /* the case's, or "direct unrecorded" */
    int n;
    size_t count, nbytes; /* of a part; the size */
    bool oversubscribed;
    /* the runs */
    int run_count, iterations;
    double run_us[COMM_RUNS_MAX];
    bool checked; /* every element of every rank was right */
    /* per operation: traffic of the busiest rank, as counted and by formula. If some rank's count is not the formula's,
     * both are that rank's. Private buffers may be sent in several pieces, which the formula does not cover. */
    struct ls_allreduce_cost counted, formula;
    int busiest_rank;
    comm_agreement agreement;
    /* derived by comm_assemble: median, least, and the quantiles 0.1 and 0.9; NAN without runs */
    double time_us, least_us, p10_us, p90_us, algbw_GBps, busbw_GBps;
} comm_row;

void comm_assemble(comm_row *row);

/* The ranks that run together: one variant and N. Its rows: by size, ascending, and for each size the cases. */
typedef struct comm_group {
    comm_variant variant;
    int n, row_count;
    comm_row *rows;
} comm_group;

typedef struct comm_results {
    const bench_machine *machine;
    const comm_settings *settings;
    int group_count;
    comm_group groups[COMM_GROUPS_MAX];
    int row_count, other_count, other_capacity;
    comm_row *rows, *others; /* in shared memory; of Open MPI and gloo */
    char absent[256];        /* libraries that are not compared, and why; "" */
} comm_results;

/* Lays out all groups and their rows. LS_ERR_NO_MEMORY. */
ls_status comm_results_create(comm_results **out, const comm_settings *settings, const bench_machine *machine);
void comm_results_destroy(comm_results *results);

/* --- measuring ------------------------------------------------------------------------------------------------------- */

/* A slot holds the buffers of one operation of one rank, each at the beginning of a cache line. Each operation uses the
 * next slot, so that it does not find its data in the cache: all ranks' slots together are at least twice the
 * last-level cache. */
typedef struct comm_slots {
    size_t count, receive_offset, stride_bytes;
} comm_slots;

comm_slots comm_slots_of(const comm_operation *operation, int n, size_t count, const comm_settings *settings);

/* Bytes of one rank's slots: the most that any size needs, of any case that shares its memory with the case `first`. */
size_t comm_slots_bytes(const comm_settings *settings, int n, int first);

/* The first case that uses the same group as case `index`: itself for all_reduce, and one for all other operations. */
int comm_owner(const comm_settings *settings, int index);

/* Elements of a part if the size is `nbytes`: at least one. */
size_t comm_part_count(const comm_operation *operation, int n, size_t nbytes, ls_dtype dtype);

/* The state that the ranks of a group share, in shared memory. */
typedef struct comm_board {
    _Atomic int measured; /* rows and runs done, for the progress line */
    double elapsed_us[LS_COMM_MAX_RANKS];
    struct ls_allreduce_cost counted[LS_COMM_MAX_RANKS];
} comm_board;

/* One rank of a group. comms[i] is the process group of the i-th case. */
typedef struct comm_rank {
    const comm_settings *settings;
    const comm_group *group;
    comm_board *board;
    int rank, first_run, end_run;
    ls_comm *comms[COMM_CASES_MAX];
} comm_rank;

/* Checks and measures every row on one rank. Reported failures break the groups. */
ls_status comm_sweep(comm_rank *rank);

/* The runs of a round: first .. end - 1. */
int comm_first_run(const comm_settings *settings, int round);

/* Runs the ranks of a group until they exit; the group's rows then include the runs of that round. LS_ERR_INVALID: a
 * wrong result, LS_ERR_PEER: a rank was killed; both reported, and no process is left. */
ls_status comm_run_group(const comm_settings *settings, const comm_group *group, int round);

/* Adds a round's runs to results->others, for one N. Libraries that are not installed are named in results->absent. */
ls_status comm_run_others(comm_results *results, int n, int round);

/* --- output ---------------------------------------------------------------------------------------------------------- */

/* The columns of a row in tables and files: its times and rates, and its counts, which other libraries' rows do not
 * have. */
extern const bench_column comm_numbers[], comm_counts[];
bool comm_is_ours(const comm_row *row);

void comm_print_heading(const comm_results *results);
ls_status comm_print_rows(const comm_results *results);

/* LS_ERR_INVALID after one line for each row whose count differs from the formula. */
ls_status comm_check_counts(const comm_results *results);

ls_status comm_prepare_files(const comm_settings *settings);
ls_status comm_write_files(const comm_results *results);

#endif
