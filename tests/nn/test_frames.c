/* Frames in addition to a model's own: two micro-batches in flight, with the bits of the model's; hooks at blocks. */
#include <stdio.h>
#include <string.h>

#include "common/nn/frame.h"
#include "kernels/kernels.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

enum { BATCH = 6 };

static const struct ls_hooks no_hooks;

struct bench {
    ls_device *device;
    ls_model *model;
    float *x, *dy;
    size_t inputs, outputs;
};

static struct bench bench_open_in(ls_dtype precision, ls_device *device, const char *description) {
    struct bench b = {.device = device, .model = make_model_in(precision, device, description, BATCH, 3)};
    b.inputs = ls_shape_count(ls_model_input(b.model));
    b.outputs = ls_model_outputs(b.model);
    b.x = make_values(device, BATCH * b.inputs, 4);
    b.dy = make_values(device, BATCH * b.outputs, 5);
    if (precision != LS_FP32) { /* as the loader does */
        uint16_t halves[BATCH * 784];
        ls_cast_now(precision, halves, b.x, BATCH * b.inputs);
        memcpy(b.x, halves, BATCH * b.inputs * sizeof *halves);
    }
    return b;
}

static struct bench bench_open(ls_device *device, const char *description) {
    return bench_open_in(LS_FP32, device, description);
}

static void bench_close(struct bench *b) {
    ls_device_free(b->device, b->x);
    ls_device_free(b->device, b->dy);
    ls_model_destroy(b->model);
}

/* Compares gradients, and parameters with buffers, of two benches bit by bit. */
static void expect_equal(const struct bench *a, const struct bench *b) {
    float *one, *other;
    size_t count, other_count;
    assert_int_equal(ls_device_synchronize(a->device), LS_OK);
    assert_int_equal(ls_device_synchronize(b->device), LS_OK);
    ls_model_gradients(a->model, &one, &count);
    ls_model_gradients(b->model, &other, &other_count);
    assert_memory_equal(one, other, count * sizeof(float));
    ls_model_state(a->model, &one, &count);
    ls_model_state(b->model, &other, &other_count);
    assert_memory_equal(one, other, count * sizeof(float));
    for (size_t i = 0; i < ls_model_batchnorm_count(a->model); i++)
        assert_int_equal(*ls_model_batches_tracked(a->model, i), *ls_model_batches_tracked(b->model, i));
}

/* A frame of these blocks for a bench's model. */
static ls_frame *make_frame(const struct bench *b, struct ls_blocks blocks, void *arena) {
    ls_frame *frame;
    assert_int_equal(
        ls_frame_create(&frame, b->device, ls_model_network(b->model), ls_model_precision(b->model), blocks, BATCH),
        LS_OK);
    assert_int_equal(ls_frame_place(frame, arena, NULL), LS_OK);
    return frame;
}

/* --- two micro-batches ----------------------------------------------------------------------------------------------- */

/* Of 4 and 2 rows: both forwards run before either backward. Batch norm's statistics change in the order of the
 * forwards. */
static void expect_two_in_flight(const char *description) {
    ls_device *devices[2] = {open_device(0), open_device(1)};
    struct bench a = bench_open(devices[0], description), b = bench_open(devices[1], description);
    size_t first = 4, second = 2;
    (void)ls_model_forward(a.model, a.x, first, true);
    ls_model_backward(a.model, a.dy, false);
    (void)ls_model_forward(a.model, a.x + first * a.inputs, second, true);
    ls_model_backward(a.model, a.dy + first * a.outputs, true);

    ls_frame *frames[2];
    ls_parameters *parameters = ls_model_tensors(b.model);
    for (int f = 0; f < 2; f++) frames[f] = make_frame(&b, ls_network_blocks(ls_model_network(b.model)), NULL);
    (void)ls_frame_forward(frames[0], parameters, &no_hooks, b.x, first, LS_TRAINING);
    (void)ls_frame_forward(frames[1], parameters, &no_hooks, b.x + first * b.inputs, second, LS_TRAINING);
    (void)ls_frame_backward(frames[0], parameters, &no_hooks, b.dy, false);
    (void)ls_frame_backward(frames[1], parameters, &no_hooks, b.dy + first * b.outputs, true);
    expect_equal(&a, &b);

    for (int f = 0; f < 2; f++) ls_frame_destroy(frames[f]);
    bench_close(&a);
    bench_close(&b);
    for (int d = 0; d < 2; d++) close_empty_device(devices[d]);
}

