/* Flight records: the last operations of every rank of a job, kept to diagnose a hang.
 *
 * Each rank records its operations in a ring of LS_FLIGHT_KEPT entries per group, in shared memory (flight_ring.c). The
 * rings of all groups of a job lie in the memory of the group of all its ranks (ls_comm_options.job), so that one
 * record shows a rank's position in all groups. A rank that breaks its group because of a timeout, a death, or ranks
 * out of step copies the rings of all ranks into an ls_flight_record, prints its ls_flight_table and, if the user asked
 * for it, writes it to a file.
 *
 * The file holds JSON lines, in this order; names and texts are those of the fields below:
 *
 *     {"line":"record","version":1,"program":...,"backend":...,"world_size":4,"taken_by":1,"taken_ms":...,"group":0,
 *      "status":"a peer missed its deadline","reason":"all_reduce (sum) of 10 fp32 elements (operation 3, ..."}
 *     {"line":"group","name":"group0","first":0,"stride":1,"size":4}              one per group, numbered 0, 1, ...
 *     {"line":"rank","rank":0,"pid":4711,"presence":"present","late":false,"looked_ms":...}
 *                                                                                 one per rank, in order
 *     {"line":"operation","rank":0,"group":0,"number":117,"sequence":117,"received":0,"kind":"all_reduce",
 *      "count":10,"dtype":"fp32","op":"sum","root":-1,"label":"bucket","label_number":3,"state":"started",
 *      "enqueued_ms":...,"started_ms":...,"done_ms":0}                     ascending, for each rank
 *     {"line":"end"}
 *
 * A reader refuses other versions, and a file without its end. Functions below may be used in any thread. */
#ifndef LS_COMM_FLIGHT_H
#define LS_COMM_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* X(NAME, text, has elements, preposition before the root or peer) */
#define LS_OPERATION_MAP(X)                                                                                            \
    X(ALL_REDUCE, "all_reduce", true, NULL)                                                                            \
    X(BROADCAST, "broadcast", true, "from")                                                                            \
    X(REDUCE, "reduce", true, "to")                                                                                    \
    X(ALL_GATHER, "all_gather", true, NULL)                                                                            \
    X(REDUCE_SCATTER, "reduce_scatter", true, NULL)                                                                    \
    X(GATHER, "gather", true, "to")                                                                                    \
    X(SCATTER, "scatter", true, "from")                                                                                \
    X(SEND, "send", true, "to")                                                                                        \
    X(RECV, "recv", true, "from")                                                                                      \
    X(SEND_RECV, "send_recv", true, "with")                                                                            \
    X(BARRIER, "barrier", false, NULL)                                                                                 \
    X(JOIN, "joining the group", false, NULL)                                                                          \
    X(ALLOC, "alloc_shared", true, NULL)                                                                               \
    X(ALLOC_VOTE, "alloc_shared (second half)", false, NULL)                                                           \
    X(COMPARE_GPUS, "find_nccl_obstacle", false, NULL)                                                                 \
    X(ATTACH_STAGED, "attach_device (staged)", false, NULL)                                                            \
    X(ATTACH_NCCL, "attach_device (nccl)", false, NULL)

#define LS_OPERATION_ENUM(name, text, elements, preposition) LS_OPERATION_##name,
typedef enum ls_operation_kind { LS_OPERATION_MAP(LS_OPERATION_ENUM) LS_OPERATION_COUNT } ls_operation_kind;
#undef LS_OPERATION_ENUM

/* Whether the operation is between two ranks. */
static inline bool ls_operation_is_message(int kind) {
    return kind == LS_OPERATION_SEND || kind == LS_OPERATION_RECV || kind == LS_OPERATION_SEND_RECV;
}

enum {
    LS_FLIGHT_VERSION = 1,
    LS_FLIGHT_KEPT = 64,    /* operations of a rank in a group */
    LS_FLIGHT_RANKS = 64,   /* of a job: LS_COMM_MAX_RANKS */
    LS_FLIGHT_GROUPS = 16,  /* groups of a rank */
    LS_FLIGHT_UNTIMED = 64, /* elements; smaller operations get no times, which cost more than the rest */
    LS_FLIGHT_LABEL = 32,   /* bytes of a label, with its zero byte */
    LS_FLIGHT_NAME = 48     /* of a group's name */
};

