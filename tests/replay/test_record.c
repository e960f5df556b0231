#define _GNU_SOURCE
/* Replay records the real step: a wait that a mode forgets is detected, and a mode unknown to the simulator can be
 * replayed. */
#include <stdlib.h>
#include <string.h>

#include "labs/replay/record/record.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/accounts.h"
#include "tests/replay/planned.h"

enum { RANKS = 8, BATCH = 256 };

static double step_on_us(const char *name, record_create_fn create, const struct ls_plan *options) {
    ls_node *node;
    ls_workload *workload;
    ls_trace *trace;
    assert_int_equal(ls_node_open(&node, name), LS_OK);
    assert_int_equal(ls_workload_open(&workload, "resnet50"), LS_OK);
    ls_status status = create ? record_steps_of(&trace, create, workload, node, options)
                              : record_steps(&trace, workload, node, options);
    assert_int_equal(status, LS_OK);
    double us = account_step_us(trace, node);
    ls_workload_close(workload);
    ls_node_close(node);
    return us;
}

static double step_us(record_create_fn create, const struct ls_plan *options) {
    return step_on_us("dgx1-v100", create, options);
}

/* --- a mode of its own -------------------------------------------------------------------------------------------- */

/* DistributedDataParallel with one reduce-scatter and one all-gather after backward, in place of all-reduces. */
struct toy {
    ls_parallel base; /* first: ops receive a pointer to it */
    ls_comm *comm;
    ls_stream *compute, *comm_stream;
    float *gradients, *dy;
    size_t count;
    ls_event *backward_done, *summed;
};

static struct toy *toy_of(ls_parallel *p) { return (struct toy *)p; }

static void toy_prepare(ls_parallel *p, const ls_batch *batch) {
    ls_parallel_upload(p, ls_device_stream(p->devices[0], LS_STREAM_COPY), batch);
}

static ls_status toy_forward_backward(ls_parallel *p) {
    struct toy *t = toy_of(p);
    ls_phase_enter(p->clocks, LS_PHASE_FORWARD);
    ls_parallel_await_batch(p, t->compute);
    const float *y = ls_model_forward(p->model, p->batch->inputs, p->batch->count, true);
    ls_phase_enter(p->clocks, LS_PHASE_LOSS);
    ls_parallel_take_loss(p, t->compute, t->dy, y, p->world_size);
    ls_phase_enter(p->clocks, LS_PHASE_BACKWARD);
    ls_model_backward(p->model, t->dy, p->accumulates);
    ls_parallel_end_backward(p, t->compute);
    return LS_OK;
}

static ls_status toy_reduce(ls_parallel *p) {
    struct toy *t = toy_of(p);
    size_t part = t->count / (size_t)p->world_size;
    float *own = t->gradients + part * (size_t)p->rank;
    ls_phase_enter(p->clocks, LS_PHASE_ALL_REDUCE);
    ls_event_record(t->backward_done, t->compute);
    ls_stream_wait_event(t->comm_stream, t->backward_done);
    ls_device_fail(p->devices[0],
                   ls_comm_reduce_scatter(t->comm, t->comm_stream, t->gradients, own, part, LS_FP32, LS_REDUCE_SUM));
    ls_device_fail(p->devices[0], ls_comm_all_gather(t->comm, t->comm_stream, own, t->gradients, part, LS_FP32));
    ls_event_record(t->summed, t->comm_stream);
    ls_stream_wait_event(t->compute, t->summed);
    return ls_device_status(p->devices[0]);
}

static ls_status toy_apply(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_OPTIMIZER);
    return ls_parallel_update(p, NULL);
}

static void toy_destroy(ls_parallel *p) {
    struct toy *t = toy_of(p);
    ls_optimizer_destroy(p->optimizer);
    ls_event_destroy(t->backward_done);
    ls_event_destroy(t->summed);
    ls_parallel_release(p);
    free(t);
}

static const struct ls_parallel_ops toy_ops = {.prepare = toy_prepare,
                                               .forward_backward = toy_forward_backward,
                                               .reduce = toy_reduce,
                                               .apply = toy_apply,
                                               .destroy = toy_destroy};
static const struct ls_mode toy_mode = {.name = "a toy", .option = "toy", .step = &toy_ops};

static ls_status create_toy(ls_parallel **out, const struct record_scene *s) {
    struct toy *t = calloc(1, sizeof *t);
    assert_non_null(t);
    ls_parallel *p = *out = &t->base;
    ls_parallel_set_mode(p, &toy_mode);
    p->model = s->model;
    p->devices[0] = p->loss_device = s->devices[0];
    p->world_size = p->device_count = ls_comm_world_size(s->comm);
    p->local_device_count = 1;
    ls_probe_name_thread("rank 0");
    t->comm = s->comm;
    t->compute = ls_device_stream(s->devices[0], LS_STREAM_COMPUTE);
    t->comm_stream = ls_device_stream(s->devices[0], LS_STREAM_COMM);
    assert_int_equal(ls_parallel_init(p), LS_OK);
    assert_int_equal(ls_parallel_alloc_places(p, 1), LS_OK);
    assert_int_equal(ls_model_alloc_gradients(s->model), LS_OK);
    ls_model_gradients(s->model, &t->gradients, &t->count);
    assert_int_equal(ls_optimizer_create(&p->optimizer, s->model, &s->optimizer), LS_OK);
    assert_int_equal(ls_event_create(&t->backward_done, "backward done"), LS_OK);
    return ls_event_create(&t->summed, "gradients summed");
}

