/* work — handles on operations that have been enqueued. A handle remembers which operation it is and asks the group
 * whether anything up to that one has failed: within a group operations run in order, so nothing later can matter. */
#include <stdlib.h>

#include "common/comm/comm_internal.h"

struct ls_work {
    ls_event *event;
    ls_comm *comm; /* NULL until recorded */
    uint64_t ordinal, sequence;
};

ls_status ls_work_create(ls_work **out, const char *name) {
    *out = NULL;
    ls_work *work = calloc(1, sizeof *work);
    if (!work) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a work handle");
    ls_status status = ls_event_create(&work->event, name);
    if (status != LS_OK) {
        free(work);
        return status;
    }
    *out = work;
    return LS_OK;
}

void ls_work_destroy(ls_work *work) {
    if (!work) return;
    ls_event_destroy(work->event);
    free(work);
}

void ls_work_record(ls_work *work, ls_comm *comm, ls_stream *stream) {
    work->comm = comm;
    work->ordinal = comm->ordinal;
    work->sequence = comm->last_sequence;
    ls_event_record(work->event, stream);
}

uint64_t ls_work_sequence(const ls_work *work) { return work->sequence; }

void ls_work_wait(ls_work *work, ls_stream *stream) { ls_stream_wait_event(stream, work->event); }

ls_status ls_work_synchronize(ls_work *work) {
    ls_status status = ls_event_synchronize(work->event);
    if (status != LS_OK || !work->comm) return status;
    uint64_t failed = atomic_load(&work->comm->failed_ordinal);
    if (failed == 0 || failed > work->ordinal) return LS_OK;
    return (ls_status)atomic_load(&work->comm->failure);
}
