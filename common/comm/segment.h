/* The control area at the beginning of a group's memory, in which ranks write for each other: struct ls_segment, then
 * mailboxes, arrivals and staging buffers. Zero-filled when the group is created. Private to common/comm. */
#ifndef LS_COMM_SEGMENT_H
#define LS_COMM_SEGMENT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/flag.h"
#include "common/comm/comm.h"
#include "common/comm/flight.h"

#define LS_CACHE_LINE_BYTES 64

/* The largest message that is sent with the barrier itself, and the size of a rank's two staging buffers, for slices of
 * buffers that are not shared. */
#define LS_EAGER_BYTES ((size_t)4 << 10)
#define LS_STAGE_BYTES ((size_t)256 << 10)

/* The location of a rank's published data: an offset in the group's memory, or one of these. */
#define LS_OFFSET_STAGED UINT64_MAX        /* slice by slice in the rank's staging buffers */
#define LS_OFFSET_NOTHING (UINT64_MAX - 1) /* this rank publishes nothing */

/* The operation that a rank begins. Ranks in a barrier compare all fields except the offset. */
typedef struct ls_announcement {
    uint64_t sequence, count;      /* ALLOC: count is bytes */
    uint64_t offset;               /* ALLOC_VOTE: the rank's ls_status; ATTACH, COMPARE: the value for attach.c;
                                    * SEND_RECV, until it runs: the sequence of the received message */
    int32_t kind, dtype, op, root; /* ls_operation_kind, ls_dtype, ls_reduce_op; root or peer, -1 if none */
} ls_announcement;

/* Operations of a stream and host-blocking collective calls use separate channels, since they may overlap in time. */
typedef enum ls_channel_kind { LS_CHANNEL_STREAM, LS_CHANNEL_HOST, LS_CHANNEL_COUNT } ls_channel_kind;

/* A rank's arrival at a step of a channel; written by that rank only. Everything the others read is together, so that a
 * message of a few elements costs each reader one cache line. A rank has two per channel, for even and odd steps, so
 * that it may arrive at the next step while a slow rank still reads this one. */
typedef struct ls_arrival {
    alignas(LS_CACHE_LINE_BYTES) _Atomic uint64_t step; /* the last even (or odd) step it has arrived at */
    ls_announcement announced;                          /* by the last operation begun among those steps */
    char brief[16];                                     /* a message sent with that operation's barrier, if it fits, */
    char message[LS_EAGER_BYTES];                       /* or else here, where a line begins */
} ls_arrival;
_Static_assert(offsetof(ls_arrival, message) == LS_CACHE_LINE_BYTES, "an arrival's first line holds all but message");

/* CUT: the state of a rank on another host is unknown, since that host's leader (mirror.h) is gone. */
typedef enum ls_presence { LS_PRESENT, LS_LEFT, LS_DIED, LS_CUT } ls_presence;

typedef struct ls_rank_slot {
    alignas(LS_CACHE_LINE_BYTES) _Atomic int32_t pid; /* shm: 0 until the rank has joined */
    _Atomic int32_t left;                             /* an ls_presence */
    _Atomic int32_t inside;                           /* threads: the rank may access other ranks' buffers */
    /* the rank whose progress it waits for, plus 1 (0: none), and the value it waits for */
    _Atomic int32_t awaits;
    _Atomic uint32_t awaited_value;
    alignas(LS_CACHE_LINE_BYTES) ls_flag progress; /* steps inside operations (ls_comm_step_done) */
    /* messages recorded by this rank, to and from each other rank */
    alignas(LS_CACHE_LINE_BYTES) _Atomic uint64_t sends[LS_COMM_MAX_RANKS];
    _Atomic uint64_t receives[LS_COMM_MAX_RANKS];
} ls_rank_slot;

/* An operation in a ring (fields: flight.h). Each word is atomic, since other ranks read it while it is being written;
 * `number` is 0 meanwhile. A stamp consists of a time and the low bits of the number, by which a stamp of an earlier
 * operation of the same entry is recognised. */
enum ls_flight_stamp { LS_STAMP_ENQUEUED, LS_STAMP_STARTED, LS_STAMP_DONE, LS_STAMP_COUNT };

typedef struct ls_flight_entry {
    alignas(LS_CACHE_LINE_BYTES) _Atomic uint64_t number;
    _Atomic uint64_t stamp[LS_STAMP_COUNT];
    _Atomic uint64_t sequence, count;
    _Atomic uint64_t received; /* of messages only */
    _Atomic uint64_t kinds;    /* a byte each: kind, dtype, op, root + 1; above them the label's number */
} ls_flight_entry;
_Static_assert(sizeof(ls_flight_entry) == LS_CACHE_LINE_BYTES, "an operation without a label costs one line");

