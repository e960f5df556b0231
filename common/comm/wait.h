/* Waiting for other ranks, detecting a rank that is gone or runs a different operation, and breaking the group. Private
 * to common/comm. */
#ifndef LS_COMM_WAIT_H
#define LS_COMM_WAIT_H

#include "common/base/log.h"
#include "common/comm/segment.h"

#define LS_POLLED (-2)

#define LS_PATROL_US 5e4 /* interval at which a wait checks on the other ranks */

/* --- waiting (wait.c) --------------------------------------------------------------------------------------------- */

/* A wait's condition, and the ranks to check if it does not become true. */
typedef struct ls_wait {
    /* the one rank that raises `flag` to `value` (NULL: on which `poll` depends); -1: wait until all ranks arrive at the
     * channel's step; LS_POLLED: `poll` depends on all ranks that have not arrived at it */
    int peer;
    ls_flag *flag;
    uint32_t value;
    ls_channel_kind channel;
    const ls_announcement *what;
    /* (optional) Called repeatedly, first, until it returns true: drives another library's progress, which may be
     * needed even on ranks whose own wait is over */
    bool (*poll)(void *context);
    void *context;
} ls_wait;

/* Returns when the condition is true. LS_ERR_PEER, LS_ERR_TIMEOUT: reported, and the group is broken. */
ls_status ls_comm_wait(ls_comm *comm, const ls_wait *wait);

/* A barrier: returns once all ranks have arrived; their earlier writes are then visible. */
ls_status ls_comm_gate(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what);

/* The same in two calls. Between them the rank has begun the step but not arrived. `poll`: as in ls_wait, or NULL. */
void ls_comm_gate_open(ls_comm *comm, ls_channel_kind channel);
ls_status ls_comm_gate_close(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what,
                             bool (*poll)(void *context));

/* Steps between single ranks inside of one slice of an operation, numbered 1, 2, ... by the algorithm. A rank declares
 * step `step` done (numbers grow, with gaps allowed); another rank awaits that and then sees all earlier writes. At the
 * end of the slice every rank calls ls_comm_steps_end with the same number, which none of its steps exceeded; the
 * exchange's barrier separates slices. */
void ls_comm_step_done(ls_comm *comm, uint32_t step);
ls_status ls_comm_await_step(ls_comm *comm, int peer, uint32_t step, const ls_announcement *what);
void ls_comm_steps_end(ls_comm *comm, uint32_t steps);

/* The barrier that begins an operation: announces the operation and checks that all ranks announce the same. Afterwards
 * ls_comm_announced() returns a rank's announcement, and comm->channel[channel].meeting is the step's number. */
ls_status ls_comm_meet(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what);
const ls_announcement *ls_comm_announced(const ls_comm *comm, ls_channel_kind channel, int rank);

/* Enclose every access to other ranks' buffers, in a group of two or more. After a failure, leave returns once no other
 * rank can access this rank's buffers any more (a rank that enters later finds the group broken). No-ops if buffers are
 * staged. */
void ls_comm_enter(ls_comm *comm);
void ls_comm_leave(ls_comm *comm, ls_status status);

/* Whether any rank has broken the group. */
bool ls_comm_is_broken(const ls_comm *comm);

/* Breaks the group for all ranks and reports the reason: the formatted text, and the failed operation `what` (NULL:
 * none). If another rank has broken the group before, that rank's reason is reported instead. Returns the status of the
 * reported reason. */
ls_status ls_comm_break(ls_comm *comm, ls_status status, const ls_announcement *what, const char *format, ...)
    LS_PRINTF(4, 5);

/* The same for the thread that joins this rank's host to the others (mirror.h): nothing is reported here, and the ranks
 * report `reason` without naming a rank that broke the group. late[r]: rank r of the group is the cause. */
void ls_comm_break_for_mirror(ls_comm *comm, const char *reason, const bool *late);

/* LS_OK while the group is intact, else the reported failure; called before each operation. */
ls_status ls_comm_check(ls_comm *comm, const ls_announcement *what);

/* --- lost ranks (lost.c) ------------------------------------------------------------------------------------------ */

/* Opens a pidfd for every peer of this host that has joined. */
void ls_comm_watch_peers(ls_comm *comm);

/* Clears in `ranks` all but the ranks that died or, if none did, those that have left the group. Returns whether any
 * remain; *died: they have died. */
bool ls_comm_only_lost(const ls_comm *comm, bool *ranks, bool *died);

/* If the leader of another host's rank is silent, so that the rank's progress is unknown: that leader. Otherwise
 * `rank`. */
int ls_comm_find_silent(const ls_comm *comm, int rank);

/* --- comparing what ranks have enqueued (flight_ring.c) ---------------------------------------------------------------- */

/* Compares what the other ranks have enqueued with `what`, which this rank has enqueued. LS_ERR_INVALID (reported; the
 * group is broken): a rank has enqueued a different operation. Otherwise LS_OK, and missing[r] says whether rank r has
 * not enqueued it yet. Groups of two or more. */
ls_status ls_comm_compare_enqueued(ls_comm *comm, const ls_announcement *what, bool *missing);

/* The same for --debug-collectives: waits until all participants have enqueued it. Also compares labels, and detects
 * ranks that begin operations of two groups in different orders. */
ls_status ls_comm_compare_before(ls_comm *comm, const ls_announcement *what);

/* Whether a rank has enqueued an operation that this rank has not reached. Groups of two or more. */
bool ls_comm_is_awaited(const ls_comm *comm);

#endif
