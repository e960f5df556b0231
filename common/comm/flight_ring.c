/* flight_ring — the ring in which each rank keeps its last operations, and comparing with the others' rings.
 *   idea  : a rank writes each operation that it enqueues, with its start and end times, to a ring in memory that all
 *           ranks see. A rank that has waited too long reads from the rings which ranks are missing and which run
 *           another operation; NCCL reports neither. The memory lives as long as any rank, so the ring survives its
 *           owner
 *   debug : --debug-collectives waits at each operation until all ranks have enqueued it, and compares before it runs
 *   cost  : ten stores into a cache line that no other rank reads in normal operation, and one reading of the coarse
 *           clock; no lock, no allocation, no system call. bench_comm --flight-cost measures it
 *   order : an entry's number is 0 while it is written, and a reader that finds different numbers before and after
 *           drops the entry. Operations of all groups are numbered together, which shows their order. A rank that is
 *           further ahead than its ring reaches back is not compared
 *   fails : an operation that fails is never marked as done. Launches of a graph are not recorded */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

enum { POLL_NS = 20000 };
_Static_assert(LS_FLIGHT_RANKS == LS_COMM_MAX_RANKS, "a record has room for all ranks");
_Static_assert(LS_OPERATION_COUNT < LS_FLIGHT_HAS_LABEL && LS_COMM_MAX_RANKS < 255,
               "a kind and a root fit into a byte");

/* Words that the owner writes in this order, and others read in this order. */
static void put(_Atomic uint64_t *word, uint64_t value) { atomic_store_explicit(word, value, memory_order_release); }
static uint64_t get(const _Atomic uint64_t *word) { return atomic_load_explicit(word, memory_order_acquire); }

static ls_flight_log *log_of(const ls_comm *comm, int rank) { return &comm->flight[ls_job_rank(comm, rank)]; }

/* --- writing -------------------------------------------------------------------------------------------------------- */

void ls_flight_join(ls_comm *comm) {
    if (!comm->flight || comm->unrecorded) return;
    ls_flight_log *log = log_of(comm, comm->rank);
    int32_t count = atomic_load(&log->ring_count);
    atomic_store(&log->pid, (int32_t)getpid());
    if (count == LS_FLIGHT_GROUPS) return;
    comm->ring = &log->rings[count];
    comm->ring->hash = comm->name_hash;
    comm->ring->group = (ls_flight_group){.first = comm->first, .stride = comm->stride, .size = comm->world_size};
    memcpy(comm->ring->group.name, comm->name, sizeof comm->name);
    atomic_store(&log->ring_count, count + 1);
}

void ls_flight_leave(ls_comm *comm) {
    if (comm->flight && comm->owns_flight) atomic_store(&log_of(comm, comm->rank)->left, LS_LEFT);
}

void ls_flight_look(const ls_comm *comm) {
    if (comm->flight) atomic_store(&log_of(comm, comm->rank)->looked_ms, ls_coarse_now_ms());
}

int64_t ls_flight_looked_ms(const ls_comm *comm, int rank) {
    return comm->flight ? atomic_load(&log_of(comm, rank)->looked_ms) : 0;
}

static void record_message(const ls_comm *comm, ls_flight_entry *entry, const ls_announcement *what) {
    ls_rank_slot *slot = &comm->segment->slot[comm->rank];
    put(&entry->received, what->offset);
    if (what->kind != LS_OPERATION_RECV) put(&slot->sends[what->root], what->sequence);
    if (what->kind != LS_OPERATION_SEND) put(&slot->receives[what->root], what->offset);
}

static void put_label(_Atomic uint64_t *label, const char *text) {
    uint64_t words[LS_FLIGHT_LABEL / sizeof(uint64_t)] = {0};
    (void)memccpy(words, text, '\0', LS_FLIGHT_LABEL - 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) put(&label[i], words[i]);
}

/* Two threads that enqueue on two groups at once may get the same number. An atomic increment would wait for all stores
 * before it. */
