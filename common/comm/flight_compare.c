/* flight_compare — the first difference between the ranks of a group, from their flight records.
 *   idea  : operations of all ranks are numbered alike, so the first number under which two ranks have different
 *           operations is where their ways part: what differs later follows from that. The majority is taken to be right
 *   order : collectives before messages; numbers ascending; of as many ranks on either side the lowest rank is right
 *   fails : a ring reaches 64 operations back. A difference before that is not found, but what follows from it is */
#include <string.h>

#include "common/comm/flight.h"

static bool is_collective(const ls_flight_operation *o) {
    return o->kind <= LS_OPERATION_BARRIER && !ls_operation_is_message(o->kind);
}

bool ls_flight_is_same(const ls_flight_operation *a, const ls_flight_operation *b) {
    return a->kind == b->kind && a->count == b->count && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->label_number == b->label_number && strcmp(a->label, b->label) == 0;
}

/* --- one rank ------------------------------------------------------------------------------------------------------- */

const ls_flight_operation *ls_flight_last(const ls_flight_record *record, int rank) {
    const ls_flight_rank *r = &record->ranks[rank];
    return r->count > 0 ? &r->operations[r->count - 1] : NULL;
}

static const ls_flight_operation *find_collective(const ls_flight_rank *r, int group, uint64_t sequence) {
    for (int i = 0; i < r->count; i++) {
        const ls_flight_operation *o = &r->operations[i];
        if (o->group == group && is_collective(o) && o->sequence == sequence) return o;
    }
    return NULL;
}

/* NCCL's operations are seen to be done only by a rank that waits for one: what is done anywhere is not the place where
 * another rank hangs. */
static bool is_done_elsewhere(const ls_flight_record *record, const ls_flight_operation *o) {
    if (strcmp(record->backend, "nccl") != 0 || !is_collective(o)) return false;
    for (int r = 0; r < record->world_size; r++) {
        const ls_flight_operation *other = find_collective(&record->ranks[r], o->group, o->sequence);
        if (other && other->state == LS_FLIGHT_DONE) return true;
    }
    return false;
}

static bool is_over(const ls_flight_record *record, const ls_flight_rank *r, int i) {
    const ls_flight_operation *o = &r->operations[i];
    for (int later = i; later < r->count; later++)
        if (r->operations[later].group == o->group && r->operations[later].state == LS_FLIGHT_DONE) return true;
    return o->state == LS_FLIGHT_CAPTURED || is_done_elsewhere(record, o);
}

const ls_flight_operation *ls_flight_pending(const ls_flight_record *record, int rank) {
    const ls_flight_rank *r = &record->ranks[rank];
    const ls_flight_operation *enqueued = NULL;
    for (int i = 0; i < r->count; i++) {
        const ls_flight_operation *o = &r->operations[i];
        if (is_over(record, r, i)) continue;
        if (o->state == LS_FLIGHT_STARTED) return o;
        if (!enqueued) enqueued = o;
    }
    return enqueued;
}

int64_t ls_flight_since_ms(const ls_flight_record *record, int rank, const ls_flight_operation *operation) {
    const ls_flight_rank *r = &record->ranks[rank];
    int64_t last_ms = 0;
    for (int i = 0; i < r->count && r->operations[i].number <= operation->number; i++) {
        const ls_flight_operation *o = &r->operations[i];
        int64_t ms = o->done_ms > 0 ? o->done_ms : o->started_ms > 0 ? o->started_ms : o->enqueued_ms;
        if (ms > 0 && (o == operation || ms > last_ms)) last_ms = ms;
    }
    return last_ms;
}

/* Within half of the time that it is in the operation it would have looked: machines may be busy. Over NCCL ranks go on
 * while a GPU waits. */
