#include "tests/nn/team.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/nn/loss.h"
#include "common/nn/model_internal.h"
#include "common/nn/tensor_parallel.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

/* A rank's state. */
struct member {
    const struct team_plan *plan;
    struct team_run *run;
    int rank;
    ls_comm *group; /* NULL: alone */
    ls_device *device;
    ls_model *model;
    ls_optimizer *optimizer;
    void *inputs;
    int64_t *labels;
    float *targets, *dy, *loss;
    uint64_t *alike; /* for each rank and step: a hash of the parts that are not cut */
};

static size_t bytes_of(const ls_device *device, ls_memory_category category) {
    ls_memory_report memory;
    ls_device_memory((ls_device *)(uintptr_t)device, &memory);
    return memory.peak_bytes[category];
}

static ls_status open_member(struct member *m) {
    const struct team_plan *plan = m->plan;
    ls_device_options options = {.kind = LS_DEVICE_CPU, .index = m->rank, .devices_on_node = 1};
    const ls_tensor_options part = {m->rank, plan->ranks, plan->sequence};
    ls_status status = ls_device_open(&m->device, &options);
    if (status == LS_OK) status = ls_device_bind_thread(m->device);
    if (status == LS_OK)
        status = ls_tensor_create_model(&m->model, m->device, plan->model, &part, plan->batch, plan->precision,
                                        plan->every, false);
    if (status != LS_OK) return status;
    if (m->group) ls_tensor_meet(m->model, m->group);
    if (status == LS_OK) status = ls_model_alloc_gradients(m->model);
    if (status == LS_OK) status = ls_model_init(m->model, plan->seed);
    if (status == LS_OK) status = ls_optimizer_create(&m->optimizer, m->model, &plan->optimizer);
    size_t outputs = ls_model_outputs(m->model) * plan->batch;
    m->inputs = calloc(plan->batch, ls_sample_input_count(ls_dataset_spec(plan->data)) * sizeof(float));
    m->labels = calloc(plan->batch, ls_model_answer_nbytes(m->model));
    m->targets = (float *)(void *)m->labels;
    m->dy = calloc(outputs, sizeof *m->dy);
    m->loss = calloc(1, sizeof *m->loss);
    return status;
}

static void close_member(struct member *m) {
    free(m->inputs);
    free(m->labels);
    free(m->dy);
    free(m->loss);
    ls_optimizer_destroy(m->optimizer);
    ls_model_destroy(m->model);
    ls_comm_destroy(m->group);
    if (m->device) ls_device_close(m->device);
}

static ls_status read_batch(struct member *m, size_t step) {
    int64_t indices[256];
    size_t count = m->plan->batch, samples = ls_dataset_count(m->plan->data);
    for (size_t i = 0; i < count; i++) indices[i] = (int64_t)((step * count + i) % samples);
    bool labels = ls_model_loss(m->model) == LS_LOSS_CROSS_ENTROPY;
    return ls_dataset_read(m->plan->data, indices, count, m->inputs, labels ? m->labels : NULL,
                           labels ? NULL : m->targets);
}

/* Runs a micro-batch from sample `first` on. Returns its share of the step's loss. */
static double pass(struct member *m, size_t first, size_t count) {
    ls_stream *compute = ls_device_stream(m->device, LS_STREAM_COMPUTE);
    struct ls_shape output = ls_model_output(m->model);
    const char *x = (const char *)m->inputs + first * ls_model_input_nbytes(m->model);
    size_t answer = first * ls_network_answers(ls_model_network(m->model));
    const float *y = ls_model_forward(m->model, x, count, true);
    ls_model_take_loss(m->model, compute, m->loss, m->dy, y,
                       (struct ls_answers){m->labels + answer, m->targets + answer}, count * ls_shape_rows(output),
                       ls_loss_weight(1, m->plan->batch, output));
    ls_model_backward(m->model, m->dy, first > 0);
    return (double)*m->loss;
}

/* Hashes the parts that are not cut. */
static uint64_t hash_alike(const ls_model *model) {
    const ls_parameters *all = model->parameters;
    uint64_t hash = LS_HASH_SEED;
    for (size_t t = 0; t < all->count + all->buffer_count; t++)
        if (!all->cuts || !ls_cut_is_cut(&all->cuts[t]))
            hash = ls_hash(hash, all->tensors[t].data, all->tensors[t].count * sizeof(float));
    return hash;
}

static ls_status train_step(struct member *m, size_t step) {
    size_t micro = m->plan->micro_batches > 0 ? (size_t)m->plan->micro_batches : 1, count = m->plan->batch / micro;
    struct ls_update_state state;
    double loss = 0;
    ls_status status = read_batch(m, step);
    if (status != LS_OK) return status;
    for (size_t i = 0; i < micro; i++) loss += pass(m, i * count, count);
    status = ls_optimizer_step(m->optimizer, NULL);
    ls_model_parameters_changed(m->model);
    m->run->losses[m->rank][step] = loss;
    if (status == LS_OK) status = ls_optimizer_read_states(m->optimizer, &state);
    if (m->rank == 0) m->run->norms[step] = state.norm;
    if (m->group) m->alike[(size_t)m->rank * TEAM_MOST_STEPS + step] = hash_alike(m->model);
    return status == LS_OK ? ls_device_status(m->device) : status;
}

