/* pipeline — one rank's step of a network that is cut into stages.
 *
 *     stage 0     F0 F1 F2          B0 F3    B1       B2       B3        F, B: forward, backward of a micro-batch
 *     stage 1        F0 F1    B0 F2    B1 F3    B2       B3              1F1B, 3 stages, 4 micro-batches
 *     stage 2           F0 B0 F1 B1 F2 B2 F3 B3
 *
 *   idea  : a stage's forward takes the activations that the previous stage sends, and its backward the gradient of its
 *           own output. Their order is a list (schedule.h). Each call of the driver runs the instructions whose
 *           micro-batches have arrived: a forward needs its own; all backwards have run at the end of the last
 *           micro-batch's call
 *   places: each micro-batch in flight has a frame, a buffer for its input and a place for its samples: M of them
 *           (GPipe), or P - stage (1F1B). All other memory exists once
 *   order : gradients are summed in the order of the micro-batches, as on one device: weights and losses have the bits
 *           of accumulation there. Batch norm uses each micro-batch's statistics, and updates its running ones once for
 *           each, as on one device
 *   tie   : if two stages have a parameter (an embedding that is also the head), the later stage sends its gradient to
 *           the owner before the owner's last backward, which adds to it; the owner updates, and sends the values back.
 *           With one micro-batch that is the order on one device; with more, parts of the sum are added in a different
 *           order
 *   streams: messages are on the comm stream, in the order of the list. Each waits for the passes enqueued before it,
 *           the next pass waits for the received data. A send may wait for its receiver without delaying the compute
 *           stream
 *   rows  : micro-batches may be uneven. All messages have the rows of the first, the largest, since a stage sends
 *           before it knows how many rows it will receive
 *   cost  : each stage is idle for (P - 1) / (M + P - 1) of the time; 2 (P - 1) messages a micro-batch, of the size of
 *           a block's output. With several replicas one all-reduce of the stage's gradients, which does not overlap
 *           with computation; with ZeRO-1 a reduce-scatter of gradients and an all-gather of the new values, in equal
 *           slices of the stage's range
 *   fails : if a stage misses its deadline, its neighbour's error names it, as in every operation. A loss that is not
 *           finite ends the run on the last stage, before its backward; only that stage is searched for the cause */
#include "common/base/log.h"
#include "common/comm/values.h"
#include "common/nn/tensor_parallel.h"
#include "ddp_procs/pipeline_internal.h"
#include "kernels/kernels.h"

/* --- messages -------------------------------------------------------------------------------------------------------- */

/* Enqueues a message. `send` or `receive` may be NULL. */
static void exchange(struct pipeline *s, const void *send, void *receive, size_t count, ls_dtype dtype, int peer) {
    struct ddp *ddp = &s->ddp;
    ls_phase_enter(ddp->base.clocks, LS_PHASE_STAGES);
    ls_event_record(s->passed, ddp->compute);
    ls_stream_wait_event(ddp->comm_stream, s->passed);
    ls_device_fail(device_of(s), send && receive
                                     ? ls_comm_send_recv(s->axis, ddp->comm_stream, send, receive, count, dtype, peer)
                                 : send ? ls_comm_send(s->axis, ddp->comm_stream, send, count, dtype, peer)
                                        : ls_comm_recv(s->axis, ddp->comm_stream, receive, count, dtype, peer));
    if (send) ddp->base.clocks->bytes[LS_PHASE_STAGES] += count * ls_dtype_nbytes(dtype);
    if (!receive) return;
    ls_event_record(s->received, ddp->comm_stream);
    ls_stream_wait_event(ddp->compute, s->received);
}

/* The buffer into which an instruction receives. */
static void *room_for(const struct pipeline *s, const struct ddp_instruction *x) {
    return x->backward ? s->dy : s->slots[x->slot].input;
}

/* Elements of a message: of this stage's output to or from the next stage, of its input to or from the previous one. */
static size_t elements(const struct pipeline *s, int peer) {
    return s->rows * (peer > s->stage->number ? s->output_count : s->input_count);
}

