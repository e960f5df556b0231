/* Process groups: one rank's endpoint in a fixed group of `world_size` ranks, and the collective operations on it.
 *
 * Operations are stream-ordered: a call checks its arguments, enqueues the operation on `stream` and returns; buffers
 * belong to the operation until the stream has passed it. All ranks must enqueue the same operations in the same order.
 * Collective operations are numbered 1, 2, ... over the group, sends and receives over each ordered pair of ranks;
 * error messages name the number. Counts are elements, of `dtype`.
 *
 * Errors, each reported once on every rank that it concerns:
 *   LS_ERR_INVALID  an argument is wrong (nothing was enqueued, the group is as before), or the ranks are out of step:
 *                   the report names two ranks and what they run ("rank 1 runs all_reduce ..., rank 0 runs broadcast
 *                   ...")
 *   LS_ERR_TIMEOUT  a peer did not arrive within options.timeout_s (and half as long again, while it waits itself)
 *   LS_ERR_PEER     a peer died, left the group or aborted it; noticed within a tenth of a second
 * The last two name the operation, its number, its bytes and the ranks that did not come, by the job's numbers. After any failure on the
 * stream the group is broken: every later operation fails at once, on all ranks, and its buffers' contents are
 * undefined. Each rank says once why: with the first operation of its own that fails.
 *
 * Threads: one thread at a time enqueues on a group, and one stream at a time carries its operations; ls_comm_abort and
 * the read-only calls may be used in any thread. Reductions use the order that the algorithm's file states; all ranks
 * always get the same bits. fp16 and bf16 sums are accumulated in fp32 and rounded once per element (naive and direct).
 * min and max give NaN where any rank has one. */
#ifndef LS_COMM_COMM_H
#define LS_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/status.h"
#include "common/device/device.h"

typedef struct ls_comm ls_comm;

/* Integer sums wrap. */
typedef enum ls_reduce_op { LS_REDUCE_SUM, LS_REDUCE_MIN, LS_REDUCE_MAX, LS_REDUCE_OP_COUNT } ls_reduce_op;

/* How ranks find each other: a key-value store that all of them reach (ddp_procs/launch/store.h implements it). `get`
 * blocks until the key exists or the store's own deadline passes. Both report their failures themselves; a key names
 * the rank that sets it ("group0/shm/rank0"). */
typedef struct ls_bootstrap {
    void *context;
    ls_status (*set)(void *context, const char *key, const void *value, size_t nbytes);
    ls_status (*get)(void *context, const char *key, void *value, size_t capacity, size_t *nbytes);
    /* (optional) Asked while this rank waits for others: whether there is no use in it, since the group will not form. */
    bool (*is_over)(void *context);
} ls_bootstrap;

typedef struct ls_comm_options {
    int rank, world_size;          /* 0 <= rank < world_size <= LS_COMM_MAX_RANKS */
    double timeout_s;              /* deadline of every wait, > 0, at most LS_COMM_LONGEST_TIMEOUT_S */
    const char *allreduce;         /* a row of ls_allreduce_algorithms; NULL: LS_ALLREDUCE_AUTO */
    const ls_bootstrap *bootstrap; /* may be NULL if world_size is 1; used by create only */
    const char *group;             /* key prefix: distinct for each group made over the same store; NULL: "group0" */
    /* A group of some of a job's ranks: the group of all of them, which is destroyed after this one. Whoever breaks one
     * breaks both, and messages call rank r the job's rank first + r x stride (a stride of 0 is 1). NULL: this is all of the job */
    const ls_comm *job;
    int first, stride;
    /* Flight records (flight.h), of a group that is no part of a job: a folder, into which a rank that breaks the group
     * writes one; it must live as long as the group. NULL: the environment's LS_FLIGHT, or nowhere */
    const char *flight;
    /* Of all of a job, on several hosts (else NULL): the host of each of its ranks, as a number, and the IPv4 address (text)
     * by which the other hosts reach this one. Copied by create; a group of some of its ranks takes the job's */
    const unsigned char *host;
    const char *address;
    bool debug;      /* wait before each operation until all its ranks have called it, and compare; slow */
    bool unrecorded; /* for measurements: no flight record */
} ls_comm_options;

#define LS_COMM_MAX_RANKS 64
#define LS_COMM_LONGEST_TIMEOUT_S                                                                                      \
    1e7 /* four months; larger numbers are mistakes and might not fit the kernel's types */

/* Joins the group over shared memory (all ranks on this node). Collective: returns once every rank has joined or the
 * deadline has passed. On failure *out is NULL and nothing is left behind. World size 1 needs no bootstrap. */
ls_status ls_comm_create_shm(ls_comm **out, const ls_comm_options *options);

/* Joins a group whose ranks are on the hosts that options->host says. The control area exists once on each host, and
 * threads carry over TCP what ranks have written there (mirror.h), so that meetings, failures and flight records are as
 * on one host. `carrier` (carrier.h) moves the data of operations on host memory. NULL: only those of one round (at most
 * 4 KiB per rank) are possible, and those that NCCL takes (ls_comm_attach_device). A group on one host is shared memory:
 * its carrier is used if the whole job is on that host. Otherwise as ls_comm_create_shm. */
