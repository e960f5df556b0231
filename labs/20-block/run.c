#include "labs/20-block/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nn/model.h"
#include "common/nn/network_internal.h"
#include "common/seam/step.h"
#include "ddp_procs/distributed.h"
#include "kernels/cpu/cpu.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/network.h"

/* --- floats --------------------------------------------------------------------------------------------------------- */

/* Not NULL for 0 bytes either. */
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

float *floats_read(probe *p, const char *text, size_t count) {
    float *values = floats_new(p, count);
    char *end = (char *)(uintptr_t)text;
    for (size_t i = 0; i < count; i++) values[i] = strtof(end, &end);
    return values;
}

static double largest_of(const float *values, size_t count) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

enum { MOST_SEEN = 200 };

void see_close(probe *p, const char *what, const float *values, size_t count, double scale) {
    const size_t step = count / MOST_SEEN + 1;
    const double bound = 2e-6 * fmax(largest_of(values, count), scale) + 1e-12;
    char name[200];
    for (size_t i = 0; i < count; i++) {
        if (i % step != 0 && i + 1 < count) continue;
        snprintf(name, sizeof name, "%s[%zu]", what, i);
        probe_see_near(p, name, (double)values[i], bound);
    }
}

void see_golden(probe *p, const char *what, const float *values, const char *golden, size_t count) {
    float *wanted = floats_read(p, golden, count);
    const double bound = 2e-6 * largest_of(wanted, count);
    char name[200];
    for (size_t i = 0; i < count; i++) {
        bool same = fabs((double)values[i] - (double)wanted[i]) <= bound;
        snprintf(name, sizeof name, "%s[%zu], whether it is PyTorch's %.6g", what, i, (double)wanted[i]);
        probe_see(p, name, "%s", same ? "yes" : "no");
    }
    free(wanted);
}

/* --- kernels --------------------------------------------------------------------------------------------------------- */

static size_t nbytes_of(const struct norm *n) {
    return n->rows * n->channels * ls_dtype_nbytes(n->halves ? LS_BF16 : LS_FP32);
}

/* The floats in the kernel's type; freed by the caller. */
static void *given(probe *p, const struct norm *n, const float *values) {
    void *as = ask(p, nbytes_of(n));
    if (n->halves) ls_cast_now(LS_BF16, as, values, n->rows * n->channels);
    if (!n->halves && values) memcpy(as, values, nbytes_of(n));
    return as;
}

static void take(const struct norm *n, float *values, const void *from) {
    for (size_t i = 0; n->halves && i < n->rows * n->channels; i++)
        values[i] = ls_bf16_to_float(((const uint16_t *)from)[i]);
    if (!n->halves) memcpy(values, from, nbytes_of(n));
}

void norm_run(probe *p, struct norm *n) {
    const size_t count = n->rows * n->channels;
    if (!n->x) n->x = floats_drawn(p, count);
    if (!n->gamma) n->gamma = floats_drawn(p, n->channels);
    if (!n->dy) n->dy = floats_drawn(p, count);
    n->dx = floats_new(p, count);
    n->dgamma = floats_drawn(p, n->channels); /* `accumulate` adds to these */
    n->dbeta = floats_drawn(p, n->channels);
    void *x = given(p, n, n->x), *dy = given(p, n, n->dy), *y = ask(p, nbytes_of(n)), *dx = ask(p, nbytes_of(n));
    float *beta = floats_new(p, n->channels), *mean = floats_new(p, n->rows), *invstd = floats_new(p, n->rows);
    const ls_dtype dtype = n->halves ? LS_BF16 : LS_FP32;
    const struct ls_kernels *kernels = ls_cpu_kernels();
    probe_must(p, "layer norm's forward",
               kernels->layernorm_forward(&(struct ls_layernorm_forward_arguments){
                   dtype, y, x, n->gamma, beta, mean, invstd, n->rows, n->channels, 1e-5F}));
    probe_must(p, "layer norm's backward",
               kernels->layernorm_backward(&(struct ls_layernorm_backward_arguments){dtype, dx, n->dgamma, n->dbeta, dy,
                                                                                     x, n->gamma, mean, invstd, n->rows,
                                                                                     n->channels, n->accumulate}));
    take(n, n->dx, dx);
    n->steepest = largest_of(invstd, n->rows);
    void *own[] = {x, dy, y, dx, beta, mean, invstd};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
}