/* Before a backward of the owner, whose layers only add to the gradient. */
static void begin_tied(struct pipeline *s) {
    const ls_parallel *p = &s->ddp.base;
    bool last = ls_parallel_syncs(p);
    float *gradient = tied_gradient(s), *sum = p->accumulates ? s->tied_sum : gradient;
    if (!p->accumulates && !last) ls_fill(s->ddp.compute, gradient, 0, tied_count(s));
    if (last) exchange(s, NULL, sum, tied_count(s), LS_FP32, s->stage->tie.reader);
    if (last && p->accumulates)
        ls_reduce_add(s->ddp.compute, gradient, (const float *const *)&s->tied_sum, 1, tied_count(s));
}

/* --- passes ---------------------------------------------------------------------------------------------------------- */

static const struct ls_hooks no_hooks; /* the model's hooks are for evaluations */

static void forward(struct pipeline *s, struct slot *slot) {
    ls_parallel *p = &s->ddp.base;
    ls_phase_enter(p->clocks, LS_PHASE_FORWARD);
    slot->batch = p->batch;
    ls_parallel_await_batch(p, s->ddp.compute);
    const void *x = slot->input ? slot->input : p->batch->inputs;
    slot->y = ls_frame_forward(slot->frame, ls_model_tensors(p->model), &no_hooks, x, p->batch->count, LS_TRAINING);
}

/* Returns the gradient of the stage's input. */
static ls_status backward(struct pipeline *s, struct slot *slot, const void **dx) {
    ls_parallel *p = &s->ddp.base;
    p->batch = slot->batch;
    if (ddp_stage_is_last(s->stage)) {
        ls_phase_enter(p->clocks, LS_PHASE_LOSS);
        ls_parallel_take_loss(p, s->ddp.compute, s->ddp.dy, slot->y, s->ddp.gradient_weight);
        ls_status status = ls_check_loss(p);
        if (status != LS_OK) return status;
    }
    if (is_owner(s)) begin_tied(s);
    ls_phase_enter(p->clocks, LS_PHASE_BACKWARD);
    *dx = ls_frame_backward(slot->frame, ls_model_tensors(p->model), &no_hooks, s->dy ? s->dy : s->ddp.dy,
                            p->accumulates);
    ls_parallel_end_backward(p, s->ddp.compute);
    p->clocks->bytes[LS_PHASE_TENSOR] += ls_tensor_blocks_nbytes(p->model, s->stage->blocks, p->batch->count);
    return LS_OK;
}

/* Receives, runs, sends. */
static ls_status run(struct pipeline *s, const struct ddp_instruction *x, bool has_received) {
    struct slot *slot = &s->slots[x->slot];
    const void *result = NULL;
    ls_status status = LS_OK;
    ls_dtype dtype = ls_model_precision(s->ddp.base.model);
    const char *label = x->backward ? "gradient of micro-batch" : "output of micro-batch";
    if (x->from >= 0 && !has_received) {
        ls_comm_label(s->axis, label, x->micro_batch);
        exchange(s, NULL, room_for(s, x), elements(s, x->from), dtype, x->from);
    }
    if (x->backward) {
        s->ddp.base.accumulates = x->accumulates;
        status = backward(s, slot, &result);
    } else {
        forward(s, slot);
    }
    status = ls_parallel_status(&s->ddp.base, status);
    if (status != LS_OK || x->to < 0) return status;
    ls_comm_label(s->axis, label, x->micro_batch);
    exchange(s, x->backward ? result : slot->y, x->exchanges ? room_for(s, x + 1) : NULL, elements(s, x->to), dtype,
             x->to);
    return LS_OK;
}

/* --- the step -------------------------------------------------------------------------------------------------------- */

void ddp_pipeline_prepare(ls_parallel *p, const ls_batch *batch) {
    const ddp_stage *stage = pipeline_of(p)->stage;
    ls_batch needed = *batch;
    if (!ddp_stage_is_first(stage) && !ddp_stage_is_last(stage)) needed.inputs = NULL; /* counts only */
    ls_parallel_upload(p, ddp_of(p)->copy, &needed);
}

