/* mpi_operations — collective operations: Open MPI moves the bytes, our kernels reduce them.
 *   idea  : the ranks meet in the control area, as in shared memory; then each sends the data that the others need, in
 *           MPI's nonblocking messages on memory of the group's own, and polls MPI for progress while it watches the
 *           group; then all meet once more. Messages of one round need no MPI: they are sent with the meeting
 *   cost  : two meetings, a copy in and out; pieces of 32 MiB of the data that a rank publishes or gets, one after the
 *           other. Bytes that a rank sends and receives are those of the shared-memory operations (collectives.c):
 *             all_reduce      direct: all-to-all of shares, and all-gather of the sums. naive: gather on rank 0 and
 *                             broadcast. hierarchical: shares inside the node, direct between nodes
 *             reduce          gather on root
 *             reduce_scatter  all-to-all
 *   order : sums run over the ranks in the order 0, 1, 2, ..., as in shared memory, so they have the same bits: MPI's own
 *           collectives choose the order by the number of ranks and bytes, round fp16 at each addition, drop NaN, and need a
 *           communicator, which takes a call without a deadline to make. With at most LS_COMM_MAX_RANKS hosts, they
 *           would save only a few steps of a broadcast
 *   safe  : between the two meetings no rank can be in another operation
 *   fails : ranks that die, stop, or do not arrive are named by the waits (wait.c): all that have not completed the
 *           operation are missing from the second meeting */
#include <stdlib.h>
#include <string.h>

#include "common/comm/exchange.h"
#include "common/comm/mpi/mpi_group.h"
#include "common/comm/reduce_kernels.h"

/* --- memory and waiting ------------------------------------------------------------------------------------------- */

char *ls_mpi_memory(ls_comm *comm, size_t nbytes) {
    struct ls_mpi_group *g = comm->carrier_state;
    if (nbytes <= g->capacity_bytes) return g->memory;
    free(g->memory);
    g->capacity_bytes = (nbytes / LS_PAGE_BYTES + 1) * LS_PAGE_BYTES;
    g->memory = aligned_alloc(LS_PAGE_BYTES, g->capacity_bytes);
    if (g->memory) {
        memset(g->memory, 0, g->capacity_bytes);
        return g->memory;
    }
    g->capacity_bytes = 0;
    (void)ls_comm_break(comm, LS_ERR_NO_MEMORY, NULL, "rank %d has no memory for %zu bytes of Open MPI's",
                        ls_job_rank(comm, comm->rank), nbytes);
    return NULL;
}

