/* Flight records: the last operations of every rank of a job, kept for the moment in which it hangs.
 *
 * Each rank records its operations in a ring of LS_FLIGHT_KEPT entries per group, in shared memory (flight_ring.c). The
 * rings of all groups of a job lie in the memory of the group of all its ranks (ls_comm_options.job), so that a record
 * shows where a rank is in whichever group. A rank that breaks the group because of a time-out, a death, or ranks out
 * of step, copies the rings of all ranks into an ls_flight_record, prints ls_flight_table of it and, where the user
 * asked for it, writes it to a file.
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

/* Whether it is between two ranks. */
static inline bool ls_operation_is_message(int kind) {
    return kind == LS_OPERATION_SEND || kind == LS_OPERATION_RECV || kind == LS_OPERATION_SEND_RECV;
}

enum {
    LS_FLIGHT_VERSION = 1,
    LS_FLIGHT_KEPT = 64,    /* operations of a rank in a group */
    LS_FLIGHT_RANKS = 64,   /* of a job: LS_COMM_MAX_RANKS */
    LS_FLIGHT_GROUPS = 16,  /* groups of a rank */
    LS_FLIGHT_UNTIMED = 64, /* elements up to which an operation has no times, which would cost more than the rest */
    LS_FLIGHT_LABEL = 32,   /* bytes of a label, with its end */
    LS_FLIGHT_NAME = 48     /* of a group's name */
};

/* enqueued  the rank has called the operation; its stream has not come to it
 * started   its stream has reached it; an operation of NCCL was put on the GPU's stream
 * done      this rank has done its part, and may use its buffers. NCCL's are seen to be done when the rank waits
 * captured  into a graph, whose launches are not recorded */
#define LS_FLIGHT_STATE_MAP(X)                                                                                         \
    X(ENQUEUED, "enqueued")                                                                                            \
    X(STARTED, "started")                                                                                              \
    X(DONE, "done")                                                                                                    \
    X(CAPTURED, "captured")

/* present  its process lives; it may be stopped
 * left     it has left the group in good order
 * died     its process has ended without that
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
    char label[LS_FLIGHT_LABEL]; /* what it is for: "bucket"; "": the caller did not say */
    int label_number;            /* 3; -1: none */
    ls_flight_state state;
    /* When it came to these states, in ms of CLOCK_MONOTONIC, some ms exact; 0: not yet, or it is small. */
    int64_t enqueued_ms, started_ms, done_ms;
} ls_flight_operation;

typedef struct ls_flight_group {
    char name[LS_FLIGHT_NAME]; /* "group0", "tensor0", "data1" */
    int first, stride, size;   /* rank r of the group is the job's rank first + r x stride */
} ls_flight_group;

typedef struct ls_flight_rank {
    int pid;
    ls_flight_presence presence;
    bool late;         /* the failed wait lacks this rank */
    int64_t looked_ms; /* when it last waited and looked for others, as it does 20 times a second; 0: never */
    int count;         /* at most LS_FLIGHT_KEPT x LS_FLIGHT_GROUPS */
    ls_flight_operation *operations; /* ascending by number; the record's */
} ls_flight_rank;

