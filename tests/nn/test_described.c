/* Models of which only is known what they enqueue: in which order, with which numbers, and which gradients are ready
 * behind what. */
#include <stdio.h>
#include <string.h>

#include "common/base/probe.h"
#include "common/nn/described.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

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

static struct ls_described described(bool hooks) {
    return (struct ls_described){.input_nbytes = 12,
                                 .answer_nbytes = 8,
                                 .outputs = 5,
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

/* What probes see of a forward and a backward: "launch NUMBER", "ready P", "called P". */
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

TEST(a_step_enqueues_what_is_described) {
    static const char *const wanted[] = {
        "launch 0 launch 2 ready 2 called 2 ready 1 called 1 launch 3 ready 0 called 0 ",
        "launch 0 launch 2 launch 5 ready 2 called 2 launch 5 ready 1 called 1 launch 3 launch 5 ready 0 called 0 "};
    for (int hooks = 0; hooks < 2; hooks++) {
        ls_device *device;
        ls_model *first, *model;
        struct ls_described d = described(hooks);
        ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1};
        assert_int_equal(ls_device_open(&device, &options), LS_OK);
        assert_int_equal(ls_model_create_described(&first, device, &d, 4), LS_OK);
        assert_int_equal(ls_model_create_like(&model, device, first, 4), LS_OK);
        ls_model_on_grad_ready(model, note_ready, NULL);
        assert_int_equal(ls_model_input_nbytes(model), 12);
        assert_int_equal(ls_model_answer_nbytes(model), 8);
        assert_int_equal(ls_model_outputs(model), 5);
        assert_int_equal(ls_model_parameter_count(model), 3);
        assert_string_equal(ls_model_parameter(model, 1)->name, "b.weight");
        float *state_of, *parameters;
        size_t all, without_buffers;
        ls_model_state(model, &state_of, &all);
        ls_model_parameters(model, &parameters, &without_buffers);
        assert_int_equal(without_buffers, 112 + 208 + 16);
        assert_int_equal(all, without_buffers + 16);
        ls_probe_start(false);
        (void)ls_model_forward(model, NULL, 4, true);
        ls_model_backward(model, NULL, false);
        ls_probe_stop();
        note_records();
        assert_string_equal(text, wanted[hooks]);
        ls_probe_drop();
        ls_model_destroy(model);
        ls_model_destroy(first);
        ls_device_close(device);
    }
}

TEST_IN(scratch, devices_that_compute_are_refused) {
    ls_device *device;
    ls_model *model;
    struct ls_described d = described(false);
    ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = 1};
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    assert_int_equal(ls_model_create_described(&model, device, &d, 4), LS_ERR_INVALID);
    assert_null(model);
    scratch_expect_error("only described", NULL);
    ls_device_close(device);
}
