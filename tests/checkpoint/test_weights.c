/* Weights written to files and read back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/dtype.h"
#include "common/checkpoint/weights.h"
#include "common/train/loop.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/checkpoint/content.h"
#include "tests/nn/models.h"
#include "tests/train/small_run.h"

static void expect_same_state(const ls_model *left, const ls_model *right) {
    float *a, *b;
    size_t count, other;
    ls_model_state(left, &a, &count);
    ls_model_state(right, &b, &other);
    assert_int_equal(count, other);
    assert_memory_equal(a, b, count * sizeof *a);
}

/* A model whose running statistics and counts differ from the initial ones. */
static ls_model *trained_convnet(ls_device *device) {
    ls_model *model = make_model(device, "convnet", 2, 11);
    float *x = make_values(device, 2 * 784, 1);
    for (int i = 0; i < 3; i++) (void)ls_model_forward(model, x, 2, true);
    *ls_model_batches_tracked(model, 1) = 77;
    ls_device_free(device, x);
    return model;
}

/* --- round trips ------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, what_is_saved_is_loaded) {
    ls_device *device = open_device(0);
    ls_model *saved = trained_convnet(device), *loaded = make_model(device, "convnet", 2, 12);
    const char *path = scratch_path("weights");
    assert_int_equal(ls_weights_save(saved, path, ""), LS_OK);
    assert_int_equal(ls_weights_load(loaded, path, false), LS_OK);
    expect_same_state(saved, loaded);
    assert_int_equal(*ls_model_batches_tracked(loaded, 0), 3);
    assert_int_equal(*ls_model_batches_tracked(loaded, 1), 77);
    uint64_t left, right;
    assert_int_equal(ls_model_hash(saved, &left), LS_OK);
    assert_int_equal(ls_model_hash(loaded, &right), LS_OK);
    assert_true(left == right);
    assert_int_equal(scratch_file_count(), 1);
    ls_model_destroy(saved);
    ls_model_destroy(loaded);
    close_empty_device(device);
}

TEST_IN(scratch, the_file_is_a_state_dict) {
    static const char *const names[] = {
        "conv1.weight",           "conv1.bias",      "bn1.weight", "bn1.bias",   "bn1.running_mean",
        "bn1.running_var",        "conv2.weight",    "conv2.bias", "bn2.weight", "bn2.bias",
        "bn2.running_mean",       "bn2.running_var", "fc.weight",  "fc.bias",    "bn1.num_batches_tracked",
        "bn2.num_batches_tracked"};
    ls_device *device = open_device(0);
    ls_model *model = trained_convnet(device);
    assert_int_equal(ls_weights_save(model, scratch_path("weights"), ""), LS_OK);
    struct content c = content_open(scratch_path("weights"));
    assert_int_equal(c.count, 16);
    for (size_t i = 0; i < 16; i++) assert_non_null(content_find(&c, names[i]));
    const ls_safetensor *weight = content_find(&c, "conv2.weight"),
                        *tracked = content_find(&c, "bn2.num_batches_tracked");
    assert_int_equal(weight->ndim, 4);
    assert_true(weight->shape[0] == 32 && weight->shape[1] == 16 && weight->shape[2] == 5 && weight->shape[3] == 5);
    assert_memory_equal(weight->data, ls_model_parameter(model, 4)->data, weight->nbytes);
    assert_int_equal(tracked->dtype, LS_SAFETENSOR_I64);
    assert_int_equal(tracked->ndim, 0);
    assert_memory_equal(tracked->data, &(int64_t){77}, sizeof(int64_t));
    assert_string_equal(ls_safetensors_metadata(c.file, "format"), "pt");
    ls_safetensors_close(c.file);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST_IN(scratch, counts_of_batches_may_be_missing) {
    ls_device *device = open_device(0);
    ls_model *saved = trained_convnet(device), *loaded = make_model(device, "convnet", 2, 12);
    char path[600];
    snprintf(path, sizeof path, "%s", scratch_path("weights"));
    assert_int_equal(ls_weights_save(saved, path, ""), LS_OK);
    struct content c = content_open(path);
    for (size_t t = 0; t < c.count;) {
        if (strstr(c.tensors[t].name, "num_batches_tracked")) {
            c.tensors[t] = c.tensors[--c.count];
        } else {
            t++;
        }
    }
    assert_int_equal(c.count, 14);
    content_close(&c, path);
    assert_int_equal(ls_weights_load(loaded, path, false), LS_OK);
    expect_same_state(saved, loaded);
    ls_model_destroy(saved);
    ls_model_destroy(loaded);
    close_empty_device(device);
}

/* --- files of other programs ------------------------------------------------------------------------------------- */

