/* point_to_point — send, recv and both at once, through the mailboxes of the two ordered pairs of two ranks.
 *   idea  : sender and receiver announce themselves and raise a flag each; a buffer that all ranks see is then copied
 *           directly, any other through the sender's two staging buffers, slice by slice: while the receiver copies
 *           one, the sender fills the other
 *   steps : sender's flag: 1 + j = slice j is ready; receiver's flag: 1 = has arrived, 2 + j = slice j is copied
 *   cost  : one copy (seen by all) or two that overlap; slices + 1 steps; a message per slice, if it is not empty
 *   fails : each side names the other if it does not arrive; a receive of another count or type is reported by both */
#include <string.h>

#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

/* One message as one of its two ends sees it. */
struct message {
    const ls_operation *operation;
    ls_comm *comm;
    ls_mailbox *mailbox;
    ls_announcement what;
    uint32_t sent_base, taken_base; /* the flags before this message */
    size_t nbytes, slice_nbytes, slices;
};

static bool is_staged(const struct message *m) { return m->what.offset == LS_OFFSET_STAGED; }

/* Both ends cut alike, by the sender's announcement. There is always at least one slice, which may be empty. */
static void cut(struct message *m) {
    m->nbytes = m->what.count * ls_dtype_nbytes((ls_dtype)m->what.dtype);
    m->slice_nbytes = is_staged(m) ? LS_STAGE_BYTES : m->nbytes;
    m->slices = is_staged(m) && m->nbytes > 0 ? (m->nbytes + m->slice_nbytes - 1) / m->slice_nbytes : 1;
}

static size_t nbytes_of(const struct message *m, size_t slice) {
    size_t first = slice * m->slice_nbytes;
    return m->nbytes - first < m->slice_nbytes ? m->nbytes - first : m->slice_nbytes;
}

static ls_status await(const struct message *m, ls_flag *flag, uint32_t value) {
    ls_wait wait = {.flag = flag, .value = value, .peer = m->what.root, .what = &m->what};
    return ls_comm_wait(m->comm, &wait);
}

ls_status ls_comm_compare_ends(ls_comm *comm, const ls_announcement *out, const ls_announcement *in) {
    bool both_ways = out->kind == LS_OPERATION_SEND_RECV;
    if (out->sequence == in->sequence && out->count == in->count && out->dtype == in->dtype &&
        both_ways == (in->kind == LS_OPERATION_SEND_RECV))
        return LS_OK;
    char out_text[LS_TEXT_CAPACITY], in_text[LS_TEXT_CAPACITY];
    return ls_comm_break(comm, LS_ERR_INVALID, NULL, "send and recv do not match: rank %d runs %s, but rank %d runs %s",
                         ls_job_rank(comm, in->root), ls_announcement_text(comm, out_text, out, true),
                         ls_job_rank(comm, out->root), ls_announcement_text(comm, in_text, in, true));
}

/* Both ends have arrived. Of a send_recv's two messages, the lower rank's is recorded. */
static ls_status compare_ends(const struct message *m, bool sends) {
    bool both_ways = m->what.kind == LS_OPERATION_SEND_RECV;
    const ls_operation half = {.comm = m->comm, .what = m->what};
    ls_status status = ls_comm_compare_ends(m->comm, &m->mailbox->sender, &m->mailbox->receiver[m->what.sequence % 2]);
    if (status == LS_OK && ls_probing() && (!both_ways || sends == (m->comm->rank < m->what.root)))
        ls_comm_probe_meeting(&half, NULL);
    return status;
}

/* --- the sender's end --------------------------------------------------------------------------------------------- */

static struct message begin_send(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    int peer = operation->what.root;
    struct message m = {.operation = operation,
                        .comm = comm,
                        .mailbox = ls_segment_mailbox(comm, comm->rank, peer),
                        .what = operation->what,
                        .sent_base = comm->sent_steps[peer],
                        .taken_base = comm->taken_steps[peer]};
    m.what.offset = ls_segment_offset(comm, operation->send);
    cut(&m);
    m.mailbox->sender = m.what;
    return m;
}