/* enqueued  the rank has called the operation; its stream has not reached it
 * started   its stream has reached it; an operation of NCCL was put on the GPU's stream
 * done      this rank has done its part and may use its buffers. NCCL's operations become done when the rank waits
 * captured  into a graph, whose launches are not recorded */
#define LS_FLIGHT_STATE_MAP(X)                                                                                         \
    X(ENQUEUED, "enqueued")                                                                                            \
    X(STARTED, "started")                                                                                              \
    X(DONE, "done")                                                                                                    \
    X(CAPTURED, "captured")

/* present  its process is alive; it may be stopped
 * left     it has left the group normally
 * died     its process ended without leaving
 * absent   it never joined */
#define LS_FLIGHT_PRESENCE_MAP(X)                                                                                      \
    X(PRESENT, "present")                                                                                              \
    X(LEFT, "left")                                                                                                    \
    X(DIED, "died")                                                                                                    \
    X(ABSENT, "absent")

#define LS_FLIGHT_ENUM(name, text) LS_FLIGHT_##name,
typedef enum ls_flight_state { LS_FLIGHT_STATE_MAP(LS_FLIGHT_ENUM) LS_FLIGHT_STATE_COUNT } ls_flight_state;
typedef enum ls_flight_presence { LS_FLIGHT_PRESENCE_MAP(LS_FLIGHT_ENUM) LS_FLIGHT_PRESENCE_COUNT } ls_flight_presence;
#undef LS_FLIGHT_ENUM

/* One operation of one rank. */
typedef struct ls_flight_operation {
    uint64_t number;             /* among all operations of this rank, in all groups: 1, 2, ... */
    int group;                   /* an index into record->groups */
    ls_operation_kind kind;      /* text in files: ls_operation_name */
    uint64_t sequence;           /* collectives: 1, 2, ... in their group; sends: in the pair of ranks; else 0 */
    uint64_t received;           /* recv, send_recv: the number of the message that is received, in the pair */
    uint64_t count;              /* elements; alloc_shared: bytes */
    int dtype, op;               /* an ls_dtype, an ls_reduce_op */
    int root;                    /* or peer: the job's rank; -1: none */
    char label[LS_FLIGHT_LABEL]; /* ls_comm_label's text: "bucket"; "": none */
    int label_number;            /* 3; -1: none */
    ls_flight_state state;
    /* When it reached these states, in ms of CLOCK_MONOTONIC, accurate to some ms; 0: not yet, or too small to be
     * timed. */
    int64_t enqueued_ms, started_ms, done_ms;
} ls_flight_operation;

typedef struct ls_flight_group {
    char name[LS_FLIGHT_NAME]; /* "group0", "tensor0", "data1" */
    int first, stride, size;   /* rank r of the group is the job's rank first + r x stride */
} ls_flight_group;

typedef struct ls_flight_rank {
    int pid;
    ls_flight_presence presence;
    bool late;         /* the failed wait was for this rank */
    int64_t looked_ms; /* when it last checked on others while waiting, which it does 20 times a second; 0: never */
    int count;         /* at most LS_FLIGHT_KEPT x LS_FLIGHT_GROUPS */
    ls_flight_operation *operations; /* ascending by number; the record's */
} ls_flight_rank;

typedef struct ls_flight_record {
    char program[64], backend[32];
    int world_size, taken_by; /* taken_by: the rank that detected the failure */
    int64_t taken_ms;
    int group;       /* in which it detected it */
    char status[64]; /* ls_status_text */
    char reason[512];
    int group_count;
    ls_flight_group *groups;
    ls_flight_rank *ranks;           /* world_size of them */
    ls_flight_operation *operations; /* room for those of all ranks */
} ls_flight_record;

/* --- files (flight_file.c) ------------------------------------------------------------------------------------------ */

/* Replaces `path` as a whole or not at all. */
ls_status ls_flight_write(const ls_flight_record *record, const char *path);

/* Reads a file. LS_ERR_INVALID, after one line with file and line: not a flight record, another version, truncated or
 * damaged. On failure *out is NULL. */
ls_status ls_flight_read(ls_flight_record **out, const char *path);

