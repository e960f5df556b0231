/* offload — ZeRO-Offload: the optimizer's state is in host memory, and the host computes the update.
 *   idea  : of all data on a device, the moments are read least often, once a step. So they move to the host, which has
 *           more memory, and the host computes the update: copying 4 bytes a parameter to the host (gradients) and 4
 *           back (values) is less than its 16 or 28. The host keeps a copy of the values, so that these are not copied
 *           to it
 *   order : the data that decides about the update stays on the device: norm, loss scale, found_inf, step count. It is
 *           copied to the host before the gradients. The host runs the operations of CPU devices, whose bits all
 *           devices give, so the weights are those of a run without offload
 *   tiles : the ranges are concatenated and cut into tiles, of many small ranges or a part of a large one. While the
 *           host updates a tile, the gradients of the next LS_TILES_AHEAD are copied to it, and the values of earlier
 *           ones back
 *
 *             compute | backward, weigh, begin |                                  | next forward
 *             copy    |                        | g0  g1  g2  g3  g4  g5 ...
 *             host    |                        |    u0  u1  u2  u3  u4  u5 ...
 *             comm    |                        |        v0  v1  v2  v3  v4  v5 -->|
 *
 *   waits : the copy stream waits for the gradients; the host for each tile, so that all gradients may be overwritten
 *           when an update returns; the compute stream for the last values. The host overwrites a tile's values only
 *           after the next step's gradients have arrived, which are copied after those values
 *   cost  : on the device 0 bytes a parameter in place of 4 (momentum) or 8 (Adam); on the host 8 or 12, and
 *           LS_TILES_AHEAD tiles. One thread computes, and the device waits for it: usually slower than the device's
 *           own update, by the ratio of memory bandwidths. It saves memory, not time
 *   fails : on creation, without enough host memory. A copy that fails poisons the device, as elsewhere */
#include "common/optim/offload.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

/* 256 KiB: copies near full speed, and a gradient is still in the core's cache when it is used. */
#define LS_TILE_FLOATS ((size_t)64 << 10)
#define LS_TILES_AHEAD 4

struct ls_offload {
    ls_device *device;
    ls_stream *compute, *down, *up;
    ls_update_op_fn update_op;
    const void *rule;
    /* constant: the offset of each tensor among all of them, in floats; the tensor in which each tile begins */
    size_t *begins, *first_of_tile;
    size_t count, floats, tile_count;
    /* host memory, pinned if the device is a GPU */
    float *values, *moments[2], *staging; /* staging: gradients, LS_TILES_AHEAD tiles */
    struct ls_update_state *states;       /* room for one of each tensor */
    bool has_values;
    ls_event *ready, *arrived[LS_TILES_AHEAD], *returned;
    ls_offload_report report;
};

/* The elements of a tensor that a tile contains. */
struct piece {
    size_t tensor, first, count;
    size_t at; /* among all floats */
};

/* The next piece of the tile, beginning with tensor `from`; false if there is none. */
static bool next_piece(const ls_offload *o, const struct ls_update_tensor *list, size_t tile, size_t from,
                       struct piece *piece) {
    size_t begin = tile * LS_TILE_FLOATS, end = begin + LS_TILE_FLOATS;
    for (size_t t = from; t < o->count && o->begins[t] < end; t++) {
        size_t first = begin > o->begins[t] ? begin - o->begins[t] : 0;
        size_t last = end - o->begins[t] < list[t].count ? end - o->begins[t] : list[t].count;
        *piece = (struct piece){t, first, last - first, o->begins[t] + first};
        if (first < last) return true;
    }
    return false;
}

/* --- an update -------------------------------------------------------------------------------------------------------- */

static float *staged(const ls_offload *o, size_t at) { return o->staging + at % (LS_TILES_AHEAD * LS_TILE_FLOATS); }

