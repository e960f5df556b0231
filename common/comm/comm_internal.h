/* What the files of this folder share; nobody else includes it.
 *
 * The group's memory begins with the control area: struct ls_segment, then mailboxes, arrivals and staging buffers
 * (segment.c). Ranks meet, and find each other's data, through it; wait.c, regions.c, exchange.c and the
 * operations are the same for both back-ends.
 *   shm      the memory is one anonymous file (memfd). Every rank maps its control area, and behind that, as regions of
 *            ls_comm_alloc_shared need them, windows, at addresses of its own. A place is an offset in the file, the same
 *            on all ranks; buffers outside of the windows are staged
 *   threads  the ranks share one address space, so any buffer can be read where it lies: its offset is its address
 * What else differs is struct ls_transport. */
#ifndef LS_COMM_COMM_INTERNAL_H
#define LS_COMM_COMM_INTERNAL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/flag.h"
#include "common/base/log.h"
#include "common/comm/allreduce.h"
#include "common/comm/allreduce_tuning.h"
#include "common/comm/comm.h"

#define LS_CACHE_LINE_BYTES 64
#define LS_PAGE_BYTES ((size_t)4096)

/* Each window is at least as large as all before it together, so these are enough. */
#define LS_WINDOWS_MAX 32

/* The largest message that goes along with the meeting; and per rank two buffers for slices of buffers that are not
 * shared. */
#define LS_EAGER_BYTES ((size_t)4 << 10)
#define LS_STAGE_BYTES ((size_t)256 << 10)

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
    X(BARRIER, "barrier", false, NULL)                                                                                 \
    X(JOIN, "joining the group", false, NULL)                                                                          \
    X(ALLOC, "alloc_shared", true, NULL)                                                                               \
    X(ALLOC_VOTE, "alloc_shared (second half)", false, NULL)                                                           \
    X(FREE, "free_shared", true, NULL)                                                                                 \
    X(COMPARE_GPUS, "find_nccl_obstacle", false, NULL)                                                                 \
    X(ATTACH_STAGED, "attach_device (staged)", false, NULL)                                                            \
    X(ATTACH_NCCL, "attach_device (nccl)", false, NULL)

#define LS_OPERATION_ENUM(name, text, elements, preposition) LS_OPERATION_##name,
typedef enum ls_operation_kind { LS_OPERATION_MAP(LS_OPERATION_ENUM) LS_OPERATION_COUNT } ls_operation_kind;
#undef LS_OPERATION_ENUM

/* Where a rank's published data lies: an offset in the group's memory, or one of these. */
#define LS_OFFSET_STAGED UINT64_MAX        /* slice by slice in the rank's staging buffers */
#define LS_OFFSET_NOTHING (UINT64_MAX - 1) /* this rank publishes nothing */

