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
 *   LS_ERR_TIMEOUT  a peer did not join the operation within options.timeout_s (half as long again if that peer waits
 *                   itself)
 *   LS_ERR_PEER     a peer died, left the group or aborted it; noticed within a tenth of a second
 * The last two name the operation, its number, its bytes and the missing ranks, as ranks of the job. After any failure
 * on the stream the group is broken: every later operation fails at once, on all ranks, and the contents of its buffers
 * are undefined. Each rank reports the reason once, when its first operation fails.
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

/* The rendezvous: a key-value store that all ranks reach (ddp_procs/launch/store.h implements it). `get` blocks until
 * the key exists or the store's own deadline passes. Both functions report their failures; a key names the rank that
 * sets it ("group0/shm/rank0"). */
typedef struct ls_bootstrap {
    void *context;
    ls_status (*set)(void *context, const char *key, const void *value, size_t nbytes);
    ls_status (*get)(void *context, const char *key, void *value, size_t capacity, size_t *nbytes);
    /* (optional) Polled while this rank waits for others: true if the group will not form any more. */
    bool (*is_over)(void *context);
} ls_bootstrap;

typedef struct ls_comm_options {
    int rank, world_size;          /* 0 <= rank < world_size <= LS_COMM_MAX_RANKS */
    double timeout_s;              /* deadline of every wait, > 0, at most LS_COMM_LONGEST_TIMEOUT_S */
    const char *allreduce;         /* a row of ls_allreduce_algorithms; NULL: LS_ALLREDUCE_AUTO */
    const ls_bootstrap *bootstrap; /* may be NULL if world_size is 1; used by create only */
    const char *group;             /* key prefix: distinct for each group made over the same store; NULL: "group0" */
    /* For a group of some of a job's ranks: the group of all ranks, which must be destroyed after this one. Breaking
     * one breaks both, and messages name rank r by its rank in the job, first + r x stride (a stride of 0 is 1). NULL:
     * this group is the job's */
    const ls_comm *job;
    int first, stride;
    /* For the job's group: the folder for flight records (flight.h), written by a rank that breaks the group; the
     * string must live as long as the group. NULL: LS_FLIGHT of the environment, or none */
    const char *flight;
    /* For the job's group on several hosts (else NULL): the number of each rank's host, and the IPv4 address (text) at
     * which the other hosts reach this one. Copied by create; other groups inherit the job's */
    const unsigned char *host;
    const char *address;
    bool debug;      /* before each operation, wait until all ranks have called it, and compare; slow */
    bool unrecorded; /* for measurements: no flight record */
} ls_comm_options;

#define LS_COMM_MAX_RANKS 64
#define LS_COMM_LONGEST_TIMEOUT_S                                                                                      \
    1e7 /* four months; larger numbers are mistakes and might not fit the kernel's types */

/* Joins the group over shared memory (all ranks on this node). Collective: returns once every rank has joined or the
 * deadline has passed. On failure *out is NULL and nothing is left behind. World size 1 needs no bootstrap. */
ls_status ls_comm_create_shm(ls_comm **out, const ls_comm_options *options);

/* Joins a group whose ranks are on the hosts of options->host. Each host has a control area, and threads keep the areas
 * equal over TCP (mirror.h), so that barriers, failures and flight records work as on one host. `carrier` (carrier.h)
 * moves the data of operations on host memory. NULL: only operations of one round (at most 4 KiB per rank) and those of
 * NCCL (ls_comm_attach_device) are possible. A group on one host uses shared memory, and the carrier only if the whole
 * job is on that host. Otherwise as ls_comm_create_shm. */
struct ls_carrier;
ls_status ls_comm_create_hosts(ls_comm **out, const ls_comm_options *options, const struct ls_carrier *carrier);

/* The number of files that a rank has open while such a group forms: its memory, the socket that shares it, and a
 * descriptor of each peer's process. */
int ls_comm_descriptors(int world_size);

/* Creates a group inside this process: out[r] becomes rank r's endpoint, to be used by its own thread (and stream).
 * Algorithms and rules are the same, but every rank reads every buffer directly, so nothing is staged. Not collective:
 * one thread creates all endpoints; each is destroyed separately, in any order. options.rank, .bootstrap and .group are
 * not used. On failure all of out[] is NULL. An operation that fails returns only when no other rank accesses its
 * buffers any more, so that they may be freed. */
ls_status ls_comm_create_threads(ls_comm **out, const ls_comm_options *options);

