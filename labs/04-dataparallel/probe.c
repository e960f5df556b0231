/* What lab 04's transfers do: each function alone, then whole steps, then their order. */
#include <stdio.h>

#include "labs/04-dataparallel/order.h"
#include "labs/04-dataparallel/setup.h"

/* 4 devices: 16 samples are 4 4 4 4, 9 are 3 3 3, 5 are 2 2 1, 2 are 1 1. What a device without a piece has kept from
 * the step before must not come back. */
static const size_t rows_of_steps[] = {MOST_ROWS, 9, 5, 2, 15};
enum { STEPS = sizeof rows_of_steps / sizeof *rows_of_steps };

/* One transfer in all replicas' threads, in step `step`. */
static void transfer(probe *p, setup *s, int step, dp_part_fn part) {
    setup_draw(p, s, rows_of_steps[step]);
    s->parallel->step = (uint64_t)step;
    s->parallel->ops->prepare(s->parallel, &s->batch);
    probe_must(p, "the replicas", dp_on_replicas(s->dp, part));
}

/* --- each function alone ------------------------------------------------------------------------------------------- */

static void forward(struct dp *dp, struct dp_replica *r) {
    dp_scatter_inputs(dp, r);
    dp_replicate(dp, r);
    r->y = ls_model_forward(r->model, r->x, r->rows, true);
}

/* Device 0's parameters are others in each step. */
static void replicate_case(probe *p, int devices, ls_dtype precision) {
    setup s = {.devices = devices, .precision = precision, .streams = "inline"};
    probe_case(p, "N = %d, %s", devices, ls_dtype_name(precision));
    setup_open(p, &s);
    float *parameters;
    size_t count;
    for (int step = 0; step < STEPS; step++) {
        ls_model_parameters(s.module, &parameters, &count);
        probe_draw_floats(p, parameters, count);
        ls_model_parameters_changed(s.module);
        transfer(p, &s, step, forward);
        for (int i = 0; i < s.dp->active; i++) {
            const struct dp_replica *r = &s.dp->replicas[i];
            ls_model_parameters(r->model, &parameters, &count);
            probe_see_floats(p, probe_name(p, "parameters of replica %d in step %d", i, step), parameters, count);
            probe_see_floats(p, probe_name(p, "outputs of replica %d in step %d", i, step), r->y, r->rows * OUTPUTS);
        }
    }
    setup_rest(p, &s);
    setup_close(&s);
}

static void replicate(probe *p) {
    for (int devices = 2; devices <= MOST_DEVICES; devices++) replicate_case(p, devices, LS_FP32);
    replicate_case(p, 3, LS_BF16);
}

/* The replicas' weights are their own. */
static void gather_part(struct dp *dp, struct dp_replica *r) {
    dp_scatter_inputs(dp, r);
    r->y = ls_model_forward(r->model, r->x, r->rows, true);
    dp_gather_outputs(dp, r);
}

static void gather_case(probe *p, int devices, int output_device) {
    setup s = {.devices = devices, .output_device = output_device, .precision = LS_FP32, .streams = "inline"};
    probe_case(p, "N = %d, output device %d", devices, output_device);
    setup_open(p, &s);
    for (int i = 1; i < devices; i++) {
        float *parameters;
        size_t count;
        ls_model_parameters(s.dp->replicas[i].model, &parameters, &count);
        probe_draw_floats(p, parameters, count);
    }
    for (int step = 0; step < STEPS; step++) {
        transfer(p, &s, step, gather_part);
        dp_await_outputs(s.dp, s.dp->replicas[output_device].compute);
        for (size_t row = 0; row < MOST_ROWS; row++)
            probe_see_floats(p, probe_name(p, "outputs 0 to 3 of sample %zu in step %d", row, step),
                             s.dp->gathered_outputs + row * OUTPUTS, 4);
        probe_see_floats(p, "all outputs", s.dp->gathered_outputs, MOST_ROWS * OUTPUTS);
    }
    setup_rest(p, &s);
    setup_close(&s);
}

static void gather(probe *p) {
    for (int devices = 2; devices <= MOST_DEVICES; devices++) {
        gather_case(p, devices, 0);
        gather_case(p, devices, devices - 1);
    }
}

static void send(struct dp *dp, struct dp_replica *r) {
    dp_end_backward(r);
    dp_send_gradients(dp, r);
}

static void reduce_case(probe *p, int devices) {
    setup s = {.devices = devices, .precision = LS_FP32, .streams = "inline"};
    probe_case(p, "N = %d", devices);
    setup_open(p, &s);
    float *gradients;
    size_t count;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < devices; i++) {
            ls_model_gradients(s.dp->replicas[i].model, &gradients, &count);
            probe_draw_floats(p, gradients, count);
        }
        transfer(p, &s, step, send);
        dp_reduce_gradients(s.dp);
        ls_model_gradients(s.module, &gradients, &count);
        probe_see_floats(p, probe_name(p, "the first of the sums in step %d, of %d replicas", step, s.dp->active),
                         gradients, 4);
        probe_see_floats(p, "all sums", gradients, count);
    }
    setup_rest(p, &s);
    setup_close(&s);
}

static void reduce(probe *p) {
    for (int devices = 2; devices <= MOST_DEVICES; devices++) reduce_case(p, devices);
}

/* --- whole steps --------------------------------------------------------------------------------------------------- */

