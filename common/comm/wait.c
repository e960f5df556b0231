/* wait — meetings: steps of all ranks, steps between two, deadlines, and the report when a rank does not arrive.
 *   idea  : each rank writes its own arrival and polls the others', so an arrival takes one transfer of a cache line,
 *           and those of several ranks overlap. A rank that has polled for long sleeps; the last rank to arrive wakes
 *           the sleepers. A rank that has waited for longer than a patrol interval checks for the cause: has the group
 *           been broken? Has a missing rank left or died (its pidfd shows it; threads cannot die alone)? Is the
 *           deadline over? So lost ranks are noticed within an interval, at no cost to ranks that do not wait
 *   cost  : W - 1 cache lines read per rank and step. One counter for all would be one line, but written W times in turn
 *   order : a rank's writes before its arrival are visible to all that pass the step; those before a step inside an
 *           operation are visible to the ranks that awaited that. Arrivals are sequentially consistent: the last rank
 *           sees all other arrivals, and then any rank that began to sleep without having seen its own
 *   safe  : two arrivals per rank are enough. A rank that arrives at step s + 2 has passed s + 1, at which all arrived
 *           after they had passed s. An operation's announcement stays until a later meeting; by then all its ranks
 *           have arrived at a step that they reach only when they no longer read it: the operation's last gate, or the
 *           next meeting
 *   fails : the first rank that notices writes the reason into the segment, and all ranks report that one. The others
 *           find it on their patrol, or when they try to report a reason of their own. When a deadline is missed, the
 *           missing rank is blamed; if it is itself waiting for another rank, that one is. It may wait in another of
 *           the job's groups, and have begun later, as a stage after a bubble does: so a rank that waits for a waiting
 *           rank continues for up to half a deadline more, in which the other wait ends and names its missing rank.
 *           Where the kernel has no pidfds, a death shows as a missed deadline */
#define _GNU_SOURCE
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

#define LS_LONGER 0.5         /* more deadlines, for a rank that waits itself */
#define LS_JOIN_GRACE_US 5e5  /* rank 0 keeps the list of arrivals, so its verdict should be the first */
#define LS_POLL_NS 50000      /* sleep between two polls, after spinning and yielding */
#define LS_SETTLE_NS 200000   /* between two checks that all have noticed a failure */
#define LS_FRESH_NS 250000000 /* more than two heartbeats: the record's state of other hosts */
#define LS_REASON_LOOKS 5000  /* polls for the reason of the rank that broke the group */

/* The ranks missing from the wait at `what`, if it is on patrol. */
static void find_late(const ls_comm *comm, const ls_announcement *what, bool *late);

/* --- the broken group --------------------------------------------------------------------------------------------- */

static void remember(ls_comm *comm, ls_status status) {
    int intact = LS_OK;
    atomic_compare_exchange_strong(&comm->failure, &intact, (int)status);
}

/* False if another rank has broken the group before. Else *record, unless record is NULL, shows where all ranks
 * were. */
static bool tell_peers(ls_comm *comm, ls_status status, int rank, const char *reason, const bool *late,
                       ls_flight_record **record) {
    if (!comm->broken) return true;
    int32_t intact = LS_INTACT;
    if (!atomic_compare_exchange_strong(&comm->broken->state, &intact, LS_BREAKING)) {
        /* it may still be writing its reason; the count limits the wait for a rank that died there */
        for (int i = 0; i < LS_REASON_LOOKS && atomic_load(&comm->broken->state) == LS_BREAKING; i++)
            nanosleep(&(struct timespec){.tv_nsec = LS_SETTLE_NS}, NULL);
        return false;
    }
    comm->broken->status = (int32_t)status;
    comm->broken->rank = rank;
    snprintf(comm->broken->reason, sizeof comm->broken->reason, "%s", reason);
    if (record && rank >= 0 && comm->job->transport->over_hosts)
        nanosleep(&(struct timespec){.tv_nsec = LS_FRESH_NS}, NULL);
    if (record) *record = ls_flight_take(comm, status, reason, late);
    atomic_store(&comm->broken->state, LS_BROKEN);
    ls_mirror_kick(comm->job);
    return true;
}

/* Once this is true, the reason is written and final. A rank that died while it wrote one is noticed as dead. */
bool ls_comm_is_broken(const ls_comm *comm) { return comm->broken && atomic_load(&comm->broken->state) == LS_BROKEN; }

