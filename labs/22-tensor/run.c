#include "labs/22-tensor/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/nn/class_loss.h"
#include "common/nn/loss.h"
#include "common/nn/model_internal.h"
#include "common/nn/tensor_parallel.h"
#include "common/optim/optimizer.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/network.h"

/* --- floats --------------------------------------------------------------------------------------------------------- */

/* Not NULL for 0 bytes either. Exactly as long as requested, so that AddressSanitizer finds accesses past the end. */
static void *ask(probe *p, size_t nbytes) {
    void *memory = calloc(1, nbytes > 0 ? nbytes : 1);
    probe_must(p, "memory", memory ? LS_OK : LS_ERR_NO_MEMORY);
    return memory;
}

float *floats_new(probe *p, size_t count) { return ask(p, count * sizeof(float)); }

float *floats_drawn(probe *p, size_t count) {
    float *values = floats_new(p, count);
    probe_draw_floats(p, values, count);
    return values;
}

float *wholes_drawn(probe *p, size_t count) {
    float *values = floats_drawn(p, count);
    for (size_t i = 0; i < count; i++) values[i] = roundf(8 * values[i]) + 0.0F;
    return values;
}

enum { MOST_SEEN = 200 };

void see_close(probe *p, const char *what, const float *values, size_t count) {
    double largest = 0;
    char name[200];
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)values[i]));
    for (size_t i = 0; i < count; i++) {
        if (i % (count / MOST_SEEN + 1) != 0 && i + 1 < count) continue;
        snprintf(name, sizeof name, "%s[%zu]", what, i);
        probe_see_near(p, name, (double)values[i], 4e-6 * largest + 1e-12);
    }
}

static float *copy_of(const float *values, size_t count) {
    float *copy = malloc((count + 1) * sizeof *copy);
    if (copy) memcpy(copy, values, count * sizeof *copy);
    return copy;
}

/* --- one layer --------------------------------------------------------------------------------------------------------- */

static float *draw_inputs(probe *p, const struct one_layer *job, size_t count) {
    return job->is_rounded ? floats_drawn(p, count) : wholes_drawn(p, count);
}

static void draw_rank(probe *p, struct one_layer *job, int r) {
    struct one_rank *rank = &job->rank[r];
    ls_layer *layer = &rank->layer;
    *layer = job->layer;
    snprintf(layer->name, sizeof layer->name, "layer");
    layer->part = (struct ls_layer_part){r, job->ranks, {0}};
    probe_must(p, "a layer", layer->kind->plan(layer));
    rank->in_count = job->batch * ls_shape_count(layer->in);
    rank->out_count = job->batch * ls_shape_count(layer->out);
    rank->x = draw_inputs(p, job, rank->in_count);
    rank->y = floats_new(p, rank->out_count);
    rank->dy = draw_inputs(p, job, rank->out_count);
    rank->dx = floats_new(p, rank->in_count);
    if (job->same_dy && r > 0) memcpy(rank->dy, job->rank[0].dy, rank->out_count * sizeof *rank->dy);
    for (size_t i = 0; i < layer->parameter_count; i++) {
        rank->parameters[i] = draw_inputs(p, job, layer->parameters[i].count);
        rank->gradients[i] = draw_inputs(p, job, layer->parameters[i].count);
        if (r == 0) continue; /* replicated values are the same on all ranks */
        memcpy(rank->parameters[i], job->rank[0].parameters[i], layer->parameters[i].count * sizeof(float));
        memcpy(rank->gradients[i], job->rank[0].gradients[i], layer->parameters[i].count * sizeof(float));
    }
    rank->saved = ask(p, layer->saved_nbytes + job->batch * layer->saved_nbytes_per_sample);
    bool has_products = layer->kind->workspace_nbytes != NULL;
    rank->workspace =
        ask(p, has_products ? layer->kind->workspace_nbytes(layer, LS_FP32, LS_DEVICE_CPU, job->batch) : 0);
}