typedef struct ls_flight_record {
    char program[64], backend[32];
    int world_size, taken_by; /* the rank that noticed */
    int64_t taken_ms;
    int group;       /* in which it noticed */
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

/* Reads a file. A file that is no flight record, of another version, cut short or damaged is LS_ERR_INVALID, after one
 * line with file and line. On failure *out is NULL. */
ls_status ls_flight_read(ls_flight_record **out, const char *path);

/* A record with room for so many ranks and groups, zero-filled; NULL without memory. */
ls_flight_record *ls_flight_create(int world_size, int group_count);
void ls_flight_free(ls_flight_record *record); /* NULL is a no-op */

/* --- comparing (flight_compare.c) ----------------------------------------------------------------------------------- */

/* Where ranks of a group stopped doing the same. */
typedef struct ls_flight_difference {
    enum {
        LS_FLIGHT_SAME,      /* nowhere, in what is kept */
        LS_FLIGHT_DIFFERS,   /* `odd` ranks run `found`, the others `expected` */
        LS_FLIGHT_UNMATCHED, /* `odd` has one rank, which has no match for the message `expected` of its peer */
        LS_FLIGHT_MISSING,   /* `odd` ranks have not come to `expected`, in which others are, or are late in it */
        LS_FLIGHT_UNKNOWN /* other ranks' rings no longer hold what `odd` ranks are in, or would call next; with an `expected`:
                           * nor the ring of the one `odd` rank the other end of this message */
    } kind;
    int group;
    const ls_flight_operation *expected, *found; /* in the record; found is NULL where nothing is */
    bool odd[LS_FLIGHT_RANKS];                   /* the job's ranks */
} ls_flight_difference;

/* The first difference of a group. First collectives, in the order of their numbers: what most ranks run is expected, of two that as
 * many run what the lowest rank runs. If they do not differ, messages between two ranks: the one that explains most (as
 * ls_flight_find_cause has it), of equals that of the lowest rank, its oldest. If there is none, members who are missing;
 * then what is not known. */
ls_flight_difference ls_flight_find_difference(const ls_flight_record *record, int group);

/* Of all groups' first differences the one that most likely explains the others: ranks that run different operations
 * come before a rank that is awaited and itself in no operation, and that before one that waits elsewhere. Of equals the
 * one in the group in which the failure was noticed. */
ls_flight_difference ls_flight_find_cause(const ls_flight_record *record);

/* Whether two ranks' operations of one sequence number are alike: kind, count, dtype, reduction, root and label. */
bool ls_flight_is_same(const ls_flight_operation *a, const ls_flight_operation *b);

/* The operation that a rank is in: the oldest that has started and is not done; else the oldest that is enqueued; else
 * NULL. An operation behind which a later one of the same group is done is done, too. */
const ls_flight_operation *ls_flight_pending(const ls_flight_record *record, int rank);

/* Whether the rank is in an operation and does not look for the others any more, which it waits for or holds up: it is
 * stopped, or busy for long. */
bool ls_flight_is_stuck(const ls_flight_record *record, int rank);

/* When a rank came to the state in which an operation of its is, in ms; of a small operation the time of the last one
 * before it that has any; 0: none has. */
int64_t ls_flight_since_ms(const ls_flight_record *record, int rank, const ls_flight_operation *operation);

/* The rank's last operation, whatever its state; NULL: it has none. */
const ls_flight_operation *ls_flight_last(const ls_flight_record *record, int rank);

/* --- texts (flight_table.c) ----------------------------------------------------------------------------------------- */

enum { LS_FLIGHT_TEXT = 192, LS_FLIGHT_TABLE = 8192, LS_FLIGHT_HISTORY = 64 * 256 };

/* "all_reduce"; "from", before a root or peer, or NULL. Both live for ever. */
const char *ls_operation_name(int32_t kind);
const char *ls_operation_preposition(int32_t kind);

/* `before`, and "bucket 3"; "" without a label. Returns `text`. */
const char *ls_flight_label_text(char *text, size_t capacity, const char *before, const ls_flight_operation *operation);

/* "#118 all_reduce of bucket 3". Returns `text`. */
const char *ls_flight_operation_text(char text[LS_FLIGHT_TEXT], const ls_flight_operation *operation);

/* The table: where they diverged, and where each rank is; ranks in the same place share a line. At most 20 lines, each
 * with its end. Returns `text`. */
const char *ls_flight_table(char text[LS_FLIGHT_TABLE], const ls_flight_record *record);

/* A line for each of a rank's last `count` operations, at most 64, the newest last. Returns `text`. */
const char *ls_flight_history(char text[LS_FLIGHT_HISTORY], const ls_flight_record *record, int rank, int count);

#endif