/* Prepends `prefix` to every name (or to all but the first). */
static void rename_all(struct content *c, const char *prefix, bool but_one) {
    static char names[CONTENT_TENSORS_MAX][100];
    for (size_t t = but_one; t < c->count; t++) {
        snprintf(names[t], sizeof names[t], "%s%s", prefix, c->tensors[t].name);
        c->tensors[t].name = names[t];
    }
}

TEST_IN(scratch, wrappers_names_are_stripped) {
    static const char *const prefixes[] = {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."};
    ls_device *device = open_device(0);
    ls_model *saved = trained_convnet(device), *loaded = make_model(device, "convnet", 2, 12);
    assert_int_equal(ls_weights_save(saved, scratch_path("weights"), ""), LS_OK);
    for (size_t i = 0; i < 4; i++) {
        char words[100];
        struct content c = content_open(scratch_path("weights"));
        rename_all(&c, prefixes[i], false);
        content_close(&c, scratch_path("wrapped"));
        assert_int_equal(ls_model_init(loaded, 12), LS_OK);
        stderr_begin();
        assert_int_equal(ls_weights_load(loaded, scratch_path("wrapped"), true), LS_OK);
        snprintf(words, sizeof words, "/wrapped: 16 names without their \"%s\"\n", prefixes[i]);
        assert_non_null(strstr(stderr_end(), words));
        expect_same_state(saved, loaded);
        assert_int_equal(*ls_model_batches_tracked(loaded, 1), 77);
    }
    struct content c = content_open(scratch_path("weights"));
    rename_all(&c, "module.", true);
    content_close(&c, scratch_path("wrapped"));
    assert_int_equal(ls_weights_load(loaded, scratch_path("wrapped"), true), LS_ERR_INVALID);
    scratch_expect_error("has no tensor conv", "which the model needs");
    ls_model_destroy(saved);
    ls_model_destroy(loaded);
    close_empty_device(device);
}

TEST_IN(scratch, other_precisions_are_converted) {
    ls_device *device = open_device(0);
    ls_model *saved = make_model(device, "mlp:8,4", 1, 3), *loaded = make_model(device, "mlp:8,4", 1, 5);
    float *weight = ls_model_parameter(saved, 0)->data, *bias = ls_model_parameter(saved, 1)->data;
    uint16_t halves[32];
    double wide[4] = {0.1, -1e-310, 1e30, 3};
    assert_int_equal(ls_weights_save(saved, scratch_path("weights"), ""), LS_OK);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct content c = content_open(scratch_path("weights"));
        for (size_t i = 0; i < 32; i++)
            halves[i] = bf16 ? ls_bf16_from_float(weight[i]) : ls_fp16_from_float(weight[i]);
        ls_safetensor *tensor = content_find(&c, "fc1.weight");
        tensor->dtype = bf16 ? LS_SAFETENSOR_BF16 : LS_SAFETENSOR_F16;
        tensor->data = halves;
        tensor->nbytes = sizeof halves;
        tensor = content_find(&c, "fc1.bias");
        tensor->dtype = LS_SAFETENSOR_F64;
        tensor->data = wide;
        tensor->nbytes = sizeof wide;
        content_close(&c, scratch_path("other"));
        stderr_begin();
        assert_int_equal(ls_weights_load(loaded, scratch_path("other"), true), LS_OK);
        assert_non_null(strstr(
            stderr_end(), bf16 ? "/other: 1 tensors converted from F64 to F32; 1 tensors converted from BF16 to F32\n"
                               : "/other: 1 tensors converted from F64 to F32; 1 tensors converted from F16 to F32\n"));
        const float *got = ls_model_parameter(loaded, 0)->data;
        for (size_t i = 0; i < 32; i++) {
            assert_true(got[i] == (bf16 ? ls_bf16_to_float(halves[i]) : ls_fp16_to_float(halves[i])));
            assert_true(got[i] != weight[i]);
        }
        got = ls_model_parameter(loaded, 1)->data;
        assert_true(got[0] == 0.1f && got[1] == 0 && got[2] == 1e30f && got[3] == 3 && got[0] != bias[0]);
    }
    ls_model_destroy(saved);
    ls_model_destroy(loaded);
    close_empty_device(device);
}

