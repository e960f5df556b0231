#include "labs/24-silent/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nn/loss.h"
#include "common/nn/model_internal.h"
#include "common/nn/network_internal.h"
#include "common/nn/tensor_parallel.h"
#include "common/nn/value_rules.h"
#include "common/optim/optimizer.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/network.h"

const char *const label_names[LS_SPLIT + 1] = {"replicated", "varying", "partial", "split"};
const char *const operation_names[OPERATIONS] = {
    "all_reduce (sum)", "all_reduce (max)", "all_reduce (min)",     "reduce_scatter",
    "all_gather",       "broadcast",        "an exchange of pairs",
};

/* --- one operation -------------------------------------------------------------------------------------------------- */

enum { COUNT = 4 };

struct operation_job {
    struct one_operation *job;
    ls_mesh meshes[MOST_RANKS];
};

struct buffers {
    float *send, *receive, own[COUNT], all[MOST_RANKS * COUNT];
};

/* Sets the buffers that the operation reads and writes. */
static void place(struct buffers *b, enum operation operation) {
    b->send = operation == GATHER ? b->own : b->all;
    b->receive = operation == SCATTER || operation == EXCHANGE ? b->own : b->all;
}

static ls_status operate(enum operation operation, ls_comm *group, ls_stream *stream, struct buffers *b) {
    switch (operation) {
    case SUM: return ls_comm_all_reduce(group, stream, b->all, COUNT, LS_FP32, LS_REDUCE_SUM);
    case LARGEST: return ls_comm_all_reduce(group, stream, b->all, COUNT, LS_FP32, LS_REDUCE_MAX);
    case SMALLEST: return ls_comm_all_reduce(group, stream, b->all, COUNT, LS_FP32, LS_REDUCE_MIN);
    case SCATTER: return ls_comm_reduce_scatter(group, stream, b->send, b->receive, COUNT, LS_FP32, LS_REDUCE_SUM);
    case GATHER: return ls_comm_all_gather(group, stream, b->send, b->receive, COUNT, LS_FP32);
    case BROADCAST: return ls_comm_broadcast(group, stream, b->all, COUNT, LS_FP32, 0);
    case EXCHANGE: return ls_comm_send_recv(group, stream, b->all, b->own, COUNT, LS_FP32, ls_comm_rank(group) ^ 1);
    default: return LS_ERR_INVALID;
    }
}

static ls_status run_operation(crew_rank *c) {
    struct operation_job *all = c->argument;
    struct one_operation *job = all->job;
    ls_mesh *mesh = &all->meshes[c->rank];
    ls_comm *group = job->group == JOB ? mesh->job : mesh->axis[job->group];
    struct buffers b = {.all = {0}};
    place(&b, job->operation);
    size_t read = (job->operation == SCATTER ? (size_t)ls_comm_world_size(group) : 1) * COUNT;
    ls_status status = ls_values_begin(job->sizes, mesh->axis);
    if (status != LS_OK) return status;
    ls_values_enter();
    ls_values_at("backward", 3);
    ls_values_set(b.send, read * sizeof(float), job->before, false, "the value");
    ls_log_sink before = ls_log_capture(job->seen[c->rank].message, MESSAGE_NBYTES);
    job->seen[c->rank].status = operate(job->operation, group, c->stream, &b);
    ls_log_restore(before);
    const struct ls_labels *after = ls_values_find(b.receive);
    job->seen[c->rank].has_after = after != NULL;
    if (after) job->seen[c->rank].after = *after;
    status = ls_stream_synchronize(c->stream);
    (void)ls_values_leave(c->device, LS_ERR_INVALID); /* no bits are compared */
    ls_values_end();
    return status;
}

void operation_run(probe *p, struct one_operation *job) {
    struct operation_job all = {.job = job};
    job->ranks = job->sizes[0] * job->sizes[1] * job->sizes[2];
    ls_comm_options options = {.world_size = job->ranks, .timeout_s = CREW_TIMEOUT_S, .allreduce = "direct"};
    probe_must(p, "the groups", ls_mesh_create_threads(all.meshes, job->sizes, &options));
    probe_must(p, "the ranks", crew_run(job->ranks, "direct", "inline", run_operation, &all));
    for (int r = 0; r < job->ranks; r++) ls_mesh_destroy(&all.meshes[r]);
}

