/* ranks — batch norm layers as in a model, but with memory from malloc for each array, so that AddressSanitizer sees
 * its end. The probe is linked with --wrap: a collective that is to fail fails here, before it contacts other ranks,
 * and statistics are merged here. */
#include "labs/13-batch-norm/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "common/nn/layer.h"
#include "kernels/cpu/statistics.h"
#include "kernels/kernels.h"
#include "labs/course/probe/crew.h"

size_t bn_count(const struct bn_run *run, int step, int rank) {
    return run->batch[step][rank] * (size_t)run->channels * (size_t)run->height * (size_t)run->width;
}

/* --- collectives that fail --------------------------------------------------------------------------------------- */

static ls_status break_gather, break_reduce;

ls_status __real_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype);
ls_status __wrap_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype);
ls_status __real_ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                    ls_reduce_op op);
ls_status __wrap_ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                    ls_reduce_op op);

ls_status __wrap_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype) {
    if (break_gather != LS_OK) return break_gather;
    return __real_ls_comm_all_gather(comm, stream, send, receive, count, dtype);
}

ls_status __wrap_ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                                    ls_reduce_op op) {
    if (break_reduce != LS_OK) return break_reduce;
    return __real_ls_comm_all_reduce(comm, stream, buffer, count, dtype, op);
}

/* --- the reference merge of statistics --------------------------------------------------------------------------- */

static bool merges_itself;

void __real_ls_statistics_merge(struct ls_statistics *total, struct ls_statistics more);
void __wrap_ls_statistics_merge(struct ls_statistics *total, struct ls_statistics more);