bool ls_flight_is_stuck(const ls_flight_record *record, int rank) {
    enum { SHORTEST_MS = 300 };
    const ls_flight_rank *r = &record->ranks[rank];
    const ls_flight_operation *in = ls_flight_pending(record, rank);
    if (!in || in->state == LS_FLIGHT_ENQUEUED || strcmp(record->backend, "nccl") == 0) return false;
    int64_t since_ms = ls_flight_since_ms(record, rank, in);
    int64_t alive_ms = r->looked_ms > since_ms ? r->looked_ms : since_ms, lasts_ms = record->taken_ms - since_ms;
    return lasts_ms > SHORTEST_MS && record->taken_ms - alive_ms > lasts_ms / 2;
}

/* --- collectives ---------------------------------------------------------------------------------------------------- */

/* How many ranks have an operation like `o` under its number. */
static int count_like(const ls_flight_record *record, const ls_flight_operation *o) {
    int count = 0;
    for (int r = 0; r < record->world_size; r++) {
        const ls_flight_operation *other = find_collective(&record->ranks[r], o->group, o->sequence);
        count += other && ls_flight_is_same(o, other);
    }
    return count;
}

static bool compare_number(const ls_flight_record *record, int group, uint64_t sequence, ls_flight_difference *out) {
    const ls_flight_operation *expected = NULL, *found = NULL;
    int most = 0;
    for (int r = 0; r < record->world_size; r++) {
        const ls_flight_operation *o = find_collective(&record->ranks[r], group, sequence);
        int count = o ? count_like(record, o) : 0;
        if (count > most) expected = o;
        if (count > most) most = count;
    }
    for (int r = 0; r < record->world_size && expected; r++) {
        const ls_flight_operation *o = find_collective(&record->ranks[r], group, sequence);
        if (o && !found && !ls_flight_is_same(o, expected)) found = o;
        out->odd[r] = o && found && ls_flight_is_same(o, found);
    }
    if (!found) return false;
    out->kind = LS_FLIGHT_DIFFERS;
    out->expected = expected;
    out->found = found;
    return true;
}

/* --- messages ------------------------------------------------------------------------------------------------------- */

/* The peer's end of a message that this rank sends or receives; of send_recv what it sends. */
static const ls_flight_operation *find_peer(const ls_flight_record *record, int rank, const ls_flight_operation *o) {
    const ls_flight_rank *peer = &record->ranks[o->root];
    for (int i = 0; i < peer->count; i++) {
        const ls_flight_operation *p = &peer->operations[i];
        if (p->group != o->group || !ls_operation_is_message(p->kind) || p->root != rank) continue;
        if (o->kind == LS_OPERATION_RECV ? p->kind != LS_OPERATION_RECV && p->sequence == o->received
                                         : p->kind != LS_OPERATION_SEND && p->received == o->sequence)
            return p;
    }
    return NULL;
}

/* A message that is on its way and has no other end, or one of another count or type. */
static bool compare_message(const ls_flight_record *record, int rank, const ls_flight_operation *o,
                            ls_flight_difference *out) {
    if (!ls_operation_is_message(o->kind) || o->root < 0 || o->root >= record->world_size) return false;
    const ls_flight_operation *peer = find_peer(record, rank, o);
    bool fits = peer && peer->count == o->count && peer->dtype == o->dtype &&
                (peer->kind == LS_OPERATION_SEND_RECV) == (o->kind == LS_OPERATION_SEND_RECV);
    if (fits || (!peer && o->state == LS_FLIGHT_DONE)) return false;
    out->kind = peer ? LS_FLIGHT_DIFFERS : LS_FLIGHT_UNMATCHED;
    out->expected = o;
    out->found = peer;
    out->odd[o->root] = true;
    return true;
}

/* --- who is missing ------------------------------------------------------------------------------------------------- */

/* The collective of the group that a rank is in. */
static const ls_flight_operation *find_pending(const ls_flight_record *record, int rank, int group) {
    const ls_flight_rank *r = &record->ranks[rank];
    for (int i = 0; i < r->count; i++)
        if (r->operations[i].group == group && is_collective(&r->operations[i]) && !is_over(record, r, i))
            return &r->operations[i];
    return NULL;
}

