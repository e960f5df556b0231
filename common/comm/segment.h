/* What the ranks of a group write for each other: the control area, with which the group's memory begins. First struct
 * ls_segment, then mailboxes, arrivals and staging buffers. All zero when the group begins. Private to common/comm. */
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

/* The largest message that goes along with the meeting; and per rank two buffers for slices of buffers that are not
 * shared. */
#define LS_EAGER_BYTES ((size_t)4 << 10)
#define LS_STAGE_BYTES ((size_t)256 << 10)

/* Where a rank's published data lies: an offset in the group's memory, or one of these. */
#define LS_OFFSET_STAGED UINT64_MAX        /* slice by slice in the rank's staging buffers */
#define LS_OFFSET_NOTHING (UINT64_MAX - 1) /* this rank publishes nothing */

/* What a rank is about to do. Ranks that meet compare everything but the offset. */
typedef struct ls_announcement {
    uint64_t sequence, count;      /* ALLOC: count is bytes */
    uint64_t offset;               /* ALLOC_VOTE: the rank's ls_status; ATTACH, COMPARE: what attach.c compares;
                                    * SEND_RECV, until it runs: the sequence of what is received */
    int32_t kind, dtype, op, root; /* ls_operation_kind, ls_dtype, ls_reduce_op; root or peer, -1 if none */
} ls_announcement;

/* Operations of the stream and collective calls of the host meet in channels of their own: they may overlap in time. */
typedef enum ls_channel_kind { LS_CHANNEL_STREAM, LS_CHANNEL_HOST, LS_CHANNEL_COUNT } ls_channel_kind;

/* How one rank comes to a step of a channel; written by that rank only. What the others want to know of it lies
 * together, so that a message of a few elements costs each of them one cache line. A rank has two per channel, for even
 * and for odd steps, so that it may come to the next step while a slow one still reads this one's. */
typedef struct ls_arrival {
    alignas(LS_CACHE_LINE_BYTES) _Atomic uint64_t step; /* the last one of its kind, even or odd, it has come to */
    ls_announcement announced;                          /* by the last meeting among those steps */
    char brief[16];                                     /* a message that goes along with that meeting, if it fits, */
    char message[LS_EAGER_BYTES];                       /* or else here, where a line begins */
} ls_arrival;
_Static_assert(offsetof(ls_arrival, message) == LS_CACHE_LINE_BYTES, "an arrival's first line holds all but message");

/* CUT: what has become of a rank on another host is not known, since that host's leader (mirror.h) is gone. */
typedef enum ls_presence { LS_PRESENT, LS_LEFT, LS_DIED, LS_CUT } ls_presence;

typedef struct ls_rank_slot {
    alignas(LS_CACHE_LINE_BYTES) _Atomic int32_t pid; /* shm: 0 until the rank has joined */
    _Atomic int32_t left;                             /* an ls_presence */
    _Atomic int32_t inside;                           /* threads: the rank may touch other ranks' buffers */
    /* whose progress the rank waits for, as rank + 1 (0: nobody's), and up to what value */
    _Atomic int32_t awaits;
    _Atomic uint32_t awaited_value;
    alignas(LS_CACHE_LINE_BYTES) ls_flag progress; /* steps inside operations (ls_comm_step_done) */
    /* how many messages the rank has recorded, to and from each other one */
    alignas(LS_CACHE_LINE_BYTES) _Atomic uint64_t sends[LS_COMM_MAX_RANKS];
    _Atomic uint64_t receives[LS_COMM_MAX_RANKS];
} ls_rank_slot;

/* An operation in a ring (flight.h says what it holds). Each word is atomic, because others read it while it is written:
 * `number` is 0 meanwhile. A stamp is the low bits of the number, so that the mark of an operation whose entry has been
 * reused is recognised, and a time. */
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
    alignas(LS_CACHE_LINE_BYTES) uint64_t recorded; /* so many, by the thread that enqueues */
    _Atomic uint64_t collectives;                   /* the last one's number */
    uint64_t hash;                                  /* ls_comm.name_hash */
    ls_flight_group group;
    ls_flight_entry entries[LS_FLIGHT_KEPT];
    ls_flight_label labels[LS_FLIGHT_KEPT];
} ls_flight_ring;

/* What a rank records, in its job's memory. */
typedef struct ls_flight_log {
    alignas(LS_CACHE_LINE_BYTES) _Atomic uint64_t enqueued; /* the last operation's number */
    _Atomic int32_t pid, left;                              /* pid 0: it has not joined; an ls_presence */
    _Atomic int32_t ring_count;                             /* groups beyond the last ring are not recorded */
    _Atomic int64_t looked_ms;                              /* when it last asked why a wait lasts */
    ls_flight_ring rings[LS_FLIGHT_GROUPS];
} ls_flight_log;

/* From one rank to another. Each side raises its flag by one per step and announces itself before its first. The
 * receiver may be one message ahead of the sender's look at it, so its announcements alternate. */
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

/* The group's memory begins with this; all zero when the group begins. */
typedef struct ls_segment {
    _Atomic int32_t endpoints; /* threads: those that have not been destroyed; the last one frees the memory */
    ls_broken broken;          /* unused in a group that shares its job's */
    /* wakes those who sleep until all have come to a step; its value says nothing */
    struct {
        alignas(LS_CACHE_LINE_BYTES) ls_flag bell;
    } channel[LS_CHANNEL_COUNT];
    /* groups on several hosts: the mirror has been woken and has not looked yet */
    alignas(LS_CACHE_LINE_BYTES) _Atomic int32_t kicked;
    /* by leader: when something last came from its host (this host's: when the mirror last ran), in ms of
     * ls_coarse_now_ms */
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

/* The offset of a buffer that all ranks see, LS_OFFSET_STAGED for any other address; and back, on any rank. (A line per
 * window, of which there are one to three.) */
uint64_t ls_segment_offset(const ls_comm *comm, const void *buffer);
char *ls_segment_address(const ls_comm *comm, uint64_t offset);

#endif
