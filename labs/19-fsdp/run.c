/* run — the product's model on the student's units. The probe is linked with --wrap: it records gathers, and which work
 * each of the two streams is ordered after. Each stream has a counter: compute counts blocks left and updates, comm
 * counts gathers. An event stores both counters that its stream is ordered after, and a stream that waits for it takes
 * the larger ones. */
#include "labs/19-fsdp/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nn/model.h"
#include "common/nn/network_internal.h"
#include "common/seam/phase.h"
#include "ddp_procs/units_internal.h"
#include "kernels/kernels.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/network.h"

/* --- networks ------------------------------------------------------------------------------------------------------- */

#define LINEAR "mlp:6,9,7,8,5,4,3"

const char *net_name(enum net net) { return net == NET_LINEAR ? LINEAR : "convolutions, block 1 without parameters"; }
int net_blocks(enum net net) { return net == NET_LINEAR ? 6 : 5; }

static const ls_layer layers[] = {
    {.kind = &ls_conv2d, .name = "conv1", .units = 3, .kernel = 3, .stride = 1, .padding = 1, .relu = true},
    {.kind = &ls_maxpool2d, .name = "pool2", .kernel = 2, .begins_block = true},
    {.kind = &ls_conv2d, .name = "conv3", .units = 4, .kernel = 3, .stride = 1, .padding = 1, .begins_block = true},
    {.kind = &ls_flatten, .name = "flatten", .begins_block = true},
    {.kind = &ls_linear, .name = "fc4", .units = 5, .relu = true},
    {.kind = &ls_linear, .name = "fc5", .units = 3, .begins_block = true},
};

ls_network *net_create(probe *p, enum net net) {
    static const struct ls_shape image = {.channels = 2, .height = 4, .width = 4};
    if (net == NET_LINEAR) return probe_network(p, LINEAR);
    return probe_network_of(p, image, layers, sizeof layers / sizeof *layers);
}

/* --- a rank's record ------------------------------------------------------------------------------------------------ */

/* The work that has run before: counts of blocks left and updates, and of gathers. */
struct behind {
    int computed, gathers;
};

enum { MOST_EVENTS = 16, MOST_BLOCKS = 8 };

struct listener {
    const struct run *run;
    struct seen_pass *seen;
    ddp_units *units;
    struct ls_hooks before; /* the hooks of the units */
    struct behind compute, comm;
    struct event {
        const ls_event *event;
        struct behind behind;
    } events[MOST_EVENTS];
    int event_count;
    int computed, gathers, updated; /* enqueued so far; the last update's number */
    int readers[MOST_CHOSEN];       /* for each buffer the number of the last block that was left */
    int gather_of[MOST_BLOCKS];     /* the number of the last gather of a unit; 0: none */
    int comm_at_gather;             /* the work that the last gather was ordered after */
};

static _Thread_local struct listener *listening;

static void write_text(char *text, size_t capacity, const char *format, ...) LS_PRINTF(3, 4);
static void write_text(char *text, size_t capacity, const char *format, ...) {
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, capacity - length, format, arguments);
    va_end(arguments);
}

static void note_order(const char *format, int block) {
    write_text(listening->seen->order, sizeof listening->seen->order, format, block);
}

static struct behind *behind_of(const ls_event *event) {
    struct listener *l = listening;
    for (int e = 0; e < l->event_count; e++)
        if (l->events[e].event == event) return &l->events[e].behind;
    if (l->event_count < MOST_EVENTS - 1) l->event_count++;
    l->events[l->event_count - 1] = (struct event){.event = event};
    return &l->events[l->event_count - 1].behind;
}

static struct behind *stream_of(const ls_stream *stream) {
    struct listener *l = listening;
    return stream == l->units->compute ? &l->compute : stream == l->units->comm_stream ? &l->comm : NULL;
}

void __real_ls_event_record(ls_event *event, ls_stream *stream);
void __wrap_ls_event_record(ls_event *event, ls_stream *stream);
void __wrap_ls_event_record(ls_event *event, ls_stream *stream) {
    __real_ls_event_record(event, stream);
    if (listening && stream_of(stream)) *behind_of(event) = *stream_of(stream);
}

void __real_ls_stream_wait_event(ls_stream *stream, ls_event *event);
void __wrap_ls_stream_wait_event(ls_stream *stream, ls_event *event);
void __wrap_ls_stream_wait_event(ls_stream *stream, ls_event *event) {
    __real_ls_stream_wait_event(stream, event);
    if (!listening || !stream_of(stream)) return;
    struct behind *own = stream_of(stream), *other = behind_of(event);
    if (other->computed > own->computed) own->computed = other->computed;
    if (other->gathers > own->gathers) own->gathers = other->gathers;
}

/* The block whose slice the rank sends; -1: it sends something else. */
static int block_sent(const ddp_units *u, const float *send, size_t count) {
    for (int b = 0; b < u->parameters->block_count; b++)
        if (send == u->slices + slice_begin(u, b) && count == slice_floats(u, b) && count > 0) return b;
    return -1;
}