static ls_status micro_batch(setup *s, int index, int count) {
    ls_parallel *p = s->parallel;
    ls_batch part = ls_micro_batch(&s->batch, index, count, ls_model_input_nbytes(p->model), OUTPUTS);
    p->micro_batch = index;
    p->micro_batches = count;
    p->ops->prepare(p, &part);
    return ls_parallel_run_micro_batch(p);
}

/* The host's batch is overwritten with the next step, so that its copy is waited for. */
static void train(probe *p, setup *s, int steps, int micro_batches) {
    for (int step = 0; step < steps; step++) {
        ls_status status = ls_event_synchronize(s->parallel->batch_copied);
        setup_draw(p, s, rows_of_steps[step]);
        s->parallel->step = (uint64_t)step;
        for (int m = 0; status == LS_OK && m < micro_batches; m++) status = micro_batch(s, m, micro_batches);
        probe_must(p, probe_name(p, "step %d", step), status);
    }
    setup_rest(p, s);
}

struct kind {
    int devices, output_device, micro_batches;
};

static const struct kind kinds[] = {{2, 0, 1}, {3, 0, 1}, {4, 0, 1}, {3, 2, 1}, {2, 0, 3}, {4, 1, 2}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static setup open_kind(probe *p, const struct kind *kind, const char *streams) {
    setup s = {
        .devices = kind->devices, .output_device = kind->output_device, .precision = LS_FP32, .streams = streams};
    probe_case(p, "N = %d, output device %d, %d micro-batches a step, streams %s", kind->devices, kind->output_device,
               kind->micro_batches, streams);
    setup_open(p, &s);
    return s;
}

static void bytes(probe *p) {
    static const ls_phase phases[] = {LS_PHASE_REPLICATE, LS_PHASE_GATHER, LS_PHASE_REDUCE};
    for (int k = 0; k < KINDS; k++) {
        setup s = open_kind(p, &kinds[k], "inline");
        train(p, &s, STEPS, kinds[k].micro_batches);
        for (int d = 0; d < s.devices; d++)
            for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
                probe_see_count(p, probe_name(p, "bytes of device %d in %s", d, ls_phase_name(phases[i])),
                                s.parallel->clocks[d].bytes[phases[i]]);
        setup_close(&s);
    }
}

/* The numbers of named memory (order.h). */
struct names {
    int outputs, parameters[MOST_DEVICES], gradients[MOST_DEVICES], sent[MOST_DEVICES];
};

static struct names name_memory(setup *s) {
    struct names names = {0};
    order_name(s->dp->batch.inputs, MOST_ROWS * INPUTS * sizeof(float), "the batch on device 0");
    names.outputs = order_name(s->dp->gathered_outputs, MOST_ROWS * OUTPUTS * sizeof(float), "gathered outputs");
    for (int i = 0; i < s->devices; i++) {
        struct dp_replica *r = &s->dp->replicas[i];
        float *values;
        size_t count;
        ls_model_parameters(r->model, &values, &count);
        names.parameters[i] = order_name(values, count * sizeof(float), "replica %d's parameters", i);
        ls_model_gradients(r->model, &values, &count);
        names.gradients[i] = order_name(values, count * sizeof(float), "replica %d's gradients", i);
        if (i == 0) continue;
        names.sent[i] = order_name(r->sent, count * sizeof(float), "what replica %d has sent to device 0", i);
        order_name(r->inputs, 1, "replica %d's piece", i);
    }
    return names;
}

/* Without a transfer nothing can be out of order: that it took place is seen, too. */
static void order(probe *p) {
    char text[256];
    for (int k = 0; k < KINDS; k++) {
        setup s = open_kind(p, &kinds[k], "inline");
        order_begin(s.device, s.devices);
        struct names names = name_memory(&s);
        train(p, &s, STEPS, kinds[k].micro_batches);
        for (int i = 1; i < s.devices; i++) {
            probe_see_count(p, probe_name(p, "bytes copied to replica %d's parameters", i),
                            order_copied(names.parameters[i]));
            probe_see_count(p, probe_name(p, "bytes of gradients copied from replica %d to device 0", i),
                            order_copied(names.sent[i]));
            probe_see_count(p, probe_name(p, "gradients of replica %d that were added up", i),
                            order_added(names.sent[i]));
        }
        probe_see_count(p, "bytes copied to the gathered outputs", order_copied(names.outputs));
        probe_see(p, "order", "%s", order_judge(text, sizeof text));
        setup_close(&s);
    }
}

/* What order.c does not see (memory that is copied without a stream) shows here. */
static void shuffled(probe *p) {
    enum { SEEDS = 6 };
    for (int k = 0; k < KINDS; k++)
        for (int seed = 0; seed < SEEDS; seed++) {
            char streams[40] = "inline";
            float *parameters;
            size_t count;
            if (seed > 0) snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            setup s = open_kind(p, &kinds[k], streams);
            train(p, &s, STEPS, kinds[k].micro_batches);
            probe_see_floats(p, "losses", s.parallel->losses, STEPS);
            ls_model_parameters(s.module, &parameters, &count);
            probe_see_floats(p, "trained parameters", parameters, count);
            setup_close(&s);
        }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {
        {"replicate", replicate}, {"gather", gather},     {"reduce", reduce}, {"bytes", bytes},
        {"order", order},         {"shuffled", shuffled}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
