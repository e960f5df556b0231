/* Tests lab 04's transfers: each function alone, then whole steps, then their order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/seam/step.h"
#include "labs/04-dataparallel/order.h"
#include "labs/04-dataparallel/setup.h"

/* 4 devices: 16 samples are 4 4 4 4, 9 are 3 3 3, 5 are 2 2 1, 2 are 1 1, 1 is 1. Values that a device without a piece
 *            has kept from the step before must not be used. */
static const size_t rows_of_steps[] = {MOST_ROWS, 9, 5, 2, 1, 15};
enum { STEPS = sizeof rows_of_steps / sizeof *rows_of_steps, FEW_DEVICES = 4 };

/* One transfer in all replicas' threads, in step `step`, at the last of `micro_batches` micro-batches. With several,
 * all replicas are active, also those without rows. */
static void transfer(probe *p, setup *s, int step, int micro_batches, dp_part_fn part) {
    setup_draw(s, s->most_rows > MOST_ROWS ? s->most_rows : rows_of_steps[step]);
    s->parallel->step = (uint64_t)step;
    s->parallel->micro_batches = micro_batches;
    ls_parallel_next_place(s->parallel, micro_batches - 1);
    ls_parallel_upload(s->parallel, s->dp->replicas[0].copy, &s->batch);
    dp_chunk_batch(s->dp);
    probe_must(p, "the replicas", dp_on_replicas(s->dp, part));
}

/* --- each function alone ------------------------------------------------------------------------------------------- */

static void forward(struct dp *dp, struct dp_replica *r) {
    dp_scatter_inputs(dp, r);
    dp_replicate(dp, r);
    r->y = ls_model_forward(r->model, r->x, r->rows, true);
}

/* Device 0's parameters differ in each step. */
static void replicate_case(probe *p, int devices, ls_dtype precision, const char *model) {
    setup s = {.devices = devices, .precision = precision, .streams = "inline", .model = model};
    setup_open(p, &s);
    float *parameters;
    size_t count;
    ls_model_parameters(s.module, &parameters, &count);
    probe_case(p, "N = %d, %s, %zu parameters", devices, ls_dtype_name(precision), count);
    for (int step = 0; step < STEPS; step++) {
        ls_model_parameters(s.module, &parameters, &count);
        probe_draw_floats(p, parameters, count);
        ls_model_parameters_changed(s.module);
        transfer(p, &s, step, 1, forward);
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
    for (int devices = 2; devices <= FEW_DEVICES; devices++) replicate_case(p, devices, LS_FP32, MODEL);
    replicate_case(p, 3, LS_BF16, MODEL);
    replicate_case(p, MOST_DEVICES, LS_FP32, MODEL);
    replicate_case(p, 2, LS_FP32, LARGE_MODEL);
}

/* Each replica has weights of its own. */
static void gather_part(struct dp *dp, struct dp_replica *r) {
    dp_scatter_inputs(dp, r);
    r->y = ls_model_forward(r->model, r->x, r->rows, true);
    dp_gather_outputs(dp, r);
}

static void open_gather(probe *p, setup *s) {
    setup_open(p, s);
    for (int i = 1; i < s->devices; i++) {
        float *parameters;
        size_t count;
        ls_model_parameters(s->dp->replicas[i].model, &parameters, &count);
        probe_draw_floats(p, parameters, count);
    }
}

static void see_gathered(probe *p, setup *s, int step, int micro_batches) {
    transfer(p, s, step, micro_batches, gather_part);
    dp_await_outputs(s->dp, s->dp->replicas[s->output_device].compute);
    for (size_t row = 0; s->most_rows == MOST_ROWS && row < MOST_ROWS; row++)
        probe_see_floats(p, probe_name(p, "outputs 0 to 3 of sample %zu in step %d", row, step),
                         s->dp->gathered_outputs + row * OUTPUTS, 4);
    probe_see_floats(p, "all outputs", s->dp->gathered_outputs, s->most_rows * OUTPUTS);
}

static void gather_case(probe *p, int devices, int output_device, int micro_batches) {
    setup s = {.devices = devices, .output_device = output_device, .precision = LS_FP32, .streams = "inline"};
    probe_case(p, "N = %d, output device %d%s", devices, output_device,
               micro_batches > 1 ? ", the last of several micro-batches" : "");
    open_gather(p, &s);
    for (int step = 0; step < STEPS; step++) see_gathered(p, &s, step, micro_batches);
    setup_rest(p, &s);
    setup_close(&s);
}

/* More outputs than 16 bits count. */
static void gather_large(probe *p) {
    setup s = {.devices = 3, .output_device = 1, .precision = LS_FP32, .streams = "inline", .most_rows = 25001};
    probe_case(p, "N = 3, output device 1, %zu samples", s.most_rows);
    open_gather(p, &s);
    see_gathered(p, &s, 0, 1);
    setup_rest(p, &s);
    setup_close(&s);
}

static void gather(probe *p) {
    for (int devices = 2; devices <= FEW_DEVICES; devices++) {
        gather_case(p, devices, 0, 1);
        gather_case(p, devices, devices - 1, 1);
    }
    gather_case(p, FEW_DEVICES, 1, 2);
    gather_case(p, MOST_DEVICES, 0, 1);
    gather_large(p);
}

static void send(struct dp *dp, struct dp_replica *r) {
    dp_end_backward(r);
    dp_send_gradients(dp, r);
}

static void reduce_case(probe *p, int devices, int micro_batches, const char *model) {
    setup s = {.devices = devices, .precision = LS_FP32, .streams = "inline", .model = model};
    setup_open(p, &s);
    float *gradients;
    size_t count;
    ls_model_gradients(s.module, &gradients, &count);
    probe_case(p, "N = %d, %zu parameters%s", devices, count,
               micro_batches > 1 ? ", the last of several micro-batches" : "");
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < devices; i++) {
            ls_model_gradients(s.dp->replicas[i].model, &gradients, &count);
            probe_draw_floats(p, gradients, count);
        }
        transfer(p, &s, step, micro_batches, send);
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
    for (int devices = 2; devices <= FEW_DEVICES; devices++) reduce_case(p, devices, 1, MODEL);
    reduce_case(p, FEW_DEVICES, 2, MODEL);
    reduce_case(p, MOST_DEVICES, 1, MODEL);
    reduce_case(p, 2, 1, LARGE_MODEL);
}

