/* divergence — a loss that is NaN or infinite ends the run at once, and the first such value is located.
 *   idea  : a NaN spreads: one step later it is in every weight, and its origin is lost. So the host checks each step's
 *           loss while all data of that step still exists: the batch, the parameters, each layer's output
 *   cost  : a copy of one float per step, from a compute stream that is idle by then (on CPU devices work runs while it
 *           is enqueued). With shuffled streams the loop does not check here, and sees the loss when it reads the ring
 *   order : between the loss and the backward pass, so that no gradient carries the NaN to the optimizer or another
 *           rank */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/seam/parallel.h"

enum { PLACE_CAPACITY = 128, REASON_CAPACITY = 320 };

ls_status ls_check_loss(ls_parallel *p) {
    if (!p->check_each_loss) return ls_device_status(p->loss_device);
    float loss = 0;
    ls_stream *stream = ls_device_stream(p->loss_device, LS_STREAM_COMPUTE);
    ls_status status = ls_copy_now(stream, &loss, ls_parallel_step_loss(p), sizeof loss);
    if (status != LS_OK || isfinite(loss)) return status;
    return ls_loss_diverged(p, p->step, (double)loss, true);
}

static ls_status find_nonfinite(ls_parallel *p, char *place, size_t capacity) {
    if (p->mode->find_nonfinite) return p->mode->find_nonfinite(p, place, capacity);
    ls_status status = ls_model_find_nonfinite(p->model, place, capacity);
    size_t length = strlen(place);
    if (p->process && length > 0) snprintf(place + length, capacity - length, " on rank %d", p->rank);
    return status;
}

ls_status ls_loss_diverged(ls_parallel *p, uint64_t step, double loss, bool search) {
    char place[PLACE_CAPACITY] = "", where[PLACE_CAPACITY + 64] = "", reason[REASON_CAPACITY];
    ls_status status = LS_OK;
    if (search) {
        status = find_nonfinite(p, place, sizeof place);
        snprintf(where, sizeof where, "; the first value that is not finite is in %s",
                 place[0] != '\0' ? place : "the loss itself");
    }
    if (status != LS_OK) return status;
    const char *value = isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf";
    snprintf(reason, sizeof reason, "step %llu (epoch %lld): the loss is %s%s; lower --lr, %slook at the data",
             (unsigned long long)step, (long long)p->epoch, value, where,
             ls_model_precision(p->model) == LS_FP16 ? "try --precision bf16, or " : "or ");
    if (p->process && !p->process->give_up(p, reason, &status)) return status;
    return ls_fail(LS_ERR_DIVERGED, "%s", reason);
}