/* Slice 0 is sent with the announcement; slice j needs the buffer of slice j - 2. */
static ls_status send_slice(const struct message *m, size_t slice) {
    if (slice > 0) {
        ls_status status = await(m, &m->mailbox->taken, m->taken_base + (slice > 1 ? (uint32_t)slice : 1));
        if (status == LS_OK && slice == 1) status = compare_ends(m, true);
        if (status != LS_OK) return status;
    }
    if (is_staged(m) && m->nbytes > 0)
        memcpy(ls_segment_stage(m->comm, m->comm->rank, slice),
               (const char *)m->operation->send + slice * m->slice_nbytes, nbytes_of(m, slice));
    ls_flag_raise(&m->mailbox->sent);
    return LS_OK;
}

static ls_status end_send(const struct message *m) {
    ls_comm *comm = m->comm;
    ls_status status = await(m, &m->mailbox->taken, m->taken_base + 1);
    if (status == LS_OK && m->slices == 1) status = compare_ends(m, true);
    if (status == LS_OK) status = await(m, &m->mailbox->taken, m->taken_base + 1 + (uint32_t)m->slices);
    comm->sent_steps[m->what.root] += (uint32_t)m->slices;
    comm->taken_steps[m->what.root] += 1 + (uint32_t)m->slices;
    if (status == LS_OK && m->nbytes > 0) ls_comm_count_sent(comm, m->slices, m->nbytes);
    return status;
}

/* --- the receiver's end ------------------------------------------------------------------------------------------- */

/* The number of slices is known once the first has arrived. */
static struct message begin_receive(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    int peer = operation->what.root;
    struct message m = {.operation = operation,
                        .comm = comm,
                        .mailbox = ls_segment_mailbox(comm, peer, comm->rank),
                        .what = operation->what,
                        .sent_base = comm->received_steps[peer],
                        .slices = 1};
    m.what.sequence = operation->what.offset;
    m.mailbox->receiver[m.what.sequence % 2] = m.what;
    ls_flag_raise(&m.mailbox->taken);
    return m;
}

static ls_status take_slice(struct message *m, size_t slice) {
    ls_status status = await(m, &m->mailbox->sent, m->sent_base + 1 + (uint32_t)slice);
    if (status == LS_OK && slice == 0) {
        status = compare_ends(m, false);
        m->what.offset = m->mailbox->sender.offset;
        if (status == LS_OK) cut(m);
    }
    if (status != LS_OK) return status;
    const char *from =
        is_staged(m) ? ls_segment_stage(m->comm, m->what.root, slice) : ls_segment_address(m->comm, m->what.offset);
    if (m->nbytes > 0) memcpy((char *)m->operation->receive + slice * m->slice_nbytes, from, nbytes_of(m, slice));
    ls_flag_raise(&m->mailbox->taken);
    return LS_OK;
}

static void end_receive(const struct message *m) {
    m->comm->received_steps[m->what.root] += (uint32_t)m->slices;
    if (m->nbytes > 0) ls_comm_count_received(m->comm, m->slices, m->nbytes);
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

ls_status ls_run_send(const ls_operation *operation) {
    struct message m = begin_send(operation);
    ls_status status = LS_OK;
    for (size_t slice = 0; slice < m.slices && status == LS_OK; slice++) status = send_slice(&m, slice);
    return status == LS_OK ? end_send(&m) : status;
}

ls_status ls_run_recv(const ls_operation *operation) {
    struct message m = begin_receive(operation);
    ls_status status = LS_OK;
    for (size_t slice = 0; slice < m.slices && status == LS_OK; slice++) status = take_slice(&m, slice);
    if (status == LS_OK) end_receive(&m);
    return status;
}

/* A rank sends slice j before it takes slice j of the other, and waits only until slice j - 2 is copied: so one of two
 * ranks can always continue, whichever of them stages. */
ls_status ls_run_send_recv(const ls_operation *operation) {
    struct message out = begin_send(operation), in = begin_receive(operation);
    ls_status status = LS_OK;
    for (size_t slice = 0; status == LS_OK && (slice < out.slices || slice < in.slices); slice++) {
        if (slice < out.slices) status = send_slice(&out, slice);
        if (status == LS_OK && slice < in.slices) status = take_slice(&in, slice);
    }
    if (status == LS_OK) end_receive(&in);
    return status == LS_OK ? end_send(&out) : status;
}
