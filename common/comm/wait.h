/* How ranks wait for each other, how they notice that a rank is gone or runs another operation, and how they break the
 * group. Private to common/comm. */
#ifndef LS_COMM_WAIT_H
#define LS_COMM_WAIT_H

#include "common/base/log.h"
#include "common/comm/segment.h"

#define LS_POLLED (-2)

#define LS_PATROL_US 5e4 /* how often a wait asks why */

/* --- waiting (wait.c) --------------------------------------------------------------------------------------------- */

/* What is waited for, and which ranks to look at if it does not come. */
typedef struct ls_wait {
    int peer; /* the one rank that raises `flag` to `value` (NULL: that `poll` depends on); -1: all are to come to the
               * channel's step; LS_POLLED: `poll` depends on all that have not come to it */
    ls_flag *flag;
    uint32_t value;
    ls_channel_kind channel;
    const ls_announcement *what;
    /* (optional) Asked before, again and again, until it is true: another engine's progress, which may need to be asked
     * for by ranks that have what they wait for */
    bool (*poll)(void *context);
    void *context;
} ls_wait;

/* Returns when it is there. LS_ERR_PEER, LS_ERR_TIMEOUT: reported, and the group is broken. */
ls_status ls_comm_wait(ls_comm *comm, const ls_wait *wait);

/* One step of all ranks: returns once each has arrived; what they wrote before is then visible. */
ls_status ls_comm_gate(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what);

/* The same in two halves, between which the rank works towards the step: it has begun it, but not arrived. `poll`: as
 * ls_wait's, or NULL. */
void ls_comm_gate_open(ls_comm *comm, ls_channel_kind channel);
ls_status ls_comm_gate_close(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what,
                             bool (*poll)(void *context));

/* Steps between single ranks inside of one slice of an operation, numbered 1, 2, ... by the algorithm. A rank says
 * that it has done step `step` (numbers may be left out, but only grow); another awaits that, and then sees what was
 * written before. At the end of the slice every rank calls ls_comm_steps_end with the same number, which none of its
 * steps exceeded; the exchange's gate keeps the slices apart. */
void ls_comm_step_done(ls_comm *comm, uint32_t step);
ls_status ls_comm_await_step(ls_comm *comm, int peer, uint32_t step, const ls_announcement *what);
void ls_comm_steps_end(ls_comm *comm, uint32_t steps);

/* The step that begins an operation: announces it and checks that all ranks announce the same. Afterwards
 * ls_comm_announced() is what a rank announced, and comm->channel[channel].meeting the step's number. */
ls_status ls_comm_meet(ls_comm *comm, ls_channel_kind channel, const ls_announcement *what);
const ls_announcement *ls_comm_announced(const ls_comm *comm, ls_channel_kind channel, int rank);

/* Around everything that touches other ranks' buffers, in a group of two or more. leave returns, after a failure,
 * once no other rank can touch this rank's any more (a rank that enters later finds the group broken). Nothing to do
 * where buffers are staged. */
void ls_comm_enter(ls_comm *comm);
void ls_comm_leave(ls_comm *comm, ls_status status);

/* Whether any rank has broken the group. */
bool ls_comm_is_broken(const ls_comm *comm);

/* Breaks the group for all ranks and reports why: the format's text, and the operation `what` at which it happened
 * (NULL: none). If another rank has broken the group before, that rank's reason is reported instead. Returns the status
 * of the reported reason. */
ls_status ls_comm_break(ls_comm *comm, ls_status status, const ls_announcement *what, const char *format, ...)
    LS_PRINTF(4, 5);

/* The same for the thread that joins this rank's host to the others (mirror.h): nothing is reported, and the ranks say
 * `reason` as nobody's. late[r]: the group's rank r is the cause. */
void ls_comm_break_for_mirror(ls_comm *comm, const char *reason, const bool *late);

/* LS_OK while the group is whole, else the reported failure; asked before each operation. */
ls_status ls_comm_check(ls_comm *comm, const ls_announcement *what);

/* --- who is lost (lost.c) ------------------------------------------------------------------------------------------- */

/* Opens a pidfd for every peer of this host that has joined. */
void ls_comm_watch_peers(ls_comm *comm);

/* Keeps in `ranks` only those that died or, if none did, those that have left the group. Returns whether any remain, so
 * that after false none is marked any more; *died: whether these have died. */
bool ls_comm_only_lost(const ls_comm *comm, bool *ranks, bool *died);

/* The leader through which a rank of another host is heard of, if nothing comes through it, since then it is not known how
 * far the rank is; otherwise `rank`. */
int ls_comm_find_silent(const ls_comm *comm, int rank);

/* --- comparing what ranks have enqueued (flight_ring.c) ---------------------------------------------------------------- */

/* Compares what the other ranks have enqueued with `what`, which this rank has enqueued. LS_ERR_INVALID (reported; the
 * group is broken): a rank has enqueued another operation. Otherwise LS_OK, and missing[r] says whether rank r has not
 * enqueued it yet. Groups of two or more. */
ls_status ls_comm_compare_enqueued(ls_comm *comm, const ls_announcement *what, bool *missing);

/* The same for --debug-collectives: waits until all that take part have enqueued it. Labels are compared, too, and ranks
 * are found that begin operations of two groups in different orders. */
ls_status ls_comm_compare_before(ls_comm *comm, const ls_announcement *what);

/* Whether a rank has enqueued an operation that this one has not come to. Groups of two or more. */
bool ls_comm_is_awaited(const ls_comm *comm);

#endif