struct ls_carrier;
ls_status ls_comm_create_hosts(ls_comm **out, const ls_comm_options *options, const struct ls_carrier *carrier);

/* Open files of a rank in such a group, while it forms: its memory, what it takes to hand that out, and a descriptor of
 * each peer's process. */
int ls_comm_descriptors(int world_size);

/* A group inside this process: out[r] becomes rank r's endpoint, for a thread (and a stream) of its own. The same
 * algorithms on the same terms, but every rank sees every buffer where it lies, so nothing is staged. Not
 * collective: one thread makes all endpoints; each is destroyed on its own, in any order. options.rank, .bootstrap
 * and .group are not used. On failure all of out[] is NULL. An operation that fails ends only when no other rank
 * touches its buffers any more, so that they may be freed. */
ls_status ls_comm_create_threads(ls_comm **out, const ls_comm_options *options);

/* A group of meta devices of which this process is the only rank that exists: the others are taken to do what this one
 * does. Operations are numbered, enqueued and counted, and move nothing. Those on the host's memory end as if all ranks
 * had passed the same; where another rank's memory would be copied here (broadcast, scatter, recv) it stays as it is.
 * Regions are the device's memory. The device is closed after the group. Not collective; options->bootstrap is not
 * used. */
ls_status ls_comm_create_meta(ls_comm **out, const ls_comm_options *options, ls_device *device);

/* --- groups whose ranks have GPUs --------------------------------------------------------------------------------
 *
 * A group made as above works on host memory. ls_comm_attach_device adds a path for the memory of a GPU. Afterwards the
 * operations take buffers of either memory (both buffers of one operation in the same, and the same on all ranks). Host
 * memory goes through the group as before; GPU memory, on a stream of a GPU, goes
 *   staged  through page-locked host memory and the same algorithms: for ranks that share a GPU, and for exact
 *           comparisons (the order of summation is the algorithm's). The enqueueing call waits for its stream and for
 *           the other ranks
 *   nccl    through NCCL (ls_nccl.so), one GPU per rank; asynchronous on the stream, may be captured into a graph, which
 *           is then destroyed before the group. The order of summation is NCCL's, fp16 and bf16 are rounded at each
 *           addition, min and max may drop a NaN. The group over host memory notices dead peers and carries the reasons
 *           of failures
 * Operations are numbered and counted alike for both kinds of memory. Messages and bytes are counted only where they go
 * through the host.
 *
 * Failures are as above. With NCCL they show in the next wait for the device (ls_stream_synchronize,
 * ls_event_synchronize, ...), which watches NCCL and the peers meanwhile. The group's deadline then counts from when a
 * wait first saw the operation unfinished. The message names the operation, its number, its bytes and the ranks that
 * have not enqueued it. Ranks that enqueue different operations are found in that wait, too. Of operations captured
 * into a graph only the last one is known, and only the wait's deadline applies. A group that fails takes the other
 * NCCL groups of its GPU with it. */
typedef enum ls_comm_path { LS_COMM_STAGED, LS_COMM_NCCL } ls_comm_path;

/* Collective, host-blocking; once per group, by the thread that created it. `options` as for create: NCCL's id travels
 * through options->bootstrap (under the key "<group>/nccl/id"). LS_ERR_UNSUPPORTED: no ls_nccl.so or no libnccl;
 * LS_ERR_INVALID: two ranks have the same GPU, or versions of NCCL differ, naming ranks. A rank that fails breaks the
 * group. On failure the group can only be destroyed. The device is closed after the group. */
ls_status ls_comm_attach_device(ls_comm *comm, ls_device *device, ls_comm_path path, const ls_comm_options *options);

/* The same for all endpoints of ls_comm_create_threads, by one thread: devices[r] is rank r's. On meta devices `path`
 * does not matter: operations are those of ls_comm_create_meta, in every rank. */
ls_status ls_comm_attach_devices(ls_comm *const *comms, ls_device *const *devices, ls_comm_path path);

/* Collective, host-blocking, before a device is attached: what keeps the ranks from using NCCL, and in `text` the
 * reason: LS_ERR_USAGE names two ranks and their GPU ("ranks 0 and 2 share GPU 0"), LS_ERR_UNSUPPORTED what is missing
 * ("cannot load .../ls_nccl.so: ..."). LS_OK: nothing does, each rank has a GPU of its own. */
ls_status ls_comm_find_nccl_obstacle(ls_comm *comm, const ls_device *device, ls_status *obstacle, char *text,
                                     size_t capacity);

/* Leaves the group and frees its shared memory. Not collective; peers that still wait for this rank see it as gone. The
 * streams must have passed all operations of the group. NCCL waits for the other ranks to leave as well: for some
 * seconds at most, and not after a failure. NULL is a no-op. */
void ls_comm_destroy(ls_comm *comm);