/* Values that would make every loss NaN: the message names the tensor in the file. */
TEST_IN(scratch, what_is_not_finite_is_named) {
    ls_device *device = open_device(0);
    ls_model *saved = make_model(device, "mlp:8,4", 1, 3), *loaded = make_model(device, "mlp:8,4", 1, 5);
    uint64_t before, after;
    double wide[4] = {0.1, 2, 1e300, 3}; /* 1e300 is too large for fp32 */
    assert_int_equal(ls_model_hash(loaded, &before), LS_OK);
    ls_model_parameter(saved, 0)->data[30] = NAN;
    assert_int_equal(ls_weights_save(saved, scratch_path("weights"), LS_MODULE_PREFIX), LS_OK);
    assert_int_equal(ls_weights_load(loaded, scratch_path("weights"), true), LS_ERR_INVALID);
    scratch_expect_error("/weights: module.fc1.weight holds NaN at element 30 of 32", "expected finite numbers");
    ls_model_parameter(saved, 0)->data[30] = 0;
    assert_int_equal(ls_weights_save(saved, scratch_path("weights"), ""), LS_OK);
    struct content c = content_open(scratch_path("weights"));
    ls_safetensor *bias = content_find(&c, "fc1.bias");
    bias->dtype = LS_SAFETENSOR_F64;
    bias->data = wide;
    bias->nbytes = sizeof wide;
    content_close(&c, scratch_path("other"));
    assert_int_equal(ls_weights_load(loaded, scratch_path("other"), true), LS_ERR_INVALID);
    scratch_expect_error("/other: fc1.bias holds an infinity at element 2 of 4", NULL);
    assert_int_equal(ls_model_hash(loaded, &after), LS_OK);
    assert_true(before == after);
    ls_model_destroy(saved);
    ls_model_destroy(loaded);
    close_empty_device(device);
}

/* Only the weights of a checkpoint are used. */
TEST_IN(scratch, a_checkpoint_gives_its_weights) {
    ls_train_options options = small_run_options();
    struct small_run r = small_run_open(&options);
    r.options.save = scratch_path("checkpoint");
    assert_int_equal(small_run_train(&r), LS_OK);
    ls_model *loaded = make_model(r.device, "mlp:784,16,10", 1, 5);
    stderr_begin();
    assert_int_equal(ls_weights_load(loaded, scratch_path("checkpoint"), false), LS_OK);
    assert_string_equal(stderr_end(), "");
    stderr_begin();
    assert_int_equal(ls_weights_load(loaded, scratch_path("checkpoint"), true), LS_OK);
    assert_non_null(strstr(stderr_end(), "/checkpoint: 10 tensors of a checkpoint left out\n"));
    expect_same_state(r.model, loaded);
    struct content c = content_open(scratch_path("checkpoint")); /* without the lines that mark it as a checkpoint */
    c.line_count = 0;
    content_close(&c, scratch_path("other"));
    assert_int_equal(ls_weights_load(loaded, scratch_path("other"), true), LS_ERR_INVALID);
    scratch_expect_error("has a tensor optimizer.", "which the model does not have");
    ls_model_destroy(loaded);
    small_run_close(&r);
}

/* --- files that do not fit --------------------------------------------------------------------------------------- */

static void drop(struct content *c) { content_drop(c, "bn2.running_var"); }

