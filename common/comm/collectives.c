/* collectives — the data that each operation publishes, and how its result is made from the views (exchange.h moves the
 * data).
 *   terms : W = world size, n = bytes of count elements, share = about n / W of them, cut at cache lines (share.h)
 *   cost  : 2 steps (1 for small messages), in which all ranks work at the same time. Messages x bytes that a rank
 *           sends and receives, without empty ones; staged buffers are processed in slices, and each slice counts like
 *           a separate operation:
 *             broadcast       root sends (W - 1) x n                  others receive 1 x n
 *             gather          root receives (W - 1) x n               others send 1 x n
 *             scatter         root sends (W - 1) x n                  others receive 1 x n
 *             all_gather      each sends and receives (W - 1) x n
 *             reduce_scatter  each sends and receives (W - 1) x n     (n is a W-th of what it publishes)
 *             reduce, small   root receives (W - 1) x n               others send 1 x n
 *             reduce          each rank reduces a share and writes it to root's buffer. Each receives (W - 1) x its
 *                             share and sends 1 x the share of each other rank; then each but root sends 1 x its
 *                             share, the result, which root receives
 *   order : reductions run over the ranks in the order 0, 1, 2, ..., element by element
 *   fails : a rank that misses a step is named by all others; receive buffers are then undefined */
#include <string.h>

#include "common/comm/exchange.h"
#include "common/comm/reduce_kernels.h"
#include "common/comm/share.h"

static size_t slice_nbytes(const ls_exchange *x) { return x->slice_count * x->element_nbytes; }
static size_t others(const ls_exchange *x) { return (size_t)x->comm->world_size - 1; }
static bool is_root(const ls_operation *operation) { return operation->comm->rank == operation->what.root; }

/* The place of the current slice in row `part` of the receive buffer. */
static char *received(const ls_exchange *x, size_t part) {
    return (char *)x->operation->receive + (part * x->count + x->first) * x->element_nbytes;
}

/* In an in-place call the send buffer is its own place in the receive buffer. */
static void copy_unless_same(char *to, const char *from, size_t nbytes) {
    if (to != from) memcpy(to, from, nbytes);
}

ls_status ls_run_all_reduce(const ls_operation *operation) {
    const ls_allreduce_algorithm *algorithm = operation->comm->allreduce;
    ls_exchange x = {.operation = operation,
                     .buffer = operation->receive,
                     .parts = 1,
                     .count = operation->what.count,
                     .write_back = true,
                     .one_round_bytes = algorithm->one_round_bytes,
                     .algorithm = algorithm->name,
                     .run = algorithm->run};
    return ls_exchange_run(&x);
}

static ls_status copy_from_root(ls_exchange *x) {
    const ls_operation *operation = x->operation;
    if (is_root(operation)) {
        ls_comm_count_sent(x->comm, others(x), others(x) * slice_nbytes(x));
        return LS_OK;
    }
    memcpy(received(x, 0), x->view[operation->what.root], slice_nbytes(x));
    ls_comm_count_received(x->comm, 1, slice_nbytes(x));
    return LS_OK;
}

ls_status ls_run_broadcast(const ls_operation *operation) {
    ls_exchange x = {.operation = operation,
                     .buffer = is_root(operation) ? operation->receive : NULL,
                     .parts = 1,
                     .count = operation->what.count,
                     .one_round_bytes = LS_EAGER_BYTES,
                     .run = copy_from_root};
    return ls_exchange_run(&x);
}

/* Counts this rank's messages for its own share of the slice, and for the others' shares. */
static void count_reduced(ls_exchange *x, size_t share) {
    size_t used = ls_shares_used(x->slice_count, x->element_nbytes, x->comm->world_size);
    size_t own = share > 0, rest = x->slice_count - share;
    bool to_root = !is_root(x->operation); /* the result of this rank's share is one message more */
    ls_comm_count_sent(x->comm, used - own + (to_root ? own : 0), (rest + (to_root ? share : 0)) * x->element_nbytes);
    ls_comm_count_received(x->comm, others(x) * own + (to_root ? 0 : used - own),
                           (others(x) * share + (to_root ? 0 : rest)) * x->element_nbytes);
}

static void reduce_range(ls_exchange *x, ls_range range, void *output) {
    const ls_announcement *what = &x->operation->what;
    const void *inputs[LS_COMM_MAX_RANKS];
    for (int r = 0; r < x->comm->world_size; r++) inputs[r] = x->view[r] + range.begin * x->element_nbytes;
    ls_reduce_inputs(&output, 1, inputs, x->comm->world_size, ls_range_count(range), (ls_dtype)what->dtype,
                     (ls_reduce_op)what->op);
}

