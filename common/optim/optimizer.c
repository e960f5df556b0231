/* optimizer — one update of all ranges.
 *   idea  : a list on the device has the addresses of the ranges, their gradients and their states. So an update is one
 *           operation for any number of ranges: on a GPU one launch instead of 34 for the model "deep". Ranges that
 *           have been skipped count their updates separately; from then on each is a separate operation
 *   weigh : clipping and loss scaling need one property of the gradients before the update: their sum of squares, which
 *           is finite if and only if they are; the ranks of a group add theirs up. It costs one read of the gradients,
 *           4 bytes an element. Unscaling and clipping cost nothing more, since the update multiplies by their common
 *           factor (PyTorch reads and writes the gradients twice)
 *   cost  : SGD 12, with momentum 20, Adam 28 bytes for each element; a comparison of the gradients' addresses, which
 *           DDP changes when it rebuilds its buckets
 *   order : range by range, element by element: nothing is summed, so the bits do not depend on how parameters are cut
 *           into ranges, unless gradients are clipped */
#include "common/optim/optimizer.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/nn/tensor_parallel.h"
#include "common/optim/value_checks.h"
#include "common/optim/weighed.h"
#include "kernels/kernels.h"

struct ls_optimizer {
    ls_device *device;
    ls_stream *compute;
    ls_comm *group;     /* NULL: this process has all ranges */
    ls_comm *cut_group; /* ls_optimizer_share_norm, or NULL */
    ls_optimizer_options options;
    ls_optimizer_range *ranges;
    size_t range_count;
    struct ls_update_state *states; /* device: one for all ranges, or one for each */
    bool own_states;                /* one for each: some ranges have been updated more often than others */
    float *moments[2];              /* SGD uses none or one, Adam two; the ranges' are concatenated */
    ls_offload *offload;            /* has the moments, in host memory; NULL: they are on the device */
    /* all ranges as one list; the gradients are those of the last update */
    struct ls_update_tensor *list, *device_list;
    size_t chunk_count, total;
    struct ls_weighed weighed; /* the ranges that count in the norm */
    bool list_travels;         /* a copy may be pending since the last wait for the stream */
    double rate;               /* in the states, once all enqueued work is done */
    /* the sum of squares, and loss scaling */
    double *square_sum; /* device; NULL: not needed */
    ls_grad_scaler *scaler;
    struct ls_update_state *records; /* device */
};

static int moments_needed(const ls_optimizer_options *options) {
    if (options->kind != LS_SGD) return 2;
    return options->momentum > 0 ? 1 : 0;
}

static float *values_of(const ls_optimizer_range *range) {
    return range->values ? range->values : range->tensor->data + range->first;
}

/* Writes the ranges into the list, without their gradients. Returns the floats of a moment of all ranges, each of which
 * is aligned. */