/* --- a network that ranks share -------------------------------------------------------------------------------------- */

const char *const bug_names[BUGS] = {
    "as it should be",
    "g in place of f",
    "f in place of g",
    "a bias in each term",
    "a weight labelled as whole",
    "a layer norm that does not add up its gradients",
};

static bool is_product(const struct ls_layer_kind *kind) {
    return kind == &ls_linear || kind == &ls_head || kind == &ls_conv2d || kind == &ls_conv2d_part;
}

/* Gives the layer the bug; false if the layer cannot have it. */
static bool plant(ls_network *network, ls_layer *layer, enum bug bug) {
    ls_layer *next = layer + 1;
    int axis = layer->parameter_count > 0 ? network->cuts[layer->parameter_numbers[0]].axis : LS_UNCUT;
    switch (bug) {
    case G_FOR_F: return layer->kind == &ls_tensor_f && (layer->kind = &ls_tensor_g);
    case F_FOR_G: return layer->kind == &ls_tensor_g && layer->units == 0 && (layer->kind = &ls_tensor_f);
    case WHOLE_NORMS: return layer->kind == &ls_layernorm_part && (layer->kind = &ls_layernorm);
    case WHOLE_WEIGHT:
        if (!is_product(layer->kind) || axis == LS_UNCUT) return false;
        network->cuts[layer->parameter_numbers[0]].axis = LS_UNCUT;
        return true;
    case BIAS_IN_EACH_TERM:
        if (layer->kind != &ls_head || next->kind != &ls_tensor_g || next->units == 0) return false;
        layer->kind = &ls_linear;
        layer->parameters[1] = next->parameters[0];
        layer->parameter_numbers[1] = next->parameter_numbers[0];
        layer->writes_gradient[1] = layer->completes_gradient[1] = true;
        layer->parameter_count = 2;
        next->parameter_count = next->units = 0;
        return true;
    default: return false;
    }
}

static int plant_all(ls_network *network, enum bug bug, int nth) {
    int places = 0;
    for (size_t l = 0; l + 1 < network->layer_count; l++) {
        ls_layer before = network->layers[l], next = network->layers[l + 1];
        struct ls_cut *cut = before.parameter_count > 0 ? &network->cuts[before.parameter_numbers[0]] : NULL;
        int axis = cut ? cut->axis : LS_UNCUT;
        if (!plant(network, &network->layers[l], bug)) continue;
        if (nth >= 0 && places != nth) { /* not this one */
            network->layers[l] = before;
            network->layers[l + 1] = next;
            if (cut) cut->axis = axis;
        }
        places++;
    }
    return places;
}

struct training_job {
    struct shared_training *t;
    void *x;
    int64_t *labels;
    size_t batch;
};

struct member {
    ls_model *model;
    ls_optimizer *optimizer;
    float *dy, loss;
};

static ls_status open_member(struct member *m, const crew_rank *c) {
    const struct training_job *job = c->argument;
    struct shared_training *t = job->t;
    const ls_tensor_options part = {c->rank, t->ranks, t->sequence};
    ls_optimizer_options options = ls_optimizer_defaults(LS_SGD);
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK)
        status = ls_tensor_create_model(&m->model, c->device, t->model, &part, job->batch, LS_FP32, 0, false);
    if (status != LS_OK) return status;
    ls_tensor_meet(m->model, c->comm);
    status = ls_model_alloc_gradients(m->model);
    if (status == LS_OK) status = ls_model_init(m->model, 5);
    int places = plant_all((ls_network *)(uintptr_t)ls_model_network(m->model), t->bug, t->nth);
    if (c->rank == 0) t->places = places;
    if (status == LS_OK) status = ls_optimizer_create(&m->optimizer, m->model, &options);
    m->dy = calloc(ls_model_outputs(m->model) * job->batch, sizeof *m->dy);
    return status == LS_OK && !m->dy ? ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a gradient") : status;
}

