/* operations: the table of operations, one row each. Formulas are for an operation that is not split into pieces
 * (buffers in shared memory, or threads); W = N, n = bytes of a part. */
#include <string.h>

#include "common/comm/share.h"
#include "labs/bench/comm/bench_comm.h"

typedef struct ls_allreduce_cost comm_cost;

/* --- how much of the size the busiest link carries ------------------------------------------------------------------- */

static double factor_all_reduce(int n) { return 2.0 * (n - 1) / n; }
static double factor_parts(int n) { return (double)(n - 1) / n; }
static double factor_one(int n) {
    (void)n;
    return 1;
}

/* --- what the receive buffer holds afterwards ------------------------------------------------------------------------ */

static comm_content of_rank(int rank, int offset_parts) { return (comm_content){COMM_OF_RANK, rank, offset_parts}; }

static comm_content all_reduced(int n, int rank, int part) {
    (void)n, (void)rank, (void)part;
    return (comm_content){COMM_REDUCED, 0, 0};
}

static comm_content own_part_reduced(int n, int rank, int part) {
    (void)n, (void)part;
    return (comm_content){COMM_REDUCED, 0, rank};
}

static comm_content reduced_on_root(int n, int rank, int part) {
    return rank == 0 ? all_reduced(n, rank, part) : of_rank(rank, 0);
}

static comm_content of_root(int n, int rank, int part) {
    (void)n, (void)rank, (void)part;
    return of_rank(0, 0);
}

static comm_content own_part_of_root(int n, int rank, int part) {
    (void)n, (void)part;
    return of_rank(0, rank);
}

static comm_content of_all(int n, int rank, int part) {
    (void)n, (void)rank;
    return of_rank(part, 0);
}

static comm_content of_all_on_root(int n, int rank, int part) {
    return rank == 0 ? of_all(n, rank, part) : (comm_content){COMM_UNTOUCHED, 0, 0};
}

static comm_content of_left(int n, int rank, int part) {
    (void)part;
    return of_rank((rank + n - 1) % n, 0);
}

/* --- the calls ------------------------------------------------------------------------------------------------------- */

static ls_status call_all_reduce(const comm_call *c) {
    return ls_comm_all_reduce(c->comm, c->stream, c->receive, c->count, c->dtype, c->reduce);
}

static ls_status call_broadcast(const comm_call *c) {
    return ls_comm_broadcast(c->comm, c->stream, c->receive, c->count, c->dtype, 0);
}

static ls_status call_reduce(const comm_call *c) {
    return ls_comm_reduce(c->comm, c->stream, c->receive, c->count, c->dtype, c->reduce, 0);
}

static ls_status call_all_gather(const comm_call *c) {
    return ls_comm_all_gather(c->comm, c->stream, c->send, c->receive, c->count, c->dtype);
}

static ls_status call_reduce_scatter(const comm_call *c) {
    return ls_comm_reduce_scatter(c->comm, c->stream, c->send, c->receive, c->count, c->dtype, c->reduce);
}

static ls_status call_gather(const comm_call *c) {
    return ls_comm_gather(c->comm, c->stream, c->send, c->receive, c->count, c->dtype, 0);
}

static ls_status call_scatter(const comm_call *c) {
    return ls_comm_scatter(c->comm, c->stream, c->send, c->receive, c->count, c->dtype, 0);
}

static ls_status send_right(const comm_call *c, int n, int rank) {
    return ls_comm_send(c->comm, c->stream, c->send, c->count, c->dtype, (rank + 1) % n);
}

static ls_status receive_left(const comm_call *c, int n, int rank) {
    return ls_comm_recv(c->comm, c->stream, c->receive, c->count, c->dtype, (rank + n - 1) % n);
}

/* A send may block until it is received, so odd ranks receive first. */
static ls_status call_send_recv(const comm_call *c) {
    int n = ls_comm_world_size(c->comm), rank = ls_comm_rank(c->comm);
    ls_status status = rank % 2 == 0 ? send_right(c, n, rank) : receive_left(c, n, rank);
    if (status != LS_OK) return status;
    return rank % 2 == 0 ? receive_left(c, n, rank) : send_right(c, n, rank);
}

static ls_status call_barrier(const comm_call *c) { return ls_comm_barrier(c->comm, c->stream); }

/* --- the formulas ---------------------------------------------------------------------------------------------------- */

static void cost_from_root(comm_cost *cost, int n, int rank, size_t count, size_t element_nbytes) {
    size_t others = (size_t)n - 1, nbytes = count * element_nbytes;
    *cost = rank == 0 ? (comm_cost){.sent_messages = others, .sent_bytes = others * nbytes}
                      : (comm_cost){.received_messages = 1, .received_bytes = nbytes};
}