/* Another rank broke the group while this rank was at `what` (NULL: at no named operation), or before it. */
static ls_status report_broken(ls_comm *comm, const ls_announcement *what) {
    char text[LS_TEXT_CAPACITY];
    const char *at = what ? ls_announcement_text(comm, text, what, true) : "", *colon = what ? ": " : "";
    ls_status status = ls_comm_is_broken(comm) ? (ls_status)comm->broken->status : LS_ERR_PEER;
    remember(comm, status);
    if (atomic_exchange(&comm->has_reported, true)) return status; /* operations that were enqueued after the first */
    if (!ls_comm_is_broken(comm))
        return ls_fail(status, "%s%sa rank has broken the group without giving a reason", at, colon);
    if (comm->broken->rank < 0)
        return ls_fail(status, "%s%s%.*s", at, colon, LS_REASON_CAPACITY - 1, comm->broken->reason);
    return ls_fail(status, "%s%srank %d has given up: %.*s", at, colon, (int)comm->broken->rank, LS_REASON_CAPACITY - 1,
                   comm->broken->reason);
}

/* A rank that finds the same reason later has the same text. A different reason did not break the group: this rank may
 * have found a consequence. */
static bool is_known_reason(const ls_comm *comm, const char *reason) {
    return !ls_comm_is_broken(comm) || strncmp(comm->broken->reason, reason, LS_REASON_CAPACITY - 1) == 0;
}

ls_status ls_comm_break(ls_comm *comm, ls_status status, const ls_announcement *what, const char *format, ...) {
    char reason[LS_REASON_CAPACITY] = "";
    bool late[LS_COMM_MAX_RANKS];
    ls_flight_record *record = NULL;
    int used = 0;
    va_list arguments;
    if (what) {
        char text[LS_TEXT_CAPACITY];
        used = snprintf(reason, sizeof reason, "%s: ", ls_announcement_text(comm, text, what, true));
    }
    va_start(arguments, format);
    if (used < (int)sizeof reason) vsnprintf(reason + used, sizeof reason - (size_t)used, format, arguments);
    va_end(arguments);
    find_late(comm, what, late);
    if (!tell_peers(comm, status, ls_job_rank(comm, comm->rank), reason, late, &record) &&
        !is_known_reason(comm, reason))
        return report_broken(comm, what);
    remember(comm, status);
    atomic_store(&comm->has_reported, true);
    ls_report_error("%s", reason);
    ls_flight_tell(comm, record);
    return status;
}

bool ls_comm_abort(ls_comm *comm, const char *reason) {
    bool first =
        tell_peers(comm, LS_ERR_PEER, ls_job_rank(comm, comm->rank), reason ? reason : "no reason given", NULL, NULL);
    remember(comm, LS_ERR_PEER);
    return first;
}

void ls_comm_break_for_mirror(ls_comm *comm, const char *reason, const bool *late) {
    ls_flight_record *record = NULL;
    (void)tell_peers(comm, LS_ERR_PEER, -1, reason, late, &record);
    ls_flight_tell(comm, record);
}

/* --- access to other ranks' buffers ------------------------------------------------------------------------------- */

static bool somebody_inside(const ls_comm *comm) {
    if (atomic_load(&comm->broken->state) == LS_BREAKING) return true; /* not yet visible to ranks that enter */
    for (int r = 0; r < comm->world_size; r++)
        if (atomic_load(&comm->segment->slot[r].inside)) return true;
    return false;
}

/* Both sides write their flag first (here: inside; a rank that gives up: broken) and then read the other's,
 * sequentially consistent, so that one of them sees the other. */
void ls_comm_enter(ls_comm *comm) {
    if (comm->transport->shares_buffers) atomic_store(&comm->segment->slot[comm->rank].inside, 1);
}

/* The others find the group broken at their next wait, or within a patrol interval if they wait already; a rank that
 * copies or adds completes. So this wait is short without a deadline, and a deadline would let a rank read memory that
 * is being freed. */
void ls_comm_leave(ls_comm *comm, ls_status status) {
    if (!comm->transport->shares_buffers) return;
    atomic_store(&comm->segment->slot[comm->rank].inside, 0);
    if (status == LS_OK) return;
    while (somebody_inside(comm)) nanosleep(&(struct timespec){.tv_nsec = LS_SETTLE_NS}, NULL);
}

