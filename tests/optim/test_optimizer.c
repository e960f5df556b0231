/* Valid and invalid optimizer options, and an optimizer's memory. (Its arithmetic is that of the kernels and is tested
 * with them.) */
#include <math.h>

#include "common/seam/options.h"
#include "common/train/loop.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

TEST(the_defaults_are_pytorchs) {
    for (int kind = LS_SGD; kind <= LS_ADAMW; kind++) {
        ls_optimizer_options o = ls_optimizer_defaults((ls_optimizer_kind)kind);
        assert_int_equal(o.kind, kind);
        assert_true(o.learning_rate == 1e-3 && o.momentum == 0 && !o.nesterov);
        assert_true(o.beta1 == 0.9 && o.beta2 == 0.999 && o.epsilon == 1e-8);
        assert_true(o.weight_decay == (kind == LS_ADAMW ? 0.01 : 0));
    }
}

static void expect_refused(ls_optimizer_options options, const char *text, const char *another) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:3,2", 1, 0);
    ls_optimizer *optimizer = (ls_optimizer *)model;
    assert_int_equal(ls_optimizer_create(&optimizer, model, &options), LS_ERR_USAGE);
    assert_null(optimizer);
    scratch_expect_error(text, another);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST_IN(scratch, options_out_of_range_are_refused) {
    const ls_optimizer_options sgd = ls_optimizer_defaults(LS_SGD), adam = ls_optimizer_defaults(LS_ADAM);
    static const double bad[] = {-1e-9, NAN, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        ls_optimizer_options o = sgd;
        o.learning_rate = bad[i];
        expect_refused(o, "learning rate", "expected at least 0");
        o = adam;
        o.weight_decay = bad[i];
        expect_refused(o, "weight decay", "expected at least 0");
        o = sgd;
        o.momentum = bad[i];
        expect_refused(o, "momentum", "expected at least 0");
        o = adam;
        o.beta1 = bad[i];
        expect_refused(o, "betas", "[0, 1)");
    }
    static const double no_norm[] = {-1, NAN, INFINITY, 1e39, 1e-46}; /* the last two: not in fp32 */
    ls_optimizer_options o = sgd;
    for (size_t i = 0; i < sizeof no_norm / sizeof *no_norm; i++) {
        o.clip_norm = no_norm[i];
        expect_refused(o, "norm to clip at", "positive");
    }
    o = sgd;
    o.scaler.enabled = true;
    o.scaler.init_scale = 0;
    expect_refused(o, "initial scale", "--init-scale");
    o = sgd;
    o.nesterov = true;
    expect_refused(o, "nesterov", "momentum");
    o = adam;
    o.beta2 = 1;
    expect_refused(o, "betas", "[0, 1)");
    o = adam;
    o.momentum = 0.9;
    expect_refused(o, "momentum", "sgd");
    o = ls_optimizer_defaults(LS_ADAMW);
    o.nesterov = true;
    o.momentum = 0.9;
    expect_refused(o, "nesterov", "sgd");
}

static size_t optimizer_bytes(ls_optimizer_kind kind, double momentum) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:64,32", 1, 0);
    ls_optimizer_options options = ls_optimizer_defaults(kind);
    options.momentum = momentum;
    ls_optimizer *optimizer;
    ls_memory_report memory;
    assert_int_equal(ls_optimizer_create(&optimizer, model, &options), LS_OK);
    assert_int_equal(ls_optimizer_step(optimizer, NULL), LS_OK);
    ls_device_memory(device, &memory);
    ls_optimizer_destroy(optimizer);
    ls_model_destroy(model);
    close_empty_device(device);
    return memory.current_bytes[LS_MEMORY_OPTIMIZER];
}

/* Plain SGD needs none, momentum one array of the parameters' size, Adam two, and each a few values that control the
 * update. */
TEST(an_optimizer_needs_the_memory_of_its_moments) {
    size_t parameters = (64 * 32 + 32) * sizeof(float), plain = optimizer_bytes(LS_SGD, 0);
    assert_true(plain > 0 && plain <= 192);
    assert_int_equal(optimizer_bytes(LS_SGD, 0.9), plain + parameters);
    assert_int_equal(optimizer_bytes(LS_ADAM, 0), plain + 2 * parameters);
    assert_int_equal(optimizer_bytes(LS_ADAMW, 0), plain + 2 * parameters);
}