/* Creates a group of meta devices in which only this process exists; the other ranks are assumed to do the same.
 * Operations are numbered, enqueued and counted, and move nothing. Operations on host memory end as if all ranks had
 * passed the same values; if they would copy another rank's memory here (broadcast, scatter, recv), the buffer is
 * unchanged. Shared memory (ls_comm_alloc_shared) is the device's. Close the device after the group. Not collective;
 * options->bootstrap is not used. */
ls_status ls_comm_create_meta(ls_comm **out, const ls_comm_options *options, ls_device *device);

/* --- groups whose ranks have GPUs --------------------------------------------------------------------------------
 *
 * A group made as above works on host memory. ls_comm_attach_device adds a path for the memory of a GPU. Afterwards
 * operations accept buffers in either memory (both buffers of one operation in the same kind, and the same kind on all
 * ranks). Host memory is handled as before; GPU memory, on a stream of a GPU, is handled in one of two modes:
 *   staged  through pinned host memory and the same algorithms: for ranks that share a GPU, and for exact comparisons
 *           (the order of summation is the algorithm's). The enqueueing call waits for its stream and for the other
 *           ranks
 *   nccl    through NCCL (ls_nccl.so), one GPU per rank; asynchronous on the stream. May be captured into a graph,
 *           which must be destroyed before the group. The order of summation is NCCL's, fp16 and bf16 are rounded at
 *           each addition, min and max may drop a NaN. The group over host memory detects dead peers and transmits the
 *           reasons of failures
 * Operations are numbered and counted alike for both kinds of memory. Messages and bytes are counted only where they go
 * through the host.
 *
 * Failures are as above. With NCCL they show in the next wait for the device (ls_stream_synchronize,
 * ls_event_synchronize, ...), which watches NCCL and the peers meanwhile. The group's deadline then counts from when a
 * wait first saw the operation unfinished. The message names the operation, its number, its bytes and the ranks that
 * have not enqueued it. That wait also detects ranks that enqueued different operations. Of operations captured into a
 * graph only the last one is known, and only the wait's deadline applies. If one group fails, the other NCCL groups of
 * its GPU fail, too. */
typedef enum ls_comm_path { LS_COMM_STAGED, LS_COMM_NCCL } ls_comm_path;

/* Collective, host-blocking; once per group, by the thread that created it. `options` as for create: NCCL's id is sent
 * through options->bootstrap (under the key "<group>/nccl/id"). LS_ERR_UNSUPPORTED: no ls_nccl.so or no libnccl;
 * LS_ERR_INVALID: two ranks have the same GPU, or versions of NCCL differ, naming ranks. A rank that fails breaks the
 * group. On failure the group can only be destroyed. Close the device after the group. */
ls_status ls_comm_attach_device(ls_comm *comm, ls_device *device, ls_comm_path path, const ls_comm_options *options);

/* The same for all endpoints of ls_comm_create_threads, called by one thread: devices[r] is rank r's. On meta devices
 * `path` is ignored: every rank's operations behave as in ls_comm_create_meta. */
ls_status ls_comm_attach_devices(ls_comm *const *comms, ls_device *const *devices, ls_comm_path path);

/* Collective, host-blocking; call before a device is attached. Sets *obstacle to the reason why the ranks cannot use
 * NCCL, and `text` to its description: LS_ERR_USAGE names two ranks and their GPU ("ranks 0 and 2 share GPU 0"),
 * LS_ERR_UNSUPPORTED names what is missing ("cannot load .../ls_nccl.so: ..."). LS_OK: none; each rank has its own
 * GPU. */
ls_status ls_comm_find_nccl_obstacle(ls_comm *comm, const ls_device *device, ls_status *obstacle, char *text,
                                     size_t capacity);

/* Leaves the group and frees its shared memory. Not collective; peers that still wait for this rank see that it has
 * left. All operations of the group must have completed on their streams. NCCL waits until the other ranks leave, too:
 * for some seconds at most, and not after a failure. NULL is a no-op. */
void ls_comm_destroy(ls_comm *comm);

int ls_comm_rank(const ls_comm *comm);
int ls_comm_world_size(const ls_comm *comm);
int ls_comm_job_rank(const ls_comm *comm, int rank); /* the job's rank of the group's rank `rank` */
const char *ls_comm_backend(const ls_comm *comm);    /* "shm", "threads"; with a GPU "nccl", "shm, staged" ... */
/* Whether operations on GPU memory may be captured into a graph: those of NCCL only. */
bool ls_comm_can_be_captured(const ls_comm *comm);
const char *ls_comm_allreduce(const ls_comm *comm); /* "direct", "ring", ...; NCCL has algorithms of its own */

/* "rank 2", "ranks 2, 3" or "ranks 0-2, 5": those of 0 .. world_size-1 whose entry is true. Returns `text`, which has
 * room for all of LS_COMM_MAX_RANKS. */
