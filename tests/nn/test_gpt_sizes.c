/* A GPT's sizes as text. */
#include "common/nn/gpt.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

TEST(sizes_are_read_and_written) {
    static const struct {
        const char *text;
        struct ls_gpt_sizes sizes;
        const char *whole;
    } rows[] = {
        {"gpt", {4, 4, 128, 64, 0, false}, "gpt:4,4,128,64"},
        {"gpt,scores", {4, 4, 128, 64, 0, true}, "gpt:4,4,128,64,scores"},
        {"gpt:2,3,12,16", {2, 3, 12, 16, 0, false}, "gpt:2,3,12,16"},
        {"gpt:2,3,12,16,27", {2, 3, 12, 16, 27, false}, "gpt:2,3,12,16,27"},
        {"gpt:2,3,12,16,scores", {2, 3, 12, 16, 0, true}, "gpt:2,3,12,16,scores"},
        {"gpt:1,1,1,1,1,scores", {1, 1, 1, 1, 1, true}, "gpt:1,1,1,1,1,scores"},
        {"gpt:256,65536,65536,65536,1048576,scores",
         {256, 65536, 65536, 65536, 1048576, true},
         "gpt:256,65536,65536,65536,1048576,scores"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct ls_gpt_sizes found;
        char text[LS_GPT_TEXT_NBYTES];
        assert_true(ls_gpt_is_named(rows[i].text));
        assert_int_equal(ls_gpt_parse(&found, rows[i].text), LS_OK);
        assert_int_equal(found.layers, rows[i].sizes.layers);
        assert_int_equal(found.heads, rows[i].sizes.heads);
        assert_int_equal(found.channels, rows[i].sizes.channels);
        assert_int_equal(found.context, rows[i].sizes.context);
        assert_int_equal(found.vocabulary, rows[i].sizes.vocabulary);
        assert_int_equal(found.scores, rows[i].sizes.scores);
        ls_gpt_describe(&found, text, sizeof text);
        assert_string_equal(text, rows[i].whole);
    }
}

TEST_IN(scratch, other_texts_are_refused) {
    static const char *const wrong[] = {"gpt:",         "gpt:4",         "gpt:4,4,128",     "gpt:4,4,128,64,65,7",
                                        "gpt:0,4,8,8",  "gpt:257,4,8,8", "gpt:4,4,8,65537", "gpt:4,4,8,8,1048577",
                                        "gpt:4,4,8,-8", "gpt:4,4,8,8,0", "gpt:4,4,8,8,",    "gpt:4,4,8,8scores",
                                        "gpt:4,4,8,+8", "gpt:4,4, 8,8",  "gpt:4;4,8,8",     "gpt:4,4,8,8,scores,scores",
                                        "gpt,tiles",    "mlp",           "gpt:,4,4,128,64"};
    struct ls_gpt_sizes sizes;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_int_equal(ls_gpt_parse(&sizes, wrong[i]), LS_ERR_USAGE);
        scratch_expect_error(wrong[i], "gpt[:LAYERS,HEADS,CHANNELS,CONTEXT[,VOCABULARY]][,scores]");
    }
    assert_int_equal(ls_gpt_parse(&sizes, "gpt:4,3,128,64"), LS_ERR_USAGE);
    scratch_expect_error("3 heads do not divide 128 channels", "gpt:4,3,128,64");
}

TEST(other_models_are_not_gpts) {
    static const char *const others[] = {"", "mlp", "gp", "gpt2", "gpt2:4,4,8,8", "GPT", "a gpt"};
    for (size_t i = 0; i < COUNT_OF(others); i++) assert_false(ls_gpt_is_named(others[i]));
}