ls_status ls_comm_check(ls_comm *comm, const ls_announcement *what) {
    ls_status failure = (ls_status)atomic_load_explicit(&comm->failure, memory_order_relaxed);
    if (failure == LS_OK && !ls_comm_is_broken(comm)) return LS_OK;
    if (comm->broken) return report_broken(comm, what);
    char text[LS_TEXT_CAPACITY];
    return ls_fail(failure, "%s: the group has been aborted", ls_announcement_text(comm, text, what, true));
}

/* --- who is missing ----------------------------------------------------------------------------------------------- */

/* Whether a rank has arrived at this rank's step. No rank is further than that without this rank. */
static bool has_arrived(const ls_comm *comm, ls_channel_kind channel, int rank) {
    uint64_t step = comm->channel[channel].step;
    return atomic_load(&ls_segment_arrival(comm, channel, rank, step)->step) == step;
}

/* Marks the ranks that the wait still lacks; returns their number. */
static int find_missing(const ls_comm *comm, const ls_wait *wait, bool *missing) {
    int count = 0;
    for (int r = 0; r < comm->world_size; r++) {
        missing[r] = wait->peer >= 0 ? r == wait->peer : r != comm->rank && !has_arrived(comm, wait->channel, r);
        count += missing[r];
    }
    return count;
}

/* The rank that blocks `rank`: follows the ranks that wait for one another's steps to one that does not wait. */
static int find_culprit(const ls_comm *comm, int rank) {
    for (int hop = 0; hop < comm->world_size; hop++) { /* bounded, in case of a cycle */
        ls_rank_slot *slot = &comm->segment->slot[rank];
        int next = atomic_load(&slot->awaits) - 1;
        if (next < 0 || ls_flag_reached(&comm->segment->slot[next].progress, atomic_load(&slot->awaited_value))) break;
        rank = next;
    }
    return rank;
}

/* Whether a rank waits for others, in any group. A stopped rank has not polled for long. */
static bool is_waiting(const ls_comm *comm, int rank) {
    return ls_flight_looked_ms(comm, rank) > ls_coarse_now_ms() - (int64_t)(LS_LONGER * comm->timeout_s * 1e3);
}

/* A wait for a carrier's progress does not show which rank is late: ranks that wait themselves are not blamed, unless
 * all do. */
static void spare_waiting(const ls_comm *comm, bool *missing) {
    bool rest[LS_COMM_MAX_RANKS], any = false;
    for (int r = 0; r < comm->world_size; r++) {
        rest[r] = missing[r] && !is_waiting(comm, r);
        any = any || rest[r];
    }
    if (any) memcpy(missing, rest, (size_t)comm->world_size * sizeof *missing);
}

static void find_culprits(const ls_comm *comm, bool *missing) {
    bool culprit[LS_COMM_MAX_RANKS] = {false};
    if (comm->carrier) spare_waiting(comm, missing);
    for (int r = 0; r < comm->world_size; r++)
        if (missing[r]) culprit[ls_comm_find_silent(comm, find_culprit(comm, r))] = true;
    memcpy(missing, culprit, sizeof culprit);
}

static bool lacks_a_waiting_rank(const ls_comm *comm, const ls_wait *wait) {
    bool missing[LS_COMM_MAX_RANKS];
    (void)find_missing(comm, wait, missing);
    for (int r = 0; r < comm->world_size; r++)
        if (missing[r] && is_waiting(comm, r)) return true;
    return false;
}

