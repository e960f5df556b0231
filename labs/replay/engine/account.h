/* account — figures of a timeline: step times, and where the time of each device went. */
#ifndef LABS_REPLAY_ENGINE_ACCOUNT_H
#define LABS_REPLAY_ENGINE_ACCOUNT_H

#include "labs/replay/engine/engine.h"

/* One device's time per step, over the steps that count. compute + exposed + host + idle = the step. Each moment
 * belongs to the first of these that is true: a kernel of the device runs (compute); a copy or a collective of it is in
 * progress (exposed communication); its host thread runs (host); none of these (idle).
 *
 * A copy belongs to the devices at both of its ends. A collective is in progress once its last rank has arrived; the
 * wait for that rank is idle time, unless another task runs.
 *
 * phase_us is the same time by the phase of that kernel, copy, collective or host work. Of several phases at the same
 * moment, the one that comes first in the account's list counts. */
enum { LS_ACCOUNT_PHASES = 32 };

struct ls_device_account {
    int device;
    double compute_us, exposed_us, host_us, idle_us;
    double communication_us;            /* in copies and collectives, hidden or not */
    double phase_us[LS_ACCOUNT_PHASES]; /* with idle_us they add up to the step */
    double lock_us;                     /* waits of its host thread for the process's lock */
    double sent_bytes, received_bytes;  /* by copies to and from others; a collective that is one task counts none */
};

struct ls_account {
    int steps;      /* that count: all but the first, or the only one; all tasks, if none has a step */
    double step_us; /* their mean, from the end of one step's last task to that of the next */
    double median_step_us;
    int phase_count;
    const char
        *phases[LS_ACCOUNT_PHASES]; /* the trace's texts, in order of the lanes; beyond the list's end all are "further
                                              phases" */
    int device_count;
    struct ls_device_account *devices;
    double overlap;                         /* the share of communication during which the same device computes; 0..1 */
    double communication_share, busy_share; /* of the step, mean over devices: communication_us and compute_us */
    int link_count;
    double *link_use; /* bytes of these steps / those that the link could carry meanwhile; the busier direction */
};

/* Devices are all that have a lane, by number; steps are numbered without gaps. `node`, for the use of links, may be
 * NULL. Tasks whose times are NAN are skipped; LS_ERR_INVALID: there are no others, or fewer tasks than steps.
 * LS_ERR_NO_MEMORY. On failure *out is NULL. */
ls_status ls_account_make(struct ls_account **out, const ls_trace *trace, const ls_timeline *timeline,
                          const ls_node *node);
void ls_account_free(struct ls_account *account); /* NULL is a no-op */

/* The same from recorded times, for comparison: LS_ERR_INVALID if the trace has none. lock_us and link_use are unknown:
 * 0, and no links. */
ls_status ls_account_recorded(struct ls_account **out, const ls_trace *trace);

#endif
