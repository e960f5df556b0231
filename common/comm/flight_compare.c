/* flight_compare — finds the first difference between the ranks of a group in their flight records.
 *   idea  : operations of all ranks are numbered alike, so the first number under which two ranks have different
 *           operations is where they diverge: later differences follow from that. The majority is assumed to be right
 *   order : collectives before messages, and messages before missing ranks; numbers ascending; if the ranks are evenly
 *           divided, the lowest rank is right
 *   fails : a ring reaches 64 operations back. An older difference is not found, but its consequences are. Where the
 *           other rings no longer hold a rank's place, the difference is unknown, and is reported so */
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

/* Only a rank that waits sees that an operation of NCCL is done: if one rank has seen it, another rank does not hang
 * there. */
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

/* A rank that waits would have polled within half of its time in the operation, even on a busy machine. With NCCL,
 * ranks continue while a GPU waits. */
bool ls_flight_is_stuck(const ls_flight_record *record, int rank) {
    enum { SHORTEST_MS = 300 };
    const ls_flight_rank *r = &record->ranks[rank];
    const ls_flight_operation *in = ls_flight_pending(record, rank);
    if (!in || in->state == LS_FLIGHT_ENQUEUED || strcmp(record->backend, "nccl") == 0) return false;
    int64_t since_ms = ls_flight_since_ms(record, rank, in);
    int64_t alive_ms = r->looked_ms > since_ms ? r->looked_ms : since_ms, lasts_ms = record->taken_ms - since_ms;
    return lasts_ms > SHORTEST_MS && record->taken_ms - alive_ms > lasts_ms / 2;
}

/* Whether a rank's ring no longer holds its current operation in the group: it has wrapped, and its oldest operation
 * has not started. */
static bool has_lost_place(const ls_flight_record *record, int rank, int group) {
    const ls_flight_rank *r = &record->ranks[rank];
    int kept = 0, oldest = -1;
    for (int i = 0; i < r->count; i++)
        if (r->operations[i].group == group && kept++ == 0) oldest = i;
    return kept == LS_FLIGHT_KEPT && !is_over(record, r, oldest) && r->operations[oldest].state == LS_FLIGHT_ENQUEUED;
}

/* The operation of the group in which a rank waits: the oldest that is not over. NULL: there is none, or its ring does
 * not hold it. */