TEST(two_micro_batches_can_be_in_flight) {
    expect_two_in_flight("mlp:6,9,7,3");
    expect_two_in_flight("convnet");
}

/* --- hooks at blocks ------------------------------------------------------------------------------------------------- */

static char heard[256];

static void note(char what, int block, bool backward) {
    size_t length = strlen(heard);
    snprintf(heard + length, sizeof heard - length, "%c%d%s ", what, block, backward ? "'" : "");
}

static void note_enter(void *context, int block, bool backward) { (void)context, note('(', block, backward); }
static void note_leave(void *context, int block, bool backward) { (void)context, note(')', block, backward); }
static ls_status note_ready(void *context, size_t parameter) {
    (void)context, note('g', (int)parameter, true);
    return LS_OK;
}

TEST(blocks_are_entered_and_left_in_order) {
    ls_device *device = open_device(0);
    struct bench b = bench_open(device, "mlp:6,9,7,3");
    const struct ls_hooks hooks = {.grad_ready = note_ready, .enter = note_enter, .leave = note_leave};
    float *dy = make_values(device, BATCH * 7, 6); /* of the second block's output */
    ls_frame *frame = make_frame(&b, (struct ls_blocks){0, 2}, NULL);
    (void)ls_frame_forward(frame, ls_model_tensors(b.model), &hooks, b.x, BATCH, LS_TRAINING);
    (void)ls_frame_backward(frame, ls_model_tensors(b.model), &hooks, dy, false);
    assert_string_equal(heard, "(0 )0 (1 )1 (1' g3' g2' )1' (0' g1' g0' )0' ");
    ls_device_free(device, dy);
    ls_frame_destroy(frame);
    bench_close(&b);
    close_empty_device(device);
}

/* --- parameters that are loaded for each block -------------------------------------------------------------------- */

/* A block's values are loaded when it is entered, and not read after it is left. */
struct visit {
    ls_parameters *parameters;
    float *values; /* their source: a copy of the slab */
};

static void set_block(const struct visit *visit, int block, bool come) {
    const ls_parameters *all = visit->parameters;
    size_t begin = all->block_begins[block], nbytes = (all->block_begins[block + 1] - begin) * sizeof(float);
    if (come) memcpy(all->slab + begin, visit->values + begin, nbytes);
    if (!come) memset(all->slab + begin, 0xff, nbytes); /* NaN */
    ls_parameters_changed(visit->parameters);
}

static void come(void *context, int block, bool backward) { (void)backward, set_block(context, block, true); }
static void go(void *context, int block, bool backward) { (void)backward, set_block(context, block, false); }

static void expect_visited(const char *description, ls_dtype precision) {
    ls_device *devices[2] = {open_device(0), open_device(1)};
    struct bench a = bench_open_in(precision, devices[0], description);
    struct bench b = bench_open_in(precision, devices[1], description);
    (void)ls_model_forward(a.model, a.x, BATCH, true);
    ls_model_backward(a.model, a.dy, false);

    struct visit visit = {.parameters = ls_model_tensors(b.model)};
    const ls_parameters *all = visit.parameters;
    const struct ls_hooks hooks = {.enter = come, .leave = go, .block_context = &visit};
    visit.values = make_values(devices[1], all->parameter_floats, 0);
    memcpy(visit.values, all->slab, all->parameter_floats * sizeof(float));
    for (int block = 0; block < all->block_count; block++) set_block(&visit, block, false);
    ls_frame *frame = make_frame(&b, ls_network_blocks(ls_model_network(b.model)), NULL);
    (void)ls_frame_forward(frame, visit.parameters, &hooks, b.x, BATCH, LS_TRAINING);
    (void)ls_frame_backward(frame, visit.parameters, &hooks, b.dy, false);
    for (int block = 0; block < all->block_count; block++) set_block(&visit, block, true);
    expect_equal(&a, &b);

    ls_device_free(devices[1], visit.values);
    ls_frame_destroy(frame);
    bench_close(&a);
    bench_close(&b);
    for (int d = 0; d < 2; d++) close_empty_device(devices[d]);
}

TEST(parameters_may_come_when_their_block_is_entered) {
    for (int half = 0; half < 2; half++) {
        expect_visited("mlp:20,30,30,3", half ? LS_BF16 : LS_FP32);
        expect_visited("convnet", half ? LS_BF16 : LS_FP32);
    }
}