static void note_gather(int block) {
    struct listener *l = listening;
    struct seen_pass *seen = l->seen;
    const int reader = l->readers[l->units->buffer_of[block]];
    int needed = l->updated > reader ? l->updated : reader;
    if (needed < l->comm_at_gather) needed = l->comm_at_gather;
    write_text(seen->waits, sizeof seen->waits, "(%d)%s%s ", block,
               l->comm.computed >= l->updated ? "" : " before the update",
               l->comm.computed >= reader ? "" : " while its buffer is read");
    write_text(seen->overlap, sizeof seen->overlap, "(%d)%s ", block,
               l->comm.computed > needed ? " behind a block that it need not wait for" : "");
    l->comm_at_gather = l->comm.computed;
    l->gather_of[block] = l->comm.gathers = ++l->gathers;
}

ls_status __real_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype);
ls_status __wrap_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype);
ls_status __wrap_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype) {
    if (listening) {
        const ddp_units *u = listening->units;
        int block = block_sent(u, send, count);
        bool is_well = block >= 0 && dtype == LS_FP32 && stream == u->comm_stream &&
                       receive == u->buffers[u->buffer_of[block]].values;
        note_order(is_well ? "(%d)" : "(something else: %d)", block);
        if (is_well) note_gather(block);
    }
    return __real_ls_comm_all_gather(comm, stream, send, receive, count, dtype);
}

/* --- hooks ------------------------------------------------------------------------------------------------------ */

/* Records the parameters of a block when it is entered. */
static void look(struct listener *l, int block) {
    const ls_parameters *all = l->units->parameters;
    struct found *found = &l->seen->found[l->seen->found_count];
    (void)ls_device_synchronize(l->units->device);
    if (l->seen->found_count >= MOST_VISITS) return;
    *found = (struct found){.block = block, .values = calloc(MOST_FLOATS, sizeof(float))};
    for (size_t p = 0; found->values && p < all->count; p++) {
        if (all->block_of[p] != block || found->count + all->tensors[p].count > MOST_FLOATS) continue;
        memcpy(found->values + found->count, all->tensors[p].data, all->tensors[p].count * sizeof(float));
        found->count += all->tensors[p].count;
    }
    l->seen->found_count++;
}

static void enter(void *context, int block, bool backward) {
    struct listener *l = context;
    const char *mark = backward ? "'" : "";
    int before = l->compute.gathers;
    l->before.enter(l->before.block_context, block, backward);
    int needed = l->gather_of[block] > before ? l->gather_of[block] : before;
    note_order(backward ? "%d' " : "%d ", block);
    write_text(l->seen->waits, sizeof l->seen->waits, "%d%s%s ", block, mark,
               l->compute.gathers >= needed ? "" : " before its unit is there");
    write_text(l->seen->overlap, sizeof l->seen->overlap, "%d%s%s ", block, mark,
               l->compute.gathers > needed ? " behind a gather that it need not wait for" : "");
    if (l->run->looks) look(l, block);
}

static void leave(void *context, int block, bool backward) {
    struct listener *l = context;
    l->compute.computed = ++l->computed;
    l->readers[l->units->buffer_of[block]] = l->computed;
    l->before.leave(l->before.block_context, block, backward);
}

/* --- a rank's thread ------------------------------------------------------------------------------------------------ */

struct shared {
    struct run *run;
    const ls_network *network;
    ls_comm *beside[MOST_RANKS];
    void *x[MOST_PASSES]; /* in the model's precision */
};

/* This rank's slices of version `version`, all units concatenated. */
static void fill_slices(const ddp_units *u, const struct run *run, int version, float *slices) {
    for (int b = 0; b < u->parameters->block_count; b++)
        memcpy(slices + slice_begin(u, b),
               run->values[version] + u->parameters->block_begins[b] + u->rank * slice_floats(u, b),
               slice_floats(u, b) * sizeof(float));
}

/* On the compute stream, as the optimizer does. */
static void update(struct listener *l, const float *slices) {
    ls_copy(l->units->compute, l->units->slices, slices, l->units->slices_nbytes);
    l->compute.computed = l->updated = ++l->computed;
    ls_model_parameters_changed(l->units->model);
}

static void run_pass(struct listener *l, const struct shared *shared, int pass, int rank) {
    struct run *run = shared->run;
    struct ls_phase_clock *clock = l->units->clock;
    const bool is_step = run->passes[pass] == PASS_STEP;
    struct seen *seen = &run->rank[rank];
    ls_model *model = l->units->model;
    l->seen = &seen->passes[pass];
    clock->bytes[LS_PHASE_GATHER] = 0;
    if (is_step) ls_phase_enter(clock, LS_PHASE_FORWARD);
    const float *y = ls_model_forward(model, shared->x[pass], MOST_ROWS, is_step);
    if (y) ls_copy(l->units->compute, l->seen->y, y, sizeof l->seen->y);
    if (is_step) {
        float *gradients;
        note_order("| ", 0);
        ls_phase_enter(clock, LS_PHASE_BACKWARD);
        ls_model_backward(model, run->dy[pass][rank], false);
        ls_model_gradients(model, &gradients, &seen->gradient_count);
        if (seen->gradient_count > MOST_FLOATS) seen->gradient_count = MOST_FLOATS;
        l->seen->gradients = calloc(MOST_FLOATS, sizeof(float));
        if (l->seen->gradients)
            ls_copy(l->units->compute, l->seen->gradients, gradients, seen->gradient_count * sizeof(float));
    }
    ls_phase_enter(clock, LS_PHASE_OTHER);
    l->seen->nbytes = clock->bytes[LS_PHASE_GATHER];
}