bool ls_mpi_progress(void *context) {
    int flag;
    (void)context;
    (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    return true;
}

enum { TESTS = 8 }; /* each advances a message by a piece; only then may this thread sleep */

struct requests {
    MPI_Request *requests;
    int count, error;
};

static bool are_done(void *context) {
    struct requests *r = context;
    int done = 0;
    r->error = MPI_SUCCESS;
    for (int i = 0; i < TESTS && !done && r->error == MPI_SUCCESS; i++)
        r->error = MPI_Testall(r->count, r->requests, &done, MPI_STATUSES_IGNORE);
    return done || r->error != MPI_SUCCESS;
}

ls_status ls_mpi_await(ls_comm *comm, const ls_announcement *what, int peer, MPI_Request *requests, int count) {
    struct requests r = {.requests = requests, .count = count};
    const ls_wait wait = {.peer = peer, .what = what, .poll = are_done, .context = &r};
    ls_status status = are_done(&r) ? LS_OK : ls_comm_wait(comm, &wait);
    return status == LS_OK && r.error != MPI_SUCCESS ? ls_mpi_fail(comm, what, r.error) : status;
}

/* --- one piece ---------------------------------------------------------------------------------------------------- */

/* A range of columns of an operation, in MPI's memory: two areas, each with a row for each rank. */
struct piece {
    const ls_operation *operation;
    ls_comm *comm;
    const struct ls_mpi_ranks *among;
    int ranks; /* of them */
    int tag;
    size_t first; /* column */
    size_t count; /* of them */
    size_t element_nbytes;
    char *in, *out;
};

static size_t bytes_of(const struct piece *p) { return p->count * p->element_nbytes; }

enum { ALL = -1 };

/* Sends row r of `in` (stride 0: always the same row) to rank r, if this rank is `from` and rank r is `to`; ALL stands
 * for every rank. Receives row r of `out` from rank r, or row 0 from a single sender. */
static ls_status move(const struct piece *p, int from, int to, size_t stride, size_t nbytes) {
    MPI_Request requests[2 * LS_COMM_MAX_RANKS];
    int count = 0, error = MPI_SUCCESS, self = p->among->self;
    bool sends = from == ALL || from == self, receives = to == ALL || to == self;
    for (int i = 1; i <= p->ranks && error == MPI_SUCCESS; i++) {
        int r = (self + i) % p->ranks, other = p->among->rank[r]; /* each rank begins with a different one */
        char *out = p->out + (from == ALL ? (size_t)r * nbytes : 0);
        bool goes = sends && (to == ALL || to == r), comes = receives && (from == ALL || from == r);
        if (r == self && goes && comes) memcpy(out, p->in + (size_t)r * stride, nbytes);
        if (r == self) continue;
        if (comes) error = MPI_Irecv(out, (int)nbytes, MPI_BYTE, other, p->tag, MPI_COMM_WORLD, &requests[count++]);
        if (goes && error == MPI_SUCCESS)
            error = MPI_Isend(p->in + (size_t)r * stride, (int)nbytes, MPI_BYTE, other, p->tag, MPI_COMM_WORLD,
                              &requests[count++]);
    }
    if (error != MPI_SUCCESS) return ls_mpi_fail(p->comm, &p->operation->what, error);
    return ls_mpi_await(p->comm, &p->operation->what, LS_POLLED, requests, count);
}

/* Rows `first` .. `end` of the caller's matrix to rows 0, 1, ... of the memory, and back. */
static void copy_in(const struct piece *p, const void *from, size_t rows) {
    size_t row = p->operation->what.count * p->element_nbytes, nbytes = p->count * p->element_nbytes;
    for (size_t r = 0; r < rows; r++)
        memcpy(p->in + r * nbytes, (const char *)from + r * row + p->first * p->element_nbytes, nbytes);
}

static void copy_out(const struct piece *p, const char *from, size_t rows) {
    size_t row = p->operation->what.count * p->element_nbytes, nbytes = p->count * p->element_nbytes;
    char *to = (char *)p->operation->receive + p->first * p->element_nbytes;
    for (size_t r = 0; r < rows; r++) memcpy(to + r * row, from + r * nbytes, nbytes);
}

/* The sum of the rows in `out`, of so many elements each, in the order of the ranks. */
static void reduce_rows(const struct piece *p, size_t count, void *to) {
    const void *rows[LS_COMM_MAX_RANKS];
    for (int r = 0; r < p->ranks; r++) rows[r] = p->out + (size_t)r * count * p->element_nbytes;
    ls_reduce_inputs(&to, 1, rows, p->ranks, count, (ls_dtype)p->operation->what.dtype,
                     (ls_reduce_op)p->operation->what.op);
}

/* Elements of a share: the same for all; the last shares may extend beyond the end. */
static size_t share_of(const struct piece *p) { return (p->count + (size_t)p->ranks - 1) / (size_t)p->ranks; }

/* From `in` to `out`: each rank gets its share from all ranks, reduces it, and sends it to all. */
static ls_status reduce_shares(const struct piece *p) {
    size_t share = share_of(p), nbytes = share * p->element_nbytes;
    ls_status status = move(p, ALL, ALL, nbytes, nbytes);
    if (status != LS_OK) return status;
    reduce_rows(p, share, p->in);
    return move(p, ALL, ALL, 0, nbytes);
}

static ls_status all_reduce(const struct piece *p) {
    bool naive = strcmp(p->comm->allreduce->name, "naive") == 0;
    copy_in(p, p->operation->receive, 1);
    ls_status status = naive ? move(p, ALL, 0, 0, bytes_of(p)) : reduce_shares(p);
    if (status == LS_OK && naive) {
        if (p->comm->rank == 0) reduce_rows(p, p->count, p->in);
        status = move(p, 0, ALL, 0, bytes_of(p));
    }
    if (status == LS_OK) copy_out(p, p->out, 1);
    return status;
}

static ls_status broadcast(const struct piece *p) {
    int root = p->operation->what.root;
    if (p->comm->rank == root) copy_in(p, p->operation->receive, 1);
    ls_status status = move(p, root, ALL, 0, bytes_of(p));
    if (status == LS_OK && p->comm->rank != root) copy_out(p, p->out, 1);
    return status;
}

static ls_status reduce(const struct piece *p) {
    int root = p->operation->what.root;
    copy_in(p, p->operation->receive, 1);
    ls_status status = move(p, ALL, root, 0, bytes_of(p));
    if (status != LS_OK || p->comm->rank != root) return status;
    reduce_rows(p, p->count, p->in);
    copy_out(p, p->in, 1);
    return LS_OK;
}

static ls_status all_gather(const struct piece *p) {
    copy_in(p, p->operation->send, 1);
    ls_status status = move(p, ALL, ALL, 0, bytes_of(p));
    if (status == LS_OK) copy_out(p, p->out, (size_t)p->ranks);
    return status;
}

static ls_status reduce_scatter(const struct piece *p) {
    copy_in(p, p->operation->send, (size_t)p->ranks);
    ls_status status = move(p, ALL, ALL, bytes_of(p), bytes_of(p));
    if (status != LS_OK) return status;
    reduce_rows(p, p->count, p->in);
    copy_out(p, p->in, 1);
    return LS_OK;
}

static ls_status gather(const struct piece *p) {
    int root = p->operation->what.root;
    copy_in(p, p->operation->send, 1);
    ls_status status = move(p, ALL, root, 0, bytes_of(p));
    if (status == LS_OK && p->comm->rank == root) copy_out(p, p->out, (size_t)p->ranks);
    return status;
}

static ls_status scatter(const struct piece *p) {
    int root = p->operation->what.root;
    if (p->comm->rank == root) copy_in(p, p->operation->send, (size_t)p->ranks);
    ls_status status = move(p, root, ALL, bytes_of(p), bytes_of(p));
    if (status == LS_OK) copy_out(p, p->out, 1);
    return status;
}

/* --- whole operations --------------------------------------------------------------------------------------------- */

/* The route of its bytes: between all ranks, to the root, from the root; for all_reduce, the algorithm's formula
 * decides. */
enum route { ALL_TO_ALL, TO_ROOT, FROM_ROOT };

static const struct {
    ls_status (*run)(const struct piece *piece);
    bool rows; /* a rank publishes or gets a row for each rank */
    enum route route;
} operations[] = {
    [LS_OPERATION_ALL_REDUCE] = {all_reduce, false, ALL_TO_ALL},
    [LS_OPERATION_BROADCAST] = {broadcast, false, FROM_ROOT},
    [LS_OPERATION_REDUCE] = {reduce, true, TO_ROOT},
    [LS_OPERATION_ALL_GATHER] = {all_gather, true, ALL_TO_ALL},
    [LS_OPERATION_REDUCE_SCATTER] = {reduce_scatter, true, ALL_TO_ALL},
    [LS_OPERATION_GATHER] = {gather, true, TO_ROOT},
    [LS_OPERATION_SCATTER] = {scatter, true, FROM_ROOT},
    [LS_OPERATION_BARRIER] = {NULL, false, ALL_TO_ALL},
};

/* Counts as collectives.c and the algorithms do, whatever MPI sends. */
static void count_traffic(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    const ls_announcement *what = &operation->what;
    size_t element_nbytes = ls_dtype_nbytes((ls_dtype)what->dtype), nbytes = what->count * element_nbytes;
    size_t others = (size_t)comm->world_size - 1;
    enum route route = operations[what->kind].route;
    bool root = comm->rank == what->root;
    struct ls_allreduce_cost cost = {.sent_messages = others, .received_messages = others};
    if (route == TO_ROOT) cost.sent_messages = !root;
    if (route == FROM_ROOT) cost.received_messages = !root;
    if (route == TO_ROOT && !root) cost.received_messages = 0;
    if (route == FROM_ROOT && !root) cost.sent_messages = 0;
    cost.sent_bytes = cost.sent_messages * nbytes;
    cost.received_bytes = cost.received_messages * nbytes;
    if (what->kind == LS_OPERATION_ALL_REDUCE)
        comm->allreduce->cost(&cost, comm->world_size, comm->rank, what->count, element_nbytes);
    ls_comm_count_sent(comm, cost.sent_messages, cost.sent_bytes);
    ls_comm_count_received(comm, cost.received_messages, cost.received_bytes);
}

/* Whether the message is sent with the meeting (as exchange.c decides, too). */
static bool is_one_round(const ls_operation *operation) {
    const ls_announcement *what = &operation->what;
    bool all_reduce = what->kind == LS_OPERATION_ALL_REDUCE;
    size_t limit = all_reduce ? operation->comm->allreduce->one_round_bytes : LS_EAGER_BYTES;
    return what->count == 0 || ls_published_nbytes(operation->comm, what) <= limit;
}

static ls_status run_pieces(struct piece *p) {
    const ls_announcement *what = &p->operation->what;
    size_t rows = operations[what->kind].rows || strcmp(p->comm->allreduce->name, "naive") == 0 ? (size_t)p->ranks : 1;
    size_t columns = LS_MPI_PIECE_BYTES / (rows * p->element_nbytes);
    if (columns > what->count) columns = what->count;
    size_t area = (rows * columns + (size_t)p->ranks) * p->element_nbytes;
    p->in = ls_mpi_memory(p->comm, 2 * area);
    if (!p->in) return LS_ERR_NO_MEMORY;
    p->out = p->in + area;
    for (p->first = 0; p->first < what->count; p->first += columns) {
        p->count = what->count - p->first < columns ? what->count - p->first : columns;
        ls_status status = operations[what->kind].run(p);
        if (status != LS_OK) return status;
    }
    return LS_OK;
}

/* --- hierarchical ------------------------------------------------------------------------------------------------- */

/* Counts the bytes between this rank and `others` ranks: twice a share each way. */
static void count_shares(ls_comm *comm, size_t others, size_t nbytes) {
    ls_comm_count_sent(comm, 2 * others, 2 * others * nbytes);
    ls_comm_count_received(comm, 2 * others, 2 * others * nbytes);
}

/* The middle of hierarchical (allreduce_hierarchical.c): this rank's share of its node's sum, reduced between the nodes. */
static ls_status reduce_across(ls_exchange *x, size_t begin, size_t count) {
    ls_comm *comm = x->comm->across_comm;
    struct ls_mpi_group *g = comm->carrier_state;
    char *share = x->view[x->comm->rank] + begin * x->element_nbytes;
    struct piece p = {.operation = x->operation,
                      .comm = comm,
                      .among = &g->across,
                      .ranks = g->across.count,
                      .tag = g->tag + LS_MPI_TAG_COLLECTIVE,
                      .element_nbytes = x->element_nbytes};
    size_t columns = LS_MPI_PIECE_BYTES / x->element_nbytes;
    size_t area = ((count < columns ? count : columns) + (size_t)p.ranks) * x->element_nbytes;
    p.in = count > 0 ? ls_mpi_memory(comm, 2 * area) : NULL;
    if (count > 0 && !p.in) return LS_ERR_NO_MEMORY;
    p.out = p.in + area;
    for (p.first = 0; p.first < count; p.first += columns) {
        p.count = count - p.first < columns ? count - p.first : columns;
        memcpy(p.in, share + p.first * p.element_nbytes, p.count * p.element_nbytes);
        ls_status status = reduce_shares(&p);
        if (status != LS_OK) return status;
        memcpy(share + p.first * p.element_nbytes, p.out, p.count * p.element_nbytes);
        count_shares(comm, (size_t)p.ranks - 1, share_of(&p) * p.element_nbytes);
    }
    return LS_OK;
}

/* The exchange inside the node, in pieces in memory that its ranks share: every node cuts alike. */
static ls_status run_hierarchical(const ls_operation *operation, struct ls_mpi_group *g) {
    ls_operation inside = *operation;
    inside.comm = g->inner;
    g->inner->across = g->across.count > 1 ? reduce_across : NULL;
    g->inner->across_comm = operation->comm;
    ls_exchange x = {.operation = &inside,
                     .buffer = g->stage,
                     .parts = 1,
                     .algorithm = operation->comm->allreduce->name,
                     .run = ls_allreduce_hierarchical};
    size_t element_nbytes = ls_dtype_nbytes((ls_dtype)operation->what.dtype), total = operation->what.count;
    size_t columns = LS_MPI_STAGE_BYTES / element_nbytes;
    ls_comm_traffic before, after;
    ls_status status = LS_OK;
    ls_comm_traffic_read(g->inner, &before);
    for (size_t first = 0; status == LS_OK && first < total; first += x.count) {
        char *caller = (char *)operation->receive + first * element_nbytes;
        x.count = total - first < columns ? total - first : columns;
        memcpy(g->stage, caller, x.count * element_nbytes);
        status = ls_exchange_run(&x);
        if (status == LS_OK) memcpy(caller, g->stage, x.count * element_nbytes);
    }
    ls_comm_traffic_read(g->inner, &after);
    ls_comm_count_sent(operation->comm, after.sent_messages - before.sent_messages,
                       after.sent_bytes - before.sent_bytes);
    ls_comm_count_received(operation->comm, after.received_messages - before.received_messages,
                           after.received_bytes - before.received_bytes);
    return status;
}

ls_status ls_mpi_run_collective(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    struct ls_mpi_group *g = comm->carrier_state;
    ls_announcement what = operation->what;
    if (is_one_round(operation)) return ls_run_in_shared_memory(operation);
    bool nested = what.kind == LS_OPERATION_ALL_REDUCE && g->inner;
    ls_status status = ls_comm_meet(comm, LS_CHANNEL_STREAM, &what);
    if (status != LS_OK) return status;
    if (ls_probing()) ls_comm_probe_meeting(operation, nested ? comm->allreduce->name : NULL);
    ls_comm_gate_open(comm, LS_CHANNEL_STREAM);
    struct piece piece = {.operation = operation,
                          .comm = comm,
                          .among = &g->all,
                          .ranks = comm->world_size,
                          .tag = g->tag + LS_MPI_TAG_COLLECTIVE,
                          .element_nbytes = ls_dtype_nbytes((ls_dtype)what.dtype)};
    status = nested ? run_hierarchical(operation, g) : run_pieces(&piece);
    if (status == LS_OK && !nested) count_traffic(operation);
    return status == LS_OK ? ls_comm_gate_close(comm, LS_CHANNEL_STREAM, &what, ls_mpi_progress) : status;
}