#define LS_FLIGHT_HAS_LABEL 128 /* in the kind's byte */

typedef _Atomic uint64_t ls_flight_label[LS_FLIGHT_LABEL / sizeof(uint64_t)];

/* The last operations of a rank in one group; written by that rank only. */
typedef struct ls_flight_ring {
    alignas(LS_CACHE_LINE_BYTES) uint64_t recorded; /* count; of the thread that enqueues */
    _Atomic uint64_t collectives;                   /* the last one's number */
    uint64_t hash;                                  /* ls_comm.name_hash */
    ls_flight_group group;
    ls_flight_entry entries[LS_FLIGHT_KEPT];
    ls_flight_label labels[LS_FLIGHT_KEPT];
} ls_flight_ring;

/* A rank's records, in the memory of its job's group. */
typedef struct ls_flight_log {
    alignas(LS_CACHE_LINE_BYTES) _Atomic uint64_t enqueued; /* the last operation's number */
    _Atomic int32_t pid, left;                              /* pid 0: not joined; left: an ls_presence */
    _Atomic int32_t ring_count;                             /* groups beyond the last ring are not recorded */
    _Atomic int64_t looked_ms;                              /* when it last checked on others while waiting */
    ls_flight_ring rings[LS_FLIGHT_GROUPS];
} ls_flight_log;

/* From one rank to another. Each side raises its flag by one per step and announces itself before its first. The
 * receiver may be one message ahead of the sender that reads its announcement, so announcements alternate. */
typedef struct ls_mailbox {
    alignas(LS_CACHE_LINE_BYTES) ls_flag sent;
    ls_announcement sender;
    alignas(LS_CACHE_LINE_BYTES) ls_flag taken;
    ls_announcement receiver[2];
} ls_mailbox;

#define LS_REASON_CAPACITY 400

typedef enum ls_broken_state { LS_INTACT, LS_BREAKING, LS_BROKEN } ls_broken_state;

/* Why the group is broken: written once, by the rank that moves state from INTACT to BREAKING; read once it is BROKEN. */
typedef struct ls_broken {
    alignas(LS_CACHE_LINE_BYTES) _Atomic int32_t state;
    int32_t status, rank; /* the rank that broke it: the job's */
    char reason[LS_REASON_CAPACITY];
} ls_broken;

/* The start of the group's memory; zero-filled when the group is created. */
typedef struct ls_segment {
    _Atomic int32_t endpoints; /* threads: those that have not been destroyed; the last one frees the memory */
    ls_broken broken;          /* unused in a group that shares its job's */
    /* wakes ranks that wait until all have arrived at a step; its value is not used */
    struct {
        alignas(LS_CACHE_LINE_BYTES) ls_flag bell;
    } channel[LS_CHANNEL_COUNT];
    /* groups on several hosts: the mirror has been woken and has not run yet */
    alignas(LS_CACHE_LINE_BYTES) _Atomic int32_t kicked;
    /* by leader: when its host was last heard from (this host: when the mirror last ran), in ms of ls_coarse_now_ms */
    _Atomic int64_t heard_ms[LS_COMM_MAX_RANKS];
    ls_rank_slot slot[LS_COMM_MAX_RANKS];
} ls_segment;

/* Whether an operation is between two ranks, what.root being the other one. */
static inline bool ls_is_point_to_point(const ls_announcement *what) { return ls_operation_is_message(what->kind); }

size_t ls_control_nbytes(int world_size);

/* Fills comm->base, ->segment, ->arrivals, ->control_nbytes and, unless they are the job's, ->broken and ->flight: the
 * control area begins at `base`. */
void ls_segment_attach(ls_comm *comm, void *base);
ls_mailbox *ls_segment_mailbox(const ls_comm *comm, int from, int to);
ls_arrival *ls_segment_arrival(const ls_comm *comm, ls_channel_kind channel, int rank, uint64_t step);
char *ls_segment_stage(const ls_comm *comm, int rank, uint64_t slice);

/* Converts the address of a buffer that all ranks can access to its offset (LS_OFFSET_STAGED: not accessible), and an
 * offset to an address on this rank. (Time is linear in the number of windows, one to three.) */
uint64_t ls_segment_offset(const ls_comm *comm, const void *buffer);
char *ls_segment_address(const ls_comm *comm, uint64_t offset);

#endif