static uint64_t next_number(ls_flight_log *log) {
    uint64_t number = atomic_load_explicit(&log->enqueued, memory_order_relaxed) + 1;
    atomic_store_explicit(&log->enqueued, number, memory_order_relaxed);
    return number;
}

ls_flight_mark ls_flight_record_operation(ls_comm *comm, const ls_announcement *what) {
    uint64_t place = comm->ring->recorded++ % LS_FLIGHT_KEPT;
    uint64_t number = next_number(log_of(comm, comm->rank));
    ls_flight_mark mark = {&comm->ring->entries[place], number};
    uint64_t kind = (uint64_t)what->kind | (comm->label ? LS_FLIGHT_HAS_LABEL : 0);
    put(&mark.entry->number, 0);
    ls_flight_stamp(mark, LS_STAMP_ENQUEUED, ls_flight_time(what));
    put(&mark.entry->sequence, what->sequence);
    put(&mark.entry->count, what->count);
    put(&mark.entry->kinds, kind | (uint64_t)what->dtype << 8 | (uint64_t)what->op << 16 |
                                (uint64_t)(what->root + 1) << 24 | (uint64_t)(uint32_t)comm->label_number << 32);
    if (comm->label) put_label(comm->ring->labels[place], comm->label);
    if (ls_is_point_to_point(what)) record_message(comm, mark.entry, what);
    put(&mark.entry->number, number);
    if (what->kind <= LS_OPERATION_BARRIER && !ls_is_point_to_point(what))
        put(&comm->ring->collectives, what->sequence);
    return mark;
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

const ls_flight_ring *ls_flight_find_ring(const ls_flight_log *log, uint64_t hash) {
    int32_t count = atomic_load(&log->ring_count);
    for (int i = 0; i < count; i++)
        if (log->rings[i].hash == hash) return &log->rings[i];
    return NULL;
}

/* Whether the stamp belongs to this operation; if so, *time_ms is its time. */
static bool has_stamp(uint64_t stamp, uint64_t number, int64_t *time_ms) {
    if (stamp >> LS_FLIGHT_TIME_BITS != number << LS_FLIGHT_TIME_BITS >> LS_FLIGHT_TIME_BITS) return false;
    *time_ms = (int64_t)(stamp & LS_FLIGHT_CAPTURED_TIME);
    return true;
}

static void read_stamps(const uint64_t stamps[LS_STAMP_COUNT], ls_flight_operation *out) {
    (void)has_stamp(stamps[LS_STAMP_ENQUEUED], out->number, &out->enqueued_ms);
    if (has_stamp(stamps[LS_STAMP_STARTED], out->number, &out->started_ms)) out->state = LS_FLIGHT_STARTED;
    if (has_stamp(stamps[LS_STAMP_DONE], out->number, &out->done_ms)) out->state = LS_FLIGHT_DONE;
    if (out->done_ms != (int64_t)LS_FLIGHT_CAPTURED_TIME) return;
    out->state = LS_FLIGHT_CAPTURED;
    out->done_ms = 0;
}

bool ls_flight_read_entry(const ls_flight_ring *ring, int place, ls_flight_operation *out) {
    const ls_flight_entry *entry = &ring->entries[place];
    uint64_t stamps[LS_STAMP_COUNT], label[LS_FLIGHT_LABEL / sizeof(uint64_t)];
    *out = (ls_flight_operation){.number = get(&entry->number)};
    if (out->number == 0) return false;
    for (int i = 0; i < LS_STAMP_COUNT; i++) stamps[i] = get(&entry->stamp[i]);
    out->sequence = get(&entry->sequence);
    out->count = get(&entry->count);
    uint64_t kinds = get(&entry->kinds), received = get(&entry->received);
    for (size_t i = 0; i < sizeof label / sizeof *label; i++) label[i] = get(&ring->labels[place][i]);
    if (get(&entry->number) != out->number) return false;
    if (kinds & LS_FLIGHT_HAS_LABEL) memcpy(out->label, label, LS_FLIGHT_LABEL - 1);
    out->label_number = (int32_t)(kinds >> 32);
    out->kind = (ls_operation_kind)(kinds & (LS_FLIGHT_HAS_LABEL - 1));
    out->dtype = (int)(kinds >> 8 & 255);
    out->op = (int)(kinds >> 16 & 255);
    out->root = (int)(kinds >> 24 & 255) - 1;
    read_stamps(stamps, out);
    if (ls_operation_is_message((int)out->kind)) out->received = received;
    return out->kind < LS_OPERATION_COUNT && out->dtype < LS_DTYPE_COUNT && out->op < LS_REDUCE_OP_COUNT;
}

/* --- comparing ------------------------------------------------------------------------------------------------------ */

/* Whether a rank's operation matches `what`, rank `me`'s operation. */
static bool meets(const ls_flight_operation *theirs, const ls_announcement *what, int me) {
    if (!ls_is_point_to_point(what))
        return theirs->kind <= LS_OPERATION_BARRIER && !ls_operation_is_message(theirs->kind) &&
               theirs->sequence == what->sequence;
    if (!ls_operation_is_message(theirs->kind) || theirs->root != me) return false;
    if (what->kind == LS_OPERATION_RECV) return theirs->kind != LS_OPERATION_RECV && theirs->sequence == what->offset;
    return theirs->kind != LS_OPERATION_SEND && theirs->received == what->sequence;
}

/* Finds the rank's operation that matches `what`, the operation of the group's rank `me`; false if the ring does not
 * hold it. */
static bool find_match(const ls_flight_ring *ring, const ls_announcement *what, int me, ls_flight_operation *out) {
    for (int i = 0; ring && i < LS_FLIGHT_KEPT; i++)
        if (ls_flight_read_entry(ring, i, out) && meets(out, what, me)) return true;
    return false;
}

static const ls_flight_ring *ring_of(const ls_comm *comm, int rank) {
    return ls_flight_find_ring(log_of(comm, rank), comm->name_hash);
}

static bool is_missing(const ls_comm *comm, const ls_announcement *what, int rank) {
    const ls_rank_slot *theirs = &comm->segment->slot[rank];
    const ls_flight_ring *ring = ring_of(comm, rank);
    if (!ls_is_point_to_point(what)) return !ring || get(&ring->collectives) < what->sequence;
    if (what->kind == LS_OPERATION_RECV) return get(&theirs->sends[comm->rank]) < what->offset;
    return get(&theirs->receives[comm->rank]) < what->sequence;
}

static bool fits(const ls_announcement *what, const ls_flight_operation *theirs) {
    bool both_ways = what->kind == LS_OPERATION_SEND_RECV;
    if (theirs->count != what->count || theirs->dtype != what->dtype) return false;
    if (ls_is_point_to_point(what)) return both_ways == (theirs->kind == LS_OPERATION_SEND_RECV);
    return (int)theirs->kind == what->kind && theirs->op == what->op && theirs->root == what->root;
}

/* "all_reduce (sum) of 10 fp32 elements (operation 3, 40 bytes), for bucket 2"; the label under debug only. */
static const char *text_of(const ls_comm *comm, char text[LS_TEXT_CAPACITY], const ls_flight_operation *o) {
    ls_announcement what = {.sequence = o->sequence > 0 ? o->sequence : o->received,
                            .count = o->count,
                            .kind = (int32_t)o->kind,
                            .dtype = o->dtype,
                            .op = o->op,
                            .root = o->root};
    ls_announcement_text(comm, text, &what, true);
    size_t length = strlen(text);
    if (comm->debug && o->label[0]) ls_flight_label_text(text + length, LS_TEXT_CAPACITY - length, ", for ", o);
    return text;
}

static ls_status break_different(ls_comm *comm, int rank, const ls_flight_operation *theirs,
                                 const ls_flight_operation *mine) {
    char mine_text[LS_TEXT_CAPACITY], their_text[LS_TEXT_CAPACITY];
    return ls_comm_break(comm, LS_ERR_INVALID, NULL,
                         "the ranks are out of step: rank %d runs %s, but rank %d runs %s; all must enqueue the same "
                         "operations in the same order",
                         ls_job_rank(comm, rank), text_of(comm, their_text, theirs), ls_job_rank(comm, comm->rank),
                         text_of(comm, mine_text, mine));
}

/* This rank's operation for `what`, with its label if that is still in the ring. */
static ls_flight_operation own_operation(const ls_comm *comm, const ls_announcement *what) {
    for (int i = 0; i < LS_FLIGHT_KEPT; i++) {
        ls_flight_operation own;
        if (ls_flight_read_entry(comm->ring, i, &own) && (int)own.kind == what->kind &&
            own.sequence == what->sequence && own.root == what->root)
            return own;
    }
    return (ls_flight_operation){.sequence = what->sequence,
                                 .count = what->count,
                                 .kind = (ls_operation_kind)what->kind,
                                 .dtype = what->dtype,
                                 .op = what->op,
                                 .root = what->root};
}

ls_status ls_comm_compare_enqueued(ls_comm *comm, const ls_announcement *what, bool *missing) {
    for (int r = 0; r < comm->world_size; r++) missing[r] = false;
    for (int r = 0; comm->ring && r < comm->world_size; r++) {
        ls_flight_operation theirs, mine;
        if (r == comm->rank || (ls_is_point_to_point(what) && r != what->root)) continue;
        missing[r] = is_missing(comm, what, r);
        if (missing[r] || !find_match(ring_of(comm, r), what, comm->rank, &theirs)) continue;
        if (fits(what, &theirs) && !comm->debug) continue;
        mine = own_operation(comm, what);
        /* the two ends of a send_recv send different messages */
        bool same_label = mine.kind == LS_OPERATION_SEND_RECV ||
                          (strcmp(theirs.label, mine.label) == 0 && theirs.label_number == mine.label_number);
        if (!fits(what, &theirs) || !same_label) return break_different(comm, r, &theirs, &mine);
    }
    return LS_OK;
}

bool ls_comm_is_awaited(const ls_comm *comm) {
    const ls_rank_slot *mine = &comm->segment->slot[comm->rank];
    for (int r = 0; r < comm->world_size; r++) {
        const ls_rank_slot *theirs = &comm->segment->slot[r];
        const ls_flight_ring *ring = comm->ring ? ring_of(comm, r) : NULL;
        if (ring && get(&ring->collectives) > get(&comm->ring->collectives)) return true;
        if (get(&theirs->receives[comm->rank]) > get(&mine->sends[r])) return true;
        if (get(&theirs->sends[comm->rank]) > get(&mine->receives[r])) return true;
    }
    return false;
}

/* --- --debug-collectives -------------------------------------------------------------------------------------------- */

/* The operation that a rank's host thread waits to begin, in any group but this one. */
static const ls_flight_ring *find_begun(const ls_comm *comm, const ls_flight_log *log, ls_flight_operation *begun) {
    int32_t count = atomic_load(&log->ring_count);
    for (int g = 0; g < count; g++) {
        const ls_flight_ring *ring = &log->rings[g];
        for (int i = 0; ring->hash != comm->name_hash && i < LS_FLIGHT_KEPT; i++)
            if (ls_flight_read_entry(ring, i, begun) && begun->state == LS_FLIGHT_ENQUEUED) return ring;
    }
    return NULL;
}

/* Whether a missing rank waits in another group for this rank, which waits for it here: both host threads wait, so it
 * will not arrive. */
static bool find_crossing(const ls_comm *comm, int rank, ls_flight_operation *theirs, ls_flight_group *group) {
    const ls_flight_ring *ring = find_begun(comm, log_of(comm, rank), theirs);
    ls_flight_operation mine;
    if (!ring) return false;
    *group = ring->group;
    int place = ls_job_rank(comm, comm->rank) - group->first, last = (group->size - 1) * group->stride;
    if (place < 0 || place > last || place % group->stride != 0) return false;
    if (ls_operation_is_message(theirs->kind) && theirs->root != place / group->stride) return false;
    const ls_announcement what = {
        .sequence = theirs->sequence, .offset = theirs->received, .kind = (int32_t)theirs->kind, .root = theirs->root};
    int their_rank = (ls_job_rank(comm, rank) - group->first) / group->stride;
    return !find_match(ls_flight_find_ring(log_of(comm, comm->rank), ring->hash), &what, their_rank, &mine);
}

static ls_status compare_order(ls_comm *comm, const ls_announcement *what, const bool *missing) {
    for (int r = 0; r < comm->world_size; r++) {
        ls_flight_operation theirs, mine;
        ls_flight_group group;
        if (!missing[r] || !find_crossing(comm, r, &theirs, &group)) continue;
        char mine_text[LS_FLIGHT_TEXT], their_text[LS_FLIGHT_TEXT];
        mine = own_operation(comm, what);
        if (mine.root >= 0) mine.root = ls_job_rank(comm, mine.root);
        if (theirs.root >= 0) theirs.root = group.first + theirs.root * group.stride;
        return ls_comm_break(comm, LS_ERR_INVALID, NULL,
                             "the ranks are out of step: rank %d begins %s in %s, but rank %d begins %s in %s; all "
                             "must enqueue the operations of all groups in the same order",
                             ls_job_rank(comm, r), ls_flight_operation_text(their_text, &theirs), group.name,
                             ls_job_rank(comm, comm->rank), ls_flight_operation_text(mine_text, &mine), comm->name);
    }
    return LS_OK;
}

static bool any_of(const ls_comm *comm, const bool *ranks) {
    bool any = false;
    for (int r = 0; r < comm->world_size; r++) any = any || ranks[r];
    return any;
}

/* A rank that is lost may have called the operation before; then it is not missing. */
static ls_status find_lost(ls_comm *comm, const ls_announcement *what, bool *lost) {
    bool missing[LS_COMM_MAX_RANKS] = {false}, died;
    char text[LS_RANKS_TEXT_CAPACITY];
    if (!ls_comm_only_lost(comm, lost, &died)) return LS_OK;
    ls_status status = ls_comm_compare_enqueued(comm, what, missing);
    for (int r = 0; r < comm->world_size; r++) lost[r] = lost[r] && missing[r];
    if (status != LS_OK || !any_of(comm, lost)) return status;
    status = ls_comm_check(comm, what); /* a rank that left after a failure has reported it before */
    if (status != LS_OK) return status;
    return ls_comm_break(comm, LS_ERR_PEER, what, "%s %s", ls_comm_ranks_text(text, lost, comm),
                         died ? "died" : "left the group without taking part");
}

ls_status ls_comm_compare_before(ls_comm *comm, const ls_announcement *what) {
    bool missing[LS_COMM_MAX_RANKS] = {false}, lost[LS_COMM_MAX_RANKS];
    char text[LS_RANKS_TEXT_CAPACITY];
    double begin_us = ls_now_us(), patrol_us = begin_us + LS_PATROL_US;
    ls_mirror_kick(comm->job);
    for (;; nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL)) {
        ls_status status = ls_comm_check(comm, what);
        if (status == LS_OK) status = ls_comm_compare_enqueued(comm, what, missing);
        if (status != LS_OK || !any_of(comm, missing)) return status;
        double now_us = ls_now_us();
        if (now_us < patrol_us) continue;
        patrol_us = now_us + LS_PATROL_US;
        ls_flight_look(comm);
        memcpy(lost, missing, sizeof lost);
        status = find_lost(comm, what, lost);
        if (status == LS_OK) status = compare_order(comm, what, missing);
        if (status == LS_OK && now_us - begin_us > comm->timeout_s * 1e6)
            status = ls_comm_break(comm, LS_ERR_TIMEOUT, what, "%s did not arrive within %g s",
                                   ls_comm_ranks_text(text, missing, comm), comm->timeout_s);
        if (status != LS_OK) return status;
    }
}