static void send_down(ls_offload *o, const struct ls_update_tensor *list, size_t tile, const bool *skip) {
    struct piece piece;
    for (size_t t = o->first_of_tile[tile]; next_piece(o, list, tile, t, &piece); t = piece.tensor + 1) {
        if (skip && skip[piece.tensor]) continue;
        ls_copy(o->down, staged(o, piece.at), list[piece.tensor].gradient + piece.first, piece.count * sizeof(float));
        o->report.moved_nbytes += piece.count * sizeof(float);
    }
    ls_event_record(o->arrived[tile % LS_TILES_AHEAD], o->down);
}

static ls_status update_tile(ls_offload *o, const struct ls_update_tensor *list, size_t state_count, size_t tile,
                             const bool *skip) {
    struct piece piece;
    for (size_t t = o->first_of_tile[tile]; next_piece(o, list, tile, t, &piece); t = piece.tensor + 1) {
        if (skip && skip[piece.tensor]) continue;
        struct ls_update_tensor here = {.parameter = o->values + piece.at,
                                        .gradient = staged(o, piece.at),
                                        .first = o->moments[0] ? o->moments[0] + piece.at : NULL,
                                        .second = o->moments[1] ? o->moments[1] + piece.at : NULL,
                                        .count = piece.count};
        struct ls_op op = o->update_op(o->rule, &o->states[state_count > 1 ? piece.tensor : 0], &here);
        ls_status status = ls_run_op(&op);
        if (status != LS_OK) return status;
        ls_copy(o->up, list[piece.tensor].parameter + piece.first, here.parameter, piece.count * sizeof(float));
        o->report.moved_nbytes += piece.count * sizeof(float);
    }
    return LS_OK;
}

/* Once in a run: copies all values, including those of tensors that this update skips. */
static void take_values(ls_offload *o, const struct ls_update_tensor *list) {
    for (size_t t = 0; t < o->count && !o->has_values; t++)
        ls_copy(o->down, o->values + o->begins[t], list[t].parameter, list[t].count * sizeof(float));
    o->has_values = true;
}

/* All states have the same found_inf. */
static bool is_left_out(const ls_offload *o) { return o->states[0].found_inf != 0; }

ls_status ls_offload_update(ls_offload *o, const struct ls_update_tensor *list, const struct ls_update_state *states,
                            size_t state_count, const bool *skip) {
    o->report.moved_nbytes = 0;
    ls_event_record(o->ready, o->compute);
    ls_stream_wait_event(o->down, o->ready);
    ls_copy(o->down, o->states, states, state_count * sizeof *states);
    take_values(o, list);
    size_t sent = 0;
    while (sent < o->tile_count && sent < LS_TILES_AHEAD) send_down(o, list, sent++, skip);
    for (size_t tile = 0; tile < sent; tile++) {
        ls_status status = ls_event_synchronize(o->arrived[tile % LS_TILES_AHEAD]);
        if (status != LS_OK || ls_device_status(o->device) != LS_OK) return status;
        if (is_left_out(o)) continue; /* no more copies begin; pending ones are waited for */
        status = update_tile(o, list, state_count, tile, skip);
        if (status != LS_OK) return status;
        if (sent < o->tile_count) send_down(o, list, sent++, skip);
    }
    ls_event_record(o->returned, o->up);
    ls_stream_wait_event(o->compute, o->returned);
    return LS_OK;
}

/* --- life ------------------------------------------------------------------------------------------------------------- */

/* Zeros, in separate pages, since they are pinned; NULL: out of memory. */
static void *alloc_host(ls_offload *o, size_t nbytes) {
    const size_t page = 4096;
    size_t rounded = (nbytes / page + 1) * page;
    void *memory = rounded > nbytes ? aligned_alloc(page, rounded) : NULL;
    if (!memory) return NULL;
    memset(memory, 0, rounded);
    (void)ls_device_pin_host(o->device, memory, nbytes); /* if this fails, copies are slower */
    o->report.host_nbytes += nbytes;
    return memory;
}