static ls_status step(struct member *m, const crew_rank *c) {
    const struct training_job *job = c->argument;
    struct ls_shape output = ls_model_output(m->model);
    const float *y = ls_model_forward(m->model, job->x, job->batch, true);
    ls_model_take_loss(m->model, ls_device_stream(c->device, LS_STREAM_COMPUTE), &m->loss, m->dy, y,
                       (struct ls_answers){job->labels, NULL}, job->batch * ls_shape_rows(output),
                       ls_loss_weight(1, job->batch, output));
    if (ls_device_status(c->device) == LS_OK) ls_model_backward(m->model, m->dy, false);
    ls_status status = ls_device_status(c->device);
    return status == LS_OK ? ls_optimizer_step(m->optimizer, NULL) : status;
}

static ls_status train(crew_rank *c) {
    const struct training_job *job = c->argument;
    const int sizes[LS_MESH_AXES] = {job->t->ranks, 1, 1};
    ls_comm *groups[LS_MESH_AXES] = {c->comm};
    struct member m = {.model = NULL};
    char message[MESSAGE_NBYTES] = "";
    ls_status status = open_member(&m, c), trained = status;
    if (status == LS_OK) status = ls_values_begin(sizes, groups);
    if (status == LS_OK) {
        ls_values_enter();
        ls_log_sink before = ls_log_capture(message, sizeof message);
        trained = step(&m, c);
        trained = ls_values_leave(c->device, trained);
        ls_log_restore(before);
        ls_values_end();
    }
    if (c->rank == 0) {
        job->t->status = trained;
        snprintf(job->t->message, sizeof job->t->message, "%s", message);
    }
    free(m.dy);
    ls_optimizer_destroy(m.optimizer);
    ls_model_destroy(m.model);
    return status;
}

static void *ask(probe *p, size_t nbytes) {
    void *memory = calloc(1, nbytes);
    probe_must(p, "memory", memory ? LS_OK : LS_ERR_NO_MEMORY);
    return memory;
}

void shared_training_run(probe *p, struct shared_training *t) {
    struct training_job job = {.t = t, .batch = 2};
    ls_network *network = probe_network(p, t->model);
    struct ls_shape output = ls_network_output(network);
    size_t inputs = job.batch * ls_shape_count(network->input), rows = job.batch * ls_shape_rows(output);
    job.x = ask(p, inputs * sizeof(float));
    job.labels = ask(p, rows * sizeof *job.labels);
    for (size_t i = 0; i < rows; i++) job.labels[i] = (int64_t)probe_draw(p, (uint64_t)output.channels);
    if (!ls_network_takes_integers(network)) probe_draw_floats(p, job.x, inputs);
    int32_t *tokens = job.x;
    for (size_t i = 0; ls_network_takes_integers(network) && i < inputs; i++)
        tokens[i] = (int32_t)probe_draw(p, (uint64_t)output.channels);
    ls_network_destroy(network);
    ls_status status = crew_run(t->ranks, "direct", "inline", train, &job);
    probe_must(p, "the ranks",
               status == LS_ERR_INVALID ? LS_OK : status); /* a label was wrong: the message reports it */
    free(job.x);
    free(job.labels);
}

/* --- one layer's labels ------------------------------------------------------------------------------------------------ */

struct rules {
    ls_device *device;
    ls_model *model;
    struct ls_frame frame;
    int sizes[LS_MESH_AXES];
};

struct rules *rules_open(probe *p, const char *model, int ranks, bool sequence) {
    const ls_tensor_options part = {0, ranks, sequence};
    const ls_device_options cpu = {.kind = LS_DEVICE_CPU, .devices_on_node = 1};
    struct rules *rules = ask(p, sizeof *rules);
    probe_must(p, "a device", ls_device_open(&rules->device, &cpu));
    probe_must(p, "a model", ls_tensor_create_model(&rules->model, rules->device, model, &part, 1, LS_FP32, 0, false));
    probe_must(p, "gradients", ls_model_alloc_gradients(rules->model));
    rules->frame.network = ls_model_network(rules->model);
    rules->frame.device = rules->device;
    rules->frame.batch = 1;
    rules->sizes[LS_MESH_TENSOR] = ranks;
    rules->sizes[LS_MESH_DATA] = rules->sizes[LS_MESH_PIPELINE] = 1;
    return rules;
}