static struct ls_pass pass_of(const struct one_layer *job, struct one_rank *rank, const crew_rank *c) {
    struct ls_pass pass = {.stream = ls_device_stream(c->device, LS_STREAM_COMPUTE),
                           .dtype = LS_FP32,
                           .batch = job->batch,
                           .training = true,
                           .x = {rank->x},
                           .y = rank->y,
                           .dy = rank->dy,
                           .dx = {job->wants_no_dx ? NULL : rank->dx},
                           .saved = rank->saved,
                           .workspace = rank->workspace,
                           .tensor = c->comm};
    if (rank->layer.kind->in_place) pass.y = rank->x;
    if (rank->layer.kind->hands_on) pass.dx[0] = rank->dy;
    for (size_t i = 0; i < rank->layer.parameter_count; i++)
        pass.parameters[i] = (struct ls_pass_parameter){.data = rank->parameters[i],
                                                        .operand = rank->parameters[i],
                                                        .gradient = rank->gradients[i],
                                                        .adds = job->adds};
    return pass;
}

static ls_status settle(struct one_rank *rank, const crew_rank *c, int pass, ls_comm_traffic *before) {
    ls_comm_traffic after;
    ls_status status = ls_device_synchronize(c->device);
    if (status == LS_OK) status = ls_device_status(c->device);
    ls_comm_traffic_read(c->comm, &after);
    rank->operations[pass] = after.operations - before->operations;
    rank->sent_bytes[pass] = after.sent_bytes - before->sent_bytes;
    *before = after;
    return status;
}

static ls_status run_layer(crew_rank *c) {
    struct one_layer *job = c->argument;
    struct one_rank *rank = &job->rank[c->rank];
    const struct ls_layer_kind *kind = rank->layer.kind;
    ls_comm_traffic before;
    ls_status status = ls_device_bind_thread(c->device);
    if (status != LS_OK) return status;
    struct ls_pass pass = pass_of(job, rank, c);
    ls_comm_traffic_read(c->comm, &before);
    kind->forward(&rank->layer, &pass);
    status = settle(rank, c, FORWARD, &before);
    if (kind->in_place) memcpy(rank->y, rank->x, rank->out_count * sizeof(float));
    if (status != LS_OK) return status;
    kind->backward(&rank->layer, &pass);
    status = settle(rank, c, BACKWARD, &before);
    if (kind->hands_on && !job->wants_no_dx) memcpy(rank->dx, rank->dy, rank->in_count * sizeof(float));
    return status;
}

void one_layer_run(probe *p, struct one_layer *job) {
    for (int r = 0; r < job->ranks; r++) draw_rank(p, job, r);
    probe_must(p, "the ranks", crew_run(job->ranks, "direct", "inline", run_layer, job));
}

void one_layer_release(struct one_layer *job) {
    for (int r = 0; r < job->ranks; r++) {
        struct one_rank *rank = &job->rank[r];
        void *own[] = {rank->x, rank->y, rank->dy, rank->dx, rank->saved, rank->workspace};
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
        for (int i = 0; i < LS_LAYER_MAX_TENSORS; i++) {
            free(rank->parameters[i]);
            free(rank->gradients[i]);
        }
    }
}

/* --- a loss -------------------------------------------------------------------------------------------------------------- */

/* Rank `rank`'s part of a network for text with that many classes. */
static ls_status cut_text(ls_network **part, size_t classes, int rank, int ranks) {
    char description[60];
    ls_network *whole;
    const ls_tensor_options options = {rank, ranks, false};
    snprintf(description, sizeof description, "gpt:1,12,24,12,%zu", classes);
    *part = NULL;
    ls_status status = ls_network_create(&whole, description);
    return status == LS_OK ? ls_tensor_cut(part, whole, &options) : status;
}

struct ls_class_part classes_run(probe *p, size_t classes, int rank, int ranks) {
    ls_network *part;
    probe_must(p, "a network's part", cut_text(&part, classes, rank, ranks));
    struct ls_class_part found = {0};
    for (size_t l = 0; l < part->layer_count; l++)
        if (part->layers[l].cut == LS_CUT_CLASSES) found = part->layers[l].part.classes;
    ls_network_destroy(part);
    return found;
}

