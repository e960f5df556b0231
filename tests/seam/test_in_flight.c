/* Two micro-batches of a step in flight, as in a pipeline, each with its own place and frame: with the real driver, in
 * random orders of the streams, with the bits of sequential micro-batches. */
#include "tests/base/test.h"
#include "tests/parallel/plan.h"

enum { IN_FLIGHT = 2, MOST_ROWS = 3, OUTPUTS = 10 };

static ls_frame *frames[IN_FLIGHT];
static struct ls_device_batch *batches[IN_FLIGHT];
static const float *outputs[IN_FLIGHT];

static void go_back(ls_parallel *p, ls_stream *compute, int f) {
    static float dy[MOST_ROWS * OUTPUTS];
    p->batch = batches[f];
    ls_parallel_take_loss(p, compute, dy, outputs[f], 1);
    (void)ls_frame_backward(frames[f], ls_model_tensors(p->model), &(struct ls_hooks){0}, dy, p->accumulates);
    ls_parallel_end_backward(p, compute);
}

/* Forward 0, forward 1, backward 0, forward 2, backward 1, backward 2. */
static ls_status forward_backward(ls_parallel *p) {
    ls_stream *compute = ls_device_stream(p->devices[0], LS_STREAM_COMPUTE);
    int index = p->batch->index, f = index % IN_FLIGHT;
    ls_parallel_await_batch(p, compute);
    batches[f] = p->batch;
    outputs[f] = ls_frame_forward(frames[f], ls_model_tensors(p->model), &(struct ls_hooks){0}, p->batch->inputs,
                                  p->batch->count, LS_TRAINING);
    if (index > 0) go_back(p, compute, (index - 1) % IN_FLIGHT);
    if (index == p->micro_batches - 1) go_back(p, compute, f);
    return LS_OK;
}

static void let_two_fly(struct session *s) {
    static struct ls_parallel_ops ops;
    const ls_network *network = ls_model_network(s->model);
    struct ls_blocks all = ls_network_blocks(network);
    ops = *s->parallel->ops;
    ops.forward_backward = forward_backward;
    s->parallel->ops = &ops;
    s->parallel->losses[0] = 1; /* the loss of an earlier step */
    assert_int_equal(ls_parallel_add_places(s->parallel, IN_FLIGHT), LS_OK);
    for (int f = 0; f < IN_FLIGHT; f++) {
        assert_int_equal(ls_frame_create(&frames[f], s->devices[0], network, LS_FP32, all, MOST_ROWS), LS_OK);
        assert_int_equal(ls_frame_place(frames[f], NULL, NULL), LS_OK);
    }
}

static void expect_same_bits(const struct plan *plan) {
    struct session runs[2];
    struct samples samples;
    float *gradients[2];
    size_t count;
    uint64_t weights, state[2];
    for (int r = 0; r < 2; r++) {
        assert_int_equal(session_open(&runs[r], plan, NULL), LS_OK);
        if (r == 0) assert_true(samples_make(&samples, plan, runs[r].model, 0, 1));
        if (r == 1) let_two_fly(&runs[r]);
        for (size_t k = 0; k < plan->steps; k++) assert_int_equal(session_step(&runs[r], &samples.batches[k]), LS_OK);
        assert_int_equal(session_hash(&runs[r], &weights, &state[r]), LS_OK);
        ls_model_gradients(runs[r].model, &gradients[r], &count); /* of the last step */
    }
    assert_true(state[0] == state[1]);
    assert_memory_equal(gradients[0], gradients[1], count * sizeof(float));
    assert_memory_equal(runs[0].parallel->losses, runs[1].parallel->losses, plan->steps * sizeof(float));
    for (int f = 0; f < IN_FLIGHT; f++) ls_frame_destroy(frames[f]);
    for (int r = 0; r < 2; r++) session_close(&runs[r]);
    samples_free(&samples);
}

TEST(micro_batches_in_flight_have_the_bits_of_one_after_the_other) {
    static const char *const orders[] = {"inline", "threads", "shuffle:1", "shuffle:2", "shuffle:3", "shuffle:4"};
    struct plan plan = {.model = "convnet", .devices = 1, .batch = 7, .samples = 21, .steps = 3, .accumulate = 3};
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        plan.streams = orders[i];
        expect_same_bits(&plan);
    }
}