static ls_status run_passes(struct listener *l, const struct shared *shared, int rank) {
    const struct run *run = shared->run;
    float *slices[MOST_VERSIONS] = {0};
    int version = 0;
    ls_status status = l->units->parameters->parameter_floats <= MOST_FLOATS ? LS_OK : LS_ERR_NO_MEMORY;
    for (int v = 0; status == LS_OK && v < MOST_VERSIONS; v++) {
        slices[v] = calloc(MOST_FLOATS, sizeof(float));
        if (!slices[v]) status = LS_ERR_NO_MEMORY;
        if (slices[v]) fill_slices(l->units, run, v, slices[v]);
    }
    if (status == LS_OK) {
        l->before = *ls_model_hooks(l->units->model);
        ls_model_on_blocks(l->units->model, enter, leave, l);
        listening = l;
        for (int i = 0; i < run->pass_count; i++) {
            if (i == 0 || run->updates[i]) update(l, slices[version++ % MOST_VERSIONS]);
            run_pass(l, shared, i, rank);
        }
        status = ls_device_synchronize(l->units->device);
        listening = NULL;
    }
    for (int v = 0; v < MOST_VERSIONS; v++) free(slices[v]);
    return status;
}

static ls_status run_rank(crew_rank *c) {
    const struct shared *shared = c->argument;
    struct run *run = shared->run;
    struct ls_phase_clock clock;
    struct listener listener = {.run = run};
    ls_model *model = NULL;
    ls_status status = ls_device_bind_thread(c->device);
    ls_phase_begin(&clock, c->device);
    if (status == LS_OK)
        status = ls_model_create_segments_of(&model, c->device, shared->network, MOST_ROWS, run->precision, run->every,
                                             true);
    if (status == LS_OK)
        status = ddp_units_create(&listener.units, c->comm, shared->beside[c->rank], model, &clock, run->prefetch);
    if (status == LS_OK) status = ls_model_alloc_gradients(model);
    if (status == LS_OK) status = run_passes(&listener, shared, c->rank);
    ddp_units_destroy(listener.units);
    ls_model_destroy(model);
    run->rank[c->rank].status = status;
    return status;
}

/* --- setup ---------------------------------------------------------------------------------------------------------- */

static void draw(probe *p, struct run *run, struct shared *shared) {
    for (int v = 0; v < MOST_VERSIONS; v++) probe_draw_floats(p, run->values[v], MOST_FLOATS);
    for (int i = 0; i < run->pass_count; i++) {
        const size_t count = sizeof run->x[i] / sizeof *run->x[i];
        probe_draw_floats(p, run->x[i], count);
        for (int r = 0; r < run->ranks; r++) probe_draw_floats(p, run->dy[i][r], MOST_ROWS * MOST_OUTPUTS);
        shared->x[i] = malloc(sizeof run->x[i]);
        if (!shared->x[i]) {
            probe_must(p, "memory", LS_ERR_NO_MEMORY);
            return;
        }
        if (run->precision == LS_FP32) memcpy(shared->x[i], run->x[i], sizeof run->x[i]);
        if (run->precision != LS_FP32) ls_cast_now(run->precision, shared->x[i], run->x[i], count);
    }
}

void run_all(probe *p, struct run *run) {
    ls_network *network = net_create(p, run->net);
    struct shared shared = {.run = run, .network = network};
    ls_comm_options beside = {.world_size = run->ranks, .timeout_s = CREW_TIMEOUT_S, .allreduce = "direct"};
    draw(p, run, &shared);
    probe_must(p, "a group", ls_comm_create_threads(shared.beside, &beside));
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    (void)crew_run(run->ranks, "direct", run->streams ? run->streams : "inline", run_rank, &shared);
    for (int r = 0; r < run->ranks; r++) ls_comm_destroy(shared.beside[r]);
    for (int i = 0; i < run->pass_count; i++) free(shared.x[i]);
    ls_network_destroy(network);
}

void run_release(struct run *run) {
    for (int r = 0; r < run->ranks; r++)
        for (int i = 0; i < run->pass_count; i++) {
            struct seen_pass *seen = &run->rank[r].passes[i];
            free(seen->gradients);
            for (int f = 0; f < seen->found_count; f++) free(seen->found[f].values);
        }
}
