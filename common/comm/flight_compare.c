/* flight_compare — the first difference between the ranks of a group, from their flight records.
 *   idea  : operations of all ranks are numbered alike, so the first number under which two ranks have different
 *           operations is where their ways part: what differs later follows from that. The majority is taken to be right
 *   order : collectives before messages, and those before who is missing; numbers ascending; of as many ranks on either side the
 *           lowest rank is right
 *   fails : a ring reaches 64 operations back. An older difference is not found, but what follows from it is. Where the
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

/* Whether a rank's ring no longer holds where it is in the group: it has wrapped, and the oldest that it holds has not started. */
static bool has_lost_place(const ls_flight_record *record, int rank, int group) {
    const ls_flight_rank *r = &record->ranks[rank];
    int kept = 0, oldest = -1;
    for (int i = 0; i < r->count; i++)
        if (r->operations[i].group == group && kept++ == 0) oldest = i;
    return kept == LS_FLIGHT_KEPT && !is_over(record, r, oldest) && r->operations[oldest].state == LS_FLIGHT_ENQUEUED;
}

/* The operation of the group that a rank waits in: the oldest that is not over. NULL: there is none, or its ring does not hold it. */
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

/* The collectives of one number: whether they differ. Ranks whose rings do not hold the number are neither expected nor odd. Of several
 * that differ from what is expected, the lowest rank's is found, and all ranks that have the like are odd. */
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

/* Messages are numbered 1, 2, ... in each direction of each pair of ranks, by both. The number that a rank's message has, of send_recv
 * what it sends. */
static uint64_t own_number(const ls_flight_operation *o) {
    return o->kind == LS_OPERATION_RECV ? o->received : o->sequence;
}

/* The number that the peer's message `p` with the rank of `o` has in the direction of `o`; 0: it goes the other way. */
static uint64_t number_at_peer(const ls_flight_operation *o, const ls_flight_operation *p) {
    if (o->kind == LS_OPERATION_RECV) return p->kind == LS_OPERATION_RECV ? 0 : p->sequence;
    return p->kind == LS_OPERATION_SEND ? 0 : p->received;
}

/* The other end of a message, in the peer's ring; NULL: it is not there. *reaches_back: it would be there, if it had been called: the
 * ring has not wrapped, or holds an earlier one. */
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

/* A message whose other end has another count or type; or that the rank waits in, and that has none. */
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

/* --- who is missing ------------------------------------------------------------------------------------------------- */

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

/* The number of the collective that a rank is in or before, or would call next. */
static uint64_t current_number(const ls_flight_record *record, int rank, int group) {
    const ls_flight_rank *r = &record->ranks[rank];
    for (int i = 0; i < r->count; i++)
        if (r->operations[i].group == group && is_collective(&r->operations[i]) && !is_over(record, r, i))
            return r->operations[i].sequence;
    return last_number(r, group) + 1;
}

/* What the rank that noticed waits in; NULL: it waits in another group, or its ring does not hold it. */
static const ls_flight_operation *find_failed(const ls_flight_record *record, int group) {
    const ls_flight_operation *in = ls_flight_pending(record, record->taken_by);
    bool is_here = group == record->group && in && in->group == group;
    return is_here && !has_lost_place(record, record->taken_by, group) ? in : NULL;
}

/* Whether a rank has died or left, or the wait that failed was in this group and lacks it. */
static bool is_lost(const ls_flight_record *record, int group, int rank) {
    const ls_flight_rank *r = &record->ranks[rank];
    return r->presence != LS_FLIGHT_PRESENT || (r->late && find_failed(record, group));
}

/* The newest collective that a rank waits in is expected. Members of the group that have not called it, or are lost, are missing. */
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

/* Members that are lost to the message that the rank waits in that noticed. */
static ls_flight_difference find_lost(const ls_flight_record *record, int group) {
    ls_flight_difference out = {.kind = LS_FLIGHT_SAME, .group = group, .expected = find_failed(record, group)};
    if (!out.expected || is_collective(out.expected)) return out;
    for (int r = 0; r < record->world_size; r++) {
        out.odd[r] = is_member(record, group, r) && is_lost(record, group, r);
        if (out.odd[r]) out.kind = LS_FLIGHT_MISSING;
    }
    return out;
}

/* Members of the group whose place is known, but older than all that another rank's ring still holds: what that rank called under
 * the same number is lost. */
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

/* How much a difference explains: most, if it does not follow from another one. */
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