static ls_status reduce_to_root(ls_exchange *x) {
    ls_comm *comm = x->comm;
    if (!x->one_round) {
        ls_range share = ls_share(x->slice_count, x->element_nbytes, comm->world_size, comm->rank, comm->rank + 1);
        reduce_range(x, share, x->view[x->operation->what.root] + share.begin * x->element_nbytes);
        count_reduced(x, ls_range_count(share));
    } else if (is_root(x->operation)) {
        reduce_range(x, (ls_range){.end = x->slice_count}, x->buffer);
        ls_comm_count_received(comm, others(x), others(x) * slice_nbytes(x));
    } else {
        ls_comm_count_sent(comm, 1, slice_nbytes(x));
    }
    return LS_OK;
}

ls_status ls_run_reduce(const ls_operation *operation) {
    ls_exchange x = {.operation = operation,
                     .buffer = operation->receive,
                     .parts = 1,
                     .count = operation->what.count,
                     .write_back = is_root(operation),
                     .one_round_bytes = LS_EAGER_BYTES,
                     .run = reduce_to_root};
    return ls_exchange_run(&x);
}

static ls_status copy_from_all(ls_exchange *x) {
    for (int r = 0; r < x->comm->world_size; r++) copy_unless_same(received(x, (size_t)r), x->view[r], slice_nbytes(x));
    ls_comm_count_sent(x->comm, others(x), others(x) * slice_nbytes(x));
    ls_comm_count_received(x->comm, others(x), others(x) * slice_nbytes(x));
    return LS_OK;
}

static void *published_by_sender(const ls_operation *operation) { return (void *)(uintptr_t)operation->send; }

ls_status ls_run_all_gather(const ls_operation *operation) {
    ls_exchange x = {.operation = operation,
                     .buffer = published_by_sender(operation),
                     .parts = 1,
                     .count = operation->what.count,
                     .one_round_bytes = LS_EAGER_BYTES,
                     .run = copy_from_all};
    return ls_exchange_run(&x);
}

static ls_status gather_on_root(ls_exchange *x) {
    if (!is_root(x->operation)) {
        ls_comm_count_sent(x->comm, 1, slice_nbytes(x));
        return LS_OK;
    }
    for (int r = 0; r < x->comm->world_size; r++) copy_unless_same(received(x, (size_t)r), x->view[r], slice_nbytes(x));
    ls_comm_count_received(x->comm, others(x), others(x) * slice_nbytes(x));
    return LS_OK;
}

ls_status ls_run_gather(const ls_operation *operation) {
    ls_exchange x = {.operation = operation,
                     .buffer = published_by_sender(operation),
                     .parts = 1,
                     .count = operation->what.count,
                     .one_round_bytes = LS_EAGER_BYTES,
                     .run = gather_on_root};
    return ls_exchange_run(&x);
}

static ls_status take_from_root(ls_exchange *x) {
    int root = x->operation->what.root;
    const char *mine = x->view[root] + (size_t)x->comm->rank * x->stride_bytes[root];
    copy_unless_same(received(x, 0), mine, slice_nbytes(x));
    if (is_root(x->operation)) ls_comm_count_sent(x->comm, others(x), others(x) * slice_nbytes(x));
    if (!is_root(x->operation)) ls_comm_count_received(x->comm, 1, slice_nbytes(x));
    return LS_OK;
}

ls_status ls_run_scatter(const ls_operation *operation) {
    ls_exchange x = {.operation = operation,
                     .buffer = is_root(operation) ? published_by_sender(operation) : NULL,
                     .parts = (size_t)operation->comm->world_size,
                     .count = operation->what.count,
                     .one_round_bytes = LS_EAGER_BYTES,
                     .run = take_from_root};
    return ls_exchange_run(&x);
}

static ls_status reduce_own_part(ls_exchange *x) {
    const ls_announcement *what = &x->operation->what;
    const void *inputs[LS_COMM_MAX_RANKS];
    for (int r = 0; r < x->comm->world_size; r++) inputs[r] = x->view[r] + (size_t)x->comm->rank * x->stride_bytes[r];
    void *output = received(x, 0);
    ls_reduce_inputs(&output, 1, inputs, x->comm->world_size, x->slice_count, (ls_dtype)what->dtype,
                     (ls_reduce_op)what->op);
    ls_comm_count_sent(x->comm, others(x), others(x) * slice_nbytes(x));
    ls_comm_count_received(x->comm, others(x), others(x) * slice_nbytes(x));
    return LS_OK;
}

ls_status ls_run_reduce_scatter(const ls_operation *operation) {
    ls_exchange x = {.operation = operation,
                     .buffer = published_by_sender(operation),
                     .parts = (size_t)operation->comm->world_size,
                     .count = operation->what.count,
                     .one_round_bytes = LS_EAGER_BYTES,
                     .run = reduce_own_part};
    return ls_exchange_run(&x);
}

ls_status ls_run_barrier(const ls_operation *operation) {
    ls_status status = ls_comm_meet(operation->comm, LS_CHANNEL_STREAM, &operation->what);
    if (status == LS_OK && ls_probing()) ls_comm_probe_meeting(operation, NULL);
    return status;
}
