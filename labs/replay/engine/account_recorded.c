/* account_recorded — the account of the recorded times, converted to a timeline like replay's.
 *   host    : the record of a wait begins when the thread reaches it; only the wait's own time, at its end, is the
 *             thread's work
 *   meeting : the record of a collective operation begins when its rank arrives; it is in progress once the last
 *             recorded rank has arrived
 *   locks   : the records do not contain waits for locks: lock_us is 0 */
#include <math.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "labs/replay/engine/account.h"

static bool is_known(const struct ls_task *task) { return isfinite(task->start_us) && isfinite(task->end_us); }

/* Finds when the last task of each meeting arrived. */
static void find_meetings(double *meeting_us, const ls_trace *trace) {
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->kind == LS_TASK_COLLECTIVE) /* fmax ignores NAN */
            meeting_us[task->meeting] = fmax(meeting_us[task->meeting], task->start_us);
    }
}

static double begin_of(const ls_trace *trace, int index, const double *meeting_us) {
    const struct ls_task *task = ls_trace_task(trace, index);
    int waits_for;
    (void)ls_trace_before(trace, index, &waits_for);
    if (task->kind == LS_TASK_HOST && task->us >= 0 && waits_for > 0)
        return fmax(task->start_us, task->end_us - task->us);
    if (task->kind != LS_TASK_COLLECTIVE) return task->start_us;
    return meeting_us[task->meeting];
}

static ls_status make(struct ls_account **out, const ls_trace *trace, double *start_us, double *end_us,
                      double *meeting_us) {
    int count = ls_trace_task_count(trace);
    for (int i = 0; i < ls_trace_meeting_count(trace); i++) meeting_us[i] = -INFINITY;
    find_meetings(meeting_us, trace);
    for (int i = 0; i < count; i++) {
        start_us[i] = begin_of(trace, i, meeting_us);
        end_us[i] = is_known(ls_trace_task(trace, i)) ? ls_trace_task(trace, i)->end_us : NAN;
    }
    const ls_timeline recorded = {.task_count = count, .ready_us = start_us, .start_us = start_us, .end_us = end_us};
    return ls_account_make(out, trace, &recorded, NULL);
}

ls_status ls_account_recorded(struct ls_account **out, const ls_trace *trace) {
    *out = NULL;
    size_t tasks = (size_t)ls_trace_task_count(trace) + 1, meetings = (size_t)ls_trace_meeting_count(trace) + 1;
    double *start_us = calloc(tasks, sizeof *start_us), *end_us = calloc(tasks, sizeof *end_us);
    double *meeting_us = calloc(meetings, sizeof *meeting_us);
    ls_status status;
    if (start_us && end_us && meeting_us)
        status = make(out, trace, start_us, end_us, meeting_us);
    else
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for an account of %zu tasks", tasks - 1);
    free(start_us);
    free(end_us);
    free(meeting_us);
    return status;
}