#define LS_RANKS_TEXT_CAPACITY 264
const char *ls_ranks_text(char text[LS_RANKS_TEXT_CAPACITY], const bool *chosen, int world_size);

/* Breaks the group, so that peers stop waiting: they report that this rank aborted, and `reason`. False: another rank
 * has broken the group before, and peers report that rank. Any thread. */
bool ls_comm_abort(ls_comm *comm, const char *reason);

/* Allocates the memory that is best for the group's operations: memory that every rank can access directly, which saves
 * a copy; with an attached GPU, memory of that GPU. `device`, if not NULL, accounts for it (category bucket) until it
 * is freed. Collective, host-blocking (not stream-ordered): operations may be running on the stream meanwhile. Every
 * rank must pass the same nbytes. The memory is zero-filled, 64-byte aligned, and freed by ls_comm_destroy. If one
 * rank's allocation fails, that rank returns LS_ERR_NO_MEMORY and the others LS_ERR_PEER; the group is not broken. */
ls_status ls_comm_alloc_shared(ls_comm *comm, ls_device *device, size_t nbytes, void **out);

/* Releases this rank's part; other ranks may still use theirs. Not collective. The device no longer accounts for it;
 * host memory is freed with the group. Close the device after this call, or after the group. */
void ls_comm_release_shared(ls_comm *comm, void *memory);

/* Labels the next operation that this thread enqueues on the group, for flight records and for the comparison of
 * options.debug: "bucket", 3. The text must stay valid until then and is truncated to LS_FLIGHT_LABEL. A negative
 * number means none. */
void ls_comm_label(ls_comm *comm, const char *text, int number);

/* --- the operations (MPI's and NCCL's meaning) ------------------------------------------------------------------- */

/* Within a step, pass an operation's status to ls_device_fail at once, so that its failure sticks to the device like
 * any other failure of enqueued work. If the host reads the result, pass the status to ls_comm_settle, which waits for
 * the operation. */

ls_status ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                             ls_reduce_op op); /* in place */
ls_status ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int root);
/* The result is in root's buffer; the other ranks' buffers are unchanged. */
ls_status ls_comm_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, ls_reduce_op op,
                         int root);
/* receive holds world_size x count elements, rank r's at r x count; send may point to this rank's own range in it. */
ls_status ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                             ls_dtype dtype);
/* send holds world_size x count elements; receive gets the reduction, over all ranks, of elements rank x count .. (rank
 * + 1) x count - 1, and may point to that range in send. */
ls_status ls_comm_reduce_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                 ls_dtype dtype, ls_reduce_op op);
/* receive (world_size x count) is used on root only, and may be NULL elsewhere. */
ls_status ls_comm_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                         ls_dtype dtype, int root);
/* send (world_size x count) is used on root only, and may be NULL elsewhere. */
ls_status ls_comm_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                          ls_dtype dtype, int root);
/* Point to point: a send matches the peer's receive of the same count and type, in order for each ordered pair of
 * ranks. A send may block its stream until it is received, so two ranks that both send to each other first deadlock. To
 * exchange data, both ranks call send_recv instead: each one's `send` becomes the other's `receive`, and neither
 * direction waits for the other.
 *
 * Neighbouring stages of a pipeline communicate in this way (1F1B: one sends an activation while the other sends a
 * gradient of the same shape). Two alternatives were rejected. Buffered sends need memory for each message in flight,
 * which NCCL does not have. One stream per direction does not help if streams run inside the enqueueing call
 * (LS_CPU_STREAMS=inline), and NCCL serialises the operations of one communicator, whatever their streams. */
ls_status ls_comm_send(ls_comm *comm, ls_stream *stream, const void *buffer, size_t count, ls_dtype dtype, int peer);
ls_status ls_comm_recv(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int peer);
ls_status ls_comm_send_recv(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                            ls_dtype dtype, int peer);
ls_status ls_comm_barrier(ls_comm *comm, ls_stream *stream);

/* Waits for the stream, on which an operation with `status` was enqueued. Returns `status` if that is a failure, else
 * the stream's. */
ls_status ls_comm_settle(ls_stream *stream, ls_status status);

/* Totals that this rank has sent and received so far, counted as in the algorithms' cost formulas. A message is one
 * contiguous range copied from one rank to another, whichever of the two copies it. */
typedef struct ls_comm_traffic {
    uint64_t operations;
    uint64_t sent_messages, sent_bytes, received_messages, received_bytes;
} ls_comm_traffic;
void ls_comm_traffic_read(const ls_comm *comm, ls_comm_traffic *traffic);

#endif