static size_t lay_out(ls_optimizer *optimizer) {
    size_t floats = 0;
    for (size_t r = 0; r < optimizer->range_count; r++) {
        const ls_optimizer_range *range = &optimizer->ranges[r];
        optimizer->list[r] = (struct ls_update_tensor){
            .parameter = values_of(range), .count = range->count, .first_chunk = optimizer->chunk_count};
        optimizer->chunk_count += (range->count + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        optimizer->total += range->count;
        floats += ls_aligned_floats(range->count);
    }
    return floats;
}

static void place_moments(ls_optimizer *optimizer) {
    float *first = optimizer->moments[0], *second = optimizer->moments[1];
    for (size_t r = 0; r < optimizer->range_count; r++) {
        size_t floats = ls_aligned_floats(optimizer->ranges[r].count);
        optimizer->list[r].first = first;
        optimizer->list[r].second = second;
        if (first) first += floats;
        if (second) second += floats;
    }
}

static const float *gradient_of(const ls_optimizer_range *range) {
    return range->gradient ? range->gradient : range->tensor->gradient + range->first;
}

static bool is_listed(const ls_optimizer *optimizer) {
    for (size_t r = 0; r < optimizer->range_count; r++) {
        if (optimizer->list[r].gradient != gradient_of(&optimizer->ranges[r])) return false;
    }
    return true;
}

/* Enqueues a copy of the list to the device. The addresses of gradients change once or twice in a run. */
static ls_status list_gradients(ls_optimizer *optimizer) {
    if (optimizer->list_travels) { /* the host's list must not change while it is being copied */
        ls_status status = ls_stream_synchronize(optimizer->compute);
        if (status != LS_OK) return status;
    }
    optimizer->list_travels = true;
    for (size_t r = 0; r < optimizer->range_count; r++)
        optimizer->list[r].gradient = gradient_of(&optimizer->ranges[r]);
    ls_copy(optimizer->compute, optimizer->device_list, optimizer->list,
            optimizer->range_count * sizeof *optimizer->list);
    ls_weighed_list(&optimizer->weighed, optimizer->compute, optimizer->list, optimizer->range_count);
    return LS_OK;
}

static struct ls_sgd_rule sgd_rule(const ls_optimizer_options *o) {
    return (struct ls_sgd_rule){(float)o->momentum, 0, (float)o->weight_decay, o->nesterov};
}

static struct ls_adam_rule adam_rule(const ls_optimizer_options *o) {
    return (struct ls_adam_rule){o->beta1, o->beta2, o->epsilon, o->weight_decay, o->kind == LS_ADAMW};
}

static struct ls_op update_op(const void *options, const struct ls_update_state *state,
                              const struct ls_update_tensor *t) {
    const ls_optimizer_options *o = options;
    struct ls_op op = {.id = o->kind == LS_SGD ? LS_OP_sgd : LS_OP_adam};
    if (o->kind == LS_SGD)
        op.arguments.sgd = (struct ls_sgd_arguments){sgd_rule(o), state, t->parameter, t->gradient, t->first, t->count};
    else
        op.arguments.adam =
            (struct ls_adam_arguments){adam_rule(o), state, t->parameter, t->gradient, t->first, t->second, t->count};
    return op;
}

/* Device memory of an optimizer, in its category. */
static ls_status alloc(const ls_optimizer *optimizer, size_t nbytes, const char *what, void *memory) {
    return ls_device_alloc(optimizer->device, LS_MEMORY_OPTIMIZER, nbytes, what, (void **)memory);
}

static ls_status alloc_moments(ls_optimizer *optimizer, size_t nbytes) {
    const ls_optimizer_options *o = &optimizer->options;
    int needed = moments_needed(o);
    ls_status status = LS_OK;
    if (o->offload)
        status = ls_offload_create(&optimizer->offload, optimizer->device, update_op, o, optimizer->list,
                                   optimizer->range_count, needed);
    for (int m = 0; status == LS_OK && m < needed; m++) {
        if (o->offload)
            optimizer->moments[m] = ls_offload_moment(optimizer->offload, m);
        else
            status = alloc(optimizer, nbytes, "optimizer state", &optimizer->moments[m]);
    }
    return status;
}

static ls_status alloc_all(ls_optimizer *optimizer, const ls_optimizer_range *ranges) {
    const ls_optimizer_options *o = &optimizer->options;
    size_t count = optimizer->range_count, list_nbytes = count * sizeof *optimizer->list;
    optimizer->list = calloc(count + 1, sizeof *optimizer->list);
    optimizer->ranges = calloc(count + 1, sizeof *optimizer->ranges);
    if (!optimizer->list || !optimizer->ranges)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for an optimizer");
    for (size_t r = 0; r < count; r++) optimizer->ranges[r] = ranges[r];
    size_t floats = lay_out(optimizer);
    ls_status status = alloc(optimizer, list_nbytes, "list of parameters", &optimizer->device_list);
    optimizer->weighed = (struct ls_weighed){.device_list = optimizer->device_list};
    if (status == LS_OK) status = alloc(optimizer, sizeof *optimizer->states, "update state", &optimizer->states);
    if (status == LS_OK) status = alloc_moments(optimizer, floats * sizeof(float));
    place_moments(optimizer);
    if (status == LS_OK && (o->clip_norm > 0 || o->measure_norm || o->scaler.enabled)) {
        status = alloc(optimizer, sizeof *optimizer->square_sum, "sum of squares", &optimizer->square_sum);
    }
    if (status == LS_OK && o->record_count > 0) {
        status = alloc(optimizer, o->record_count * sizeof *optimizer->records, "records", &optimizer->records);
    }
    if (status != LS_OK) return status;
    return ls_grad_scaler_create(&optimizer->scaler, optimizer->device, &o->scaler);
}

ls_status ls_optimizer_create_of(ls_optimizer **out, ls_device *device, const ls_optimizer_range *ranges,
                                 size_t range_count, ls_comm *group, const ls_optimizer_options *options) {
    *out = NULL;
    ls_status status = ls_optimizer_check(options);
    if (status != LS_OK) return status;
    ls_optimizer *optimizer = calloc(1, sizeof *optimizer);
    if (!optimizer) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for an optimizer");
    optimizer->device = device;
    optimizer->compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    optimizer->group = group;
    optimizer->options = *options;
    optimizer->range_count = range_count;
    optimizer->rate = options->learning_rate;
    status = alloc_all(optimizer, ranges);
    struct ls_update_state start = {.learning_rate = options->learning_rate, .gradient_factor = 1, .scale = 1};
    if (status == LS_OK) status = ls_copy_now(optimizer->compute, optimizer->states, &start, sizeof start);
    if (status == LS_OK) status = list_gradients(optimizer);
    if (status == LS_OK) status = ls_stream_synchronize(optimizer->compute);
    optimizer->list_travels = false;
    if (status != LS_OK) {
        ls_optimizer_destroy(optimizer);
        return status;
    }
    *out = optimizer;
    return LS_OK;
}

ls_status ls_optimizer_create(ls_optimizer **out, ls_model *model, const ls_optimizer_options *options) {
    *out = NULL;
    size_t count = ls_model_parameter_count(model);
    ls_optimizer_range *ranges = calloc(count + 1, sizeof *ranges);
    if (!ranges) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for an optimizer");
    for (size_t p = 0; p < count; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        ranges[p] = (ls_optimizer_range){tensor, 0, tensor->count, NULL, NULL};
    }
    ls_status status = ls_optimizer_create_of(out, ls_model_device(model), ranges, count, NULL, options);
    free(ranges);
    if (status != LS_OK) return status;
    status = ls_optimizer_share_norm(*out, model);
    if (status == LS_OK) return LS_OK;
    ls_optimizer_destroy(*out);
    *out = NULL;
    return status;
}

ls_status ls_optimizer_share_norm(ls_optimizer *optimizer, const ls_model *model) {
    if (!ls_tensor_group(model)) return LS_OK;
    optimizer->cut_group = ls_tensor_group(model);
    ls_status status = ls_weighed_create(&optimizer->weighed, optimizer->device, optimizer->range_count);
    for (size_t r = 0; status == LS_OK && r < optimizer->range_count; r++)
        optimizer->weighed.elsewhere[r] = ls_tensor_counts_elsewhere(model, r);
    return status == LS_OK ? list_gradients(optimizer) : status;
}

static void update_all(ls_optimizer *optimizer) {
    const ls_optimizer_options *o = &optimizer->options;
    const struct ls_update_tensor *list = optimizer->device_list;
    size_t count = optimizer->range_count;
    if (o->kind == LS_SGD) {
        ls_sgd_list(optimizer->compute, sgd_rule(o), optimizer->states, list, count, optimizer->chunk_count,
                    optimizer->total);
    } else {
        ls_adam_list(optimizer->compute, adam_rule(o), optimizer->states, list, count, optimizer->chunk_count,
                     optimizer->total);
    }
}

static void update_one(ls_optimizer *optimizer, size_t index) {
    struct ls_op op = update_op(&optimizer->options, &optimizer->states[index], &optimizer->list[index]);
    ls_enqueue(optimizer->compute, &op);
}

/* Gives each range a copy of the state that they have shared so far. Once in a run. */
static ls_status separate_states(ls_optimizer *optimizer) {
    size_t count = optimizer->range_count;
    struct ls_update_state *states;
    ls_status status = alloc(optimizer, count * sizeof *states, "update state of each parameter", &states);
    if (status != LS_OK) return status;
    for (size_t r = 0; r < count; r++) {
        ls_copy(optimizer->compute, &states[r], optimizer->states, sizeof *states);
    }
    status = ls_stream_synchronize(optimizer->compute); /* so that no enqueued work reads the old state */
    ls_device_free(optimizer->device, optimizer->states);
    optimizer->states = states;
    optimizer->own_states = true;
    return status;
}

static void begin(ls_optimizer *optimizer, size_t state) {
    const ls_optimizer_options *o = &optimizer->options;
    ls_begin_update(optimizer->compute, &optimizer->states[state], o->beta1, o->beta2);
}

size_t ls_optimizer_state_count(const ls_optimizer *optimizer) {
    return optimizer->own_states ? optimizer->range_count : 1;
}

/* For --debug-values (value_checks.h). */
static ls_status check_gradients(const ls_optimizer *optimizer) {
    ls_status status = LS_OK;
    ls_values_at("update", -1);
    for (size_t r = 0; r < optimizer->range_count && status == LS_OK; r++)
        status =
            ls_check_gradient(optimizer->ranges[r].tensor, optimizer->group != NULL, optimizer->ranges[r].count > 0);
    return status;
}

static void label_square_sum(const ls_optimizer *optimizer) {
    ls_label_square_sum(optimizer->square_sum);
    for (size_t r = 0; r < optimizer->range_count; r++)
        ls_label_square_sum_of(optimizer->square_sum, optimizer->ranges[r].tensor);
}

static void scale_gradients(ls_optimizer *optimizer) {
    if (!optimizer->square_sum) return;
    if (ls_values_on()) label_square_sum(optimizer);
    ls_weighed_sum(&optimizer->weighed, optimizer->compute, optimizer->square_sum);
    ls_weighed_add_up(optimizer->group, optimizer->compute, optimizer->square_sum);
    ls_weighed_add_up(optimizer->cut_group, optimizer->compute, optimizer->square_sum);
    if (ls_values_on()) ls_device_fail(optimizer->device, ls_check_square_sum(optimizer->square_sum));
    ls_weigh_gradients(optimizer->compute, optimizer->states, ls_optimizer_state_count(optimizer),
                       ls_grad_scaler_state(optimizer->scaler), optimizer->square_sum,
                       (float)optimizer->options.clip_norm);
}

static ls_status update(ls_optimizer *optimizer, const bool *skip) {
    size_t states = ls_optimizer_state_count(optimizer);
    for (size_t s = 0; s < states; s++) {
        if (skip && skip[s]) continue;
        begin(optimizer, s);
        if (optimizer->own_states && !optimizer->offload) update_one(optimizer, s);
    }
    if (optimizer->offload)
        return ls_offload_update(optimizer->offload, optimizer->list, optimizer->states, states, skip);
    if (!optimizer->own_states) update_all(optimizer);
    return LS_OK;
}

ls_status ls_optimizer_step(ls_optimizer *optimizer, const bool *skip) {
    ls_status status = is_listed(optimizer) ? LS_OK : list_gradients(optimizer);
    if (status == LS_OK && skip && !optimizer->own_states) status = separate_states(optimizer);
    if (status == LS_OK && ls_values_on()) status = check_gradients(optimizer);
    if (status != LS_OK) return status;
    scale_gradients(optimizer);
    status = update(optimizer, skip);
    ls_grad_scaler_update(optimizer->scaler, optimizer->states);
    return status;
}

void ls_optimizer_set_rate(ls_optimizer *optimizer, double rate) {
    if (rate == optimizer->rate) return;
    optimizer->rate = rate;
    ls_set_learning_rate(optimizer->compute, optimizer->states, ls_optimizer_state_count(optimizer), rate);
}

/* --- queries and saved state -------------------------------------------------------------------------------------- */

ls_grad_scaler *ls_optimizer_scaler(const ls_optimizer *optimizer) { return optimizer->scaler; }

const float *ls_optimizer_loss_scale(const ls_optimizer *optimizer) {
    return optimizer->scaler ? &ls_grad_scaler_state(optimizer->scaler)->scale : NULL;
}

size_t ls_optimizer_record_count(const ls_optimizer *optimizer) { return optimizer->options.record_count; }

void ls_optimizer_record(ls_optimizer *optimizer, size_t index) {
    if (!optimizer->records) return;
    ls_copy(optimizer->compute, &optimizer->records[index], optimizer->states, sizeof *optimizer->states);
}

ls_status ls_optimizer_read_records(const ls_optimizer *optimizer, struct ls_update_state *records) {
    size_t nbytes = optimizer->options.record_count * sizeof *records;
    return nbytes > 0 ? ls_copy_now(optimizer->compute, records, optimizer->records, nbytes) : LS_OK;
}

ls_status ls_optimizer_read_states(const ls_optimizer *optimizer, struct ls_update_state *states) {
    size_t nbytes = ls_optimizer_state_count(optimizer) * sizeof *states;
    return ls_copy_now(optimizer->compute, states, optimizer->states, nbytes);
}

ls_status ls_optimizer_write_states(ls_optimizer *optimizer, const struct ls_update_state *states, size_t count) {
    ls_status status = count > 1 && !optimizer->own_states ? separate_states(optimizer) : LS_OK;
    size_t mine = ls_optimizer_state_count(optimizer);
    for (size_t r = 0; status == LS_OK && r < mine; r++) {
        const struct ls_update_state *state = &states[count > 1 ? r : 0];
        status = ls_copy_now(optimizer->compute, &optimizer->states[r], state, sizeof *state);
    }
    optimizer->rate = states[0].learning_rate;
    if (optimizer->offload) ls_offload_forget_values(optimizer->offload);
    return status;
}

const ls_offload_report *ls_optimizer_offload_report(const ls_optimizer *optimizer) {
    return optimizer->offload ? ls_offload_report_of(optimizer->offload) : NULL;
}

const ls_optimizer_range *ls_optimizer_range_at(const ls_optimizer *optimizer, size_t range) {
    return &optimizer->ranges[range];
}

ls_comm *ls_optimizer_group(const ls_optimizer *optimizer) { return optimizer->group; }

size_t ls_optimizer_moment_count(const ls_optimizer *optimizer) { return (size_t)moments_needed(&optimizer->options); }

const char *ls_optimizer_moment_name(const ls_optimizer *optimizer, size_t moment) {
    if (optimizer->options.kind == LS_SGD) return "momentum";
    return moment == 0 ? "first moment" : "second moment";
}

float *ls_optimizer_moment(const ls_optimizer *optimizer, size_t moment, size_t range) {
    return moment == 0 ? optimizer->list[range].first : optimizer->list[range].second;
}

void ls_optimizer_destroy(ls_optimizer *optimizer) {
    if (!optimizer) return;
    ls_device *device = optimizer->device;
    for (int m = 0; m < 2 && !optimizer->options.offload; m++) ls_device_free(device, optimizer->moments[m]);
    ls_offload_destroy(optimizer->offload);
    ls_device_free(device, optimizer->states);
    ls_weighed_destroy(&optimizer->weighed);
    ls_device_free(device, optimizer->device_list);
    ls_device_free(device, optimizer->square_sum);
    ls_device_free(device, optimizer->records);
    ls_grad_scaler_destroy(optimizer->scaler);
    free(optimizer->list);
    free(optimizer->ranges);
    free(optimizer);
}