/* The time of an all-reduce of all of resnet50's gradients on a node. */
static double all_reduce_us(const char *node_name) {
    ls_node *node;
    ls_workload *workload;
    double floats = 0;
    assert_int_equal(ls_node_open(&node, node_name), LS_OK);
    assert_int_equal(ls_workload_open(&workload, "resnet50"), LS_OK);
    for (int p = 0; p < workload->parameter_count; p++)
        floats += ls_plan_aligned((double)workload->parameter_counts[p]);
    double us = ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, RANKS, floats * sizeof(float));
    assert_true(us > 100);
    ls_workload_close(workload);
    ls_node_close(node);
    return us;
}

/* Backward, then half an all-reduce twice: a device's own step plus one all-reduce of all gradients. */
TEST_IN(scratch, a_mode_of_its_own_needs_no_line_in_the_simulator) {
    struct ls_plan single = ls_plan_defaults(LS_PLAN_SINGLE, 1, (double)BATCH / RANKS);
    struct ls_plan toy = ls_plan_defaults(LS_PLAN_DDP, RANKS, BATCH);
    double sum_us = all_reduce_us("dgx1-v100");
    assert_true(sum_us > 1000);
    planned_expect_us(step_us(create_toy, &toy), step_us(NULL, &single) + sum_us);
}

/* On a node whose all-reduce is faster than its two halves, ZeRO's pair of operations costs more. */
TEST_IN(scratch, halves_take_longer_than_their_sum_where_the_node_says_so) {
    struct ls_plan single = ls_plan_defaults(LS_PLAN_SINGLE, 1, (double)BATCH / RANKS);
    struct ls_plan toy = ls_plan_defaults(LS_PLAN_DDP, RANKS, BATCH);
    double sum_us = all_reduce_us("hgx-h200");
    double pair_us = step_on_us("hgx-h200", create_toy, &toy) - step_on_us("hgx-h200", NULL, &single);
    double all_reduce_GBps = 1.75 * 17179869184. / 62500 * 1e-3; /* the last row of its table */
    planned_expect_us(pair_us, sum_us * (all_reduce_GBps / 361.4 + all_reduce_GBps / 362.9) / 2);
    assert_true(pair_us / sum_us > 1.32 && pair_us / sum_us < 1.33);
}

/* Both are in the trace of every rank, each under its own name. */
TEST_IN(scratch, a_trace_names_the_halves) {
    struct ls_plan toy = ls_plan_defaults(LS_PLAN_DDP, RANKS, BATCH);
    ls_node *node;
    ls_workload *workload;
    ls_trace *trace;
    int scatters = 0, gathers = 0;
    assert_int_equal(ls_node_open(&node, "hgx-h200"), LS_OK);
    assert_int_equal(ls_workload_open(&workload, "resnet50"), LS_OK);
    assert_int_equal(record_steps_of(&trace, create_toy, workload, node, &toy), LS_OK);
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->kind != LS_TASK_COLLECTIVE) continue;
        assert_string_equal(task->name, ls_trace_meeting(trace, task->meeting)->operation);
        scatters += strcmp(task->name, "reduce_scatter") == 0;
        gathers += strcmp(task->name, "all_gather") == 0;
    }
    assert_int_equal(scatters, RANKS * toy.steps);
    assert_int_equal(gathers, RANKS * toy.steps);
    ls_trace_destroy(trace);
    ls_workload_close(workload);
    ls_node_close(node);
}

/* --- forgotten waits ---------------------------------------------------------------------------------------------- */

/* Leaves out each wait between DataParallel's devices (LS_CPU_DROP_WAIT): a task then starts too early. */
TEST_IN(scratch, a_forgotten_wait_shows) {
    static const char *const waits[] = {"replica updated", "outputs ready",         "outputs gathered",
                                        "loss taken",      "loss gradient arrived", "backward done",
                                        "gradients sent",  "parameters updated"};
    struct ls_plan dp = ls_plan_defaults(LS_PLAN_DP, 4, 128);
    double whole_us = step_us(NULL, &dp);
    for (size_t w = 0; w < sizeof waits / sizeof *waits; w++) {
        assert_int_equal(setenv("LS_CPU_DROP_WAIT", waits[w], 1), 0);
        double us = step_us(NULL, &dp);
        unsetenv("LS_CPU_DROP_WAIT");
        if (!(us < whole_us)) fail_msg("without the wait for \"%s\" a step takes %.17g us, as with it", waits[w], us);
    }
}
