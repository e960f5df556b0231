/* Models of which only the enqueued operations are known: their order, their numbers, and the gradients that are ready
 * after each. */
#include <stdio.h>
#include <string.h>

#include "common/base/probe.h"
#include "common/nn/described.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

static const struct ls_described_op ops[] = {
    {.name = "a", .part = LS_DESCRIBED_FORWARD, .flops = 7, .bytes = 70},
    {.name = "loss", .part = LS_DESCRIBED_LOSS},
    {.name = "b", .part = LS_DESCRIBED_BACKWARD, .ready_count = 2},
    {.name = "a'", .part = LS_DESCRIBED_BACKWARD, .first_ready = 2, .ready_count = 1},
    {.name = "update", .part = LS_DESCRIBED_UPDATE},
};
static const int ready[] = {2, 1, 0};
static const char *const names[] = {"a.weight", "b.weight", "b.bias"};
static const uint64_t counts[] = {100, 200, 3};

enum { BATCH = 4, BETWEEN = 7, OUTPUTS = 5, KEPT_BY_A = 10, KEPT_BY_B = 20 };

/* Two layers, each a block; the second enqueues nothing in forward. */
static struct ls_described d;
static const struct ls_described_node nodes[] = {{.network = &d,
                                                  .end_forward = 1,
                                                  .first_backward = 3,
                                                  .end_backward = 4,
                                                  .parameter_count = 1,
                                                  .inputs = 3,
                                                  .outputs = BETWEEN,
                                                  .kept_nbytes = KEPT_BY_A},
                                                 {.network = &d,
                                                  .first_backward = 2,
                                                  .end_backward = 3,
                                                  .parameter_count = 2,
                                                  .inputs = BETWEEN,
                                                  .outputs = OUTPUTS,
                                                  .kept_nbytes = KEPT_BY_B,
                                                  .begins_block = true}};

static void describe(bool hooks) {
    d = (struct ls_described){.input_nbytes = 12,
                              .answer_nbytes = 8,
                              .nodes = nodes,
                              .node_count = 2,
                              .parameter_names = names,
                              .parameter_counts = counts,
                              .parameter_count = 3,
                              .buffer_count = 6,
                              .ops = ops,
                              .op_count = 5,
                              .ready = ready,
                              .hooks = hooks};
}

static char text[400];

static void say(const char *what, unsigned number) {
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "%s%u ", what, number);
}

static ls_status note_ready(void *context, size_t parameter) {
    (void)context;
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_MARK, "hook called");
    record.number = (uint32_t)parameter;
    ls_probe_end(&record);
    return LS_OK;
}

/* The probe records of a forward and a backward: "launch NUMBER", "ready P", "called P". */
static void note_records(void) {
    const struct ls_probe_thread *threads;
    size_t count;
    text[0] = '\0';
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    for (size_t i = 0; count > 0 && i < threads[0].count; i++) {
        const struct ls_probe_record *r = &threads[0].records[i];
        if (r->kind == LS_PROBE_LAUNCH) say("launch ", (unsigned)r->elements - 1);
        if (r->kind == LS_PROBE_MARK) say(strcmp(r->label, "gradient ready") == 0 ? "ready " : "called ", r->number);
    }
}

static void expect_sizes(ls_device *device, const ls_model *model) {
    float *all, *parameters;
    size_t count, without_buffers;
    ls_memory_report memory;
    assert_int_equal(ls_model_input_nbytes(model), 12);
    assert_int_equal(ls_model_answer_nbytes(model), 8);
    assert_int_equal(ls_model_outputs(model), OUTPUTS);
    assert_int_equal(ls_model_parameter_count(model), 3);
    assert_string_equal(ls_model_parameter(model, 1)->name, "b.weight");
    ls_model_state(model, &all, &count);
    ls_model_parameters(model, &parameters, &without_buffers);
    assert_int_equal(without_buffers, 112 + 208 + 16);
    assert_int_equal(count, without_buffers + 16);
    ls_device_memory(device, &memory); /* kept activations, and two gradients of the array between the layers */
    assert_int_equal(memory.current_bytes[LS_MEMORY_ACTIVATION],
                     BATCH * (KEPT_BY_A + KEPT_BY_B + 2 * BETWEEN * sizeof(float)));
}