static const ls_flight_operation *find_waiting(const ls_flight_record *record, int rank, int group) {
    const ls_flight_rank *r = &record->ranks[rank];
    if (has_lost_place(record, rank, group)) return NULL;
    for (int i = 0; i < r->count; i++)
        if (r->operations[i].group == group && !is_over(record, r, i)) return &r->operations[i];
    return NULL;
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

/* Whether the collectives of one number differ. Ranks whose rings do not hold the number are neither expected nor odd.
 * If several differ from the expected one, the lowest rank's is reported, and all ranks with the same one are odd. */
static bool compare_number(const ls_flight_record *record, int group, uint64_t sequence, ls_flight_difference *out) {
    for (int r = 0; r < record->world_size; r++) {
        const ls_flight_operation *o = find_collective(&record->ranks[r], group, sequence);
        if (o && (!out->expected || count_like(record, o) > count_like(record, out->expected))) out->expected = o;
    }
    for (int r = 0; r < record->world_size; r++) {
        const ls_flight_operation *o = find_collective(&record->ranks[r], group, sequence);
        if (!o || ls_flight_is_same(o, out->expected)) continue;
        if (!out->found) out->found = o;
        out->odd[r] = ls_flight_is_same(o, out->found);
    }
    out->kind = out->found ? LS_FLIGHT_DIFFERS : LS_FLIGHT_SAME;
    return out->found;
}

/* --- messages ------------------------------------------------------------------------------------------------------- */

/* Messages are numbered 1, 2, ... in each direction of each pair of ranks, by both. The number of a rank's message; for
 * send_recv, of the message that it sends. */
static uint64_t own_number(const ls_flight_operation *o) {
    return o->kind == LS_OPERATION_RECV ? o->received : o->sequence;
}

/* The number of the peer's message `p` to or from the rank of `o`, in the direction of `o`; 0: it has the other
 * direction. */
static uint64_t number_at_peer(const ls_flight_operation *o, const ls_flight_operation *p) {
    if (o->kind == LS_OPERATION_RECV) return p->kind == LS_OPERATION_RECV ? 0 : p->sequence;
    return p->kind == LS_OPERATION_SEND ? 0 : p->received;
}

/* The other end of a message, in the peer's ring; NULL: not found. *reaches_back: if it had been called, it would be
 * found: the ring has not wrapped, or holds an earlier message. */
static const ls_flight_operation *find_other_end(const ls_flight_record *record, int rank, const ls_flight_operation *o,
                                                 bool *reaches_back) {
    const ls_flight_rank *peer = &record->ranks[o->root];
    int kept = 0;
    *reaches_back = false;
    for (int i = 0; i < peer->count; i++) {
        const ls_flight_operation *p = &peer->operations[i];
        kept += p->group == o->group;
        if (p->group != o->group || !ls_operation_is_message((int)p->kind) || p->root != rank) continue;
        uint64_t number = number_at_peer(o, p);
        if (number == own_number(o)) return p;
        *reaches_back = *reaches_back || (number > 0 && number < own_number(o));
    }
    *reaches_back = *reaches_back || kept < LS_FLIGHT_KEPT;
    return NULL;
}

static bool fits(const ls_flight_operation *a, const ls_flight_operation *b) {
    return a->count == b->count && a->dtype == b->dtype &&
           (a->kind == LS_OPERATION_SEND_RECV) == (b->kind == LS_OPERATION_SEND_RECV);
}

/* A message whose other end has a different count or type; or in which the rank waits, and which has no other end. */
static ls_flight_difference compare_message(const ls_flight_record *record, int rank, const ls_flight_operation *o) {
    ls_flight_difference out = {.kind = LS_FLIGHT_SAME, .group = o->group, .expected = o};
    if (!ls_operation_is_message((int)o->kind) || o->root < 0 || o->root >= record->world_size) return out;
    bool reaches_back;
    out.found = find_other_end(record, rank, o, &reaches_back);
    out.odd[o->root] = true;
    if (out.found && !fits(o, out.found)) out.kind = LS_FLIGHT_DIFFERS;
    if (!out.found && o == find_waiting(record, rank, o->group))
        out.kind = reaches_back ? LS_FLIGHT_UNMATCHED : LS_FLIGHT_UNKNOWN;
    return out;
}

/* --- missing ranks -------------------------------------------------------------------------------------------------- */

static bool is_member(const ls_flight_record *record, int group, int rank) {
    const ls_flight_group *g = &record->groups[group];
    int place = rank - g->first;
    return place >= 0 && place % g->stride == 0 && place / g->stride < g->size;
}

/* The number of the first and of the last collective of the group that a rank's ring holds; 0: it holds none. */
static uint64_t first_number(const ls_flight_rank *r, int group) {
    for (int i = 0; i < r->count; i++)
        if (r->operations[i].group == group && is_collective(&r->operations[i])) return r->operations[i].sequence;
    return 0;
}

static uint64_t last_number(const ls_flight_rank *r, int group) {
    for (int i = r->count - 1; i >= 0; i--)
        if (r->operations[i].group == group && is_collective(&r->operations[i])) return r->operations[i].sequence;
    return 0;
}

/* The number of the collective that a rank is in, waits to begin, or would call next. */
static uint64_t current_number(const ls_flight_record *record, int rank, int group) {
    const ls_flight_rank *r = &record->ranks[rank];
    for (int i = 0; i < r->count; i++)
        if (r->operations[i].group == group && is_collective(&r->operations[i]) && !is_over(record, r, i))
            return r->operations[i].sequence;
    return last_number(r, group) + 1;
}

/* The operation in which the rank that noticed the failure waits; NULL: it waits in another group, or its ring does not
 * hold it. */
static const ls_flight_operation *find_failed(const ls_flight_record *record, int group) {
    const ls_flight_operation *in = ls_flight_pending(record, record->taken_by);
    bool is_here = group == record->group && in && in->group == group;
    return is_here && !has_lost_place(record, record->taken_by, group) ? in : NULL;
}

/* Whether a rank has died or left, or is missing from the failed wait, if that was in this group. */
static bool is_lost(const ls_flight_record *record, int group, int rank) {
    const ls_flight_rank *r = &record->ranks[rank];
    return r->presence != LS_FLIGHT_PRESENT || (r->late && find_failed(record, group));
}

/* The newest collective in which any rank waits is expected. Members of the group that have not called it, or are lost,
 * are missing. */
static ls_flight_difference find_missing(const ls_flight_record *record, int group) {
    ls_flight_difference out = {.kind = LS_FLIGHT_SAME, .group = group};
    for (int r = 0; r < record->world_size; r++) {
        const ls_flight_operation *o = find_waiting(record, r, group);
        if (!o || !is_collective(o)) continue;
        if (!out.expected || o->sequence > out.expected->sequence) out.expected = o;
    }
    for (int r = 0; r < record->world_size && out.expected; r++) {
        bool called = last_number(&record->ranks[r], group) >= out.expected->sequence;
        out.odd[r] = is_member(record, group, r) && (is_lost(record, group, r) || !called);
        if (out.odd[r]) out.kind = LS_FLIGHT_MISSING;
    }
    return out;
}

/* Members that are lost to the message in which the noticing rank waits. */
static ls_flight_difference find_lost(const ls_flight_record *record, int group) {
    ls_flight_difference out = {.kind = LS_FLIGHT_SAME, .group = group, .expected = find_failed(record, group)};
    if (!out.expected || is_collective(out.expected)) return out;
    for (int r = 0; r < record->world_size; r++) {
        out.odd[r] = is_member(record, group, r) && is_lost(record, group, r);
        if (out.odd[r]) out.kind = LS_FLIGHT_MISSING;
    }
    return out;
}

/* Members of the group whose place is known, but older than all operations in another rank's ring: that rank's
 * operation of the same number is lost. */
static ls_flight_difference find_unknown(const ls_flight_record *record, int group) {
    ls_flight_difference out = {.kind = LS_FLIGHT_SAME, .group = group};
    for (int r = 0; r < record->world_size; r++) {
        if (!is_member(record, group, r) || has_lost_place(record, r, group)) continue;
        uint64_t number = current_number(record, r, group);
        for (int other = 0; other < record->world_size; other++)
            if (first_number(&record->ranks[other], group) > number) out.odd[r] = true;
        if (out.odd[r]) out.kind = LS_FLIGHT_UNKNOWN;
    }
    return out;
}

/* --- the first difference ------------------------------------------------------------------------------------------- */

/* How much a difference explains: most if it does not follow from another one. */
static int weight_of(const ls_flight_record *record, const ls_flight_difference *d) {
    enum { NOTHING, UNKNOWN, WAITS_ITSELF, WAITS_FOR_NOBODY, RUNS_ANOTHER };
    if (d->kind == LS_FLIGHT_SAME) return NOTHING;
    if (d->kind == LS_FLIGHT_UNKNOWN) return UNKNOWN;
    if (d->kind == LS_FLIGHT_DIFFERS) return RUNS_ANOTHER;
    for (int r = 0; r < record->world_size; r++) {
        const ls_flight_rank *rank = &record->ranks[r];
        bool idle = rank->presence != LS_FLIGHT_PRESENT || !ls_flight_pending(record, r);
        if (d->odd[r] && (idle || ls_flight_is_stuck(record, r))) return WAITS_FOR_NOBODY;
    }
    return WAITS_ITSELF;
}

static void take_weightier(const ls_flight_record *record, ls_flight_difference *out, ls_flight_difference other) {
    if (weight_of(record, &other) > weight_of(record, out)) *out = other;
}

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

static ls_flight_difference compare_messages(const ls_flight_record *record, int group) {
    ls_flight_difference out = {.kind = LS_FLIGHT_SAME, .group = group};
    for (int r = 0; r < record->world_size; r++) {
        for (int i = 0; i < record->ranks[r].count; i++) {
            const ls_flight_operation *o = &record->ranks[r].operations[i];
            if (o->group == group) take_weightier(record, &out, compare_message(record, r, o));
        }
    }
    return out;
}

ls_flight_difference ls_flight_find_difference(const ls_flight_record *record, int group) {
    for (uint64_t sequence = 0; find_next(record, group, sequence, &sequence);) {
        ls_flight_difference out = {.kind = LS_FLIGHT_SAME, .group = group};
        if (compare_number(record, group, sequence, &out)) return out;
    }
    ls_flight_difference out = compare_messages(record, group);
    if (out.kind == LS_FLIGHT_SAME || out.kind == LS_FLIGHT_UNKNOWN)
        take_weightier(record, &out, find_lost(record, group));
    if (out.kind == LS_FLIGHT_SAME || out.kind == LS_FLIGHT_UNKNOWN)
        take_weightier(record, &out, find_missing(record, group));
    return out.kind == LS_FLIGHT_SAME ? find_unknown(record, group) : out;
}

ls_flight_difference ls_flight_find_cause(const ls_flight_record *record) {
    ls_flight_difference cause = ls_flight_find_difference(record, record->group);
    for (int g = 0; g < record->group_count; g++) take_weightier(record, &cause, ls_flight_find_difference(record, g));
    return cause;
}