TEST_IN(scratch, no_memory_leaves_nothing_behind) {
    int failures = 0;
    ls_status status = LS_ERR_NO_MEMORY;
    for (size_t capacity = 18000; status != LS_OK; capacity += 4000) {
        ls_device *device;
        ls_device_options device_options = {
            .kind = LS_DEVICE_CPU, .devices_on_node = 1, .memory_capacity_bytes = capacity};
        assert_int_equal(ls_device_open(&device, &device_options), LS_OK);
        ls_model *model = make_model(device, "mlp:64,32", 1, 0);
        ls_optimizer_options options = ls_optimizer_defaults(LS_ADAM);
        ls_optimizer *optimizer;
        status = ls_optimizer_create(&optimizer, model, &options);
        if (status != LS_OK) {
            assert_int_equal(status, LS_ERR_NO_MEMORY);
            assert_null(optimizer);
            scratch_expect_error("optimizer state", "out of memory");
            failures++;
        }
        ls_optimizer_destroy(optimizer);
        ls_model_destroy(model);
        close_empty_device(device);
    }
    assert_true(failures > 1);
}

/* --- from the command line's settings ---------------------------------------------------------------------------- */

TEST(settings_become_optimizer_options) {
    ls_train_options settings = ls_train_defaults();
    settings.optimizer = LS_ADAMW;
    settings.learning_rate = 0.5;
    ls_optimizer_options o = ls_train_optimizer(&settings);
    assert_true(o.kind == LS_ADAMW && o.learning_rate == 0.5 && o.weight_decay == 0.01);
    settings.weight_decay = 0;
    assert_true(ls_train_optimizer(&settings).weight_decay == 0);
    settings.optimizer = LS_SGD;
    settings.momentum = 0.25;
    settings.nesterov = true;
    o = ls_train_optimizer(&settings);
    assert_true(o.kind == LS_SGD && o.momentum == 0.25 && o.nesterov);
    assert_true(o.clip_norm == 0 && !o.scaler.enabled && !o.measure_norm && o.record_count == 0);
    settings.clip_norm = 3;
    settings.init_scale = 32;
    settings.growth_interval = 7;
    settings.precision = LS_BF16; /* bf16 has the range of fp32, and needs no scale */
    assert_true(!ls_train_optimizer(&settings).scaler.enabled);
    settings.precision = LS_FP16;
    settings.metrics = "FILE";
    o = ls_train_optimizer(&settings);
    assert_true(o.clip_norm == 3 && o.scaler.enabled && o.scaler.init_scale == 32 && o.scaler.growth_interval == 7);
    assert_true(o.measure_norm && o.record_count == LS_LOSS_RING);
}

static void expect_bad_settings(const ls_train_options *settings, const char *text, const char *another) {
    ls_train_options copy = *settings;
    assert_int_equal(ls_train_options_check(&copy, 4), LS_ERR_USAGE);
    scratch_expect_error(text, another);
}

/* Rules that a single row of the table cannot express, a line for each. */
TEST_IN(scratch, settings_that_cannot_be_are_refused) {
    const ls_train_options good = ls_train_defaults();
    ls_train_options o = good;
    o.accumulate = 0;
    expect_bad_settings(&o, "--accumulate is 0", NULL);
    o = good;
    o.per_device_batch =
        INT32_MAX / 4; /* with 4 devices and 4096 micro-batches: beyond a step's limit, but within 64 bits */
    o.accumulate = 4096;
    expect_bad_settings(&o, "exceeds the limit", "8796093005824");
    o = good;
    o.save_every = 10;
    expect_bad_settings(&o, "--save-every", "--save FILE");
    o = good;
    o.init = o.resume = "FILE";
    expect_bad_settings(&o, "--init", "--resume");
    o.init = NULL;
    o.resume_if_present = "FILE";
    expect_bad_settings(&o, "--resume and --resume-if-present", NULL);
    o.init = "OTHER"; /* the weights of the first start */
    o.resume = NULL;
    assert_int_equal(ls_train_options_check(&o, 4), LS_OK);
    o = good;
    o.timeout_s = NAN;
    expect_bad_settings(&o, "timeout", NULL);
    o = good;
    o.clip_norm = NAN;
    expect_bad_settings(&o, "norm to clip at", NULL);
    o = good;
    o.precision = LS_FP16;
    o.init_scale = INFINITY;
    expect_bad_settings(&o, "--init-scale", NULL);
    o.precision = LS_FP32;
    assert_int_equal(ls_train_options_check(&o, 4), LS_OK); /* options that are not used are not checked */
    o = good;
    o.learning_rate = 1e308;
    o.lr_scale = LS_RATE_LINEAR;
    expect_bad_settings(&o, "learning rate", "--lr-scale");
    o = good;
    o.min_rate = NAN;
    expect_bad_settings(&o, "--lr-min", NULL);
    o = good;
    o.steps = 5;
    o.warmup_steps = 6;
    expect_bad_settings(&o, "--warmup-steps 6", "5 steps");
    o = good;
    o.lr_schedule = LS_SCHEDULE_COSINE;
    assert_int_equal(ls_train_options_check(&o, 4), LS_OK); /* the data determines the length of an epoch */
    o.data = "stream:data/digits";
    expect_bad_settings(&o, "cosine", "give --steps");
    o.steps = 5;
    assert_int_equal(ls_train_options_check(&o, 4), LS_OK);
}

