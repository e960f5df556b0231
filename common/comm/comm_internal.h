/* The internals of a group. Private to common/comm. segment.h lays out its memory, regions.h manages its regions,
 * wait.h makes ranks wait for each other.
 *
 * The group's memory begins with the control area: struct ls_segment, then mailboxes, arrivals and staging buffers
 * (segment.c). Ranks synchronise, and find each other's data, through the control area; wait.c, regions.c, exchange.c
 * and the operations are the same for both back-ends.
 *   shm      the memory is one anonymous file (memfd). Every rank maps its control area, and after it windows, as regions
 *            of ls_comm_alloc_shared need them, at addresses of its own. A place is an offset in the file, the same on
 *            all ranks; buffers outside of the windows are staged
 *   threads  the ranks share one address space, so any buffer can be read in place: its offset is its address
 * struct ls_transport has the remaining differences. */
#ifndef LS_COMM_COMM_INTERNAL_H
#define LS_COMM_COMM_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/types.h>

#include "common/base/clock.h"
#include "common/comm/allreduce.h"
#include "common/comm/comm.h"
#include "common/comm/regions.h"
#include "common/comm/segment.h"

/* The functions that differ between back-ends. Slots are required unless marked optional; none is on the path of an
 * operation. */
struct ls_transport {
    const char *name; /* ls_comm_backend */
    /* Ranks access each other's buffers directly. After a failed operation a rank waits until no other rank accesses
     * its buffer, so that the caller may free it. */
    bool shares_buffers;
    /* Allocates this rank's part of a region of comm->regions, zero-filled: sets region->memory and ->seen. Reports its
     * failure. */
    ls_status (*fill)(ls_comm *comm, ls_region *region);
    /* (optional) Called when all ranks have their part. */
    void (*keep)(ls_comm *comm, ls_region *region);
    /* Undoes fill, also after a fill that failed here or on another rank. */
    void (*empty)(ls_comm *comm, ls_region *region);
    /* Frees the group's memory and everything that create has opened, also after a create that failed half-way. */
    void (*leave)(ls_comm *comm);
    bool over_hosts; /* the control area is mirrored between hosts (mirror.h) */
};

/* An operation in its rank's ring; number 0: it is not recorded. */
typedef struct ls_flight_mark {
    ls_flight_entry *entry;
    uint64_t number;
} ls_flight_mark;

/* An operation that is enqueued or running. */
typedef struct ls_operation {
    ls_comm *comm;
    ls_announcement what;
    const void *send;
    void *receive;
    ls_flight_mark mark;
} ls_operation;

/* A path for GPU memory. Every slot is required. */
struct ls_path {
    const char *name;     /* ls_comm_backend; NULL: the transport's with ", staged" */
    bool mirrors;         /* regions have a companion on the host */
    bool can_be_captured; /* ls_comm_can_be_captured */
    bool takes_host;      /* operations on host memory take this path, too */
    /* Puts a checked and numbered operation, whose buffers are GPU memory (or none), on a stream of a GPU. */
    ls_status (*enqueue)(const ls_operation *operation, ls_stream *stream);
    /* Called before the rank leaves: frees comm->path_state. Waits for the other ranks and then for its own operations,
     * each for at most the group's deadline. */
    void (*close)(ls_comm *comm);
};

struct ls_carrier; /* carrier.h */
struct ls_mirror;  /* mirror.h */