/* The rank's columns; their padding is never read. */
static void take_columns(const struct one_loss *job, int r) {
    size_t first = (size_t)r * job->room;
    for (size_t i = 0; i < job->rows; i++)
        for (size_t c = 0; c < job->room; c++)
            job->y[r][i * job->room + c] = first + c < job->classes ? job->logits[i * job->classes + first + c] : 1e3F;
}

static ls_status run_loss(crew_rank *c) {
    struct one_loss *job = c->argument;
    ls_network *network = NULL;
    ls_comm_traffic before, after;
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = cut_text(&network, job->classes, c->rank, job->ranks);
    float *sums = malloc(3 * job->rows * sizeof *sums);
    if (status == LS_OK && !sums) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for sums");
    if (status == LS_OK) {
        network->tensor = c->comm;
        ls_comm_traffic_read(c->comm, &before);
        ls_class_loss_of(network, ls_device_stream(c->device, LS_STREAM_COMPUTE), &job->loss[c->rank], job->dy[c->rank],
                         job->y[c->rank], job->labels, job->rows, 1.0 / (double)job->rows, sums);
        status = ls_device_synchronize(c->device);
        if (status == LS_OK) status = ls_device_status(c->device);
        ls_comm_traffic_read(c->comm, &after);
        if (c->rank == 0) job->operations = after.operations - before.operations;
        if (c->rank == 0) job->sent_bytes = after.sent_bytes - before.sent_bytes;
    }
    free(sums);
    ls_network_destroy(network);
    return status;
}

void one_loss_run(probe *p, struct one_loss *job) {
    job->room = (job->classes + (size_t)job->ranks - 1) / (size_t)job->ranks;
    job->logits = floats_drawn(p, job->rows * job->classes);
    job->labels = ask(p, job->rows * sizeof *job->labels);
    for (size_t i = 0; i < job->rows * job->classes; i++) job->logits[i] *= job->size;
    for (size_t i = 0; i < job->rows; i++) job->labels[i] = (int64_t)probe_draw(p, job->classes);
    for (int r = 0; r < job->ranks; r++) {
        job->y[r] = floats_new(p, job->rows * job->room);
        job->dy[r] = floats_drawn(p, job->rows * job->room);
        take_columns(job, r);
    }
    probe_must(p, "the ranks", crew_run(job->ranks, "direct", "inline", run_loss, job));
}

void one_loss_release(struct one_loss *job) {
    free(job->logits);
    free(job->labels);
    for (int r = 0; r < job->ranks; r++) {
        free(job->y[r]);
        free(job->dy[r]);
    }
}

/* --- a network --------------------------------------------------------------------------------------------------------- */

struct member {
    struct training *t;
    int rank;
    ls_device *device;
    ls_model *model;
    ls_optimizer *optimizer;
    float *dy, loss;
};

static ls_status open_member(struct member *m, ls_comm *group) {
    const struct training *t = m->t;
    const ls_tensor_options part = {m->rank, t->ranks, t->sequence};
    ls_optimizer_options options = ls_optimizer_defaults(LS_SGD);
    options.learning_rate = 0.05;
    options.momentum = 0.9;
    ls_status status = ls_device_bind_thread(m->device);
    if (status == LS_OK)
        status = ls_tensor_create_model(&m->model, m->device, t->model, &part, t->batch, LS_FP32, 0, false);
    if (status != LS_OK) return status;
    ls_tensor_meet(m->model, group);
    status = ls_model_alloc_gradients(m->model);
    if (status == LS_OK) status = ls_model_init(m->model, 5);
    if (status == LS_OK) status = ls_optimizer_create(&m->optimizer, m->model, &options);
    m->dy = calloc(ls_model_outputs(m->model) * t->batch, sizeof *m->dy);
    return status == LS_OK && !m->dy ? ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a gradient") : status;
}

