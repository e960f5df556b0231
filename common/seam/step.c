/* step — calls the four calls of a step in their order: for every mode, and with or without a CUDA graph.
 *   idea  : a mode defines the calls; this file alone defines their order, so every caller runs the same step
 *   order : micro-batches run one after the other; their gradients are accumulated (micro_batch.c)
 *   fails : a call returns its own failure; enqueued work fails on a device, whose status is read after each call.
 *           After a failure nothing more is called */
#include "common/seam/step.h"

#include "common/comm/values.h"
#include "common/nn/tensor_parallel.h"
#include "common/seam/step_graph.h"

ls_status ls_parallel_run_micro_batch(ls_parallel *p) {
    ls_status status = ls_parallel_status(p, p->ops->forward_backward(p));
    if (status == LS_OK && ls_parallel_syncs(p)) status = ls_parallel_status(p, p->ops->reduce(p));
    return status;
}

ls_status ls_step_update(ls_parallel *p) { return ls_parallel_status(p, p->ops->apply(p)); }

/* Prepares each micro-batch and runs it. */
static ls_status each_micro_batch(ls_parallel *p, ls_micro_batch_fn next, void *context,
                                  ls_status (*run)(ls_parallel *p)) {
    ls_status status = LS_OK;
    for (int index = 0; status == LS_OK && index < p->micro_batches; index++) {
        ls_batch part = next(context, index);
        ls_parallel_next_place(p, index);
        p->ops->prepare(p, &part);
        status = ls_parallel_status(p, LS_OK);
        if (status == LS_OK) status = run(p);
        p->clocks->bytes[LS_PHASE_TENSOR] += ls_tensor_step_nbytes(p->model, part.count);
    }
    return status;
}

struct whole {
    const ls_parallel *parallel;
    const ls_batch *batch;
};

static ls_batch cut(void *context, int index) {
    const struct whole *whole = context;
    const ls_parallel *p = whole->parallel;
    return ls_micro_batch(whole->batch, index, p->micro_batches, ls_model_input_nbytes(p->model),
                          ls_network_answers(ls_model_network(p->model)));
}

ls_status ls_step_gradients_of(ls_parallel *p, ls_micro_batch_fn next, void *context) {
    return each_micro_batch(p, next, context, ls_parallel_run_micro_batch);
}

ls_status ls_step_gradients(ls_parallel *p, const ls_batch *batch) {
    return ls_step_gradients_of(p, cut, &(struct whole){p, batch});
}

/* The content of a graph: a micro-batch, and with the last one the update. */
static ls_status enqueue(ls_parallel *p) {
    ls_status status = ls_parallel_run_micro_batch(p);
    return status == LS_OK && ls_parallel_is_last(p) ? ls_step_update(p) : status;
}

static ls_status run_graph(ls_parallel *p) { return ls_step_graph_run(p, enqueue); }

ls_status ls_step(ls_parallel *p, const ls_batch *batch) {
    if (p->graph) return each_micro_batch(p, cut, &(struct whole){p, batch}, run_graph);
    ls_values_enter();
    ls_status status = ls_step_gradients(p, batch);
    if (status == LS_OK) status = ls_step_update(p);
    return ls_values_leave(p->devices[0], status);
}