int ls_comm_rank(const ls_comm *comm);
int ls_comm_world_size(const ls_comm *comm);
int ls_comm_job_rank(const ls_comm *comm, int rank); /* the number that the group's rank has in the job */
const char *ls_comm_backend(const ls_comm *comm);    /* "shm", "threads"; with a GPU "nccl", "shm, staged" ... */
/* Whether operations on GPU memory may be captured into a graph: those of NCCL only. */
bool ls_comm_can_be_captured(const ls_comm *comm);
const char *ls_comm_allreduce(const ls_comm *comm); /* "direct", "ring", ...; NCCL has algorithms of its own */

/* "rank 2", "ranks 2, 3" or "ranks 0-2, 5": those of 0 .. world_size-1 whose entry is true. Returns `text`, in which all of
 * LS_COMM_MAX_RANKS have room. */
#define LS_RANKS_TEXT_CAPACITY 264
const char *ls_ranks_text(char text[LS_RANKS_TEXT_CAPACITY], const bool *chosen, int world_size);

/* Marks the group as broken, so that peers stop waiting: they report that `rank` gave up and why. False: another
 * rank has broken it before, and peers report that one. Any thread. */
bool ls_comm_abort(ls_comm *comm, const char *reason);

/* Memory that suits the group's operations best: memory that every rank can reach directly, so that operations save a
 * copy; with an attached GPU, memory of that GPU, and of no other. `device`, if not NULL, is charged for it (category
 * bucket) until it is freed. Collective, host-blocking (not stream-ordered): operations may be running on the stream
 * meanwhile. Every rank must ask for the same nbytes. Zero-filled, 64-byte aligned, freed by ls_comm_destroy. If a
 * rank gets no memory, it returns LS_ERR_NO_MEMORY, the others LS_ERR_PEER, and the group goes on. */
ls_status ls_comm_alloc_shared(ls_comm *comm, ls_device *device, size_t nbytes, void **out);

/* This rank no longer uses its part; the others may go on with theirs. Not collective. The device is no longer charged;
 * host memory stays the group's until the group is destroyed. Close devices after this, or after the group. */
void ls_comm_release_shared(ls_comm *comm, void *memory);

/* What the next operation that this thread enqueues on the group is for, in flight records and, under options.debug, in
 * comparisons: "bucket", 3. The text stays valid until then; what does not fit into LS_FLIGHT_LABEL is cut off. A number
 * below 0 is none. */
void ls_comm_label(ls_comm *comm, const char *text, int number);

/* --- the operations (MPI's and NCCL's meaning) ------------------------------------------------------------------- */

/* Within a step an operation's status goes to ls_device_fail at once, so that its failure sticks to the device as that
 * of everything else that is enqueued; where the host reads the result, it goes to ls_comm_settle, which waits for
 * it. */

ls_status ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                             ls_reduce_op op); /* in place */
ls_status ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int root);
/* The result is in root's buffer; the other ranks' buffers are unchanged. */
ls_status ls_comm_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, ls_reduce_op op,
                         int root);
/* receive holds world_size x count elements, rank r's at r x count; send may be this rank's own place in it. */
ls_status ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                             ls_dtype dtype);
/* send holds world_size x count elements; receive gets the reduction of everybody's rank-th count of them, and
 * may be that place in send. */
ls_status ls_comm_reduce_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                 ls_dtype dtype, ls_reduce_op op);
/* receive (world_size x count) is used on root only, and may be NULL elsewhere. */
ls_status ls_comm_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                         ls_dtype dtype, int root);
/* send (world_size x count) is used on root only, and may be NULL elsewhere. */
ls_status ls_comm_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                          ls_dtype dtype, int root);
/* Point to point: a send is matched by the peer's receive of the same count and type; in order per pair of ranks. A
 * send may block its stream until it is received, so two ranks that send to each other first would wait for ever. Ranks
 * that have something for each other call send_recv instead, both of them: each one's `send` becomes the other's
 * `receive`, and neither direction waits for the other.
 *
 * That is how neighbouring stages of a pipeline talk (1F1B: one sends an activation while the other sends a gradient of
 * the same shape). Decided against two other ways. Buffered sends need memory for each message in flight, which NCCL does
 * not have. A stream for each direction is none where streams run inside the enqueueing call (LS_CPU_STREAMS=inline), and
 * NCCL runs the operations of one communicator in turn, whatever their streams. */
ls_status ls_comm_send(ls_comm *comm, ls_stream *stream, const void *buffer, size_t count, ls_dtype dtype, int peer);
ls_status ls_comm_recv(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int peer);
ls_status ls_comm_send_recv(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                            ls_dtype dtype, int peer);
ls_status ls_comm_barrier(ls_comm *comm, ls_stream *stream);

/* `status` is an operation's on the stream: waits for the stream, and returns the first of the two failures. */
ls_status ls_comm_settle(ls_stream *stream, ls_status status);

/* What this rank has sent and received so far, as the algorithms' cost formulas count it. A message is one range of
 * memory that goes from one rank to another in one piece, whichever of the two copies it. */
typedef struct ls_comm_traffic {
    uint64_t operations;
    uint64_t sent_messages, sent_bytes, received_messages, received_bytes;
} ls_comm_traffic;
void ls_comm_traffic_read(const ls_comm *comm, ls_comm_traffic *traffic);

#endif
