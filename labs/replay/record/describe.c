#include "labs/replay/record/describe.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static ls_described_part part_of(const char *phase) {
    static const char *const phases[] = {[LS_DESCRIBED_FORWARD] = "forward",
                                         [LS_DESCRIBED_LOSS] = "loss",
                                         [LS_DESCRIBED_BACKWARD] = "backward",
                                         [LS_DESCRIBED_UPDATE] = "optimizer"};
    int part = LS_DESCRIBED_FORWARD;
    while (part < LS_DESCRIBED_UPDATE && strcmp(phases[part], phase) != 0) part++;
    return (ls_described_part)part;
}

/* Of a sample: the workload's are of its own element type. Samples that travel as fp32 are cast. */
static double activation_bytes(const ls_workload *w, ls_dtype precision) {
    bool casts = precision != LS_FP32 && w->element_bytes == sizeof(float);
    double element_bytes = (double)ls_dtype_nbytes(precision);
    return (w->activation_bytes + w->exchange_bytes) * element_bytes / w->element_bytes +
           (casts ? w->input_bytes / 2 : 0);
}

ls_status record_describe(struct ls_described *d, const ls_workload *w, const struct ls_plan *o) {
    struct ls_described_op *ops = calloc((size_t)w->work_count + 1, sizeof *ops);
    *d = (struct ls_described){.precision = o->precision,
                               .activation_nbytes = ls_workload_whole(activation_bytes(w, o->precision)),
                               .input_nbytes = ls_workload_whole(w->input_bytes),
                               .answer_nbytes = ls_workload_whole(w->answer_bytes),
                               .outputs = ls_workload_whole(w->output_bytes / sizeof(float)),
                               .parameter_names = w->parameter_names,
                               .parameter_counts = w->parameter_counts,
                               .parameter_count = (size_t)w->parameter_count,
                               .buffer_count = ls_workload_whole(w->buffer_bytes / sizeof(float)),
                               .ops = ops,
                               .op_count = (size_t)w->work_count,
                               .ready = w->ready,
                               .hooks = o->mode == LS_PLAN_DDP && o->tensor_us > 0};
    if (!ops) return ls_fail(LS_ERR_NO_MEMORY, "no memory to describe %s", w->name);
    for (int i = 0; i < w->work_count; i++) {
        const struct ls_work *work = &w->work[i];
        ops[i] = (struct ls_described_op){.name = work->name,
                                          .part = part_of(work->phase),
                                          .flops = ls_workload_whole(work->flops),
                                          .bytes = ls_workload_whole(work->bytes),
                                          .first_ready = work->first_ready,
                                          .ready_count = work->ready_count,
                                          .channels = work->channels};
    }
    return LS_OK;
}

void record_describe_free(struct ls_described *d) {
    free((void *)d->ops);
    d->ops = NULL;
}