ls_status ddp_pipeline_forward_backward(ls_parallel *p) {
    struct pipeline *s = pipeline_of(p);
    struct ls_device_batch *newest = p->batch;
    ls_status status = LS_OK;
    if (p->micro_batches != s->micro_batches)
        return ls_fail(LS_ERR_INVALID, "a pipeline planned for %d micro-batches cannot run a step of %d",
                       s->micro_batches, p->micro_batches);
    if (newest->index == 0) {
        s->at = 0;
        s->rows = newest->count;
    }
    for (; status == LS_OK && s->at < s->list_count; s->at++) {
        const struct ddp_instruction *x = &s->list[s->at];
        if (!x->backward && x->micro_batch > newest->index) break;
        status = run(s, x, s->at > 0 && x[-1].exchanges);
    }
    p->batch = newest;
    return status;
}

/* Sums the gradients over the replicas, all or this one's slice, or gathers all slices of the values. Counted in
 * `phase`. */
static void meet_replicas(struct pipeline *s, ls_phase phase, float *all) {
    struct ddp *ddp = &s->ddp;
    ls_parallel *p = &ddp->base;
    size_t floats = s->stage->floats, slice = ddp_stage_slice(s->stage, p->data_size);
    float *own = all + slice * (size_t)p->data_rank;
    ls_phase_enter(p->clocks, phase);
    ls_comm_label(ddp->comm, phase == LS_PHASE_GATHER ? "parameters of the stage" : "gradients of the stage", -1);
    ls_event_record(s->passed, ddp->compute);
    ls_stream_wait_event(ddp->comm_stream, s->passed);
    ls_device_fail(device_of(s),
                   phase == LS_PHASE_ALL_REDUCE
                       ? ls_comm_all_reduce(ddp->comm, ddp->comm_stream, all, floats, LS_FP32, LS_REDUCE_SUM)
                   : phase == LS_PHASE_REDUCE
                       ? ls_comm_reduce_scatter(ddp->comm, ddp->comm_stream, all, own, slice, LS_FP32, LS_REDUCE_SUM)
                       : ls_comm_all_gather(ddp->comm, ddp->comm_stream, own, all, slice, LS_FP32));
    p->clocks->bytes[phase] += floats * sizeof(float);
    ls_event_record(s->received, ddp->comm_stream);
    ls_stream_wait_event(ddp->compute, s->received);
}

/* The stage with a copy sends its part of the gradient to the owner. */
ls_status ddp_pipeline_reduce(ls_parallel *p) {
    struct pipeline *s = pipeline_of(p);
    if (is_reader(s)) exchange(s, tied_gradient(s), NULL, tied_count(s), LS_FP32, s->stage->tie.owner);
    if (p->data_size == 1) return LS_OK;
    ls_divide(s->ddp.compute, s->stage->gradients, (float)p->data_size, s->stage->floats);
    meet_replicas(s, s->sharded ? LS_PHASE_REDUCE : LS_PHASE_ALL_REDUCE, s->stage->gradients);
    return LS_OK;
}

/* The copy of a tied parameter gets the owner's new values. */
static void renew_copy(struct pipeline *s) {
    float *values = s->stage->parts[s->stage->tie.parameter].values;
    if (is_owner(s)) exchange(s, values, NULL, tied_count(s), LS_FP32, s->stage->tie.reader);
    if (is_reader(s)) exchange(s, NULL, values, tied_count(s), LS_FP32, s->stage->tie.owner);
    struct ls_labels *labels = ls_values_on() && s->stage->tie.is_there ? ls_values_named("%s", tied_name(s)) : NULL;
    if (labels) labels->on[LS_MESH_PIPELINE] = LS_REPLICATED;
}

ls_status ddp_pipeline_apply(ls_parallel *p) {
    struct pipeline *s = pipeline_of(p);
    ls_phase_enter(p->clocks, LS_PHASE_OPTIMIZER);
    ls_status status = ls_parallel_update(p, ls_model_untaken(p->model));
    if (status == LS_OK && s->sharded && p->data_size > 1) meet_replicas(s, LS_PHASE_GATHER, s->stage->values);
    if (status == LS_OK) renew_copy(s);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}