struct ls_comm {
    /* constant after create; endpoints of threads share no line, since each operation writes to them */
    alignas(LS_CACHE_LINE_BYTES) const struct ls_transport *transport;
    int rank, world_size;
    int first, stride; /* rank r is the job's rank first + r x stride, which messages name */
    double timeout_s;
    ls_patience patience;
    const ls_allreduce_algorithm *allreduce;
    int ranks_per_node;    /* of hierarchical: consecutive ranks that count as a node */
    char *base;            /* the group's memory; NULL if world_size is 1 */
    ls_segment *segment;   /* likewise */
    ls_broken *broken;     /* in it, or in the job's group; likewise */
    ls_arrival *arrivals;  /* of all ranks; likewise */
    ls_flight_log *flight; /* of all ranks of the job, in its group's memory; NULL: nothing is recorded */
    ls_flight_ring *ring;  /* this rank's for this group; likewise */
    int flight_ranks;
    bool unrecorded, owns_flight; /* as options say; the rings are in this group's memory */
    bool debug;                   /* compares each operation before it runs */
    const char *flight_folder;    /* where records are written; NULL: nowhere */
    char name[LS_FLIGHT_NAME];
    size_t control_nbytes; /* of the control area */
    int fd;                /* shm: the file */
    uint64_t name_hash; /* the group's name in probes: the same on all ranks, and almost certainly no other group's */
    /* shm: the process of each peer, to notice its death; -1: none or not watched */
    int pidfd[LS_COMM_MAX_RANKS];
    /* groups on several hosts (hosts_group.c) */
    const ls_comm *job;                    /* of which this is a part, or itself */
    unsigned char host[LS_COMM_MAX_RANKS]; /* of each of the job's ranks; all 0: there is one */
    char address[16];                      /* of this one */
    int leader;                            /* the lowest rank of the group on this rank's host */
    struct ls_mirror *mirror;              /* on that rank; NULL: the group is on one host */
    int kick_fd;                           /* wakes it; -1: likewise */
    const struct ls_carrier *carrier;      /* runs operations on host memory; NULL: the group's own algorithms do */
    void *carrier_state;
    /* hierarchical in a group of one host's ranks, of a carrier's group: reduces this rank's share, `count` elements in its
     * view from `begin` on, over the other hosts; NULL: there are none */
    ls_status (*across)(struct ls_exchange *exchange, size_t begin, size_t count);
    ls_comm *across_comm; /* that group */
    /* constant after attach, NULL before */
    ls_device *device;
    const struct ls_path *path;
    void *path_state;
    char backend[32]; /* ls_comm_backend */
    /* the thread that enqueues */
    uint64_t collectives; /* operations of all ranks enqueued: their sequence number */
    uint64_t sent[LS_COMM_MAX_RANKS], received[LS_COMM_MAX_RANKS];
    const char *label; /* of the next operation; NULL: none */
    int label_number;
    ls_region *regions;
    /* the thread that runs operations (channel[HOST]: the enqueueing thread) */
    struct {
        uint64_t step, meeting;       /* the last step, and the last one that began an operation */
        const struct ls_wait *patrol; /* the wait that is on patrol, or NULL */
    } channel[LS_CHANNEL_COUNT];
    uint32_t sent_steps[LS_COMM_MAX_RANKS];     /* mailbox to each peer: its `sent` after the last message */
    uint32_t taken_steps[LS_COMM_MAX_RANKS];    /* mailbox to each peer: its `taken`, likewise */
    uint32_t received_steps[LS_COMM_MAX_RANKS]; /* mailbox from each peer: its `sent`, likewise */
    uint32_t progress_base;                     /* all ranks' progress when the current slice began */
    /* memory that all ranks see; a window is constant once it is kept, until the rank leaves. The thread that enqueues
     * adds windows */
    ls_window windows[LS_WINDOWS_MAX];
    _Atomic int window_count;
    /* any thread */
    _Atomic int failure;      /* the first failure's ls_status */
    atomic_bool has_reported; /* an operation of this rank has reported why the group is broken */
    _Atomic uint64_t operations, sent_messages, sent_bytes, received_messages, received_bytes;
};

/* The job's rank of a rank of the group, for messages. */
static inline int ls_job_rank(const ls_comm *comm, int rank) { return comm->first + rank * comm->stride; }

static inline bool ls_is_on_this_host(const ls_comm *comm, int rank) {
    return comm->host[ls_job_rank(comm, rank)] == comm->host[ls_job_rank(comm, comm->rank)];
}

/* The lowest rank of the group on a rank's host. */
static inline int ls_leader_of(const ls_comm *comm, int rank) {
    int leader = 0;
    while (comm->host[ls_job_rank(comm, leader)] != comm->host[ls_job_rank(comm, rank)]) leader++;
    return leader;
}

static inline int ls_ranks_on_this_host(const ls_comm *comm) {
    int count = 0;
    for (int r = 0; r < comm->world_size; r++) count += ls_is_on_this_host(comm, r);
    return count;
}

/* Bytes that a rank publishes in an operation of all ranks. */
static inline size_t ls_published_nbytes(const ls_comm *comm, const ls_announcement *what) {
    bool each = what->kind == LS_OPERATION_SCATTER || what->kind == LS_OPERATION_REDUCE_SCATTER;
    return (each ? (size_t)comm->world_size : 1) * what->count * ls_dtype_nbytes((ls_dtype)what->dtype);
}

/* Groups on several hosts: makes the mirror (mirror.h) send at once what this rank has written, instead of with the
 * next heartbeat. */