/* A record with room for so many ranks and groups, zero-filled; NULL without memory. */
ls_flight_record *ls_flight_create(int world_size, int group_count);
void ls_flight_free(ls_flight_record *record); /* NULL is a no-op */

/* --- comparing (flight_compare.c) ----------------------------------------------------------------------------------- */

/* The point at which ranks of a group diverged. */
typedef struct ls_flight_difference {
    enum {
        LS_FLIGHT_SAME,      /* not within the recorded operations */
        LS_FLIGHT_DIFFERS,   /* `odd` ranks run `found`, the others `expected` */
        LS_FLIGHT_UNMATCHED, /* the one rank in `odd` has no match for its peer's message `expected` */
        LS_FLIGHT_MISSING,   /* `odd` ranks have not reached `expected`, in which others are, or are late in it */
        LS_FLIGHT_UNKNOWN    /* the record does not tell: see ls_flight_find_difference */
    } kind;
    int group;
    const ls_flight_operation *expected, *found; /* in the record; found is NULL if there is none */
    bool odd[LS_FLIGHT_RANKS];                   /* the job's ranks */
} ls_flight_difference;

/* The first difference of a group. Compares collectives first, in the order of their numbers: the operation that most
 * ranks run is expected; in a tie, the one of the lowest rank. If collectives agree, compares messages between two
 * ranks: the one that explains most (see ls_flight_find_cause); in a tie, the oldest of the lowest rank. If there is
 * none: missing ranks. Last, UNKNOWN: other ranks' rings no longer hold the current or next operation of the `odd`
 * ranks; with `expected`, a message, the ring of the one `odd` rank no longer holds its other end. */
ls_flight_difference ls_flight_find_difference(const ls_flight_record *record, int group);

/* Of all groups' first differences, the one that most likely explains the others. Ranks that run different operations
 * rank before an awaited rank that is in no operation, and that before one that waits elsewhere. In a tie, the group in
 * which the failure was detected wins. */
ls_flight_difference ls_flight_find_cause(const ls_flight_record *record);

/* Whether two ranks' operations with the same sequence number match: kind, count, dtype, reduction, root and label. */
bool ls_flight_is_same(const ls_flight_operation *a, const ls_flight_operation *b);

/* The operation that a rank is in: the oldest that has started and is not done; else the oldest that is enqueued; else
 * NULL. An operation is also done if a later one of the same group is done. */
const ls_flight_operation *ls_flight_pending(const ls_flight_record *record, int rank);

/* Whether the rank is in an operation but no longer checks on the others: its process is stopped, or has been busy for
 * long. */
bool ls_flight_is_stuck(const ls_flight_record *record, int rank);

/* When the rank's operation reached its present state, in ms; for a small operation, the time of the last timed one
 * before it; 0: none. */
int64_t ls_flight_since_ms(const ls_flight_record *record, int rank, const ls_flight_operation *operation);

/* The rank's last operation, whatever its state; NULL: it has none. */
const ls_flight_operation *ls_flight_last(const ls_flight_record *record, int rank);

/* --- texts (flight_table.c) ----------------------------------------------------------------------------------------- */

enum { LS_FLIGHT_TEXT = 192, LS_FLIGHT_TABLE = 8192, LS_FLIGHT_HISTORY = 64 * 256 };

/* "all_reduce"; and "from", the word before a root or peer, or NULL. Both are static strings. */
const char *ls_operation_name(int32_t kind);
const char *ls_operation_preposition(int32_t kind);

/* `before` and the label, "bucket 3"; "" without a label. Returns `text`. */
const char *ls_flight_label_text(char *text, size_t capacity, const char *before, const ls_flight_operation *operation);

/* "#118 all_reduce of bucket 3". Returns `text`. */
const char *ls_flight_operation_text(char text[LS_FLIGHT_TEXT], const ls_flight_operation *operation);

/* The table: the point of divergence and each rank's position; ranks at the same position share a line. At most 20
 * lines, each ended by \n. Returns `text`. */
const char *ls_flight_table(char text[LS_FLIGHT_TABLE], const ls_flight_record *record);

/* A line for each of a rank's last `count` operations, at most 64, the newest last. Returns `text`. */
const char *ls_flight_history(char text[LS_FLIGHT_HISTORY], const ls_flight_record *record, int rank, int count);

#endif