/* Two models of one network, the first of which is destroyed. */
static ls_model *make_second(ls_device *device, const ls_network *network) {
    ls_model *first, *model;
    assert_int_equal(ls_model_create_of(&first, device, network, BATCH, LS_FP32), LS_OK);
    assert_int_equal(ls_model_create_like(&model, device, first, BATCH), LS_OK);
    ls_model_destroy(first);
    return model;
}

TEST(a_step_enqueues_what_is_described) {
    static const char *const wanted[] = {
        "launch 0 launch 2 ready 2 called 2 ready 1 called 1 launch 3 ready 0 called 0 ",
        "launch 0 launch 2 launch 5 ready 2 called 2 launch 5 ready 1 called 1 launch 3 launch 5 ready 0 called 0 "};
    static const char x;
    for (int hooks = 0; hooks < 2; hooks++) {
        ls_device *device;
        ls_network *network;
        ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1};
        describe(hooks);
        assert_int_equal(ls_device_open(&device, &options), LS_OK);
        assert_int_equal(ls_network_create_described(&network, &d), LS_OK);
        ls_model *model = make_second(device, network);
        ls_model_on_grad_ready(model, note_ready, NULL);
        expect_sizes(device, model);
        ls_probe_start(false);
        (void)ls_model_forward(model, &x, BATCH, true);
        ls_model_backward(model, NULL, false);
        ls_probe_stop();
        note_records();
        assert_string_equal(text, wanted[hooks]);
        ls_probe_drop();
        ls_model_destroy(model);
        ls_network_destroy(network);
        ls_device_close(device);
    }
}

/* As on a pipeline's last stage. */
TEST(a_block_of_it_is_run_by_itself) {
    static const char x;
    ls_device *device;
    ls_network *network;
    ls_frame *frame;
    ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1};
    describe(false);
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    assert_int_equal(ls_network_create_described(&network, &d), LS_OK);
    ls_model *model = make_second(device, network);
    assert_int_equal(ls_frame_create(&frame, device, network, LS_FP32, (struct ls_blocks){1, 2}, BATCH), LS_OK);
    assert_int_equal(ls_frame_nbytes(frame), 64 * 2 + 2 * 128); /* places begin at multiples of 64 bytes */
    assert_int_equal(ls_frame_place(frame, NULL, NULL), LS_OK);
    ls_model_on_grad_ready(model, note_ready, NULL);
    ls_probe_start(false);
    (void)ls_frame_forward(frame, ls_model_tensors(model), ls_model_hooks(model), &x, BATCH, LS_TRAINING);
    (void)ls_frame_backward(frame, ls_model_tensors(model), ls_model_hooks(model), NULL, false);
    ls_probe_stop();
    note_records();
    assert_string_equal(text, "launch 2 ready 2 called 2 ready 1 called 1 ");
    ls_probe_drop();
    ls_frame_destroy(frame);
    ls_model_destroy(model);
    ls_network_destroy(network);
    ls_device_close(device);
}

TEST_IN(scratch, a_device_that_computes_is_poisoned) {
    ls_device *device = open_device(0);
    ls_network *network;
    ls_model *model;
    float x[BATCH] = {0};
    describe(false);
    assert_int_equal(ls_network_create_described(&network, &d), LS_OK);
    assert_int_equal(ls_model_create_of(&model, device, network, BATCH, LS_FP32), LS_OK);
    (void)ls_model_forward(model, x, BATCH, true);
    assert_int_equal(ls_device_status(device), LS_ERR_INVALID);
    scratch_expect_error("a described network has nothing to compute", NULL);
    ls_model_destroy(model);
    ls_network_destroy(network);
    ls_device_close(device);
}
