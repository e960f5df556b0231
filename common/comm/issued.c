/* issued — what the ranks have enqueued, for paths whose operations do not meet on the host (NCCL).
 *   idea  : NCCL tells neither which rank is missing nor that two ranks run different operations: it waits. So each
 *           rank writes the number and the kind of every collective operation that it enqueues into its slot of the
 *           group's memory. A rank that has waited for too long looks there
 *   cost  : two stores per operation, into memory that nobody else reads as long as all goes well
 *   order : the kind is written before the number, which says that it is there. The last LS_ISSUED_KEPT kinds are kept.
 *           A rank that is further ahead has enqueued this operation, and is not compared
 *   fails : of sends and receives, which are numbered per pair of ranks, only the number is told: not their count */
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

/* An operation in 64 bits: 46 of the count, 7 of the root + 1, and what fits into a few bits each. */
#define COUNT_BITS 46

static uint64_t pack(const ls_announcement *what) {
    uint64_t count = what->count & (((uint64_t)1 << COUNT_BITS) - 1);
    uint64_t kinds =
        (uint64_t)what->kind | (uint64_t)what->dtype << 4 | (uint64_t)what->op << 7 | (uint64_t)(what->root + 1) << 9;
    return kinds << COUNT_BITS | count;
}

static ls_announcement unpack(uint64_t packed, uint64_t sequence) {
    uint64_t kinds = packed >> COUNT_BITS;
    return (ls_announcement){.sequence = sequence,
                             .count = packed & (((uint64_t)1 << COUNT_BITS) - 1),
                             .kind = (int32_t)(kinds & 15),
                             .dtype = (int32_t)(kinds >> 4 & 7),
                             .op = (int32_t)(kinds >> 7 & 3),
                             .root = (int32_t)(kinds >> 9 & 127) - 1};
}
_Static_assert(LS_OPERATION_BARRIER < 16 && LS_DTYPE_COUNT <= 8 && LS_REDUCE_OP_COUNT <= 4 && LS_COMM_MAX_RANKS < 127,
               "an operation fits into 64 bits");

void ls_comm_issue(ls_comm *comm, const ls_announcement *what) {
    if (!comm->segment) return;
    if (ls_is_point_to_point(what)) {
        if (what->kind != LS_OPERATION_RECV)
            atomic_store(&ls_segment_mailbox(comm, comm->rank, what->root)->issued_sends, what->sequence);
        if (what->kind != LS_OPERATION_SEND)
            atomic_store(&ls_segment_mailbox(comm, what->root, comm->rank)->issued_receives, what->offset);
    } else {
        ls_rank_slot *slot = &comm->segment->slot[comm->rank];
        atomic_store_explicit(&slot->issued_what[what->sequence % LS_ISSUED_KEPT], pack(what), memory_order_relaxed);
        atomic_store_explicit(&slot->issued, what->sequence, memory_order_release);
    }
}

static bool peer_is_missing(const ls_comm *comm, const ls_announcement *what) {
    bool sends = what->kind != LS_OPERATION_RECV;
    ls_mailbox *mailbox =
        sends ? ls_segment_mailbox(comm, comm->rank, what->root) : ls_segment_mailbox(comm, what->root, comm->rank);
    return atomic_load(sends ? &mailbox->issued_receives : &mailbox->issued_sends) < what->sequence;
}

/* LS_OK: the rank has enqueued the same, or has not come to it yet. */
static ls_status compare_with(ls_comm *comm, const ls_announcement *what, int rank, bool *missing) {
    ls_rank_slot *slot = &comm->segment->slot[rank];
    *missing = atomic_load_explicit(&slot->issued, memory_order_acquire) < what->sequence;
    uint64_t packed = atomic_load(&slot->issued_what[what->sequence % LS_ISSUED_KEPT]);
    bool kept = atomic_load(&slot->issued) < what->sequence + LS_ISSUED_KEPT;
    if (*missing || !kept || packed == pack(what)) return LS_OK;
    char mine[LS_TEXT_CAPACITY], theirs[LS_TEXT_CAPACITY];
    ls_announcement other = unpack(packed, what->sequence);
    return ls_comm_break(comm, LS_ERR_INVALID, NULL,
                         "the ranks are out of step: rank %d runs %s, rank %d runs %s; all must enqueue the same "
                         "operations in the same order",
                         ls_job_rank(comm, rank), ls_announcement_text(comm, theirs, &other, true),
                         ls_job_rank(comm, comm->rank), ls_announcement_text(comm, mine, what, true));
}

ls_status ls_comm_compare_issued(ls_comm *comm, const ls_announcement *what, bool *missing) {
    ls_status status = LS_OK;
    for (int r = 0; r < comm->world_size; r++) {
        missing[r] = false;
        if (ls_is_point_to_point(what)) {
            missing[r] = r == what->root && peer_is_missing(comm, what);
        } else if (status == LS_OK) {
            status = compare_with(comm, what, r, &missing[r]);
        }
    }
    return status;
}

bool ls_comm_is_awaited(const ls_comm *comm) {
    uint64_t mine = atomic_load(&comm->segment->slot[comm->rank].issued);
    for (int r = 0; r < comm->world_size; r++) {
        const ls_mailbox *to = ls_segment_mailbox(comm, comm->rank, r), *from = ls_segment_mailbox(comm, r, comm->rank);
        if (atomic_load(&comm->segment->slot[r].issued) > mine) return true;
        if (atomic_load(&to->issued_receives) > atomic_load(&to->issued_sends)) return true;
        if (atomic_load(&from->issued_sends) > atomic_load(&from->issued_receives)) return true;
    }
    return false;
}