static inline void ls_mirror_kick(const ls_comm *comm) {
    if (comm->kick_fd >= 0 && atomic_exchange(&comm->segment->kicked, 1) == 0) (void)eventfd_write(comm->kick_fd, 1);
}

/* hosts_group.c: the carrier of a group over hosts that was created without one, and whether it can run the
 * operation. */
extern const struct ls_carrier ls_one_round_carrier;
bool ls_is_one_round(const ls_operation *operation);

/* --- creating and leaving a group (group.c) ----------------------------------------------------------------------- */

/* Checks the options that all back-ends have in common: LS_ERR_INVALID, reported. */
ls_status ls_group_check_options(const ls_comm_options *options);

/* An endpoint that has not joined anything yet; NULL (reported) without memory. ls_comm_destroy frees it. */
ls_comm *ls_group_endpoint(const struct ls_transport *transport, const ls_comm_options *options, int rank);

/* --- creation (shm_group.c, shm_handshake.c) ----------------------------------------------------------------------------------- */

/* Makes the endpoint of options->rank, joins the group and then its carrier (NULL: none). On failure *out is NULL. */
ls_status ls_group_join(ls_comm **out, const struct ls_transport *transport, const ls_comm_options *options,
                        const struct ls_carrier *carrier);

extern const struct ls_transport ls_shm_transport;
void ls_shm_leave(ls_comm *comm); /* its leave, which also ends the mirror */

/* The data that a rank presents when it joins. */
typedef struct ls_hello {
    uint32_t magic, segment_nbytes; /* both differ between incompatible builds */
    int32_t rank, world_size;
    char allreduce[32]; /* the algorithm's name */
} ls_hello;

ls_hello ls_handshake_hello(const ls_comm *comm);

/* Compares another rank's hello with this rank's: writes the mismatch as text, empty if there is none. */
void ls_handshake_judge(const ls_comm *comm, const ls_hello *theirs, char *text, size_t capacity);

/* The host's leader: creates the group's file, maps it, and passes it to the host's other ranks; a failure breaks the
 * group for the ranks that have it. */
ls_status ls_handshake_host(ls_comm *comm, const ls_comm_options *options, double until_us);

/* The others: fetch the file from the leader and map it. */
ls_status ls_handshake_join(ls_comm *comm, const ls_comm_options *options, double until_us);

/* --- texts (comm_text.c) ------------------------------------------------------------------------------------------ */

#define LS_TEXT_CAPACITY 160

/* "all_reduce (sum) of 10 fp32 elements"; with `numbered`: "... (operation 3, 40 bytes)". Returns `text`. */
const char *ls_announcement_text(const ls_comm *comm, char text[LS_TEXT_CAPACITY], const ls_announcement *what,
                                 bool numbered);

/* ls_ranks_text of the group's ranks whose entry is true, as ranks of the job. */
const char *ls_comm_ranks_text(char text[LS_RANKS_TEXT_CAPACITY], const bool *chosen, const ls_comm *comm);

/* --- the flight record (flight_ring.c; flight_take.c) ----------------------------------------------------------------- */

/* Call when a rank has the group's memory, and before it leaves. */
void ls_flight_join(ls_comm *comm);
void ls_flight_leave(ls_comm *comm);

/* Records an operation that is about to be enqueued; comm->ring exists. */
ls_flight_mark ls_flight_record_operation(ls_comm *comm, const ls_announcement *what);

static inline ls_flight_mark ls_flight_enqueue(ls_comm *comm, const ls_announcement *what) {
    return comm->ring ? ls_flight_record_operation(comm, what) : (ls_flight_mark){0};
}

#define LS_FLIGHT_TIME_BITS 40
#define LS_FLIGHT_CAPTURED_TIME (((uint64_t)1 << LS_FLIGHT_TIME_BITS) - 1)

/* Records an operation's new state; called by the thread that runs it. Small messages get no time, since reading the
 * clock takes longer than the rest of the record. */
static inline void ls_flight_stamp(ls_flight_mark mark, enum ls_flight_stamp which, uint64_t time_ms) {
    if (mark.number > 0)
        atomic_store_explicit(&mark.entry->stamp[which], mark.number << LS_FLIGHT_TIME_BITS | time_ms,
                              memory_order_release);
}

static inline uint64_t ls_flight_time(const ls_announcement *what) {
    return what->count > LS_FLIGHT_UNTIMED ? (uint64_t)ls_coarse_now_ms() : 0;
}