static void find_late(const ls_comm *comm, const ls_announcement *what, bool *late) {
    bool host_call = what && what->kind > LS_OPERATION_BARRIER;
    const ls_wait *wait = what ? comm->channel[host_call ? LS_CHANNEL_HOST : LS_CHANNEL_STREAM].patrol : NULL;
    memset(late, 0, LS_COMM_MAX_RANKS * sizeof *late);
    if (!wait || find_missing(comm, wait, late) == 0) return;
    find_culprits(comm, late);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* The state of a wait. */
struct lookout {
    const ls_comm *comm;
    const ls_wait *wait;
    int first; /* the ranks before this one have arrived */
};

static bool is_there(void *context) {
    struct lookout *lookout = context;
    const ls_wait *wait = lookout->wait;
    if (wait->poll && !wait->poll(wait->context)) return false;
    if (wait->peer == LS_POLLED || (wait->peer >= 0 && !wait->flag)) return true;
    if (wait->peer >= 0) return ls_flag_reached(wait->flag, wait->value);
    int world_size = lookout->comm->world_size;
    while (lookout->first < world_size && has_arrived(lookout->comm, wait->channel, lookout->first)) lookout->first++;
    return lookout->first == world_size;
}

/* Polls with the same pauses as ls_flag_await; there is no futex to sleep on. */
static bool poll_for(struct lookout *lookout, ls_patience patience, double limit_us) {
    for (double begin_us = ls_now_us();;) {
        if (is_there(lookout)) return true;
        double waited_us = ls_now_us() - begin_us;
        if (waited_us >= limit_us) return false;
        if (waited_us < patience.spin_us) continue;
        if (waited_us < patience.spin_us + patience.yield_us)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = LS_POLL_NS}, NULL);
    }
}

/* Checks why the wait has not ended. LS_OK: wait on. Otherwise the group is broken and the reason is reported: another
 * rank's, if it has broken the group before; LS_ERR_PEER and the lost ranks, if a missing rank will never arrive;
 * LS_ERR_TIMEOUT and the late ranks, if `until_us` has passed. Ranks that have arrived in the meantime are not
 * blamed. */
static ls_status patrol(ls_comm *comm, const ls_wait *wait, double until_us) {
    char ranks[LS_RANKS_TEXT_CAPACITY];
    bool missing[LS_COMM_MAX_RANKS], died;
    if (ls_comm_is_broken(comm)) return report_broken(comm, wait->what);
    /* None: all have come, but the last one was stopped or killed before it rang the bell. */
    if (find_missing(comm, wait, missing) == 0) return LS_OK;
    /* A rank may have done its part and left since we looked: only what is still not there accuses it. */
    struct lookout lookout = {.comm = comm, .wait = wait};
    if (ls_comm_only_lost(comm, missing, &died) && !is_there(&lookout)) {
        /* A rank that left after a failure has reported it before, though perhaps after this function began. */
        if (ls_comm_is_broken(comm)) return report_broken(comm, wait->what);
        return ls_comm_break(comm, LS_ERR_PEER, wait->what, "%s %s", ls_comm_ranks_text(ranks, missing, comm),
                             died ? "died" : "left the group without taking part");
    }
    if (ls_now_us() < until_us) return LS_OK;
    if (is_there(&lookout) || find_missing(comm, wait, missing) == 0) return LS_OK;
    find_culprits(comm, missing);
    return ls_comm_break(comm, LS_ERR_TIMEOUT, wait->what, "%s did not arrive within %g s",
                         ls_comm_ranks_text(ranks, missing, comm), comm->timeout_s);
}

ls_status ls_comm_wait(ls_comm *comm, const ls_wait *wait) {
    struct lookout lookout = {.comm = comm, .wait = wait};
    ls_flag *flag = wait->peer >= 0 ? wait->flag : &comm->segment->channel[wait->channel].bell;
    ls_patience patience = comm->patience;
    double left_us = comm->timeout_s * 1e6 + (wait->what->kind == LS_OPERATION_JOIN ? LS_JOIN_GRACE_US : 0);
    double until_us = 0; /* known once the first interval has passed, since most waits end before they need the clock */
    double longest_us = 0;
    for (;;) {
        double interval_us = left_us < LS_PATROL_US ? left_us : LS_PATROL_US;
        if (wait->poll ? poll_for(&lookout, patience, interval_us)
                       : ls_flag_await(flag, is_there, &lookout, patience, interval_us))
            return LS_OK;
        double now_us = ls_now_us();
        if (until_us <= 0) {
            until_us = now_us - interval_us + left_us;
            longest_us = until_us + LS_LONGER * comm->timeout_s * 1e6;
        }
        ls_flight_look(comm);
        comm->channel[wait->channel].patrol = wait;
        if (now_us >= until_us && now_us < longest_us && lacks_a_waiting_rank(comm, wait))
            until_us = now_us + LS_PATROL_US;
        ls_status status = patrol(comm, wait, until_us);
        comm->channel[wait->channel].patrol = NULL;
        if (status == LS_OK && wait->poll && now_us >= until_us && !is_there(&lookout)) /* though all have arrived */
            status = ls_comm_break(comm, LS_ERR_TIMEOUT, wait->what, "rank %d got no data within %g s",
                                   ls_job_rank(comm, comm->rank), comm->timeout_s);
        if (status != LS_OK) return status;
        left_us = until_us - ls_now_us();
        patience = (ls_patience){0};
    }
}