/* --- whole steps --------------------------------------------------------------------------------------------------- */

/* The next step overwrites the host's batch, so its copy must have been waited for. */
static void train(probe *p, setup *s, int steps, int micro_batches) {
    s->parallel->micro_batches = micro_batches;
    for (int step = 0; step < steps; step++) {
        ls_status status = ls_event_synchronize(s->parallel->batch_copied);
        setup_draw(s, rows_of_steps[step]);
        s->parallel->step = (uint64_t)step;
        if (status == LS_OK) status = ls_step(s->parallel, &s->batch);
        probe_must(p, probe_name(p, "step %d", step), status);
    }
    setup_rest(p, s);
}

struct kind {
    int devices, output_device, micro_batches;
};

static const struct kind kinds[] = {{2, 0, 1}, {3, 0, 1}, {4, 0, 1}, {3, 2, 1}, {2, 0, 3}, {4, 1, 2}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static setup open_kind(probe *p, const struct kind *kind, const char *streams, const char *model, uint64_t seed) {
    setup s = {.devices = kind->devices,
               .output_device = kind->output_device,
               .precision = LS_FP32,
               .streams = streams,
               .model = model,
               .seed = seed};
    probe_case(p, "N = %d, output device %d, %d micro-batches a step, streams %s%s", kind->devices, kind->output_device,
               kind->micro_batches, streams, strcmp(model, MODEL) == 0 ? "" : ", a large model");
    setup_open(p, &s);
    return s;
}

static void bytes_case(probe *p, const struct kind *kind, const char *model) {
    static const ls_phase phases[] = {LS_PHASE_REPLICATE, LS_PHASE_GATHER, LS_PHASE_REDUCE};
    setup s = open_kind(p, kind, "inline", model, 0);
    train(p, &s, STEPS, kind->micro_batches);
    for (int d = 0; d < s.devices; d++)
        for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
            probe_see_count(p, probe_name(p, "bytes of device %d in %s", d, ls_phase_name(phases[i])),
                            s.parallel->clocks[d].bytes[phases[i]]);
    setup_close(&s);
}

static void bytes(probe *p) {
    for (int k = 0; k < KINDS; k++) bytes_case(p, &kinds[k], MODEL);
    bytes_case(p, &kinds[0], LARGE_MODEL);
}

/* The numbers of named memory (order.h). */
struct names {
    int outputs, parameters[MOST_DEVICES], gradients[MOST_DEVICES], sent[MOST_DEVICES];
};

static struct names name_memory(setup *s) {
    struct names names = {0};
    order_name(s->parallel->batch->inputs, MOST_ROWS * INPUTS * sizeof(float), "the batch on device 0");
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

static const char *yes_or_no(bool yes) { return yes ? "yes" : "no"; }

/* Also checks that the transfers take place, since without them nothing can be out of order. Other checks test how much
 * they move. */
static void see_transfers(probe *p, const struct names *names, int devices) {
    for (int i = 1; i < devices; i++) {
        probe_see(p, probe_name(p, "whether parameters are copied to replica %d", i), "%s",
                  yes_or_no(order_copied(names->parameters[i]) > 0));
        probe_see(p, probe_name(p, "whether gradients are copied from replica %d to device 0", i), "%s",
                  yes_or_no(order_copied(names->sent[i]) > 0));
        probe_see(p, probe_name(p, "whether gradients of replica %d are added up", i), "%s",
                  yes_or_no(order_added(names->sent[i]) > 0));
    }
    probe_see(p, "whether outputs are copied to the gathered outputs", "%s",
              yes_or_no(order_copied(names->outputs) > 0));
}

static void order(probe *p) {
    char text[256];
    for (int k = 0; k < KINDS; k++) {
        setup s = open_kind(p, &kinds[k], "inline", MODEL, 0);
        order_begin(s.device, s.devices);
        struct names names = name_memory(&s);
        train(p, &s, STEPS, kinds[k].micro_batches);
        see_transfers(p, &names, s.devices);
        probe_see(p, "order", "%s", order_judge(text, sizeof text));
        setup_close(&s);
    }
}

/* The results of a training: its losses, and the parameters; the caller frees them. */
static float *keep_results(const setup *s, size_t *nbytes) {
    float *parameters;
    size_t count;
    ls_model_parameters(s->module, &parameters, &count);
    float *results = malloc((STEPS + count) * sizeof *results);
    *nbytes = (STEPS + count) * sizeof *results;
    if (!results) return NULL;
    memcpy(results, s->parallel->losses, STEPS * sizeof *results);
    memcpy(results + STEPS, parameters, count * sizeof *results);
    return results;
}

/* Inline streams. Also checks that the transfers take place. */
static float *train_inline(probe *p, const struct kind *kind, uint64_t seed, size_t *nbytes) {
    char text[256];
    setup s = open_kind(p, kind, "inline", MODEL, seed);
    order_begin(s.device, s.devices);
    struct names names = name_memory(&s);
    train(p, &s, STEPS, kind->micro_batches);
    see_transfers(p, &names, s.devices);
    (void)order_judge(text, sizeof text);
    float *results = keep_results(&s, nbytes);
    setup_close(&s);
    return results;
}

/* Detects what order.c does not see (memory that is copied without a stream). Trains with the same batches again; other
 * checks test whether the bits are right. */
static void shuffled(probe *p) {
    enum { ORDERS = 6 };
    for (int k = 0; k < KINDS; k++) {
        size_t nbytes;
        uint64_t seed = 1 + probe_draw(p, 1000000);
        float *expected = train_inline(p, &kinds[k], seed, &nbytes);
        for (int again = 1; again < ORDERS; again++) {
            char streams[40];
            snprintf(streams, sizeof streams, "shuffle:%d", (int)probe_draw(p, 1000000));
            setup s = open_kind(p, &kinds[k], streams, MODEL, seed);
            train(p, &s, STEPS, kinds[k].micro_batches);
            float *results = keep_results(&s, &nbytes);
            probe_see(p, "whether losses and parameters are those of streams that run at once", "%s",
                      yes_or_no(expected && results && memcmp(results, expected, nbytes) == 0));
            free(results);
            setup_close(&s);
        }
        free(expected);
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {
        {"replicate", replicate}, {"gather", gather},     {"reduce", reduce}, {"bytes", bytes},
        {"order", order},         {"shuffled", shuffled}, {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