static ls_status evaluate(struct member *m) {
    size_t count = m->plan->batch * ls_shape_count(ls_model_output(m->model));
    ls_status status = read_batch(m, 0);
    const float *y = status == LS_OK ? ls_model_forward(m->model, m->inputs, m->plan->batch, false) : NULL;
    if (!y || m->rank > 0) return status == LS_OK ? ls_device_status(m->device) : status;
    m->run->logit_count = count;
    m->run->logits = malloc(count * sizeof *m->run->logits);
    memcpy(m->run->logits, y, count * sizeof *y);
    return ls_device_status(m->device);
}

static ls_status keep_values(struct member *m) {
    const ls_parameters *all = m->model->parameters;
    size_t count = 0, at = 0;
    ls_status status = LS_OK;
    for (size_t t = 0; t < all->count + all->buffer_count; t++) count += ls_parameters_whole(all, t)->count;
    float *values = malloc(count * sizeof *values);
    for (size_t t = 0; status == LS_OK && t < all->count + all->buffer_count; t++) {
        status = ls_parameters_read(all, t, values + at);
        at += ls_parameters_whole(all, t)->count;
    }
    if (m->rank == 0) {
        m->run->values = values;
        m->run->value_count = count;
    } else {
        free(values);
    }
    return status;
}

static ls_status work(struct member *m) {
    ls_comm_traffic before = {0}, after = {0};
    ls_status status = open_member(m);
    for (size_t k = 0; status == LS_OK && k < m->plan->steps; k++) {
        if (m->group) ls_comm_traffic_read(m->group, &before);
        status = train_step(m, k);
    }
    if (m->group) ls_comm_traffic_read(m->group, &after);
    if (status == LS_OK && m->rank == 0) {
        m->run->activation_bytes = bytes_of(m->device, LS_MEMORY_ACTIVATION);
        m->run->parameter_bytes = bytes_of(m->device, LS_MEMORY_PARAMETER);
        m->run->sent_bytes = after.sent_bytes - before.sent_bytes;
        m->run->operations = after.operations - before.operations;
        m->run->step_nbytes = ls_tensor_step_nbytes(m->model, m->plan->batch);
    }
    if (status == LS_OK) status = keep_values(m);
    return status == LS_OK ? evaluate(m) : status;
}

static void *run_member(void *argument) {
    struct member *m = argument;
    ls_log_capture(m->run->message[m->rank], sizeof m->run->message[m->rank]);
    ls_status status = m->run->status[m->rank] = work(m);
    if (status != LS_OK && m->group) ls_comm_abort(m->group, "a rank of the team failed");
    ls_log_capture(NULL, 0);
    return NULL;
}

static void compare_alike(struct team_run *run, const uint64_t *alike, int ranks, size_t steps) {
    run->alike = true;
    for (int r = 1; r < ranks; r++)
        for (size_t k = 0; k < steps; k++)
            run->alike = run->alike && alike[(size_t)r * TEAM_MOST_STEPS + k] == alike[k];
}

struct team_run *team_try(const struct team_plan *plan) {
    int ranks = plan->ranks > 0 ? plan->ranks : 1;
    struct team_run *run = calloc(1, sizeof *run);
    uint64_t *alike = calloc(TEAM_MOST_RANKS * TEAM_MOST_STEPS, sizeof *alike);
    struct member members[TEAM_MOST_RANKS];
    ls_comm *ends[TEAM_MOST_RANKS] = {0};
    pthread_t threads[TEAM_MOST_RANKS];
    ls_comm_options options = {.world_size = ranks, .timeout_s = 20, .allreduce = "direct"};
    assert_true(run && alike && plan->steps <= TEAM_MOST_STEPS && plan->batch <= 256);
    setenv("LS_CPU_STREAMS", "inline", 1);
    if (plan->ranks > 0) assert_int_equal(ls_comm_create_threads(ends, &options), LS_OK);
    for (int r = 0; r < ranks; r++) {
        members[r] = (struct member){.plan = plan, .run = run, .rank = r, .group = ends[r], .alike = alike};
        assert_int_equal(pthread_create(&threads[r], NULL, run_member, &members[r]), 0);
    }
    for (int r = 0; r < ranks; r++) assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < ranks; r++) close_member(&members[r]);
    compare_alike(run, alike, ranks, plan->steps);
    free(alike);
    return run;
}

struct team_run *team_train(const struct team_plan *plan) {
    struct team_run *run = team_try(plan);
    for (int r = 0; r < plan->ranks || r == 0; r++)
        if (run->status[r] != LS_OK) fail_msg("%s, rank %d of %d: %s", plan->model, r, plan->ranks, run->message[r]);
    return run;
}

void team_free(struct team_run *run) {
    free(run->values);
    free(run->logits);
    free(run);
}

double team_difference(const struct team_run *a, const struct team_run *b) {
    double largest = 0;
    assert_int_equal(a->value_count, b->value_count);
    for (size_t i = 0; i < a->value_count; i++) {
        double difference = fabs((double)a->values[i] - (double)b->values[i]);
        if (!(difference <= largest)) largest = difference;
    }
    return largest;
}
