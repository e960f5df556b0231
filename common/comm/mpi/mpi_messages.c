/* mpi_messages — send, recv and both at once.
 *   idea  : the two ends first exchange their announcements, in a message each way; if the two match, the data follow,
 *           and then an acknowledgement: MPI reports a message as sent before all of it has left this process, and
 *           would not send the rest while the rank computes
 *   cost  : two round trips, and a copy in and out; pieces of 32 MiB
 *   order : MPI's: messages between two ranks with one tag arrive in the order in which they were sent
 *   fails : each side names the other if it does not arrive; a mismatch is reported by both */
#include <string.h>

#include "common/comm/mpi/mpi_group.h"

/* One end of a message. `theirs` is the other end's announcement. */
struct end {
    ls_announcement mine, theirs;
};

struct message {
    const ls_operation *operation;
    ls_comm *comm;
    const ls_announcement *what;
    int peer, tag; /* in MPI's world; the group's first */
    MPI_Request requests[4];
    int count, error;
};

static void post_send(struct message *m, const void *bytes, size_t nbytes, int tag) {
    if (m->error == MPI_SUCCESS)
        m->error =
            MPI_Isend(bytes, (int)nbytes, MPI_BYTE, m->peer, m->tag + tag, MPI_COMM_WORLD, &m->requests[m->count++]);
}

static void post_receive(struct message *m, void *bytes, size_t nbytes, int tag) {
    if (m->error == MPI_SUCCESS)
        m->error =
            MPI_Irecv(bytes, (int)nbytes, MPI_BYTE, m->peer, m->tag + tag, MPI_COMM_WORLD, &m->requests[m->count++]);
}

static ls_status await_posted(struct message *m) {
    int count = m->count;
    m->count = 0;
    if (m->error != MPI_SUCCESS) return ls_mpi_fail(m->comm, m->what, m->error);
    return ls_mpi_await(m->comm, m->what, m->what->root, m->requests, count);
}

/* Exchanges the announcements of the messages each way with the other end. They are at the beginning of MPI's
 * memory. */
static ls_status exchange_announcements(struct message *m, bool sends, bool receives) {
    struct end *ends = (struct end *)(void *)ls_mpi_memory(m->comm, 2 * sizeof *ends);
    if (!ends) return LS_ERR_NO_MEMORY;
    struct end *out = &ends[0], *in = &ends[1];
    out->mine = in->mine = *m->what;
    if (receives) in->mine.sequence = m->what->offset;
    if (sends) post_send(m, &out->mine, sizeof out->mine, LS_MPI_TAG_SENDER);
    if (sends) post_receive(m, &out->theirs, sizeof out->theirs, LS_MPI_TAG_RECEIVER);
    if (receives) post_send(m, &in->mine, sizeof in->mine, LS_MPI_TAG_RECEIVER);
    if (receives) post_receive(m, &in->theirs, sizeof in->theirs, LS_MPI_TAG_SENDER);
    ls_status status = await_posted(m);
    if (status == LS_OK && sends) status = ls_comm_compare_ends(m->comm, &out->mine, &out->theirs);
    if (status == LS_OK && receives) status = ls_comm_compare_ends(m->comm, &in->theirs, &in->mine);
    return status;
}

static ls_status move_pieces(struct message *m, bool sends, bool receives) {
    const char *from = m->operation->send;
    char *to = m->operation->receive;
    size_t total = m->what->count * ls_dtype_nbytes((ls_dtype)m->what->dtype);
    size_t piece = total < LS_MPI_PIECE_BYTES ? total : LS_MPI_PIECE_BYTES;
    char *out = total > 0 ? ls_mpi_memory(m->comm, 2 * piece) : NULL;
    if (total > 0 && !out) return LS_ERR_NO_MEMORY;
    for (size_t first = 0; first < total; first += piece) {
        size_t nbytes = total - first < piece ? total - first : piece;
        if (sends) memcpy(out, from + first, nbytes);
        if (sends) post_send(m, out, nbytes, LS_MPI_TAG_DATA);
        if (receives) post_receive(m, out + piece, nbytes, LS_MPI_TAG_DATA);
        ls_status status = await_posted(m);
        if (status != LS_OK) return status;
        if (receives) memcpy(to + first, out + piece, nbytes);
    }
    if (receives) post_send(m, NULL, 0, LS_MPI_TAG_THANKS);
    if (sends) post_receive(m, NULL, 0, LS_MPI_TAG_THANKS);
    ls_status status = await_posted(m);
    if (status != LS_OK) return status;
    if (sends && total > 0) ls_comm_count_sent(m->comm, 1, total);
    if (receives && total > 0) ls_comm_count_received(m->comm, 1, total);
    return LS_OK;
}

ls_status ls_mpi_run_message(const ls_operation *operation) {
    struct ls_mpi_group *g = operation->comm->carrier_state;
    struct message m = {.operation = operation,
                        .comm = operation->comm,
                        .what = &operation->what,
                        .peer = g->all.rank[operation->what.root],
                        .tag = g->tag};
    bool sends = m.what->kind != LS_OPERATION_RECV, receives = m.what->kind != LS_OPERATION_SEND;
    ls_status status = exchange_announcements(&m, sends, receives);
    bool recorded = m.what->kind == LS_OPERATION_SEND_RECV ? operation->comm->rank < m.what->root : true;
    if (status == LS_OK && ls_probing() && recorded) ls_comm_probe_meeting(operation, NULL);
    return status == LS_OK ? move_pieces(&m, sends, receives) : status;
}