/* From sums of squares; in long double their cancellation is too small to show in a float. */
void __wrap_ls_statistics_merge(struct ls_statistics *total, struct ls_statistics more) {
    if (!merges_itself) {
        __real_ls_statistics_merge(total, more);
        return;
    }
    long double n = total->count, m = more.count, sum = n * total->mean + m * more.mean;
    long double squares = total->m2 + n * total->mean * total->mean + more.m2 + m * more.mean * more.mean;
    if (n + m <= 0) return;
    long double spread = squares - sum * sum / (n + m);
    *total = (struct ls_statistics){(double)(n + m), (double)(sum / (n + m)), (double)(spread > 0 ? spread : 0)};
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* `count` values of scale x (-1 .. 1) + offset in the run's type. */
static void *draw(probe *p, const struct bn_run *run, size_t count, float scale, float offset) {
    size_t nbytes = count * ls_dtype_nbytes(run->dtype);
    float *values = malloc((count + 1) * sizeof *values);
    void *as = malloc(nbytes > 0 ? nbytes : 1); /* malloc(0) may return NULL */
    probe_must(p, "memory", values && as ? LS_OK : LS_ERR_NO_MEMORY);
    probe_draw_floats(p, values, count);
    for (size_t i = 0; i < count; i++) values[i] = scale * values[i] + offset;
    if (run->dtype == LS_FP32) {
        memcpy(as, values, count * sizeof *values);
    } else {
        ls_cast_now(run->dtype, as, values, count);
    }
    free(values);
    return as;
}

static void draw_rank(probe *p, struct bn_run *run, int r) {
    struct bn_rank *rank = &run->rank[r];
    size_t two = 2 * (size_t)run->channels;
    const struct bn_run floats = {.dtype = LS_FP32};
    for (int s = 0; s < run->steps; s++) {
        size_t count = bn_count(run, s, r);
        float shift = run->apart ? 3.0f * (float)(r - 1) + (float)s : 0;
        rank->x[s] = draw(p, run, count, run->apart ? 0.5f + (float)r : 1, shift);
        rank->dy[s] = draw(p, run, count, 1, run->apart ? 0.3f * (float)r : 0);
        rank->y[s] = draw(p, run, count, 0, -7);
        rank->dx[s] = draw(p, run, count, 0, -7);
        rank->seen_gradients[s] = draw(p, &floats, two, 0, -7);
        rank->seen_buffers[s] = draw(p, &floats, two, 0, -7);
    }
    rank->gradients = draw(p, &floats, two, 1, 0); /* `accumulate` adds to these */
    rank->parameters = run->rank[0].parameters;    /* all ranks have the same, and the same buffers at first */
    if (r == 0) rank->parameters = draw(p, &floats, two, 0.5f, 1);
    rank->buffers = draw(p, &floats, two, 0, 1);
    if (r > 0) memcpy(rank->buffers, run->rank[0].buffers, two * sizeof(float));
}

void bn_release(struct bn_run *run) {
    for (int r = 0; r < run->ranks; r++) {
        struct bn_rank *rank = &run->rank[r];
        for (int s = 0; s < run->steps; s++) {
            void *all[] = {rank->x[s],           rank->y[s], rank->dy[s], rank->dx[s], rank->seen_gradients[s],
                           rank->seen_buffers[s]};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
        }
        if (r == 0) free(rank->parameters);
        free(rank->gradients);
        free(rank->buffers);
    }
}

/* --- a rank's thread --------------------------------------------------------------------------------------------- */

static ls_status plan(ls_layer *layer, const struct bn_run *run) {
    *layer = (ls_layer){.kind = &ls_batchnorm2d,
                        .name = "bn",
                        .in = {.channels = run->channels, .height = run->height, .width = run->width},
                        .relu = run->relu};
    return layer->kind->plan(layer);
}

/* Gives saved and shared exactly the memory that the layer asks for. */
static ls_status give_memory(const ls_layer *layer, const struct bn_run *run, struct bn_rank *rank,
                             struct ls_pass *pass) {
    pass->saved = malloc(layer->saved_nbytes);
    pass->shared =
        calloc(1, layer->kind->shared_nbytes(layer, run->ranks)); /* a count of 0, which shows if read too early */
    for (int i = 0; i < 2; i++) {
        size_t at = (size_t)i * (size_t)run->channels;
        pass->parameters[i].data = rank->parameters + at;
        pass->parameters[i].gradient = rank->gradients + at;
        pass->parameters[i].adds = run->accumulate;
        pass->buffers[i] = rank->buffers + at;
    }
    return pass->saved && pass->shared ? LS_OK : LS_ERR_NO_MEMORY;
}

/* Does not wait between the two passes. */
static ls_status step(const ls_layer *layer, struct ls_pass *pass, const struct bn_run *run, struct bn_rank *rank,
                      crew_rank *c, int s) {
    pass->batch = run->batch[s][c->rank];
    pass->x[0] = rank->x[s];
    pass->y = rank->y[s];
    pass->dy = rank->dy[s];
    pass->dx[0] = rank->dx[s];
    size_t nbytes = 2 * (size_t)run->channels * sizeof(float);
    layer->kind->forward(layer, pass);
    ls_comm_traffic_read(c->comm, &rank->traffic[2 * s]);
    if (!run->forward_only) layer->kind->backward(layer, pass);
    ls_status status = ls_device_synchronize(c->device);
    ls_comm_traffic_read(c->comm, &rank->traffic[2 * s + 1]);
    memcpy(rank->seen_gradients[s], rank->gradients, nbytes);
    memcpy(rank->seen_buffers[s], rank->buffers, nbytes);
    return status;
}

static ls_status run_rank(crew_rank *c) {
    struct bn_run *run = c->argument;
    struct bn_rank *rank = &run->rank[c->rank];
    ls_layer layer;
    struct ls_pass pass = {.stream = ls_device_stream(c->device, LS_STREAM_COMPUTE),
                           .dtype = run->dtype,
                           .training = true,
                           .group = c->comm};
    ls_status status = plan(&layer, run); /* not bound to a core: another program may use it */
    if (status == LS_OK) status = give_memory(&layer, run, rank, &pass);
    for (int s = 0; status == LS_OK && s < run->steps; s++) status = step(&layer, &pass, run, rank, c, s);
    rank->status = status;
    free(pass.saved);
    free(pass.shared);
    return status;
}

void bn_run(probe *p, struct bn_run *run) {
    for (int r = 0; r < run->ranks; r++) draw_rank(p, run, r);
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    break_gather = run->break_gather;
    break_reduce = run->break_reduce;
    merges_itself = true;
    (void)crew_run(run->ranks, "direct", run->streams ? run->streams : "inline", run_rank, run);
    break_gather = break_reduce = LS_OK;
    merges_itself = false;
}