static void cost_to_root(comm_cost *cost, int n, int rank, size_t count, size_t element_nbytes) {
    size_t others = (size_t)n - 1, nbytes = count * element_nbytes;
    *cost = rank == 0 ? (comm_cost){.received_messages = others, .received_bytes = others * nbytes}
                      : (comm_cost){.sent_messages = 1, .sent_bytes = nbytes};
}

static void cost_all_to_all(comm_cost *cost, int n, int rank, size_t count, size_t element_nbytes) {
    size_t others = (size_t)n - 1, nbytes = others * count * element_nbytes;
    (void)rank;
    *cost = (comm_cost){
        .sent_messages = others, .sent_bytes = nbytes, .received_messages = others, .received_bytes = nbytes};
}

static void cost_neighbour(comm_cost *cost, int n, int rank, size_t count, size_t element_nbytes) {
    (void)n;
    cost_all_to_all(cost, 2, rank, count, element_nbytes);
}

static void cost_nothing(comm_cost *cost, int n, int rank, size_t count, size_t element_nbytes) {
    (void)n, (void)rank, (void)count, (void)element_nbytes;
    *cost = (comm_cost){0};
}

/* Every rank reduces its share of all buffers into the root's buffer: it reads W - 1 shares, and the others read the
 * rest of its buffer. Small messages are reduced by the root. */
static void cost_reduce(comm_cost *cost, int n, int rank, size_t count, size_t element_nbytes) {
    size_t others = (size_t)n - 1, nbytes = count * element_nbytes;
    if (nbytes <= ls_allreduce_find("direct")->one_round_bytes) {
        cost_to_root(cost, n, rank, count, element_nbytes);
        return;
    }
    size_t share_bytes = ls_range_count(ls_share(count, element_nbytes, n, rank, rank + 1)) * element_nbytes;
    size_t rest_bytes = nbytes - share_bytes;
    *cost = (comm_cost){.sent_messages = others,
                        .sent_bytes = rest_bytes,
                        .received_messages = others,
                        .received_bytes = others * share_bytes};
    if (rank == 0) {
        cost->received_messages += others;
        cost->received_bytes += rest_bytes;
    } else {
        cost->sent_messages += 1;
        cost->sent_bytes += share_bytes;
    }
}

/* --- the table ------------------------------------------------------------------------------------------------------- */

const comm_operation comm_operations[] = {
    {.name = "all_reduce",
     .in_place = true,
     .bus_factor = factor_all_reduce,
     .result = all_reduced,
     .enqueue = call_all_reduce},
    {.name = "broadcast",
     .in_place = true,
     .bus_factor = factor_one,
     .result = of_root,
     .enqueue = call_broadcast,
     .cost = cost_from_root},
    {.name = "reduce",
     .in_place = true,
     .bus_factor = factor_one,
     .result = reduced_on_root,
     .enqueue = call_reduce,
     .cost = cost_reduce},
    {.name = "all_gather",
     .receive_all = true,
     .bus_factor = factor_parts,
     .result = of_all,
     .enqueue = call_all_gather,
     .cost = cost_all_to_all},
    {.name = "reduce_scatter",
     .send_all = true,
     .bus_factor = factor_parts,
     .result = own_part_reduced,
     .enqueue = call_reduce_scatter,
     .cost = cost_all_to_all},
    {.name = "gather",
     .receive_all = true,
     .bus_factor = factor_parts,
     .result = of_all_on_root,
     .enqueue = call_gather,
     .cost = cost_to_root},
    {.name = "scatter",
     .send_all = true,
     .bus_factor = factor_parts,
     .result = own_part_of_root,
     .enqueue = call_scatter,
     .cost = cost_from_root},
    {.name = "send_recv",
     .bus_factor = factor_one,
     .result = of_left,
     .enqueue = call_send_recv,
     .cost = cost_neighbour},
    {.name = "barrier",
     .in_place = true,
     .latency_only = true,
     .bus_factor = factor_one,
     .result = own_part_of_root,
     .enqueue = call_barrier,
     .cost = cost_nothing},
    {.name = NULL},
};

const comm_operation *comm_operation_find(const char *name) {
    for (const comm_operation *row = comm_operations; row->name; row++)
        if (strcmp(row->name, name) == 0) return row;
    return NULL;
}

bool comm_is_all_reduce(const comm_operation *operation) { return !operation->cost; }

size_t comm_send_parts(const comm_operation *operation, int n) {
    if (operation->in_place) return 0;
    return operation->send_all ? (size_t)n : 1;
}

size_t comm_receive_parts(const comm_operation *operation, int n) { return operation->receive_all ? (size_t)n : 1; }

size_t comm_size_parts(const comm_operation *operation, int n) {
    return operation->send_all || operation->receive_all ? (size_t)n : 1;
}