static void add(struct content *c) {
    c->tensors[c->count] = *content_find(c, "fc.bias");
    c->tensors[c->count++].name = "fc2.bias";
}

static void reshape(struct content *c) {
    ls_safetensor *weight = content_find(c, "fc.weight");
    weight->shape[0] = 1568;
    weight->shape[1] = 10;
}

static void flatten(struct content *c) {
    ls_safetensor *weight = content_find(c, "conv2.weight");
    weight->ndim = 1;
    weight->shape[0] = weight->nbytes / sizeof(float);
}

static void cut(struct content *c) {
    ls_safetensor *bias = content_find(c, "conv1.bias");
    bias->shape[0] = 15;
    bias->nbytes = 15 * sizeof(float);
}

static void retype(struct content *c) { content_find(c, "fc.bias")->dtype = LS_SAFETENSOR_I32; }

/* A count that is not an int64 cannot be converted. */
static void retype_count(struct content *c) { content_find(c, "bn1.num_batches_tracked")->dtype = LS_SAFETENSOR_F64; }

static const struct misfit {
    void (*change)(struct content *c);
    const char *name, *reason;
} misfits[] = {
    {drop, "bn2.running_var", "needs"},
    {add, "fc2.bias", "does not have"},
    {reshape, "fc.weight", "needs"},
    {flatten, "conv2.weight", "has shape [12800]; the model needs [32, 16, 5, 5]"},
    {cut, "conv1.bias", "has shape [15]; the model needs [16]"},
    {retype, "fc.bias", "I32"},
    {retype_count, "bn1.num_batches_tracked", "F64"},
};

TEST_IN(scratch, what_does_not_fit_is_named_and_nothing_changes) {
    ls_device *device = open_device(0);
    ls_model *saved = trained_convnet(device), *loaded = make_model(device, "convnet", 2, 12),
             *untouched = make_model(device, "convnet", 2, 12);
    char path[600];
    snprintf(path, sizeof path, "%s", scratch_path("weights"));
    for (size_t m = 0; m < sizeof misfits / sizeof *misfits; m++) {
        assert_int_equal(ls_weights_save(saved, path, ""), LS_OK);
        struct content c = content_open(path);
        misfits[m].change(&c);
        content_close(&c, path);
        ls_status status = ls_weights_load(loaded, path, false);
        if (status != LS_ERR_INVALID) fail_msg("%s: %s", misfits[m].name, ls_status_text(status));
        scratch_expect_error(misfits[m].name, misfits[m].reason);
        expect_same_state(loaded, untouched);
        for (size_t i = 0; i < 2; i++) assert_int_equal(*ls_model_batches_tracked(loaded, i), 0);
    }
    ls_model_destroy(saved);
    ls_model_destroy(loaded);
    ls_model_destroy(untouched);
    close_empty_device(device);
}

TEST_IN(scratch, another_models_weights_do_not_fit) {
    ls_device *device = open_device(0);
    ls_model *small = make_model(device, "mlp:8,4", 1, 0), *large = make_model(device, "mlp:8,4,2", 1, 0);
    assert_int_equal(ls_weights_save(small, scratch_path("small"), ""), LS_OK);
    assert_int_equal(ls_weights_load(large, scratch_path("small"), false), LS_ERR_INVALID);
    scratch_expect_error("fc2.weight", NULL);
    assert_int_equal(ls_weights_save(large, scratch_path("large"), ""), LS_OK);
    assert_int_equal(ls_weights_load(small, scratch_path("large"), false), LS_ERR_INVALID);
    scratch_expect_error("fc2.", "does not have");
    assert_int_equal(ls_weights_load(small, scratch_path("none"), false), LS_ERR_IO);
    scratch_expect_error("none", NULL);
    ls_model_destroy(small);
    ls_model_destroy(large);
    close_empty_device(device);
}

TEST_IN(scratch, a_file_that_cannot_be_written_is_an_error) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:8,4", 1, 0);
    assert_int_equal(ls_weights_save(model, scratch_path("no/such/folder"), ""), LS_ERR_IO);
    scratch_expect_error("no/such/folder", NULL);
    ls_model_destroy(model);
    close_empty_device(device);
}
