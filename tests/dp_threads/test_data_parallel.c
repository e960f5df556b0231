/* DataParallel as users see it: which device works on which samples, invalid options, and failing replicas.
 * tests/parallel checks that its bits are right. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/chunk.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "dp_threads/dp.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/parallel/plan.h"

static struct plan make(const char *model, int devices, size_t batch, size_t samples) {
    struct plan plan = {.mode = MODE_DP, .devices = devices, .model = model, .batch = batch, .samples = samples};
    plan.steps = 2;
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    return plan;
}

/* A session and its batches. */
struct job {
    struct plan plan;
    struct session session;
    struct samples samples;
};

static void job_open(struct job *job, struct plan plan) {
    job->plan = plan;
    assert_int_equal(session_open(&job->session, &job->plan, NULL), LS_OK);
    assert_true(samples_make(&job->samples, &job->plan, job->session.model, 0, 1));
}

static void job_step(struct job *job, size_t k) {
    assert_int_equal(session_step(&job->session, &job->samples.batches[k]), LS_OK);
    assert_int_equal(session_synchronize(&job->session), LS_OK);
}

/* All memory that DataParallel and the model had allocated has been freed. */
static void job_close(struct job *job) {
    struct session *s = &job->session;
    samples_free(&job->samples);
    if (s->parallel) s->parallel->ops->destroy(s->parallel);
    ls_model_destroy(s->model);
    for (int i = 0; i < s->device_count; i++) close_empty_device(s->devices[i]);
}

/* --- pieces ------------------------------------------------------------------------------------------------------ */

static uint64_t moved_bytes(const struct ls_phase_clock *clock) {
    uint64_t sum = 0;
    for (int phase = 0; phase < LS_PHASE_COUNT; phase++) sum += clock->bytes[phase];
    return sum;
}

/* A device whose clock has advanced in a phase has worked in it. */
static void expect_active(const struct job *job, int active) {
    const struct ls_phase_clock *clocks = job->session.parallel->clocks;
    for (int i = 0; i < job->plan.devices; i++) {
        bool works = moved_bytes(&clocks[i]) > 0 && clocks[i].us[LS_PHASE_FORWARD] > 0;
        bool rests = moved_bytes(&clocks[i]) == 0 && clocks[i].us[LS_PHASE_FORWARD] == 0;
        if (i < active ? !works : !rests) fail_msg("device %d of %d", i, active);
    }
}

TEST(nine_samples_on_four_devices_use_three) {
    struct job job;
    job_open(&job, make("mlp:8,4", 4, 9, 9));
    job_step(&job, 0);
    expect_active(&job, 3);
    job_close(&job);
}

TEST(the_last_batch_may_be_shorter) {
    struct job job;
    job_open(&job, make("mlp:8,4", 8, 64, 64 + 28)); /* 8 each, then 4 each on seven */
    assert_int_equal(job.samples.batches[1].count, 28);
    job_step(&job, 0);
    expect_active(&job, 8);
    for (int i = 0; i < 8; i++) ls_phase_reset(&job.session.parallel->clocks[i]);
    job_step(&job, 1);
    expect_active(&job, 7);
    job_close(&job);
}

/* Bytes as the comments at the head of the files count them. */
TEST(the_bytes_of_each_phase_are_counted) {
    struct job job;
    job_open(&job, make("mlp:8,4", 2, 10, 10));
    job_step(&job, 0);
    float *data;
    size_t parameter_count, gradient_count;
    ls_model_parameters(job.session.model, &data, &parameter_count);
    ls_model_gradients(job.session.model, &data, &gradient_count);
    const struct ls_phase_clock *clocks = job.session.parallel->clocks;
    assert_int_equal(clocks[0].bytes[LS_PHASE_SCATTER], 0);
    assert_int_equal(clocks[1].bytes[LS_PHASE_SCATTER], 5 * (8 + 4) * sizeof(float));
    assert_int_equal(clocks[0].bytes[LS_PHASE_REPLICATE], 0);
    assert_int_equal(clocks[1].bytes[LS_PHASE_REPLICATE], parameter_count * sizeof(float));
    assert_int_equal(clocks[0].bytes[LS_PHASE_GATHER], 5 * 4 * sizeof(float));
    assert_int_equal(clocks[1].bytes[LS_PHASE_GATHER], 5 * 4 * sizeof(float));
    assert_int_equal(clocks[0].bytes[LS_PHASE_REDUCE], 0);
    assert_int_equal(clocks[1].bytes[LS_PHASE_REDUCE], gradient_count * sizeof(float));
    job_close(&job);
}

/* --- results ----------------------------------------------------------------------------------------------------- */

