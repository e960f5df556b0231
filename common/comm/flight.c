/* flight — the ring in which each rank keeps its last operations, and comparing with the others' rings.
 *   idea  : a rank writes each operation that it enqueues, and the moments in which it starts and ends, into a ring in
 *           memory that all ranks see. Whoever has waited for too long looks there: who is missing, and who runs
 *           something else? NCCL tells neither. The memory lives as long as any rank, so the ring survives its owner
 *   debug : --debug-collectives waits at each operation until all ranks have enqueued it, and compares before it runs
 *   cost  : about fifteen stores into lines that no other rank reads as long as all goes well, and three reads of the
 *           coarse clock, each a few nanoseconds; no lock, no allocation, no system call. bench_comm --flight-cost
 *           measures it
 *   order : an entry's number is 0 while it is written, and a reader that finds another number afterwards than before
 *           does not use what it read. The groups of a job write one ring per rank, perhaps in several threads: each
 *           takes an entry of its own. A rank that is further ahead than its ring reaches back is not compared
 *   fails : an operation that fails is never marked as done. Of launches of a graph nothing is known */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

enum { TIME_BITS = 40, POLL_NS = 20000 };
_Static_assert(LS_OPERATION_COUNT < 256 && LS_COMM_MAX_RANKS < 255, "a kind and a root fit into a byte each");

/* Words that the owner writes in this order, and others read in this order. */
static void put(_Atomic uint64_t *word, uint64_t value) { atomic_store_explicit(word, value, memory_order_release); }
static uint64_t get(const _Atomic uint64_t *word) { return atomic_load_explicit(word, memory_order_acquire); }

static ls_flight_ring *ring_of(const ls_comm *comm, int rank) { return &comm->flight[ls_job_rank(comm, rank)]; }

/* --- writing -------------------------------------------------------------------------------------------------------- */

void ls_flight_join(ls_comm *comm) {
    if (!comm->flight) return;
    ls_flight_ring *ring = ring_of(comm, comm->rank);
    int32_t count = atomic_load(&ring->group_count);
    atomic_store(&ring->pid, (int32_t)getpid());
    if (count == LS_FLIGHT_GROUPS) return;
    ring->groups[count].hash = comm->name_hash;
    ring->groups[count].group = (ls_flight_group){.first = comm->first, .stride = comm->stride, .size = comm->world_size};
    memcpy(ring->groups[count].group.name, comm->name, sizeof comm->name);
    atomic_store(&ring->group_count, count + 1);
}

void ls_flight_leave(ls_comm *comm) {
    if (comm->flight && comm->owns_flight) atomic_store(&ring_of(comm, comm->rank)->left, 1);
}

static uint64_t stamp_of(uint64_t number) { return number << TIME_BITS | (uint64_t)ls_coarse_now_ms(); }

static void count_enqueued(const ls_comm *comm, const ls_announcement *what) {
    ls_rank_slot *slot = &comm->segment->slot[comm->rank];
    if (!ls_is_point_to_point(what)) {
        put(&slot->collectives, what->sequence);
        return;
    }
    if (what->kind != LS_OPERATION_RECV) put(&slot->sends[what->root], what->sequence);
    if (what->kind != LS_OPERATION_SEND) put(&slot->receives[what->root], what->offset);
}

static void put_label(ls_flight_entry *entry, const char *label) {
    uint64_t words[LS_FLIGHT_LABEL / sizeof(uint64_t)] = {0};
    if (label) (void)memccpy(words, label, '\0', LS_FLIGHT_LABEL - 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) put(&entry->label[i], words[i]);
}