/* What a rank is about to do. Ranks that meet compare everything but the offset. */
typedef struct ls_announcement {
    uint64_t sequence, count;      /* ALLOC: count is bytes; FREE: the region's number */
    uint64_t offset;               /* ALLOC_VOTE: the rank's ls_status; ATTACH, COMPARE: what attach.c compares */
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

typedef enum ls_presence { LS_PRESENT, LS_LEFT, LS_DIED } ls_presence;

#define LS_ISSUED_KEPT 32

typedef struct ls_rank_slot {
    alignas(LS_CACHE_LINE_BYTES) _Atomic int32_t pid; /* shm: 0 until the rank has joined */
    _Atomic int32_t left;                             /* an ls_presence */
    _Atomic int32_t inside;                           /* threads: the rank may touch other ranks' buffers */
    /* whose progress the rank waits for, as rank + 1 (0: nobody's), and up to what value */
    _Atomic int32_t awaits;
    _Atomic uint32_t awaited_value;
    alignas(LS_CACHE_LINE_BYTES) ls_flag progress; /* steps inside operations (ls_comm_step_done) */
    /* the collective operations that the rank has enqueued without meeting the others (issued.c): the last one's
     * number, and in short what the last few were */
    alignas(LS_CACHE_LINE_BYTES) _Atomic uint64_t issued;
    _Atomic uint64_t issued_what[LS_ISSUED_KEPT];
} ls_rank_slot;

/* From one rank to another. Each side raises its flag by one per step and announces itself before its first. The
 * receiver may be one message ahead of the sender's look at it, so its announcements alternate. */
typedef struct ls_mailbox {
    alignas(LS_CACHE_LINE_BYTES) ls_flag sent;
    ls_announcement sender;
    alignas(LS_CACHE_LINE_BYTES) ls_flag taken;
    ls_announcement receiver[2];
    /* sends and receives that the two have enqueued without meeting (issued.c) */
    _Atomic uint64_t issued_sends, issued_receives;
} ls_mailbox;

#define LS_REASON_CAPACITY 400

typedef enum ls_broken_state { LS_INTACT, LS_BREAKING, LS_BROKEN } ls_broken_state;

/* The group's memory begins with this; all zero when the group begins. */
typedef struct ls_segment {
    _Atomic int32_t endpoints; /* threads: those that have not been destroyed; the last one frees the memory */
    /* why the group is broken: written once, by the rank that moves state from INTACT to BREAKING; read once it is
     * BROKEN */
    struct {
        alignas(LS_CACHE_LINE_BYTES) _Atomic int32_t state;
        int32_t status, rank;
        char reason[LS_REASON_CAPACITY];
    } broken;
    /* wakes those who sleep until all have come to a step; its value says nothing */
    struct {
        alignas(LS_CACHE_LINE_BYTES) ls_flag bell;
    } channel[LS_CHANNEL_COUNT];
    ls_rank_slot slot[LS_COMM_MAX_RANKS];
} ls_segment;

/* An allocation of ls_comm_alloc_shared: a part of stride_bytes for each rank. */
typedef struct ls_region {
    uint64_t number; /* 1, 2, ...: the same on all ranks */
    size_t stride_bytes;
    void *memory; /* this rank's part */
    char *seen;   /* what this rank sees of all parts: seen_bytes of them */
    size_t seen_bytes;
    size_t offset; /* shm: rank r's part lies at offset + r * stride_bytes of the file; 0: found no place */
    void *handle;  /* what the caller got: `memory` or */
    char *gpu;     /* memory of the attached GPU; `memory` is then its companion on the host, if the path mirrors */
    size_t nbytes; /* as asked for */
    ls_device *charged; /* pays for `memory`; NULL: nobody */
    bool pinned;
    struct ls_region *next;
} ls_region;

/* What the back-ends do each in their own way. Slots are required, unless they say so; none is on the path of an
 * operation. */
struct ls_transport {
    const char *name; /* ls_comm_backend */
    /* The ranks reach into each other's own buffers. One whose operation has failed then waits until nobody is inside
     * of it, before its caller may free the buffer. */
    bool shares_buffers;
    /* Gives this rank its part of a region of comm->regions, zero-filled: fills region->memory and ->seen. Reports its
     * failure. */
    ls_status (*fill)(ls_comm *comm, ls_region *region);
    /* (optional) All ranks have got theirs. */
    void (*keep)(ls_comm *comm, ls_region *region);
    /* Takes it back, also after a fill that failed, or that others' failure has made useless. */
    void (*empty)(ls_comm *comm, ls_region *region);
    /* Lets go of the group's memory and of all that create has opened, also after a create that failed half-way. */
    void (*leave)(ls_comm *comm);
};

extern const struct ls_transport ls_transport_shm, ls_transport_threads;

/* An operation on its way through a stream. */
typedef struct ls_operation {
    ls_comm *comm;
    uint64_t ordinal;
    ls_announcement what;
    const void *send;
    void *receive;
} ls_operation;

/* Whether an operation is between two ranks, what.root being the other one. */
static inline bool ls_is_point_to_point(const ls_announcement *what) {
    return what->kind == LS_OPERATION_SEND || what->kind == LS_OPERATION_RECV;
}

/* A way for the memory of a GPU. Every slot is required. */
struct ls_path {
    const char *name;     /* ls_comm_backend; NULL: the transport's with ", staged" */
    bool mirrors;         /* regions have a companion on the host */
    bool can_be_recorded; /* ls_comm_can_be_recorded */
    bool takes_host;      /* operations on the host's memory come this way, too */
    /* Puts a checked and numbered operation, whose buffers are GPU memory (or none), on a stream of a GPU. */
    ls_status (*enqueue)(const ls_operation *operation, ls_stream *stream);
    /* Before the rank leaves: frees comm->path_state. Waits for the other ranks, and then for its own part of the
     * way, for the group's deadline each at most. */
    void (*close)(ls_comm *comm);
};

/* A range of the group's memory that this rank has mapped, and where. Groups of threads have one, of all addresses. */
typedef struct ls_window {
    uint64_t offset, nbytes;
    char *base;
} ls_window;

struct ls_comm {
    /* constant after create */
    const struct ls_transport *transport;
    int rank, world_size;
    double timeout_s;
    ls_patience patience;
    const ls_allreduce_algorithm *allreduce; /* NULL: ls_allreduce_choose, for each operation */
    const ls_allreduce_tuning *tuning;       /* NULL: built in */
    char *base;                              /* the group's memory; NULL if world_size is 1 */
    ls_segment *segment;                     /* likewise */
    ls_arrival *arrivals;                    /* of all ranks; likewise */
    size_t control_nbytes;                   /* of the control area */
    int fd;                                  /* shm: the file */
    uint64_t name_hash; /* what probes call the group: the same on all ranks, and hardly ever another group's */
    /* shm: the process of each peer, to notice its death; -1: none or not watched */
    int pidfd[LS_COMM_MAX_RANKS];
    /* constant after attach, NULL before */
    ls_device *device;
    const struct ls_path *path;
    void *path_state;
    char backend[32]; /* ls_comm_backend */
    /* the thread that enqueues */
    uint64_t ordinal;       /* operations enqueued */
    uint64_t collectives;   /* of them, those of all ranks: their sequence number */
    uint64_t last_sequence; /* of the operation enqueued last */
    uint64_t sent[LS_COMM_MAX_RANKS], received[LS_COMM_MAX_RANKS];
    ls_region *regions;
    uint64_t region_count; /* allocated so far */
    /* the thread that runs operations (channel[HOST]: the enqueueing thread) */
    struct {
        uint64_t step, meeting; /* the last step, and the last one that began an operation */
    } channel[LS_CHANNEL_COUNT];
    uint32_t sent_steps[LS_COMM_MAX_RANKS];     /* mailbox to each peer: its `sent` after the last message */
    uint32_t taken_steps[LS_COMM_MAX_RANKS];    /* mailbox to each peer: its `taken`, likewise */
    uint32_t received_steps[LS_COMM_MAX_RANKS]; /* mailbox from each peer: its `sent`, likewise */
    uint32_t progress_base;                     /* everybody's progress when the slice at hand began */
    /* where all ranks see buffers; a window is constant once it counts, and stays until the rank leaves. The thread that
     * enqueues adds them */
    ls_window windows[LS_WINDOWS_MAX];
    _Atomic int window_count;
    /* any thread */
    _Atomic int failure;             /* the first failure's ls_status */
    _Atomic uint64_t failed_ordinal; /* the first operation that failed; 0: none */
    _Atomic uint64_t operations, sent_messages, sent_bytes, received_messages, received_bytes;
};

/* --- making and leaving a group (group.c) ------------------------------------------------------------------------- */

/* Checks the options that all back-ends have in common: LS_ERR_INVALID, reported. */
ls_status ls_group_check_options(const ls_comm_options *options);

/* An endpoint that has not joined anything yet; NULL (reported) without memory. ls_comm_destroy takes it back. */
ls_comm *ls_group_endpoint(const struct ls_transport *transport, const ls_comm_options *options, int rank);

/* --- the control area (segment.c) --------------------------------------------------------------------------------- */

size_t ls_control_nbytes(int world_size);

/* Fills comm->base, ->segment, ->arrivals and ->control_nbytes: the control area begins at `base`. */
void ls_segment_attach(ls_comm *comm, void *base);
ls_mailbox *ls_segment_mailbox(const ls_comm *comm, int from, int to);
ls_arrival *ls_segment_arrival(const ls_comm *comm, ls_channel_kind channel, int rank, uint64_t step);
char *ls_segment_stage(const ls_comm *comm, int rank, uint64_t slice);

/* The offset of a buffer that all ranks see, LS_OFFSET_STAGED for any other address; and back, on any rank. (A line per
 * window, of which there are one to three.) */
uint64_t ls_segment_offset(const ls_comm *comm, const void *buffer);
char *ls_segment_address(const ls_comm *comm, uint64_t offset);

/* --- regions (regions.c) ------------------------------------------------------------------------------------------ */

/* Gives back all regions, without asking the other ranks. */
void ls_regions_destroy(ls_comm *comm);

/* The region of whose memory on the GPU the address is part; NULL: none. */
const ls_region *ls_region_on_gpu(const ls_comm *comm, const void *address);

/* The fill and empty of memory that this process alone maps. */
ls_status ls_region_fill_private(ls_comm *comm, ls_region *region);
void ls_region_empty_private(ls_comm *comm, ls_region *region);

/* --- the group's file (shm_memory.c) ------------------------------------------------------------------------------ */

/* Maps the control area of the file comm->fd and enters this process into its slot. */
ls_status ls_shm_map(ls_comm *comm);
void ls_shm_unmap(ls_comm *comm);
ls_status ls_shm_fill(ls_comm *comm, ls_region *region);
void ls_shm_keep(ls_comm *comm, ls_region *region);
void ls_shm_empty(ls_comm *comm, ls_region *region);

/* --- creation (shm_handshake.c) ----------------------------------------------------------------------------------- */

/* Rank 0: makes the group's file, maps it, and hands it to the others; a failure breaks the group for those who have
 * it. */
ls_status ls_handshake_host(ls_comm *comm, const ls_comm_options *options, double until_us);

/* The other ranks: fetch the file from rank 0 and map it. */
ls_status ls_handshake_join(ls_comm *comm, const ls_comm_options *options, double until_us);

/* --- waiting (wait.c) --------------------------------------------------------------------------------------------- */

/* What is waited for, and who is to be asked if it does not come. */
typedef struct ls_wait {
    int peer; /* the one rank that raises `flag` to `value`; -1: all are to come to the channel's step */
    ls_flag *flag;
    uint32_t value;
    ls_channel_kind channel;
    const ls_announcement *what;
} ls_wait;

/* Returns when it is there. LS_ERR_PEER, LS_ERR_TIMEOUT: reported, and the group is broken. */
ls_status ls_comm_wait(ls_comm *comm, const ls_wait *wait);

/* One step of all ranks: returns once each has arrived; what they wrote before is then visible. */
ls_status ls_comm_gate(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what);

/* Steps between single ranks inside of one slice of an operation, numbered 1, 2, ... by the algorithm. A rank says
 * that it has done step `step` (numbers may be left out, but only grow); another awaits that, and then sees what was
 * written before. At the end of the slice every rank calls ls_comm_steps_end with the same number, which none of its
 * steps exceeded; the exchange's gate keeps the slices apart. */
void ls_comm_step_done(ls_comm *comm, uint32_t step);
ls_status ls_comm_await_step(ls_comm *comm, int peer, uint32_t step, const ls_announcement *what);
void ls_comm_steps_end(ls_comm *comm, uint32_t steps);

/* The step that begins an operation: announces it and checks that all ranks announce the same. Afterwards
 * ls_comm_announced() is what a rank announced, and comm->channel[channel].meeting the step's number. */
ls_status ls_comm_meet(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what);
const ls_announcement *ls_comm_announced(const ls_comm *comm, ls_channel_kind channel, int rank);

/* Around everything that touches other ranks' buffers, in a group of two or more. leave returns, after a failure,
 * once no other rank can touch this rank's any more (a rank that enters later finds the group broken). Nothing to do
 * where buffers are staged. */
void ls_comm_enter(ls_comm *comm);
void ls_comm_leave(ls_comm *comm, ls_status status);

/* Opens a pidfd for every peer that has joined. */
void ls_comm_watch_peers(ls_comm *comm);

/* Reduces `ranks` to those who died or, if nobody did, to those who have left; whether there are any. `died` tells
 * which. */
bool ls_comm_only_lost(const ls_comm *comm, bool *ranks, bool *died);

/* Whether somebody has broken the group. */
bool ls_comm_is_broken(const ls_comm *comm);

/* Breaks the group for all ranks, and reports why: at `what` (NULL: at nothing that has a name) happened what the format
 * says. If somebody has broken the group for another reason before, that one is reported. The status of the reason. */
ls_status ls_comm_break(ls_comm *comm, ls_status status, const ls_announcement *what, const char *format, ...)
    LS_PRINTF(4, 5);

/* LS_OK while the group is whole, else the reported failure; asked before each operation. */
ls_status ls_comm_check(ls_comm *comm, const ls_announcement *what);

/* --- operations that do not meet the other ranks (issued.c) ---------------------------------------------------------- */

/* Tells the other ranks that this one has enqueued an operation. */
void ls_comm_issue(ls_comm *comm, const ls_announcement *what);

/* Looks at what the others have enqueued where this rank has enqueued `what`. LS_ERR_INVALID (reported; the group is
 * broken): another operation. Otherwise LS_OK, and `missing` says who has not come to it. Groups of two or more. */
ls_status ls_comm_compare_issued(ls_comm *comm, const ls_announcement *what, bool *missing);

/* Whether a rank has enqueued an operation that this one has not come to. Groups of two or more. */
bool ls_comm_is_awaited(const ls_comm *comm);

/* --- texts (comm_text.c) ------------------------------------------------------------------------------------------ */

#define LS_TEXT_CAPACITY 160

/* "all_reduce (sum) of 10 fp32 elements"; with `numbered`: "... (operation 3, 40 bytes)". Returns `text`. */
const char *ls_announcement_text(char text[LS_TEXT_CAPACITY], const ls_announcement *what, bool numbered);

/* "all_reduce"; it lives for ever. */
const char *ls_operation_name(int32_t kind);

/* --- ways for GPU memory --------------------------------------------------------------------------------------------- */

/* staged.c */
ls_status ls_staged_attach(ls_comm *comm, ls_device *device);

/* The way for a meta device, on which nothing moves (meta_group.c). */
void ls_meta_attach(ls_comm *comm, ls_device *device);

/* Puts an operation on host memory on a stream: the group's own way (comm.c). */
ls_status ls_comm_launch_on_host(const ls_operation *operation, ls_stream *stream);

/* For paths: the operation is done or, where the stream goes on by itself, enqueued; or it has failed. */
void ls_comm_count_operation(ls_comm *comm);
void ls_comm_mark_failed(ls_comm *comm, uint64_t ordinal);

/* --- running operations ------------------------------------------------------------------------------------------- */

ls_status ls_run_all_reduce(const ls_operation *operation);
ls_status ls_run_broadcast(const ls_operation *operation);
ls_status ls_run_reduce(const ls_operation *operation);
ls_status ls_run_all_gather(const ls_operation *operation);
ls_status ls_run_reduce_scatter(const ls_operation *operation);
ls_status ls_run_gather(const ls_operation *operation);
ls_status ls_run_scatter(const ls_operation *operation);
ls_status ls_run_send(const ls_operation *operation);
ls_status ls_run_recv(const ls_operation *operation);
ls_status ls_run_barrier(const ls_operation *operation);

/* The operation's meeting, for the probes: called when the last rank has come. `algorithm`: NULL, if it has a single
 * one. */
void ls_comm_probe_meeting(const ls_operation *operation, const char *algorithm);

/* Adds to what ls_comm_traffic_read reports: so many messages, so many bytes in all of them together. */
void ls_comm_count_sent(ls_comm *comm, size_t messages, size_t nbytes);
void ls_comm_count_received(ls_comm *comm, size_t messages, size_t nbytes);

#endif
