/* run — the product's model on the student's segments. The probe is linked with --wrap, to note the inputs passed to frames in
 * the first forward. */
#include "labs/17-recompute/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nn/model_internal.h"
#include "kernels/kernels.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/network.h"

/* --- networks ------------------------------------------------------------------------------------------------------- */

#define LINEAR "mlp:6,9,7,8,5,4,3"

const char *net_name(enum net net) { return net == NET_LINEAR ? LINEAR : "convolutions with batch norm"; }
int net_blocks(enum net net) { return net == NET_LINEAR ? 6 : 5; }

static const ls_layer layers[] = {
    {.kind = &ls_conv2d, .name = "conv1", .units = 3, .kernel = 3, .stride = 1, .padding = 1},
    {.kind = &ls_batchnorm2d, .name = "bn1", .relu = true},
    {.kind = &ls_conv2d, .name = "conv2", .units = 4, .kernel = 3, .stride = 1, .padding = 1, .begins_block = true},
    {.kind = &ls_batchnorm2d, .name = "bn2", .relu = true},
    {.kind = &ls_maxpool2d, .name = "pool2", .kernel = 2},
    {.kind = &ls_conv2d, .name = "conv3", .units = 4, .kernel = 3, .stride = 1, .padding = 1, .begins_block = true},
    {.kind = &ls_batchnorm2d, .name = "bn3"},
    {.kind = &ls_addition, .name = "sum3", .reads = {"pool2", "bn3"}},
    {.kind = &ls_flatten, .name = "flatten", .begins_block = true},
    {.kind = &ls_linear, .name = "fc4", .units = 5, .relu = true},
    {.kind = &ls_linear, .name = "fc5", .units = 3, .begins_block = true},
};

ls_network *net_create(probe *p, enum net net) {
    static const struct ls_shape image = {.channels = 2, .height = 4, .width = 4};
    if (net == NET_LINEAR) return probe_network(p, LINEAR);
    return probe_network_of(p, image, layers, sizeof layers / sizeof *layers);
}

/* --- kept inputs --------------------------------------------------------------------------------------------------- */

/* Inputs passed to frames since noting began. */
static struct {
    bool on;
    int count;
    struct given {
        const void *x;
        size_t count;
        ls_dtype dtype;
    } list[MOST_SEGMENTS];
} noted;

const void *__real_ls_frame_forward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks,
                                    const void *x, size_t batch, ls_forward_kind kind);
const void *__wrap_ls_frame_forward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks,
                                    const void *x, size_t batch, ls_forward_kind kind);

const void *__wrap_ls_frame_forward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks,
                                    const void *x, size_t batch, ls_forward_kind kind) {
    if (noted.on && noted.count < MOST_SEGMENTS)
        noted.list[noted.count++] = (struct given){
            x, batch * ls_shape_count(ls_network_block_input(frame->network, frame->blocks.first)), frame->precision};
    return __real_ls_frame_forward(frame, parameters, hooks, x, batch, kind);
}

static float *copy_floats(const float *values, size_t count) {
    float *copy = malloc((count + 1) * sizeof *copy);
    if (copy && count > 0) memcpy(copy, values, count * sizeof *copy);
    return copy;
}

static void read_kept(struct seen *seen, int step) {
    for (int i = 0; i < noted.count; i++) {
        const struct given *given = &noted.list[i];
        struct kept *kept = &seen->kept[step][i];
        kept->count = given->count;
        if (given->dtype == LS_FP32) {
            kept->values = copy_floats(given->x, given->count);
            continue;
        }
        kept->values = malloc((given->count + 1) * sizeof(float));
        for (size_t v = 0; kept->values && v < given->count; v++) kept->values[v] = ((const uint16_t *)given->x)[v];
    }
    seen->kept_count[step] = noted.count;
}

/* --- hooks ------------------------------------------------------------------------------------------------------ */

struct listener {
    struct seen *seen;
    int step;
};

static void write_order(struct listener *l, const char *format, int block) {
    char *order = l->seen->order[l->step];
    size_t length = strlen(order);
    snprintf(order + length, sizeof l->seen->order[0] - length, format, block);
}

static void enter(void *context, int block, bool backward) { write_order(context, backward ? "%d' " : "%d ", block); }

static ls_status grad_ready(void *context, size_t parameter) {
    struct listener *l = context;
    size_t *count = &l->seen->ready_count[l->step];
    if (*count < MOST_READY) l->seen->ready[l->step][(*count)++] = (int64_t)parameter;
    return LS_OK;
}

/* --- a rank's thread ------------------------------------------------------------------------------------------------ */

struct shared {
    struct run *run;
    const ls_network *network;
    uint64_t seed;
};