static double pass(struct member *m, int step, int micro) {
    const struct training *t = m->t;
    struct ls_shape output = ls_model_output(m->model);
    size_t first = (size_t)micro * t->batch, all = t->batch * (size_t)t->micro_batches;
    const char *x = (const char *)t->x[step] + first * ls_model_input_nbytes(m->model);
    const int64_t *labels = t->labels[step] + first * ls_shape_rows(output);
    const float *y = ls_model_forward(m->model, x, t->batch, true);
    ls_model_take_loss(m->model, ls_device_stream(m->device, LS_STREAM_COMPUTE), &m->loss, m->dy, y,
                       (struct ls_answers){labels, NULL}, t->batch * ls_shape_rows(output),
                       ls_loss_weight(1, all, output));
    ls_model_backward(m->model, m->dy, micro > 0);
    return ls_device_synchronize(m->device) == LS_OK ? (double)m->loss : 0;
}

static uint64_t hash_alike(const ls_parameters *all) {
    uint64_t hash = LS_HASH_SEED;
    for (size_t i = 0; i < all->count; i++)
        if (!ls_cut_is_cut(&all->cuts[i]))
            hash = ls_hash(hash, all->tensors[i].data, all->tensors[i].count * sizeof(float));
    return hash;
}

static ls_status train_step(struct member *m, int step) {
    struct training *t = m->t;
    double loss = 0;
    for (int i = 0; i < t->micro_batches; i++) loss += pass(m, step, i);
    ls_status status = ls_optimizer_step(m->optimizer, NULL);
    ls_model_parameters_changed(m->model);
    if (status == LS_OK) status = ls_device_synchronize(m->device);
    t->losses[m->rank][step] = (float)loss;
    t->hashes[m->rank][step] = hash_alike(m->model->parameters);
    return status == LS_OK ? ls_device_status(m->device) : status;
}

static ls_status read_trained(struct member *m) {
    const ls_parameters *all = m->model->parameters;
    ls_status status = LS_OK;
    size_t count = 0, at = 0;
    for (size_t i = 0; i < all->count; i++) count += ls_parameters_whole(all, i)->count;
    float *values = calloc(count, sizeof *values);
    if (!values) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for weights");
    for (size_t i = 0; status == LS_OK && i < all->count; i++) {
        status = ls_parameters_read(all, i, values + at);
        at += ls_parameters_whole(all, i)->count;
    }
    if (m->rank == 0) {
        m->t->trained = copy_of(values, count);
        m->t->trained_count = m->t->trained ? count : 0;
    }
    free(values);
    return status;
}

static ls_status train(crew_rank *c) {
    struct training *t = c->argument;
    struct member m = {.t = t, .rank = c->rank, .device = c->device};
    ls_status status = open_member(&m, c->comm);
    for (int s = 0; status == LS_OK && s < t->steps; s++) status = train_step(&m, s);
    if (status == LS_OK) status = read_trained(&m);
    free(m.dy);
    ls_optimizer_destroy(m.optimizer);
    ls_model_destroy(m.model);
    return status;
}

void training_run(probe *p, struct training *t) {
    ls_network *network = probe_network(p, t->model);
    struct ls_shape output = ls_network_output(network);
    size_t samples = t->batch * (size_t)t->micro_batches, inputs = samples * ls_shape_count(network->input),
           rows = samples * ls_shape_rows(output), classes = (size_t)output.channels;
    for (int s = 0; s < t->steps; s++) {
        t->labels[s] = ask(p, rows * sizeof *t->labels[s]);
        for (size_t i = 0; i < rows; i++) t->labels[s][i] = (int64_t)probe_draw(p, classes);
        if (!ls_network_takes_integers(network)) {
            t->x[s] = floats_drawn(p, inputs);
            continue;
        }
        int32_t *tokens = t->x[s] = ask(p, inputs * sizeof *tokens);
        for (size_t i = 0; i < inputs; i++) tokens[i] = (int32_t)probe_draw(p, classes);
    }
    ls_network_destroy(network);
    probe_must(p, "the ranks", crew_run(t->ranks, "direct", "inline", train, t));
}

void training_release(struct training *t) {
    for (int s = 0; s < t->steps; s++) {
        free(t->x[s]);
        free(t->labels[s]);
    }
    free(t->trained);
}
