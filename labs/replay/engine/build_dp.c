/* build_dp — dp_threads/dp_step.c, written down instead of run: the same phases, calls and waits in the same order.
 *   idea  : the thread of device 0 calls; two rounds a step (dp_parallel_apply) hand the other replicas their part
 *           and wait for all of them. A hand-over is an edge from the caller's last task to the thread's first, and
 *           back
 *   ways  : parameters and gradients as one flat copy each per replica, or (replicate_by_collectives, PyTorch over
 *           NCCL) as a broadcast and a reduce of all of them
 *   first : in the first step no update and no use of a batch lies behind */
#include "labs/replay/engine/build_internal.h"

#include <stdlib.h>

#include "common/base/log.h"

/* What the events of dp_step.c stand for. */
struct dp {
    ls_builder *b;
    bool together; /* parameters and gradients travel by collectives */
    double rows[LS_NODE_MAX_DEVICES];
    int gathered[LS_NODE_MAX_DEVICES], gradients_sent[LS_NODE_MAX_DEVICES], backward_done[LS_NODE_MAX_DEVICES];
    int batch_copied, loss_taken, updated;
    int used[2];          /* of each place for a batch: the last that reads it */
    uint32_t collectives; /* so far, of one replica */
};

/* --- one replica's part ------------------------------------------------------------------------------------------ */

static void scatter_inputs(struct dp *dp, int i) {
    ls_builder *b = dp->b;
    struct ls_build_device *device = &b->devices[i];
    b->phase = "scatter";
    if (i == 0) {
        ls_build_wait(b, device, LS_LANE_COMPUTE, dp->batch_copied);
        return;
    }
    ls_build_wait(b, device, LS_LANE_COPY, dp->batch_copied);
    (void)ls_build_copy(b, device, "inputs", dp->rows[i] * b->workload->input_bytes, 0, i);
    if (!b->options->replicate_by_collectives)
        return; /* the parameters follow on the same stream, and are waited for */
    int arrived = ls_build_record(b, device, LS_LANE_COPY);
    ls_build_wait(b, device, LS_LANE_COMPUTE, arrived);
}

/* Part of a collective operation of all replicas on the comm stream. */
static void meet(struct dp *dp, int i, ls_collective what, const char *name) {
    ls_builder *b = dp->b;
    int launched = ls_build_launch(b, &b->devices[i], name, b->host->collective_us);
    struct ls_task task = ls_build_collective(b, what, name, dp->collectives, b->parameter_bytes);
    (void)ls_build_task(b, &b->devices[i], LS_LANE_COMM, launched, &task);
}

static void replicate(struct dp *dp, int i) {
    ls_builder *b = dp->b;
    struct ls_build_device *device = &b->devices[i];
    b->phase = "replicate";
    if (dp->together) {
        if (i == 0) ls_build_wait(b, device, LS_LANE_COMM, dp->updated);
        meet(dp, i, LS_COLLECTIVE_BROADCAST, "broadcast");
    }
    if (i == 0) return;
    if (!dp->together) {
        ls_build_wait(b, device, LS_LANE_COPY, dp->updated);
        (void)ls_build_copy(b, device, "parameters", b->parameter_bytes, 0, i);
    }
    int arrived = ls_build_record(b, device, dp->together ? LS_LANE_COMM : LS_LANE_COPY);
    ls_build_wait(b, device, LS_LANE_COMPUTE, arrived);
}

static void forward_replica(struct dp *dp, int i) {
    ls_builder *b = dp->b;
    struct ls_build_device *device = &b->devices[i];
    scatter_inputs(dp, i);
    replicate(dp, i);
    b->phase = "forward";
    (void)ls_build_works(b, device, dp->rows[i]);
    b->phase = "gather";
    int outputs_ready = ls_build_record(b, device, LS_LANE_COMPUTE);
    ls_build_wait(b, device, LS_LANE_COPY, outputs_ready);
    (void)ls_build_copy(b, device, "outputs", dp->rows[i] * b->workload->output_bytes, i, 0);
    dp->gathered[i] = ls_build_record(b, device, LS_LANE_COPY);
}

static void send_gradients(struct dp *dp, int i) {
    ls_builder *b = dp->b;
    struct ls_build_device *device = &b->devices[i];
    b->phase = "reduce";
    if (dp->together) {
        ls_build_wait(b, device, LS_LANE_COMM, dp->backward_done[i]);
        meet(dp, i, LS_COLLECTIVE_REDUCE, "reduce");
    } else if (i > 0) {
        (void)ls_build_copy(b, device, "gradients", b->parameter_bytes, i,
                            0); /* its stream waits for backward already */
    } else {
        return;
    }
    dp->gradients_sent[i] = ls_build_record(b, device, dp->together ? LS_LANE_COMM : LS_LANE_COPY);
}

/* Behind each operation, on the first device: which gradients are ready. */
static void backward(struct dp *dp, int i) {
    ls_builder *b = dp->b;
    b->phase = "backward";
    for (int w = 0; w < b->workload->work_count; w++) {
        ls_build_backward_work(b, &b->devices[i], &b->workload->work[w], dp->rows[i]);
    }
}