void ls_comm_gate_open(ls_comm *comm, ls_channel_kind channel) { comm->channel[channel].step++; }

ls_status ls_comm_gate_close(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what,
                             bool (*poll)(void *context)) {
    uint64_t step = comm->channel[channel].step;
    atomic_store(&ls_segment_arrival(comm, channel, comm->rank, step)->step, step);
    ls_mirror_kick(comm);
    const ls_wait wait = {.peer = -1, .channel = channel, .what = what, .poll = poll};
    if (!is_there(&(struct lookout){.comm = comm, .wait = &wait})) return ls_comm_wait(comm, &wait);
    ls_flag_ring(&comm->segment->channel[channel].bell);
    return LS_OK;
}

ls_status ls_comm_gate(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what) {
    ls_comm_gate_open(comm, channel);
    return ls_comm_gate_close(comm, channel, what, NULL);
}

/* --- steps inside an operation ------------------------------------------------------------------------------------ */

void ls_comm_step_done(ls_comm *comm, uint32_t step) {
    ls_flag_set(&comm->segment->slot[comm->rank].progress, comm->progress_base + step);
}

ls_status ls_comm_await_step(ls_comm *comm, int peer, uint32_t step, const ls_announcement *what) {
    ls_rank_slot *mine = &comm->segment->slot[comm->rank];
    ls_wait wait = {
        .flag = &comm->segment->slot[peer].progress, .value = comm->progress_base + step, .peer = peer, .what = what};
    if (ls_flag_reached(wait.flag, wait.value)) return LS_OK;
    atomic_store(&mine->awaited_value, wait.value);
    atomic_store(&mine->awaits, peer + 1);
    ls_status status = ls_comm_wait(comm, &wait);
    atomic_store(&mine->awaits, 0);
    return status;
}

void ls_comm_steps_end(ls_comm *comm, uint32_t steps) {
    ls_comm_step_done(comm, steps);
    comm->progress_base += steps;
}

/* --- meetings ----------------------------------------------------------------------------------------------------- */

static bool same_operation(const ls_announcement *a, const ls_announcement *b) {
    return a->sequence == b->sequence && a->count == b->count && a->kind == b->kind && a->dtype == b->dtype &&
           a->op == b->op && a->root == b->root;
}

const ls_announcement *ls_comm_announced(const ls_comm *comm, ls_channel_kind channel, int rank) {
    return &ls_segment_arrival(comm, channel, rank, comm->channel[channel].meeting)->announced;
}

ls_status ls_comm_meet(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what) {
    uint64_t meeting = comm->channel[channel].meeting = comm->channel[channel].step + 1;
    bool is_host_call = channel == LS_CHANNEL_HOST && what->kind != LS_OPERATION_JOIN;
    ls_flight_mark host_call = is_host_call ? ls_flight_enqueue(comm, what) : (ls_flight_mark){0};
    ls_segment_arrival(comm, channel, comm->rank, meeting)->announced = *what;
    ls_flight_start(host_call, what);
    ls_status status = ls_comm_gate(comm, channel, what);
    if (status != LS_OK) return status;
    ls_flight_end(host_call, what);
    const ls_announcement *first = ls_comm_announced(comm, channel, 0);
    for (int r = 1; r < comm->world_size; r++) {
        const ls_announcement *other = ls_comm_announced(comm, channel, r);
        if (same_operation(first, other)) continue;
        char text[LS_TEXT_CAPACITY], first_text[LS_TEXT_CAPACITY];
        return ls_comm_break(comm, LS_ERR_INVALID, NULL,
                             "the ranks are out of step: rank %d runs %s, but rank %d runs %s; all must enqueue the "
                             "same operations in the same order",
                             ls_job_rank(comm, r), ls_announcement_text(comm, text, other, true), comm->first,
                             ls_announcement_text(comm, first_text, first, true));
    }
    return LS_OK;
}