uint64_t ls_flight_enqueue(ls_comm *comm, const ls_announcement *what) {
    if (!comm->flight) return 0;
    ls_flight_ring *ring = ring_of(comm, comm->rank);
    uint64_t number = atomic_fetch_add_explicit(&ring->enqueued, 1, memory_order_relaxed) + 1;
    ls_flight_entry *entry = &ring->entries[number % LS_FLIGHT_KEPT];
    put(&entry->number, 0);
    put(&entry->stamp[LS_STAMP_ENQUEUED], stamp_of(number));
    put(&entry->sequence, what->sequence);
    put(&entry->received, ls_is_point_to_point(what) ? what->offset : 0);
    put(&entry->count, what->count);
    put(&entry->kinds, (uint64_t)what->kind | (uint64_t)what->dtype << 8 | (uint64_t)what->op << 16 |
                           (uint64_t)(what->root + 1) << 24 | (uint64_t)(uint32_t)comm->label_number << 32);
    put(&entry->group, comm->name_hash);
    put_label(entry, comm->label);
    put(&entry->number, number);
    if (what->kind <= LS_OPERATION_BARRIER) count_enqueued(comm, what);
    return number;
}

static void mark(const ls_comm *comm, uint64_t number, enum ls_flight_stamp which, uint64_t stamp) {
    if (number > 0) put(&ring_of(comm, comm->rank)->entries[number % LS_FLIGHT_KEPT].stamp[which], stamp);
}

void ls_flight_start(const ls_comm *comm, uint64_t number) {
    mark(comm, number, LS_STAMP_STARTED, stamp_of(number));
}
void ls_flight_end(const ls_comm *comm, uint64_t number) { mark(comm, number, LS_STAMP_DONE, stamp_of(number)); }
void ls_flight_capture(const ls_comm *comm, uint64_t number) {
    mark(comm, number, LS_STAMP_DONE, number << TIME_BITS);
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

/* The time in a stamp; -1: it is not this operation's. */
static int64_t time_of(uint64_t stamp, uint64_t number) {
    if (stamp >> TIME_BITS != number << TIME_BITS >> TIME_BITS) return -1;
    return (int64_t)(stamp & (((uint64_t)1 << TIME_BITS) - 1));
}

static void read_times(const uint64_t stamps[LS_STAMP_COUNT], ls_flight_operation *out) {
    int64_t started = time_of(stamps[LS_STAMP_STARTED], out->number), done = time_of(stamps[LS_STAMP_DONE], out->number);
    out->state = done == 0     ? LS_FLIGHT_CAPTURED
                 : done > 0    ? LS_FLIGHT_DONE
                 : started > 0 ? LS_FLIGHT_STARTED
                               : LS_FLIGHT_ENQUEUED;
    out->enqueued_ms = time_of(stamps[LS_STAMP_ENQUEUED], out->number);
    out->started_ms = started > 0 ? started : 0;
    out->done_ms = done > 0 ? done : 0;
}

bool ls_flight_read_entry(const ls_flight_entry *entry, ls_flight_operation *out, uint64_t *group) {
    uint64_t stamps[LS_STAMP_COUNT], label[LS_FLIGHT_LABEL / sizeof(uint64_t)];
    *out = (ls_flight_operation){.number = get(&entry->number)};
    if (out->number == 0) return false;
    for (int i = 0; i < LS_STAMP_COUNT; i++) stamps[i] = get(&entry->stamp[i]);
    out->sequence = get(&entry->sequence);
    out->received = get(&entry->received);
    out->count = get(&entry->count);
    uint64_t kinds = get(&entry->kinds);
    *group = get(&entry->group);
    for (size_t i = 0; i < sizeof label / sizeof *label; i++) label[i] = get(&entry->label[i]);
    if (get(&entry->number) != out->number) return false;
    memcpy(out->label, label, LS_FLIGHT_LABEL - 1);
    out->label_number = (int32_t)(kinds >> 32);
    out->kind = (ls_operation_kind)(kinds & 255);
    out->dtype = (int)(kinds >> 8 & 255);
    out->op = (int)(kinds >> 16 & 255);
    out->root = (int)(kinds >> 24 & 255) - 1;
    read_times(stamps, out);
    return out->kind < LS_OPERATION_COUNT && out->dtype < LS_DTYPE_COUNT && out->op < LS_REDUCE_OP_COUNT;
}

/* --- comparing ------------------------------------------------------------------------------------------------------ */

static bool is_message(ls_operation_kind kind) {
    return kind == LS_OPERATION_SEND || kind == LS_OPERATION_RECV || kind == LS_OPERATION_SEND_RECV;
}

/* Whether a rank's operation is the one that meets `what`, which is `me`'s. */
static bool meets(const ls_flight_operation *theirs, const ls_announcement *what, int me) {
    if (!ls_is_point_to_point(what))
        return theirs->kind <= LS_OPERATION_BARRIER && !is_message(theirs->kind) && theirs->sequence == what->sequence;
    if (!is_message(theirs->kind) || theirs->root != me) return false;
    if (what->kind == LS_OPERATION_RECV) return theirs->kind != LS_OPERATION_RECV && theirs->sequence == what->offset;
    return theirs->kind != LS_OPERATION_SEND && theirs->received == what->sequence;
}

/* A rank's operation of the group `hash` that meets `what`, which is that group's rank `me`'s; false: it is not in its
 * ring. */
static bool find_match(const ls_flight_ring *ring, uint64_t hash, const ls_announcement *what, int me,
                       ls_flight_operation *out) {
    for (int i = 0; i < LS_FLIGHT_KEPT; i++) {
        uint64_t group;
        if (ls_flight_read_entry(&ring->entries[i], out, &group) && group == hash && meets(out, what, me)) return true;
    }
    return false;
}

static bool is_missing(const ls_comm *comm, const ls_announcement *what, int rank) {
    const ls_rank_slot *theirs = &comm->segment->slot[rank];
    if (!ls_is_point_to_point(what)) return get(&theirs->collectives) < what->sequence;
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
                         "the ranks are out of step: rank %d runs %s, rank %d runs %s; all must enqueue the same "
                         "operations in the same order",
                         ls_job_rank(comm, rank), text_of(comm, their_text, theirs), ls_job_rank(comm, comm->rank),
                         text_of(comm, mine_text, mine));
}

