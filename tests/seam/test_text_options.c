/* Options of texts: the values of --data for a gpt, how its vocabulary completes the model, and invalid options. */
#include <stdio.h>
#include <string.h>

#include "common/data/text.h"
#include "common/report/report.h"
#include "common/seam/devices.h"
#include "common/seam/options.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

static ls_train_options options_for(const char *model, const char *data) {
    ls_train_options o = ls_train_defaults();
    o.model = model;
    if (data) o.data = data;
    return o;
}

TEST(a_gpt_without_data_gets_sums_and_other_models_digits) {
    static const struct {
        const char *model, *data, *expected;
    } rows[] = {
        {"gpt", NULL, "sums:0"},
        {"gpt:1,1,8,8,20,scores", NULL, "sums:0"},
        {"gpt", "data/digits ", "data/digits "}, /* a given value is not changed */
        {"gpt", "sums:4", "sums:4"},
        {"mlp", NULL, "data/digits"},
        {"mlp", "random:1", "random:1"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        ls_train_options o = options_for(rows[i].model, rows[i].data);
        assert_int_equal(ls_train_options_check(&o, 1), LS_OK);
        assert_string_equal(o.data, rows[i].expected);
    }
    assert_string_equal(ls_train_defaults().data, "data/digits");
}

/* Even if the values are those of the defaults. */
TEST_IN(scratch, images_that_are_given_are_refused) {
    char given[] = "data/digits";
    static const char *const data[] = {"stream:data/digits", "/nowhere"};
    ls_dataset *train, *test;
    for (int i = 0; i < 3; i++) {
        ls_train_options o = options_for("gpt", i < 2 ? data[i] : given);
        assert_int_equal(ls_train_options_check(&o, 1), LS_OK);
        assert_int_equal(ls_train_open_first(&o, &train, &test), LS_ERR_USAGE);
        scratch_expect_error("has images, but gpt takes tokens", o.data);
        assert_true(!train && !test);
    }
}

static void expect_completed(const char *model, const char *data, const char *expected) {
    ls_train_options o = options_for(model, data);
    ls_dataset *train, *test;
    assert_int_equal(ls_train_open_first(&o, &train, &test), LS_OK);
    assert_string_equal(o.model, expected);
    bool is_random = strncmp(data, "random:", 7) == 0;
    assert_true(!train == is_random && !test == is_random);
    ls_dataset_close(train);
    ls_dataset_close(test);
}

TEST_IN(scratch, the_datas_vocabulary_completes_the_model) {
    char text[400];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('A' + i % 7);
    scratch_write("text", text, sizeof text);
    char data[300];
    snprintf(data, sizeof data, "text:%s", scratch_path("text"));
    expect_completed("gpt:2,2,32,16", data, "gpt:2,2,32,16,7");
    expect_completed("gpt:2,2,32,16,scores", data, "gpt:2,2,32,16,7,scores");
    expect_completed("gpt:2,2,32,16,7", data, "gpt:2,2,32,16,7");
    expect_completed("gpt:2,2,32,16,50", data, "gpt:2,2,32,16,50");
    expect_completed("gpt", "sums:9", "gpt:4,4,128,64,13");
    expect_completed("gpt", "random:1", "gpt:4,4,128,64,65");
    expect_completed("gpt:1,1,8,8,3", "random:1", "gpt:1,1,8,8,3");
    expect_completed("mlp", "random:1", "mlp");
    ls_train_options o = options_for("gpt:2,2,32,16,6", data);
    ls_dataset *train, *test;
    assert_int_equal(ls_train_open_first(&o, &train, &test), LS_ERR_USAGE);
    scratch_expect_error("its vocabulary of 6 is too small for the 7 different bytes", "give 7 or more");
    assert_true(!train && !test);
    o = options_for("gpt", "sums:x");
    assert_int_equal(ls_train_open_first(&o, &train, &test), LS_ERR_USAGE);
    scratch_expect_error("sums:x", "expected a number as the seed");
    o = options_for("gpt", "text:");
    assert_int_equal(ls_train_open_first(&o, &train, &test), LS_ERR_USAGE);
    scratch_expect_error("needs the name of a file", NULL);
}

TEST_IN(scratch, a_model_of_images_takes_no_text) {
    static const char *const data[] = {"text:README.md", "sums:1"};
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "mlp:784,10", 1, 0);
    for (int i = 0; i < 2; i++) {
        ls_train_options o = options_for("mlp:784,10", data[i]);
        ls_dataset *train, *test;
        assert_int_equal(ls_train_open_first(&o, &train, &test), LS_OK);
        assert_true(!train && !test);
        assert_int_equal(ls_train_open_data(&o, model, &train, &test), LS_ERR_USAGE);
        scratch_expect_error("is a text, but mlp:784,10 takes images", data[i]);
        assert_null(ls_train_data_folder(&o));
    }
    assert_int_equal(ls_train_sample_tokens(model), 0);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST_IN(scratch, only_a_text_is_continued_and_by_what_computes) {
    ls_train_options o = options_for("convnet", NULL);
    o.generate = 5;
    assert_int_equal(ls_train_options_check(&o, 1), LS_ERR_USAGE);
    scratch_expect_error("--generate continues a text, but convnet takes images", NULL);
    o = options_for("gpt", NULL);
    o.generate = 5;
    o.device_kind = LS_TRAIN_DEVICES_META;
    assert_int_equal(ls_train_options_check(&o, 1), LS_ERR_USAGE);
    scratch_expect_error("--generate cannot be combined with meta devices", NULL);
}

/* Each file of a text is an input, which must not be named as an output. */
TEST_IN(scratch, no_output_replaces_a_text) {
    char data[700], text[] = "a text";
    scratch_write("one", text, sizeof text - 1);
    scratch_write("two", text, sizeof text - 1);
    snprintf(data, sizeof data, "text:%s,%s", scratch_path("one"), scratch_path("two"));
    static const char *const names[] = {"one", "two"};
    for (int i = 0; i < 2; i++) {
        ls_train_options o = options_for("gpt", data);
        o.save_weights = scratch_path(names[i]);
        assert_int_equal(ls_report_check(&o), LS_ERR_USAGE);
        scratch_expect_error("--save-weights", "--data");
        o.save_weights = scratch_path("three");
        assert_int_equal(ls_report_check(&o), LS_OK);
    }
}
