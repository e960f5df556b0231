#include "tests/ddp_procs/reduced.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"

void reduced_create(struct rank *rank, struct reduced *r, const char *model, size_t batch,
                    const ddp_reducer_options *options) {
    memset(r, 0, sizeof *r);
    ls_phase_reset(&r->clock);
    r->compute = ls_device_stream(rank->device, LS_STREAM_COMPUTE);
    CHECK(ls_model_create(&r->model, rank->device, model, batch, LS_FP32) == LS_OK);
    CHECK(ls_model_init(r->model, 0) == LS_OK);
    CHECK(ddp_reducer_create(&r->reducer, rank->comm, r->model, &r->clock, options) == LS_OK);
}

void reduced_destroy(struct reduced *r) {
    ddp_reducer_destroy(r->reducer);
    ls_model_destroy(r->model);
}

void reduced_rank_close(struct rank *rank) {
    ls_memory_report memory;
    ls_device_memory(rank->device, &memory);
    CHECK(memory.current_total_bytes == 0);
    rank_close(rank);
}

void reduced_fill(float *values, size_t count, int rank, int turn) {
    ls_generator generator;
    ls_generator_seed(&generator, (uint64_t)(rank * 100 + turn));
    ls_fill_uniform(&generator, values, count, -1, 1);
}

void reduced_turn(const struct rank *rank, struct reduced *r, size_t batch, int turn) {
    size_t inputs = ls_shape_count(ls_model_input(r->model)), outputs = ls_model_outputs(r->model);
    float *x = calloc(batch * inputs, sizeof *x), *dy = calloc(batch * outputs, sizeof *dy);
    CHECK(x && dy);
    reduced_fill(x, batch * inputs, rank->rank, turn);
    reduced_fill(dy, batch * outputs, rank->rank, turn + 50);
    CHECK(ddp_reducer_arm(r->reducer, true, batch) == LS_OK);
    (void)ls_model_forward(r->model, x, batch, true);
    ls_model_backward(r->model, dy, false);
    CHECK(ddp_reducer_finish(r->reducer) == LS_OK);
    CHECK(ls_stream_synchronize(r->compute) == LS_OK);
    free(x);
    free(dy);
}