/* What this rank has enqueued as `what`, with the label if that is still in the ring. */
static ls_flight_operation own_operation(const ls_comm *comm, const ls_announcement *what) {
    const ls_flight_ring *ring = ring_of(comm, comm->rank);
    for (int i = 0; i < LS_FLIGHT_KEPT; i++) {
        ls_flight_operation own;
        uint64_t group;
        if (ls_flight_read_entry(&ring->entries[i], &own, &group) && group == comm->name_hash &&
            (int)own.kind == what->kind && own.sequence == what->sequence && own.root == what->root)
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
    for (int r = 0; comm->flight && r < comm->world_size; r++) {
        ls_flight_operation theirs, mine;
        if (r == comm->rank || (ls_is_point_to_point(what) && r != what->root)) continue;
        missing[r] = is_missing(comm, what, r);
        if (missing[r] || !find_match(ring_of(comm, r), comm->name_hash, what, comm->rank, &theirs)) continue;
        if (fits(what, &theirs) && !comm->debug) continue;
        mine = own_operation(comm, what);
        bool same_label = strcmp(theirs.label, mine.label) == 0 && theirs.label_number == mine.label_number;
        if (!fits(what, &theirs) || !same_label) return break_different(comm, r, &theirs, &mine);
    }
    return LS_OK;
}

bool ls_comm_is_awaited(const ls_comm *comm) {
    const ls_rank_slot *mine = &comm->segment->slot[comm->rank];
    for (int r = 0; r < comm->world_size; r++) {
        const ls_rank_slot *theirs = &comm->segment->slot[r];
        if (get(&theirs->collectives) > get(&mine->collectives)) return true;
        if (get(&theirs->receives[comm->rank]) > get(&mine->sends[r])) return true;
        if (get(&theirs->sends[comm->rank]) > get(&mine->receives[r])) return true;
    }
    return false;
}

/* --- --debug-collectives -------------------------------------------------------------------------------------------- */

/* Whether a missing rank waits in another group for this rank, which waits for it here: both host threads wait, so it
 * will not come. */
static bool find_crossing(const ls_comm *comm, int rank, ls_flight_operation *theirs, ls_flight_group *group) {
    const ls_flight_ring *ring = ring_of(comm, rank);
    int me = ls_job_rank(comm, comm->rank), their_job_rank = ls_job_rank(comm, rank);
    ls_flight_operation mine;
    uint64_t hash;
    if (!ls_flight_read_entry(&ring->entries[get(&ring->enqueued) % LS_FLIGHT_KEPT], theirs, &hash)) return false;
    if (theirs->state != LS_FLIGHT_ENQUEUED || hash == comm->name_hash) return false;
    int g = 0, count = atomic_load(&ring->group_count);
    while (g < count && ring->groups[g].hash != hash) g++;
    if (g == count) return false;
    *group = ring->groups[g].group;
    int place = me - group->first, last = (group->size - 1) * group->stride;
    if (place < 0 || place > last || place % group->stride != 0) return false;
    if (is_message(theirs->kind) && theirs->root != place / group->stride) return false;
    const ls_announcement what = {.sequence = theirs->sequence,
                                  .offset = theirs->received,
                                  .kind = (int32_t)theirs->kind,
                                  .root = theirs->root};
    int their_rank = (their_job_rank - group->first) / group->stride;
    return !find_match(ring_of(comm, comm->rank), hash, &what, their_rank, &mine);
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
                             "the ranks are out of step: rank %d begins %s in %s, rank %d begins %s in %s; all must "
                             "enqueue the operations of all groups in the same order",
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

/* Whoever is lost may have come before. */
static ls_status find_lost(ls_comm *comm, const ls_announcement *what, bool *lost) {
    bool missing[LS_COMM_MAX_RANKS], died;
    char text[LS_RANKS_TEXT_CAPACITY];
    if (!ls_comm_only_lost(comm, lost, &died)) return LS_OK;
    ls_status status = ls_comm_compare_enqueued(comm, what, missing);
    for (int r = 0; r < comm->world_size; r++) lost[r] = lost[r] && missing[r];
    if (status != LS_OK || !any_of(comm, lost)) return status;
    status = ls_comm_check(comm, what); /* whoever left after a failure has said why before */
    if (status != LS_OK) return status;
    return ls_comm_break(comm, LS_ERR_PEER, what, "%s %s", ls_comm_ranks_text(text, lost, comm),
                         died ? "died" : "left the group without taking part");
}

ls_status ls_comm_compare_before(ls_comm *comm, const ls_announcement *what) {
    bool missing[LS_COMM_MAX_RANKS], lost[LS_COMM_MAX_RANKS];
    char text[LS_RANKS_TEXT_CAPACITY];
    double begin_us = ls_now_us(), patrol_us = begin_us + LS_PATROL_US;
    for (;; nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL)) {
        ls_status status = ls_comm_check(comm, what);
        if (status == LS_OK) status = ls_comm_compare_enqueued(comm, what, missing);
        if (status != LS_OK || !any_of(comm, missing)) return status;
        double now_us = ls_now_us();
        if (now_us < patrol_us) continue;
        patrol_us = now_us + LS_PATROL_US;
        memcpy(lost, missing, sizeof lost);
        status = find_lost(comm, what, lost);
        if (status == LS_OK) status = compare_order(comm, what, missing);
        if (status == LS_OK && now_us - begin_us > comm->timeout_s * 1e6)
            status = ls_comm_break(comm, LS_ERR_TIMEOUT, what, "%s did not come within %g s",
                                   ls_comm_ranks_text(text, missing, comm), comm->timeout_s);
        if (status != LS_OK) return status;
    }
}