static void backward_replica(struct dp *dp, int i) {
    ls_builder *b = dp->b;
    struct ls_build_device *device = &b->devices[i];
    b->phase = "scatter";
    ls_build_wait(b, device, i == 0 ? LS_LANE_COMPUTE : LS_LANE_COPY, dp->loss_taken);
    if (i > 0) {
        (void)ls_build_copy(b, device, "output gradients", dp->rows[i] * b->workload->output_bytes, 0, i);
        int arrived = ls_build_record(b, device, LS_LANE_COPY);
        ls_build_wait(b, device, LS_LANE_COMPUTE, arrived);
    }
    backward(dp, i);
    dp->backward_done[i] = ls_build_record(b, device, LS_LANE_COMPUTE);
    if (i > 0) ls_build_wait(b, device, LS_LANE_COPY, dp->backward_done[i]);
    send_gradients(dp, i);
}

/* --- the calling thread ------------------------------------------------------------------------------------------ */

/* dp_parallel_apply: the flag goes up for replicas 1, 2, ...; the caller does its own part, then waits for theirs. */
static void parallel_apply(struct dp *dp, void (*task)(struct dp *dp, int i)) {
    ls_builder *b = dp->b;
    struct ls_build_device *caller = &b->devices[0];
    b->phase = "other";
    if (b->active > 1) (void)ls_build_host(b, caller, "raise", 0, false);
    int raised = caller->last[LS_LANE_HOST];
    for (int i = 1; i < b->active; i++) {
        b->phase = "other";
        ls_build_await(&b->devices[i], LS_LANE_HOST, raised);
        ls_build_hand_over(b, &b->devices[i], "hand-over");
    }
    /* the threads' parts, one after the other here and at the same time there */
    for (int i = 0; i < b->active; i++) task(dp, i);
    b->phase = "other";
    if (b->active == 1) return;
    /* a thread that runs its device's work comes back behind the last of it */
    for (int i = 0; i < b->active; i++) (void)ls_build_host(b, &b->devices[i], "return", 0, false);
    for (int i = 1; i < b->active; i++) ls_build_await(caller, LS_LANE_HOST, b->devices[i].last[LS_LANE_HOST]);
    ls_build_hand_over(b, caller, "join");
}

static void loss_on_device_0(struct dp *dp) {
    ls_builder *b = dp->b;
    struct ls_build_device *device = &b->devices[0];
    double batch = 0;
    b->phase = "loss";
    for (int i = 0; i < b->active; i++) {
        ls_build_wait(b, device, LS_LANE_COMPUTE, dp->gathered[i]);
        batch += dp->rows[i];
    }
    (void)ls_build_works(b, device, batch);
    dp->loss_taken = ls_build_record(b, device, LS_LANE_COMPUTE);
    ls_build_check_loss(b, device);
}

static void reduce(struct dp *dp) {
    ls_builder *b = dp->b;
    struct ls_build_device *device = &b->devices[0];
    b->phase = "reduce";
    for (int i = dp->together ? 0 : 1; i < (dp->together ? 1 : b->active); i++) {
        ls_build_wait(b, device, LS_LANE_COMPUTE, dp->gradients_sent[i]);
    }
    if (dp->together || b->active == 1) return;
    double floats = b->parameter_bytes / sizeof(float), sources = b->active - 1;
    (void)ls_build_kernel(b, device, LS_LANE_COMPUTE, "reduce_add", sources * floats,
                          (sources + 2) * b->parameter_bytes);
}

static void step(struct dp *dp) {
    ls_builder *b = dp->b;
    struct ls_build_device *device = &b->devices[0];
    int *used = &dp->used[b->step % b->places];
    double batch = 0;
    for (int i = 0; i < b->active; i++) batch += dp->rows[i];
    ls_build_begin_step(b, device);
    b->phase = "input";
    dp->batch_copied = ls_build_upload(b, device, batch, batch, *used);
    device->owed_us += b->host->event_us; /* its record */

    parallel_apply(dp, forward_replica);
    loss_on_device_0(dp);
    dp->collectives++;
    parallel_apply(dp, backward_replica);
    *used = ls_build_record(b, device, LS_LANE_COMPUTE);
    dp->collectives++;
    reduce(dp);

    b->phase = "optimizer";
    /* the replicas have copied the parameters that are to be written */
    bool copied = b->active > 1 && !dp->together;
    b->reclaim_us = copied ? ls_cost_reclaim_us(b->node, b->parameter_bytes) : 0;
    (void)ls_build_works(b, device, batch);
    dp->updated = ls_build_record(b, device, LS_LANE_COMPUTE);
    ls_build_end_step(b, device, dp->batch_copied);
}

ls_status ls_build_dp(ls_builder *b) {
    struct dp dp = {.b = b, .updated = LS_NONE, .used = {LS_NONE, LS_NONE}};
    dp.together = b->options->replicate_by_collectives && b->active > 1;
    for (int i = 0; i < b->active; i++) dp.rows[i] = ls_build_rows(b->options, i);
    for (b->step = 0; b->step < b->options->steps; b->step++) step(&dp);
    return LS_OK;
}