TEST(the_output_device_does_not_change_the_bits) {
    uint64_t weights[3][2], whole[3][2];
    double losses[3][2];
    for (int output = 0; output < 3; output++) {
        struct plan plan = make("convnet", 3, 7, 14); /* 3 3 1 */
        plan.output_device = output;
        struct job job;
        job_open(&job, plan);
        assert_ptr_equal(job.session.parallel->loss_device, job.session.devices[output]);
        for (size_t k = 0; k < 2; k++) {
            job_step(&job, k);
            assert_int_equal(session_hash(&job.session, &weights[output][k], &whole[output][k]), LS_OK);
            assert_int_equal(session_loss(&job.session, k, &losses[output][k]), LS_OK);
            assert_true(whole[output][k] == whole[0][k]);
            assert_true(weights[output][k] == weights[0][k]);
            assert_true(losses[output][k] == losses[0][k] && losses[0][k] > 0);
        }
        assert_true(weights[output][0] != weights[output][1]);
        job_close(&job);
    }
}

TEST(batch_norm_keeps_the_statistics_of_the_first_piece) {
    struct job job;
    job_open(&job, make("convnet", 3, 8, 8)); /* 3 3 2 */
    ls_device *device = open_device(5);
    ls_model *alone = make_model(device, "convnet", 3, 0);
    (void)ls_model_forward(alone, job.samples.inputs, 3, true);
    job_step(&job, 0);
    for (size_t b = 0; b < ls_model_buffer_count(alone); b++) {
        const struct ls_tensor *expected = ls_model_buffer(alone, b), *buffer = ls_model_buffer(job.session.model, b);
        assert_memory_equal(buffer->data, expected->data, expected->count * sizeof(float));
    }
    assert_int_equal(*ls_model_batches_tracked(job.session.model, 0), 1); /* once a step */
    ls_model_destroy(alone);
    close_empty_device(device);
    job_close(&job);
}

TEST(synchronised_batch_norm_keeps_the_statistics_of_the_batch) {
    struct plan plan = make("convnet", 3, 8, 8); /* 3 3 2 */
    plan.sync_bn = true;
    struct job job;
    job_open(&job, plan);
    ls_device *device = open_device(5);
    ls_model *alone = make_model(device, "convnet", 8, 0);
    (void)ls_model_forward(alone, job.samples.inputs, 8, true);
    job_step(&job, 0);
    for (size_t b = 0; b < ls_model_buffer_count(alone); b++) {
        const struct ls_tensor *expected = ls_model_buffer(alone, b), *buffer = ls_model_buffer(job.session.model, b);
        for (size_t i = 0; i < expected->count; i++) {
            assert_true(fabsf(buffer->data[i] - expected->data[i]) <= 1e-6f * (1 + fabsf(expected->data[i])));
        }
    }
    assert_int_equal(*ls_model_batches_tracked(job.session.model, 0), 1); /* once a step */
    /* afterwards the module waits for no other replica */
    job.session.parallel->ops->destroy(job.session.parallel);
    job.session.parallel = NULL;
    (void)ls_model_forward(job.session.model, job.samples.inputs, 3, true);
    ls_model_destroy(alone);
    close_empty_device(device);
    job_close(&job);
}

/* --- invalid options --------------------------------------------------------------------------------------------- */

static void expect_refused(ls_device **devices, ls_model *module, dp_options options, ls_status status,
                           const char *text, const char *another) {
    ls_parallel *parallel = (ls_parallel *)module;
    options.devices = devices;
    options.optimizer = ls_optimizer_defaults(LS_SGD);
    assert_int_equal(dp_create(&parallel, module, &options), status);
    assert_null(parallel);
    scratch_expect_error(text, another);
}

TEST_IN(scratch, what_cannot_work_is_refused) {
    ls_device *devices[] = {open_device(3), open_device(7), open_device(2)};
    ls_model *module;
    assert_int_equal(ls_model_create(&module, devices[1], "mlp:8,4", 8, LS_FP32), LS_OK);
    dp_options options = {.device_count = 3, .max_batch = 8};
    expect_refused(devices, module, options, LS_ERR_INVALID, "on device 3", "on device 7");
    ls_device *right[] = {devices[1], devices[0], devices[2]};
    options.max_batch = 2;
    expect_refused(right, module, options, LS_ERR_USAGE, "2 samples", "3 devices");
    options.max_batch = 8;
    options.output_device = 3;
    expect_refused(right, module, options, LS_ERR_USAGE, "output device 3", "3 devices");
    options.output_device = -1;
    expect_refused(right, module, options, LS_ERR_USAGE, "output device -1", NULL);
    options.output_device = 0;
    options.device_count = 0;
    expect_refused(right, module, options, LS_ERR_USAGE, "0 devices", NULL);
    options.device_count = LS_MAX_DEVICES + 1;
    expect_refused(right, module, options, LS_ERR_USAGE, "65 devices", "64");
    ls_model_destroy(module);
    for (int i = 0; i < 3; i++) close_empty_device(devices[i]);
}