static uint64_t last_number(const ls_flight_rank *r, int group) {
    uint64_t last = 0;
    for (int i = 0; i < r->count; i++)
        if (r->operations[i].group == group && is_collective(&r->operations[i])) last = r->operations[i].sequence;
    return last;
}

/* Ranks that have not come to the last collective which any rank of the group is in, or that died or left; else those
 * that were found to be late. */
static void find_absent(const ls_flight_record *record, int group, ls_flight_difference *out) {
    const ls_flight_group *g = &record->groups[group];
    const ls_flight_operation *in = ls_flight_pending(record, record->taken_by);
    bool any = false, noticed = group == record->group && in && in->group == group;
    for (int i = 0; i < g->size; i++) {
        int rank = g->first + i * g->stride;
        const ls_flight_operation *o = rank < record->world_size ? find_pending(record, rank, group) : NULL;
        if (o && (!out->expected || o->sequence > out->expected->sequence)) out->expected = o;
    }
    if (noticed && (!out->expected || ls_operation_is_message((int)in->kind))) out->expected = in;
    for (int i = 0; i < g->size && out->expected; i++) {
        int rank = g->first + i * g->stride;
        if (rank >= record->world_size) continue;
        const ls_flight_rank *r = &record->ranks[rank];
        bool behind = is_collective(out->expected) && last_number(r, group) < out->expected->sequence;
        out->odd[rank] = behind || r->presence != LS_FLIGHT_PRESENT || (noticed && r->late);
        any = any || out->odd[rank];
    }
    if (any) out->kind = LS_FLIGHT_MISSING;
}

/* --- the first difference ------------------------------------------------------------------------------------------- */

/* The next number of a collective of the group, above `above`; false: there is none. */
static bool find_next(const ls_flight_record *record, int group, uint64_t above, uint64_t *next) {
    bool any = false;
    for (int r = 0; r < record->world_size; r++) {
        for (int i = 0; i < record->ranks[r].count; i++) {
            const ls_flight_operation *o = &record->ranks[r].operations[i];
            if (o->group != group || !is_collective(o) || o->sequence <= above) continue;
            if (!any || o->sequence < *next) *next = o->sequence;
            any = true;
        }
    }
    return any;
}

ls_flight_difference ls_flight_find_difference(const ls_flight_record *record, int group) {
    ls_flight_difference out = {.kind = LS_FLIGHT_SAME, .group = group};
    uint64_t sequence = 0;
    while (find_next(record, group, sequence, &sequence))
        if (compare_number(record, group, sequence, &out)) return out;
    for (int r = 0; r < record->world_size; r++) {
        for (int i = 0; i < record->ranks[r].count; i++) {
            const ls_flight_operation *o = &record->ranks[r].operations[i];
            if (o->group == group && compare_message(record, r, o, &out)) return out;
        }
    }
    find_absent(record, group, &out);
    return out;
}

static int weight_of(const ls_flight_record *record, const ls_flight_difference *d) {
    if (d->kind == LS_FLIGHT_SAME) return 0;
    if (d->kind == LS_FLIGHT_DIFFERS) return 3;
    for (int r = 0; r < record->world_size; r++) {
        const ls_flight_rank *rank = &record->ranks[r];
        bool idle = rank->presence != LS_FLIGHT_PRESENT || !ls_flight_pending(record, r);
        if (d->odd[r] && (idle || ls_flight_is_stuck(record, r))) return 2;
    }
    return 1;
}

ls_flight_difference ls_flight_find_cause(const ls_flight_record *record) {
    ls_flight_difference cause = ls_flight_find_difference(record, record->group);
    for (int g = 0; g < record->group_count; g++) {
        ls_flight_difference other = ls_flight_find_difference(record, g);
        if (weight_of(record, &other) > weight_of(record, &cause)) cause = other;
    }
    return cause;
}