static void free_host(ls_offload *o, void *memory) {
    ls_device_unpin_host(o->device, memory);
    free(memory);
}

static ls_status lay_out(ls_offload *o, const struct ls_update_tensor *list) {
    size_t elements = 0;
    o->begins = calloc(o->count + 1, sizeof *o->begins);
    for (size_t t = 0; o->begins && t < o->count; t++) {
        o->begins[t] = o->floats;
        o->floats += ls_aligned_floats(list[t].count);
        elements += list[t].count;
    }
    o->tile_count = (o->floats + LS_TILE_FLOATS - 1) / LS_TILE_FLOATS;
    o->first_of_tile = calloc(o->tile_count + 1, sizeof *o->first_of_tile);
    if (!o->begins || !o->first_of_tile)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for an offloaded optimizer");
    for (size_t tile = 0, t = 0; tile < o->tile_count; tile++) {
        while (t + 1 < o->count && o->begins[t + 1] <= tile * LS_TILE_FLOATS) t++;
        o->first_of_tile[tile] = t;
    }
    o->report.step_nbytes = 2 * elements * sizeof(float);
    return LS_OK;
}

static ls_status alloc_all(ls_offload *o, int moment_count) {
    size_t nbytes = o->floats * sizeof(float);
    o->values = alloc_host(o, nbytes);
    o->staging = alloc_host(o, LS_TILES_AHEAD * LS_TILE_FLOATS * sizeof(float));
    o->states = alloc_host(o, (o->count + 1) * sizeof *o->states);
    bool is_there = o->values && o->staging && o->states;
    for (int m = 0; m < moment_count && is_there; m++) {
        o->moments[m] = alloc_host(o, nbytes);
        is_there = o->moments[m] != NULL;
    }
    if (!is_there) {
        return ls_fail(LS_ERR_NO_MEMORY,
                       "the host is out of memory: --offload optimizer needs %d x %zu bytes for values and moments",
                       1 + moment_count, nbytes);
    }
    ls_status status = ls_event_create(&o->ready, "gradients weighed");
    if (status == LS_OK) status = ls_event_create(&o->returned, "values returned");
    for (int i = 0; status == LS_OK && i < LS_TILES_AHEAD; i++)
        status = ls_event_create(&o->arrived[i], "gradients on the host");
    return status;
}

ls_status ls_offload_create(ls_offload **out, ls_device *device, ls_update_op_fn update_op, const void *rule,
                            const struct ls_update_tensor *list, size_t count, int moment_count) {
    *out = NULL;
    ls_offload *o = calloc(1, sizeof *o);
    if (!o) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for an offloaded optimizer");
    o->device = device;
    o->compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    o->down = ls_device_stream(device, LS_STREAM_COPY);
    o->up = ls_device_stream(device, LS_STREAM_COMM);
    o->update_op = update_op;
    o->rule = rule;
    o->count = count;
    ls_status status = lay_out(o, list);
    if (status == LS_OK) status = alloc_all(o, moment_count);
    if (status != LS_OK) {
        ls_offload_destroy(o);
        return status;
    }
    *out = o;
    return LS_OK;
}

float *ls_offload_moment(const ls_offload *o, int moment) { return o->moments[moment]; }

void ls_offload_forget_values(ls_offload *o) { o->has_values = false; }

const ls_offload_report *ls_offload_report_of(const ls_offload *o) { return &o->report; }

void ls_offload_destroy(ls_offload *o) {
    if (!o) return;
    ls_event_destroy(o->ready);
    ls_event_destroy(o->returned);
    for (int i = 0; i < LS_TILES_AHEAD; i++) ls_event_destroy(o->arrived[i]);
    free_host(o, o->values);
    free_host(o, o->staging);
    free_host(o, o->states);
    free_host(o, o->moments[0]);
    free_host(o, o->moments[1]);
    free(o->begins);
    free(o->first_of_tile);
    free(o);
}