/* Whichever of device 1's allocations fails, no memory stays allocated on either device. */
TEST_IN(scratch, too_little_memory_leaves_nothing_behind) {
    ls_status status = LS_ERR_NO_MEMORY;
    int failures = 0;
    for (size_t capacity = 1000; status != LS_OK; capacity += 1000) {
        ls_device *devices[2] = {open_device(0)};
        ls_device_options small = {
            .kind = LS_DEVICE_CPU, .index = 1, .devices_on_node = 1, .memory_capacity_bytes = capacity};
        assert_int_equal(ls_device_open(&devices[1], &small), LS_OK);
        ls_model *module;
        assert_int_equal(ls_model_create(&module, devices[0], "mlp:32,16", 32, LS_FP32), LS_OK);
        dp_options options = {.devices = devices, .device_count = 2, .max_batch = 32};
        options.optimizer = ls_optimizer_defaults(LS_ADAM);
        ls_parallel *parallel;
        status = dp_create(&parallel, module, &options);
        if (status == LS_OK) {
            parallel->ops->destroy(parallel);
        } else {
            assert_null(parallel);
            scratch_expect_error("device 1 is out of memory", NULL);
            failures++;
        }
        ls_model_destroy(module);
        for (int i = 0; i < 2; i++) close_empty_device(devices[i]);
    }
    assert_true(failures > 3);
}

/* --- a replica fails --------------------------------------------------------------------------------------------- */

static ls_status fail_at_once(const void *arguments) {
    (void)arguments;
    return LS_ERR_IO;
}

static ls_status fail_in_backward(void *context, size_t parameter) {
    (void)parameter;
    return ls_fail(LS_ERR_PEER, "a gradient of %s went astray", (const char *)context);
}

/* `expected` NULL: any text */
static void expect_failing_step(struct job *job, ls_status status, const char *expected) {
    ls_log_init("test", -1, false);
    stderr_begin();
    ls_status got = session_step(&job->session, &job->samples.batches[0]);
    const char *text = stderr_end();
    if (expected) assert_string_equal(text, expected);
    assert_int_equal(got, status);
    (void)session_synchronize(&job->session);
}

TEST(a_failing_stream_names_replica_and_device) {
    struct job job;
    job_open(&job, make("mlp:8,4", 3, 9, 18));
    ls_stream *stream = ls_device_stream(job.session.devices[1], LS_STREAM_COMPUTE);
    ls_stream_launch(stream, "fail", fail_at_once, NULL, 0);
    expect_failing_step(&job, LS_ERR_IO, "test: error: replica 1 on device 1: input or output failed\n");
    job_step(&job, 1); /* the failure was reported and cleared: the devices work again */
    job_close(&job);
}

TEST(the_first_of_several_failing_replicas_wins) {
    struct job job;
    job_open(&job, make("mlp:8,4", 4, 8, 16));
    struct dp *dp = dp_of(job.session.parallel);
    static char names[][8] = {"zero", "one", "two", "three"};
    for (int i = 3; i >= 2; i--) ls_model_on_grad_ready(dp->replicas[i].model, fail_in_backward, names[i]);
    expect_failing_step(&job, LS_ERR_PEER, "test: error: replica 2 on device 2: a gradient of two went astray\n");
    ls_model_on_grad_ready(dp->replicas[0].model, fail_in_backward, names[0]);
    expect_failing_step(&job, LS_ERR_PEER, "test: error: replica 0 on device 0: a gradient of zero went astray\n");
    for (int i = 0; i < 4; i++) ls_model_on_grad_ready(dp->replicas[i].model, NULL, NULL);
    job_step(&job, 1);
    job_close(&job);
}

/* A replica that fails before batch norm, where the others wait for it, ends the step at once and is the one that is
 * named. After that the group cannot be used. */
TEST(a_failing_replica_does_not_keep_the_others_waiting) {
    double timeout_s = ls_wait_timeout_s();
    ls_set_wait_timeout_s(20);
    for (int failing = 1; failing < 3; failing++) {
        struct plan plan = make("convnet", 3, 9, 18);
        plan.sync_bn = true;
        struct job job;
        job_open(&job, plan);
        ls_stream *stream = ls_device_stream(job.session.devices[failing], LS_STREAM_COMPUTE);
        ls_stream_launch(stream, "fail", fail_at_once, NULL, 0);
        char expected[128];
        snprintf(expected, sizeof expected, "test: error: replica %d on device %d: input or output failed\n", failing,
                 failing);
        double begin_us = ls_now_us();
        expect_failing_step(&job, LS_ERR_IO, expected);
        assert_true(ls_now_us() - begin_us < 10e6);
        expect_failing_step(&job, LS_ERR_PEER, NULL);
        job_close(&job);
    }
    ls_set_wait_timeout_s(timeout_s);
}

/* The same in backward, in the hook of the last layer, whose gradients are ready before those of batch norm. */
TEST(a_replica_that_fails_in_backward_does_not_either) {
    struct plan plan = make("convnet", 4, 9, 18); /* 3 3 3 0: the replica without a piece waits, too */
    plan.sync_bn = true;
    struct job job;
    job_open(&job, plan);
    struct dp *dp = dp_of(job.session.parallel);
    static char name[] = "two";
    ls_model_on_grad_ready(dp->replicas[2].model, fail_in_backward, name);
    double begin_us = ls_now_us();
    expect_failing_step(&job, LS_ERR_PEER, NULL);
    assert_true(ls_now_us() - begin_us < 10e6);
    job_close(&job);
}