static inline void ls_flight_start(ls_flight_mark mark, const ls_announcement *what) {
    ls_flight_stamp(mark, LS_STAMP_STARTED, ls_flight_time(what));
}
static inline void ls_flight_end(ls_flight_mark mark, const ls_announcement *what) {
    ls_flight_stamp(mark, LS_STAMP_DONE, ls_flight_time(what));
}

/* Records that this rank, which waits for others, is alive. */
void ls_flight_look(const ls_comm *comm);

/* When a rank of the group last recorded that, in ms of ls_coarse_now_ms; 0: never. */
int64_t ls_flight_looked_ms(const ls_comm *comm, int rank);

/* False: it is empty, or being written. out->root is the group's rank; out->group is not filled. */
bool ls_flight_read_entry(const ls_flight_ring *ring, int entry, ls_flight_operation *out);

/* A rank's ring for the group `hash`, or NULL. */
const ls_flight_ring *ls_flight_find_ring(const ls_flight_log *log, uint64_t hash);

/* Copies the rings of all ranks. late[r]: the wait is for rank r of the group. NULL, without a report: nothing is
 * recorded, or no memory. */
ls_flight_record *ls_flight_take(const ls_comm *comm, ls_status status, const char *reason, const bool *late);

/* Prints the table, writes the file if one is requested, and frees the record. NULL is a no-op. */
void ls_flight_tell(const ls_comm *comm, ls_flight_record *record);

/* --- paths for GPU memory ----------------------------------------------------------------------------------------- */

/* staged.c */
ls_status ls_staged_attach(ls_comm *comm, ls_device *device);

/* The bytes that an operation moves on this rank: read from `send` (or from `receive`, in place) and written to
 * `receive`. */
typedef struct ls_journey {
    size_t read_bytes, written_bytes;
} ls_journey;

ls_journey ls_journey_of(const ls_operation *operation);

/* through_gpu.c: lets operations on host memory go through NCCL, which is attached. */
ls_status ls_through_gpu_attach(ls_comm *comm);

/* Whether an operation for this stream is on GPU memory (comm.c). */
bool ls_comm_is_on_gpu(const ls_operation *operation, const ls_stream *stream);

/* The path for a meta device, which moves nothing (meta_group.c). */
void ls_meta_attach(ls_comm *comm, ls_device *device);

/* Enqueues an operation on host memory, without a path (comm.c). */
ls_status ls_comm_launch_on_host(const ls_operation *operation, ls_stream *stream);

/* Called by paths when the operation is done or, on an asynchronous stream, enqueued. */
void ls_comm_count_operation(ls_comm *comm);

/* This thread's hook for --debug-values (values.c): checks each operation before it is recorded and enqueued. NULL:
 * none. */
extern _Thread_local ls_status (*ls_operation_check)(const ls_operation *operation);

/* --- running operations ------------------------------------------------------------------------------------------- */

/* With the group's own algorithms: one of those below. */
ls_status ls_run_in_shared_memory(const ls_operation *operation);

ls_status ls_run_all_reduce(const ls_operation *operation);
ls_status ls_run_broadcast(const ls_operation *operation);
ls_status ls_run_reduce(const ls_operation *operation);
ls_status ls_run_all_gather(const ls_operation *operation);
ls_status ls_run_reduce_scatter(const ls_operation *operation);
ls_status ls_run_gather(const ls_operation *operation);
ls_status ls_run_scatter(const ls_operation *operation);
ls_status ls_run_send(const ls_operation *operation);
ls_status ls_run_recv(const ls_operation *operation);
ls_status ls_run_send_recv(const ls_operation *operation);
ls_status ls_run_barrier(const ls_operation *operation);

/* Compares the announcements of a message's sender (`out`) and its receiver. LS_ERR_INVALID if they differ: reported,
 * and the group is broken. */
ls_status ls_comm_compare_ends(ls_comm *comm, const ls_announcement *out, const ls_announcement *in);

/* Writes the operation's MEETING for the probes; called when the last rank has arrived. `algorithm` NULL: the operation
 * has only one. */
void ls_comm_probe_meeting(const ls_operation *operation, const char *algorithm);

/* Adds to the counts of ls_comm_traffic_read: `messages` messages, `nbytes` bytes in all. */
void ls_comm_count_sent(ls_comm *comm, size_t messages, size_t nbytes);
void ls_comm_count_received(ls_comm *comm, size_t messages, size_t nbytes);

#endif