void norm_release(struct norm *n) {
    float *all[] = {n->x, n->gamma, n->dy, n->dx, n->dgamma, n->dbeta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

size_t attention_count(const struct attention *a) {
    return (size_t)a->shape.batch * (size_t)a->shape.context * (size_t)a->shape.channels;
}

void attention_run(probe *p, struct attention *a) {
    const size_t count = attention_count(a), saved_nbytes = ls_attention_saved_nbytes(&a->shape);
    void *workspace = ask(p, ls_cpu_attention_workspace_nbytes(&a->shape));
    const struct ls_kernels *kernels = ls_cpu_kernels();
    if (!a->qkv) a->qkv = floats_drawn(p, 3 * count);
    if (!a->dy) a->dy = floats_drawn(p, count);
    a->y = floats_new(p, count);
    a->dqkv = floats_new(p, 3 * count);
    a->scores = ask(p, saved_nbytes);
    probe_must(p, "attention's forward",
               kernels->attention_forward(
                   &(struct ls_attention_forward_arguments){a->shape, a->y, a->qkv, a->scores, workspace}));
    probe_must(p, "attention's backward",
               kernels->attention_backward(&(struct ls_attention_backward_arguments){a->shape, a->dqkv, a->dy, a->qkv,
                                                                                     a->y, a->scores, workspace}));
    free(workspace);
}

void attention_release(struct attention *a) {
    float *all[] = {a->qkv, a->dy, a->y, a->scores, a->dqkv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* --- networks -------------------------------------------------------------------------------------------------------- */

enum { FEATURES = 5, CONTEXT = 4, TOKENS = 7, CLASSES = 3 };

static const char *const names[NETS] = {"an embedding, and a head that has its weight",
                                        "an embedding, and a head of its own",
                                        "three linear layers with one weight, and a fourth",
                                        "linear layers, of which two are not read",
                                        "gpt:2,2,8,4,7,scores",
                                        "a linear layer on vectors",
                                        "a linear layer on each of 4 positions"};

const char *net_name(enum net net) { return names[net]; }

static const ls_layer layers[NETS][6] = {
    [NET_TIED] = {{.kind = &ls_embedding, .name = "t", .units = FEATURES, .vocabulary = TOKENS, .deviation = 0.5},
                  {.kind = &ls_head, .name = "head", .units = TOKENS, .shares = {"t.wte.weight"}}},
    [NET_EMBEDDING] = {{.kind = &ls_embedding, .name = "t", .units = FEATURES, .vocabulary = TOKENS, .deviation = 0.5},
                       {.kind = &ls_linear, .name = "head", .units = TOKENS}},
    [NET_THRICE] = {{.kind = &ls_linear, .name = "a", .units = FEATURES},
                    {.kind = &ls_linear, .name = "b", .units = FEATURES, .relu = true, .shares = {"a.weight"}},
                    {.kind = &ls_linear, .name = "c", .units = FEATURES, .shares = {"a.weight"}},
                    {.kind = &ls_linear, .name = "out", .units = CLASSES}},
    [NET_UNREAD] = {{.kind = &ls_linear, .name = "a", .units = FEATURES},
                    {.kind = &ls_linear, .name = "aside", .units = FEATURES},
                    {.kind = &ls_linear, .name = "b", .units = FEATURES, .reads = {"a"}, .shares = {"aside.weight"}},
                    {.kind = &ls_linear, .name = "beside", .units = FEATURES, .reads = {"b"}, .shares = {"a.weight"}},
                    {.kind = &ls_linear, .name = "out", .units = CLASSES, .reads = {"b"}}},
    [NET_IMAGES] = {{.kind = &ls_linear, .name = "out", .units = CLASSES}},
    [NET_ROWS] = {{.kind = &ls_linear, .name = "out", .units = CLASSES}},
};

ls_network *net_create(probe *p, enum net net) {
    if (net == NET_GPT) return probe_network(p, names[net]);
    const bool takes_tokens = net == NET_TIED || net == NET_EMBEDDING;
    struct ls_shape input = ls_features(takes_tokens ? 1 : FEATURES);
    if (takes_tokens || net == NET_ROWS) input.rows = CONTEXT;
    ls_network *network = ls_network_begin(input, LS_LOSS_CROSS_ENTROPY);
    ls_status status = network ? LS_OK : LS_ERR_NO_MEMORY;
    if (network && takes_tokens) network->input_nbytes = CONTEXT * sizeof(int32_t);
    for (int l = 0; status == LS_OK && l < 6 && layers[net][l].kind; l++)
        status = ls_network_add(network, layers[net][l]);
    if (status == LS_OK) status = ls_network_finish(network);
    probe_must(p, "a network", status);
    return network;
}

/* --- passes ---------------------------------------------------------------------------------------------------------- */

struct passing {
    struct passes *passes;
    const ls_network *network;
    const ls_model *model;
    void *x[MOST_STEPS];
    float *dy[MOST_STEPS];
    int at;
};

static ls_status note_ready(void *context, size_t parameter) {
    const struct passing *run = context;
    char *text = run->passes->ready[run->at];
    size_t length = strlen(text);
    snprintf(text + length, sizeof run->passes->ready[0] - length, "%s%s", length > 0 ? " " : "",
             ls_model_parameter(run->model, parameter)->name);
    return LS_OK;
}

/* Values that are not written stay 7. */
static void run_pass(struct passing *run, ls_model *model, int i) {
    struct passes *passes = run->passes;
    float *gradients;
    size_t count;
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    run->at = i;
    ls_model_gradients(model, &gradients, &count);
    if (!passes->accumulates[i]) ls_fill(compute, gradients, 7, count);
    (void)ls_model_forward(model, run->x[i], passes->batch, true);
    ls_model_backward(model, run->dy[i], passes->accumulates[i]);
    for (size_t g = 0, at = 0; g < ls_model_parameter_count(model); g++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, g);
        ls_copy(compute, passes->gradients[i] + at, tensor->gradient, tensor->count * sizeof(float));
        at += tensor->count;
    }
}

static ls_status run_passes(crew_rank *c) {
    struct passing *run = c->argument;
    ls_model *model = NULL;
    ls_status status = ls_model_create_of(&model, c->device, run->network, run->passes->batch, LS_FP32);
    if (status == LS_OK) status = ls_model_init(model, 5);
    if (status == LS_OK) status = ls_model_alloc_gradients(model);
    if (status == LS_OK) {
        run->model = model;
        ls_model_on_grad_ready(model, note_ready, run);
        for (int i = 0; i < run->passes->count; i++) run_pass(run, model, i);
        status = ls_device_synchronize(c->device);
    }
    ls_model_destroy(model);
    return status;
}

/* Samples of a network: tokens, or floats. */
static void *draw_inputs(probe *p, const ls_network *network, size_t samples) {
    size_t count = samples * ls_shape_count(network->input);
    if (!ls_network_takes_integers(network)) return floats_drawn(p, count);
    int32_t *tokens = ask(p, count * sizeof *tokens);
    for (size_t i = 0; i < count; i++) tokens[i] = (int32_t)probe_draw(p, TOKENS);
    return tokens;
}

void passes_run(probe *p, struct passes *passes) {
    ls_network *network = net_create(p, passes->net);
    struct passing run = {.passes = passes, .network = network};
    for (size_t g = 0; g < network->parameter_count; g++) passes->gradient_count += network->parameters[g].tensor.count;
    for (int i = 0; i < passes->count; i++) {
        run.x[i] = draw_inputs(p, network, passes->batch);
        run.dy[i] = floats_drawn(p, passes->batch * ls_shape_count(ls_network_output(network)));
        passes->gradients[i] = floats_new(p, passes->gradient_count);
    }
    probe_must(p, "the passes", crew_run(1, "direct", "inline", run_passes, &run));
    for (int i = 0; i < passes->count; i++) {
        free(run.x[i]);
        free(run.dy[i]);
    }
    ls_network_destroy(network);
}

void passes_release(struct passes *passes) {
    for (int i = 0; i < passes->count; i++) free(passes->gradients[i]);
}

/* --- training -------------------------------------------------------------------------------------------------------- */

struct trainer {
    struct training *t;
    const ls_network *network;
    void *x[MOST_STEPS][MOST_RANKS];
    int64_t *labels[MOST_STEPS][MOST_RANKS];
    float losses[MOST_RANKS][MOST_STEPS];
};

static size_t samples_of(const struct training *t) { return t->batch * (size_t)t->accumulate; }

static ls_status open_parallel(ls_parallel **out, ls_model **model, const struct trainer *run, const crew_rank *c) {
    ddp_options options = {.comm = c->comm,
                           .max_batch = run->t->batch,
                           .optimizer = ls_optimizer_defaults(LS_SGD),
                           .reducer = {.bucket_cap_mb = 1, .overlap = true}};
    options.optimizer.learning_rate = run->t->learning_rate;
    options.optimizer.momentum = run->t->momentum;
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = ls_model_create_of(model, c->device, run->network, run->t->batch, LS_FP32);
    if (status == LS_OK) status = ls_model_init(*model, run->t->seed);
    if (status == LS_OK) status = ddp_create(out, *model, &options);
    if (status == LS_OK) (*out)->micro_batches = run->t->accumulate;
    return status;
}

static ls_status read_trained(struct training *t, const ls_model *model) {
    ls_status status = LS_OK;
    size_t at = 0;
    for (size_t i = 0; status == LS_OK && i < ls_model_parameter_count(model); i++) {
        status = ls_parameters_read(ls_model_tensors(model), i, t->trained + at);
        at += ls_model_parameter(model, i)->count;
    }
    return status;
}

static ls_status train(crew_rank *c) {
    struct trainer *run = c->argument;
    struct training *t = run->t;
    ls_parallel *parallel = NULL;
    ls_model *model = NULL;
    ls_status status = open_parallel(&parallel, &model, run, c);
    for (int s = 0; status == LS_OK && s < t->steps; s++) {
        ls_batch batch = {.inputs = run->x[s][c->rank],
                          .labels = run->labels[s][c->rank],
                          .count = samples_of(t),
                          .global_count = samples_of(t) * (size_t)t->ranks};
        parallel->step = (uint64_t)s;
        status = ls_step(parallel, &batch);
    }
    ls_status done = ls_device_synchronize(c->device);
    if (status == LS_OK) status = done;
    for (int s = 0; status == LS_OK && s < t->steps; s++) run->losses[c->rank][s] = parallel->losses[s];
    if (status == LS_OK && c->rank == 0) status = read_trained(t, model);
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    return status;
}

/* Consecutive samples; each position's target is the next token. */
static void read_text(struct trainer *run, probe *p, int step) {
    const struct training *t = run->t;
    size_t count = samples_of(t) * ls_shape_rows(run->network->input), begin = (size_t)step * count;
    int32_t *tokens = ask(p, count * sizeof *tokens);
    int64_t *labels = ask(p, count * sizeof *labels);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = t->text[begin + i] - 'A';
        labels[i] = t->text[begin + i + 1] - 'A';
    }
    run->x[step][0] = tokens;
    run->labels[step][0] = labels;
}

static void draw_samples(struct trainer *run, probe *p, int step, int rank) {
    const size_t samples = samples_of(run->t), answers = samples * ls_network_answers(run->network);
    run->x[step][rank] = draw_inputs(p, run->network, samples);
    run->labels[step][rank] = ask(p, answers * sizeof(int64_t));
    for (size_t i = 0; i < answers; i++)
        run->labels[step][rank][i] = (int64_t)probe_draw(p, (uint64_t)ls_network_output(run->network).channels);
}

void training_run(probe *p, struct training *t) {
    ls_network *network = t->model ? probe_network(p, t->model) : net_create(p, t->net);
    struct trainer *run = ask(p, sizeof *run);
    run->t = t;
    run->network = network;
    for (size_t g = 0; g < network->parameter_count; g++) t->trained_count += network->parameters[g].tensor.count;
    t->trained = floats_new(p, t->trained_count);
    for (int s = 0; s < t->steps; s++)
        for (int r = 0; r < t->ranks; r++)
            if (t->text)
                read_text(run, p, s);
            else
                draw_samples(run, p, s, r);
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    probe_must(p, "the ranks", crew_run(t->ranks, "direct", "inline", train, run));
    for (int s = 0; s < t->steps; s++)
        for (int r = 0; r < t->ranks; r++) {
            t->losses[s] += run->losses[r][s] / (float)t->ranks;
            free(run->x[s][r]);
            free(run->labels[s][r]);
        }
    free(run);
    ls_network_destroy(network);
}