static float *copy_buffers(ls_model *model, struct seen *seen, int64_t *tracked) {
    float *state;
    size_t count, parameters;
    ls_model_state(model, &state, &count);
    ls_model_parameters(model, &(float *){NULL}, &parameters);
    seen->buffer_count = count - parameters;
    seen->norm_count = ls_model_batchnorm_count(model);
    for (size_t i = 0; i < seen->norm_count && i < MOST_NORMS; i++) tracked[i] = *ls_model_batches_tracked(model, i);
    return copy_floats(state + parameters, seen->buffer_count);
}

/* Waits between the passes only if kept inputs or buffers are read there. */
static ls_status run_step(ls_model *model, struct listener *l, const struct run *run, int rank) {
    struct seen *seen = l->seen;
    const int s = l->step;
    const size_t rows = run->rows[s][rank];
    const bool looks = run->keeps || !run->streams;
    ls_status status = LS_OK;
    noted.count = 0;
    noted.on = run->keeps;
    const float *y = ls_model_forward(model, seen->x[s], rows, !run->evaluates[s]);
    noted.on = false;
    seen->output[s] = y ? "values" : "nothing";
    if (looks) {
        status = ls_device_synchronize(model->device);
        if (status != LS_OK) return status;
        if (run->keeps) read_kept(seen, s);
        seen->before[s] = copy_buffers(model, seen, seen->tracked_before[s]);
        if (y) seen->y[s] = copy_floats(y, rows * seen->output_count);
    }
    if (run->listens) write_order(l, "| ", 0);
    if (!run->forward_only && !run->evaluates[s]) ls_model_backward(model, seen->dy[s], run->accumulates[s]);
    status = ls_device_synchronize(model->device);
    float *gradients;
    ls_model_gradients(model, &gradients, &seen->gradient_count);
    seen->gradients[s] = copy_floats(gradients, seen->gradient_count);
    seen->buffers[s] = copy_buffers(model, seen, seen->tracked[s]);
    return status;
}

static ls_status run_rank(crew_rank *c) {
    const struct shared *shared = c->argument;
    struct run *run = shared->run;
    struct seen *seen = &run->rank[c->rank];
    struct listener listener = {.seen = seen};
    ls_model *model = NULL;
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK)
        status = ls_model_create_segments_of(&model, c->device, shared->network, run->max_batch, run->precision,
                                             run->every, false);
    if (status == LS_OK) status = ls_model_alloc_gradients(model);
    if (status == LS_OK) status = ls_model_init(model, shared->seed);
    if (status == LS_OK && run->syncs) status = ls_model_sync_batchnorm(model, c->comm);
    if (status == LS_OK) {
        ls_model_on_grad_ready(model, grad_ready, &listener);
        if (run->listens) ls_model_on_blocks(model, enter, NULL, &listener);
        seen->output_count = ls_model_outputs(model);
    }
    for (; status == LS_OK && listener.step < run->steps; listener.step++) {
        ls_comm_traffic traffic;
        status = run_step(model, &listener, run, c->rank);
        ls_comm_traffic_read(c->comm, &traffic);
        seen->collectives[listener.step] = traffic.operations;
    }
    ls_model_destroy(model);
    seen->status = status;
    return status;
}

/* --- setup ---------------------------------------------------------------------------------------------------------- */

/* Code that takes dy for the gradient of a larger output reads wrong values and does not crash. */
enum { SPARE = 1024 };

static void *draw(probe *p, ls_dtype dtype, size_t count) {
    float *values = malloc((count + 1) * sizeof *values);
    uint16_t *halves = dtype == LS_FP32 ? NULL : malloc(count > 0 ? count * sizeof *halves : 1);
    probe_must(p, "memory", values && (halves || dtype == LS_FP32) ? LS_OK : LS_ERR_NO_MEMORY);
    probe_draw_floats(p, values, count);
    if (dtype == LS_FP32) return values;
    ls_cast_now(dtype, halves, values, count);
    free(values);
    return halves;
}

void run_all(probe *p, struct run *run) {
    ls_network *network = net_create(p, run->net);
    struct shared shared = {.run = run, .network = network, .seed = probe_draw(p, 1000000)};
    size_t inputs = ls_shape_count(ls_network_block_input(network, 0));
    size_t outputs = ls_shape_count(ls_network_output(network));
    for (int r = 0; r < run->ranks; r++) {
        for (int s = 0; s < run->steps; s++) {
            run->rank[r].x[s] = draw(p, run->precision, run->rows[s][r] * inputs);
            run->rank[r].dy[s] = draw(p, LS_FP32, run->rows[s][r] * outputs + SPARE);
        }
    }
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    (void)crew_run(run->ranks, "direct", run->streams ? run->streams : "inline", run_rank, &shared);
    ls_network_destroy(network);
}

void run_release(struct run *run) {
    for (int r = 0; r < run->ranks; r++) {
        struct seen *seen = &run->rank[r];
        for (int s = 0; s < run->steps; s++) {
            void *all[] = {seen->x[s], seen->dy[s], seen->y[s], seen->gradients[s], seen->before[s], seen->buffers[s]};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
            for (int i = 0; i < seen->kept_count[s]; i++) free(seen->kept[s][i].values);
        }
    }
}