void rules_close(struct rules *rules) {
    ls_model_destroy(rules->model);
    ls_device_close(rules->device);
    free(rules);
}

int rules_layer_count(const struct rules *rules) { return (int)rules->frame.network->layer_count; }

const char *rules_layer_name(const struct rules *rules, int layer) { return rules->frame.network->layers[layer].name; }

int rules_parameter_count(const struct rules *rules, int layer) {
    return (int)rules->frame.network->layers[layer].parameter_count;
}

bool rules_is_product(const struct rules *rules, int layer) {
    return is_product(rules->frame.network->layers[layer].kind);
}

void rules_make_whole(struct rules *rules, int layer) {
    const ls_network *network = rules->frame.network;
    network->cuts[network->layers[layer].parameter_numbers[0]].axis = LS_UNCUT;
}

static void set_label(const float *data, ls_value value, const char *name) {
    ls_values_set(data, sizeof *data, ls_labels_of(value, LS_VARYING), false, "%s", name);
}

ls_value rules_output(struct rules *rules, int layer, ls_value x, char message[MESSAGE_NBYTES]) {
    const ls_layer *l = &rules->frame.network->layers[layer];
    ls_comm *const none[LS_MESH_AXES] = {NULL};
    float x_values[LS_LAYER_MAX_INPUTS] = {0}, *y = malloc(ls_shape_count(l->out) * sizeof *y);
    struct ls_pass pass = {.batch = 1, .y = y};
    ls_value found = LS_VARYING;
    message[0] = '\0';
    if (y && ls_values_begin(rules->sizes, none) == LS_OK) {
        ls_values_enter();
        ls_values_at("forward", l->block);
        for (int i = 0; i < l->input_count; i++) {
            pass.x[i] = &x_values[i];
            set_label(&x_values[i], x, "x");
        }
        ls_log_sink before = ls_log_capture(message, MESSAGE_NBYTES);
        ls_value_rules_forward(&rules->frame, (size_t)layer, &pass);
        ls_log_restore(before);
        const struct ls_labels *labels = ls_values_find(y);
        if (labels) found = labels->on[LS_MESH_TENSOR];
        (void)ls_values_leave(NULL, LS_ERR_INVALID);
    }
    ls_values_end();
    free(y);
    return found;
}

int rules_gradient(struct rules *rules, int layer, int p, ls_value x, ls_value dy, ls_value dx, ls_value sums) {
    const ls_layer *l = &rules->frame.network->layers[layer];
    ls_comm *const none[LS_MESH_AXES] = {NULL};
    void *to[LS_LAYER_MAX_INPUTS] = {NULL};
    float x_value = 0, dy_value = 0, dx_value = 0, *saved = calloc(1, l->saved_nbytes_per_sample + sizeof *saved);
    char said[MESSAGE_NBYTES];
    struct ls_pass pass = {.batch = 1, .x = {&x_value}, .dy = &dy_value, .dx = {&dx_value}, .saved = saved};
    const char *name = rules->model->parameters->tensors[l->parameter_numbers[p]].name;
    if (!saved || ls_values_begin(rules->sizes, none) != LS_OK) return -1;
    ls_values_enter();
    set_label(&x_value, x, "x");
    set_label(&dy_value, dy, "dy");
    set_label(&dx_value, dx, "dx");
    set_label((float *)((char *)saved + l->saved_nbytes_per_sample), sums, "sums");
    ls_log_sink before = ls_log_capture(said, sizeof said); /* a partial dy is refused */
    ls_value_rules_backward(&rules->frame, rules->model->parameters, (size_t)layer, &pass, to);
    ls_log_restore(before);
    const struct ls_labels *labels = ls_values_named("the gradient of %s", name);
    int found = labels ? (int)labels->on[LS_MESH_TENSOR] : -1;
    (void)ls_values_leave(NULL, LS_ERR_INVALID);
    ls_values_end();
    free(saved);
    return found;
}
