/* point_to_point — send and recv through the mailbox of an ordered pair of ranks.
 *   idea  : sender and receiver announce themselves and raise a flag each; a buffer that all ranks see is then copied
 *           from where it lies, any other goes through the sender's two staging buffers, slice by slice: while the
 *           receiver takes one, the sender fills the other
 *   steps : sender's flag: 1 + j = slice j is there.  receiver's flag: 1 = has come, 2 + j = slice j is taken
 *   cost  : one copy (seen by all) or two that overlap; slices + 1 steps; a message per slice, if it is not empty
 *   fails : each side names the other if it does not come; a receive of another count or type is reported by both */
#include <string.h>

#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

/* One message as one of its two ends sees it. */
struct message {
    ls_comm *comm;
    ls_mailbox *mailbox;
    const ls_announcement *what;
    uint32_t sent_base, taken_base; /* the flags before this message */
    size_t nbytes, slice_nbytes, slices;
};

/* Both ends cut alike: by what the sender announced. There is always one slice, if only an empty one. */
static void cut(struct message *m, bool staged) {
    m->nbytes = m->what->count * ls_dtype_nbytes((ls_dtype)m->what->dtype);
    m->slice_nbytes = staged ? LS_STAGE_BYTES : m->nbytes;
    m->slices = staged && m->nbytes > 0 ? (m->nbytes + m->slice_nbytes - 1) / m->slice_nbytes : 1;
}

static size_t nbytes_of(const struct message *m, size_t slice) {
    size_t first = slice * m->slice_nbytes;
    return m->nbytes - first < m->slice_nbytes ? m->nbytes - first : m->slice_nbytes;
}

static ls_status await(const struct message *m, ls_flag *flag, uint32_t value) {
    ls_wait wait = {.flag = flag, .value = value, .peer = m->what->root, .what = m->what};
    return ls_comm_wait(m->comm, &wait);
}

static ls_status compare(const struct message *m) {
    const ls_announcement *out = &m->mailbox->sender, *in = &m->mailbox->receiver[m->what->sequence % 2];
    if (out->sequence == in->sequence && out->count == in->count && out->dtype == in->dtype) return LS_OK;
    char out_text[LS_TEXT_CAPACITY], in_text[LS_TEXT_CAPACITY];
    return ls_comm_break(m->comm, LS_ERR_INVALID, NULL, "send and recv do not match: rank %d runs %s, rank %d runs %s",
                         ls_job_rank(m->comm, in->root), ls_announcement_text(m->comm, out_text, out, true),
                         ls_job_rank(m->comm, out->root), ls_announcement_text(m->comm, in_text, in, true));
}

/* Both have come. */
static ls_status meet(const struct message *m, const ls_operation *operation) {
    ls_status status = compare(m);
    if (status == LS_OK && ls_probing()) ls_comm_probe_meeting(operation, NULL);
    return status;
}

ls_status ls_run_send(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    ls_announcement what = operation->what;
    int peer = what.root;
    what.offset = ls_segment_offset(comm, operation->send);
    bool staged = what.offset == LS_OFFSET_STAGED;
    struct message m = {.comm = comm,
                        .mailbox = ls_segment_mailbox(comm, comm->rank, peer),
                        .what = &what,
                        .sent_base = comm->sent_steps[peer],
                        .taken_base = comm->taken_steps[peer]};
    cut(&m, staged);
    m.mailbox->sender = what;
    for (size_t slice = 0; slice < m.slices; slice++) {
        /* Slice 0 goes along with the announcement; slice j needs the buffer that slice j - 2 was taken from. */
        if (slice > 0) {
            uint32_t taken = slice > 1 ? (uint32_t)slice : 1;
            ls_status status = await(&m, &m.mailbox->taken, m.taken_base + taken);
            if (status == LS_OK && slice == 1) status = meet(&m, operation);
            if (status != LS_OK) return status;
        }
        if (staged && m.nbytes > 0)
            memcpy(ls_segment_stage(comm, comm->rank, slice), (const char *)operation->send + slice * m.slice_nbytes,
                   nbytes_of(&m, slice));
        ls_flag_raise(&m.mailbox->sent);
    }
    ls_status status = await(&m, &m.mailbox->taken, m.taken_base + 1);
    if (status == LS_OK && m.slices == 1) status = meet(&m, operation);
    if (status == LS_OK) status = await(&m, &m.mailbox->taken, m.taken_base + 1 + (uint32_t)m.slices);
    comm->sent_steps[peer] += (uint32_t)m.slices;
    comm->taken_steps[peer] += 1 + (uint32_t)m.slices;
    if (status == LS_OK && m.nbytes > 0) ls_comm_count_sent(comm, m.slices, m.nbytes);
    return status;
}

ls_status ls_run_recv(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    int peer = operation->what.root;
    ls_mailbox *mailbox = ls_segment_mailbox(comm, peer, comm->rank);
    struct message m = {
        .comm = comm, .mailbox = mailbox, .what = &operation->what, .sent_base = comm->received_steps[peer]};
    mailbox->receiver[operation->what.sequence % 2] = operation->what;
    ls_flag_raise(&mailbox->taken);
    ls_status status = await(&m, &mailbox->sent, m.sent_base + 1);
    if (status == LS_OK) status = meet(&m, operation);
    if (status != LS_OK) return status;
    uint64_t offset = mailbox->sender.offset;
    bool staged = offset == LS_OFFSET_STAGED;
    cut(&m, staged);
    for (size_t slice = 0; slice < m.slices; slice++) {
        status = await(&m, &mailbox->sent, m.sent_base + 1 + (uint32_t)slice);
        if (status != LS_OK) return status;
        const char *from = staged ? ls_segment_stage(comm, peer, slice) : ls_segment_address(comm, offset);
        if (m.nbytes > 0) memcpy((char *)operation->receive + slice * m.slice_nbytes, from, nbytes_of(&m, slice));
        ls_flag_raise(&mailbox->taken);
    }
    comm->received_steps[peer] += (uint32_t)m.slices;
    if (m.nbytes > 0) ls_comm_count_received(comm, m.slices, m.nbytes);
    return LS_OK;
}
