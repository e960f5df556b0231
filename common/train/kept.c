/* kept — undoes an incomplete step, and keeps the state after each complete one.
 *   idea  : a step changes weights, optimizer and scaler only in its update, after the last reduction; so a rank either
 *           has a step's update or has not. Before that, a forward changes only batch norm's running statistics and
 *           their counts: they are copied after each step, and restored from that copy
 *   cost  : a copy of the buffers a step, none without batch norm; the state in host memory once it is kept
 *   fails : usually out of memory, with the message of the failed call */
#define _GNU_SOURCE
#include "common/train/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/log.h"

void ls_kept_open(ls_kept *kept) { *kept = (ls_kept){.fd = -1}; }

/* The model's buffers, on the device; sets *count to the number of floats. */
static float *buffers_of(ls_model *model, size_t *count) {
    float *state, *parameters;
    size_t state_count, parameter_count;
    ls_model_state(model, &state, &state_count);
    ls_model_parameters(model, &parameters, &parameter_count);
    *count = state_count - parameter_count;
    return state + parameter_count;
}

static ls_status alloc(ls_kept *kept, size_t buffers, size_t batchnorms) {
    if (!kept->buffers) kept->buffers = malloc(buffers * sizeof *kept->buffers);
    if (!kept->tracked) kept->tracked = malloc((batchnorms + 1) * sizeof *kept->tracked);
    return kept->buffers && kept->tracked
               ? LS_OK
               : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to keep %zu buffers", buffers);
}

ls_status ls_kept_note(ls_kept *kept, ls_parallel *p) {
    if (kept) kept->by_itself = false;
    size_t count, batchnorms = ls_model_batchnorm_count(p->model);
    const float *buffers = kept ? buffers_of(p->model, &count) : NULL;
    if (!kept || count == 0) return LS_OK;
    ls_status status = alloc(kept, count, batchnorms);
    if (status != LS_OK) return status;
    for (size_t i = 0; i < batchnorms; i++) kept->tracked[i] = *ls_model_batches_tracked(p->model, i);
    ls_stream *compute = ls_device_stream(ls_model_device(p->model), LS_STREAM_COMPUTE);
    return ls_copy_now(compute, kept->buffers, buffers, count * sizeof *buffers);
}

ls_status ls_kept_ask(const ls_kept *kept) { return kept && kept->may_step ? kept->may_step(kept->context) : LS_OK; }

void ls_kept_end(ls_kept *kept, const struct ls_checkpointed *run, struct ls_position reached, bool begun) {
    kept->run = *run;
    kept->reached = begun ? reached : (struct ls_position){0};
}

static ls_status put_back(const ls_kept *kept, ls_model *model) {
    size_t count;
    float *buffers = buffers_of(model, &count);
    if (!kept->buffers || count == 0) return LS_OK;
    for (size_t i = 0; i < ls_model_batchnorm_count(model); i++) *ls_model_batches_tracked(model, i) = kept->tracked[i];
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    return ls_copy_now(compute, buffers, kept->buffers, count * sizeof *buffers);
}

ls_status ls_kept_save(ls_kept *kept) {
    if (kept->reached.step == 0) return LS_OK;
    if (kept->fd >= 0) close(kept->fd);
    kept->fd = memfd_create("lockstep", MFD_CLOEXEC);
    if (kept->fd < 0) return ls_fail(LS_ERR_SYSTEM, "cannot allocate memory to keep the state: %s", strerror(errno));
    kept->position = kept->reached;
    ls_status status = put_back(kept, kept->run.parallel->model);
    return status == LS_OK ? ls_checkpoint_keep(&kept->run, &kept->position, kept->fd) : status;
}

void ls_kept_close(ls_kept *kept) {
    if (kept->fd >= 0) close(kept->fd);
    free(kept->buffers);
    free(kept->tracked);
    *kept = (ls_kept){.fd = -1};
}