static void expect_batch(ls_train_options settings, int devices, int64_t batch_size) {
    assert_int_equal(ls_train_options_check(&settings, devices), LS_OK);
    assert_int_equal(settings.batch_size, batch_size);
    assert_int_equal(settings.asked_batch_size, batch_size); /* the value of the option's row */
}

TEST_IN(scratch, the_batch_follows_from_the_devices) {
    ls_train_options settings = ls_train_defaults();
    expect_batch(settings, 4, 64);
    settings.asked_batch_size = 32;
    expect_batch(settings, 4, 32);
    settings = ls_train_defaults();
    settings.per_device_batch = 12;
    expect_batch(settings, 4, 48);
    settings.accumulate = 5;
    expect_batch(settings, 4, 240);
    settings.asked_batch_size = 240; /* agrees with --per-device-batch */
    expect_batch(settings, 4, 240);
    assert_int_equal(ls_train_options_check(&settings, 3), LS_ERR_USAGE);
    scratch_expect_error("--batch-size 240 and --per-device-batch 12 contradict each other", "a batch of 180");
    settings = ls_train_defaults();
    settings.asked_batch_size = 3;
    expect_bad_settings(&settings, "4 devices", "3 samples");
    expect_batch(settings, 3, 3);
    settings.asked_batch_size = (int64_t)1 << 40;
    expect_bad_settings(&settings, "exceeds the limit", NULL);
}

TEST_IN(scratch, data_must_fit_the_model) {
    ls_device *device = open_device(0);
    ls_train_options settings = ls_train_defaults();
    ls_dataset *train = NULL, *test = NULL;
    ls_model *model = make_model(device, "mlp:100,10", 1, 0);
    assert_int_equal(ls_train_open_data(&settings, model, &train, &test), LS_ERR_INVALID);
    assert_true(!train && !test);
    scratch_expect_error("784", "100");
    settings.data = "random:x";
    assert_int_equal(ls_train_open_data(&settings, model, &train, &test), LS_ERR_USAGE);
    scratch_expect_error("random:x", NULL);
    settings.data = "random:3";
    assert_int_equal(ls_train_open_data(&settings, model, &train, &test), LS_OK);
    assert_int_equal(ls_dataset_count(train), 60000);
    assert_int_equal(ls_dataset_count(test), 10000);
    ls_dataset_close(train);
    ls_dataset_close(test);
    train = test = NULL;
    ls_model_destroy(model);
    settings = ls_train_defaults();
    model = make_model(device, "mlp:784,9", 1, 0);
    assert_int_equal(ls_train_open_data(&settings, model, &train, &test), LS_ERR_FORMAT);
    scratch_expect_error("out of range 0 to 8", "9 outputs");
    ls_model_destroy(model);
    close_empty_device(device);
}

/* Two updates. If `move`, the gradients move between them, and their old place is overwritten. */
static uint64_t hash_after_two_updates(ls_optimizer_kind kind, bool move) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:64,32,10", 1, 0);
    ls_optimizer_options options = ls_optimizer_defaults(kind);
    ls_optimizer *optimizer;
    float *gradients;
    size_t count;
    uint64_t hash;
    assert_int_equal(ls_optimizer_create(&optimizer, model, &options), LS_OK);
    ls_model_gradients(model, &gradients, &count);
    float *elsewhere = make_values(device, count, 3);
    for (size_t i = 0; i < count; i++) gradients[i] = elsewhere[i];
    assert_int_equal(ls_optimizer_step(optimizer, NULL), LS_OK);
    for (size_t p = 0; move && p < ls_model_parameter_count(model); p++) {
        ls_model_place_gradient(model, p, elsewhere + (ls_model_parameter(model, p)->gradient - gradients));
    }
    for (size_t i = 0; move && i < count; i++) gradients[i] = NAN;
    assert_int_equal(ls_optimizer_step(optimizer, NULL), LS_OK);
    assert_int_equal(ls_model_hash(model, &hash), LS_OK);
    ls_optimizer_destroy(optimizer);
    ls_device_free(device, elsewhere);
    ls_model_destroy(model);
    close_empty_device(device);
    return hash;
}

TEST(gradients_may_move) {
    for (int kind = LS_SGD; kind <= LS_ADAMW; kind++) {
        assert_true(hash_after_two_updates((ls_optimizer_kind)kind, true) ==
                    hash_after_two_updates((ls_optimizer_kind)kind, false));
    }
}
