/* Networks as text: the networks that texts describe, their printed form, errors, and damaged texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/model.h"
#include "common/nn/network_internal.h"
#include "common/nn/network_text.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

/* Writes the text to net.net in the test's folder. Returns the path, with the sizes after it. */
static const char *describe(const char *text, const char *sizes) {
    static char description[600];
    scratch_write("net.net", text, strlen(text));
    snprintf(description, sizeof description, "%s%s%s", scratch_path("net.net"), *sizes ? ":" : "", sizes);
    return description;
}

static ls_network *make(const char *description) {
    ls_network *network;
    assert_int_equal(ls_network_create(&network, description), LS_OK);
    return network;
}

/* --- the printed form --------------------------------------------------------------------------------------------- */

static char *print(const char *description, ls_network_form form) {
    char *text = NULL;
    size_t nbytes;
    FILE *out = open_memstream(&text, &nbytes);
    assert_non_null(out);
    assert_int_equal(ls_network_print(out, description, form), LS_OK);
    fclose(out);
    return text;
}

/* Except for the first line, which names the description. */
static void expect_reads_itself(const char *description) {
    char *first = print(description, LS_NETWORK_AS_TEXT), *second;
    second = print(describe(first, ""), LS_NETWORK_AS_TEXT);
    assert_string_equal(strchr(second, '\n'), strchr(first, '\n'));
    free(first);
    free(second);
}

TEST_IN(scratch, a_printed_network_is_a_text) {
    static const char *const descriptions[] = {"mlp",
                                               "wide:64,128,64",
                                               "deep",
                                               "branched",
                                               "convnet",
                                               "convnet:3x20x24,7",
                                               "examples/resnet18.net:3x32x32,10"};
    for (size_t i = 0; i < COUNT_OF(descriptions); i++) expect_reads_itself(descriptions[i]);
    expect_reads_itself(
        describe("input 2x6x6\nconv 2 kernel 3 padding 1\nadd input\nconv 3 kernel 2 stride 2 bias none "
                 "from input name a\navgpool global\nflatten\nlinear 4 bias none\n",
                 ""));
}

TEST_IN(scratch, shapes_and_parameters_are_printed) {
    char *text = print("convnet:3x20x24,7", LS_NETWORK_AS_TEXT);
    static const char *const lines[] = {"# convnet:3x20x24,7: 20871 parameters in 10 tensors, 3 blocks\n",
                                        "\ninput 3x20x24\n", "# 32x5x6\n", "# 7, 6727 parameters\n"};
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        if (!strstr(text, lines[i])) fail_msg("'%s' is not in\n%s", lines[i], text);
    free(text);
    text = print(describe("linear 3\nrelu\n", "5"), LS_NETWORK_AS_PYTORCH);
    assert_non_null(strstr(text, "        (\"0\", nn.Linear(5, 3)),\n        (\"1\", nn.ReLU()),\n"));
    free(text);
    assert_int_equal(ls_network_print(stdout, "gpt", LS_NETWORK_AS_TEXT), LS_ERR_USAGE);
    scratch_expect_error("gpt cannot be printed as a text", NULL);
}

/* --- the layers that lines create --------------------------------------------------------------------------------- */

static void expect_blocks(const char *description, int blocks) {
    ls_network *network = make(description);
    assert_int_equal(network->block_count, blocks);
    ls_network_destroy(network);
}

TEST_IN(scratch, blocks_begin_where_one_value_goes_on) {
    expect_blocks("mlp:5,4,3,2", 3);
    expect_blocks("branched", 1);
    expect_blocks("convnet", 3);
    expect_blocks("examples/resnet18.net:3x32x32,10", 10); /* the stem, 8 residual blocks, the last layer */
    expect_blocks(
        describe("linear 4\nbatchnorm name x\nlinear 4\nadd x\nbatchnorm name y\nrelu\nlinear 4\nadd y\n", "6"),
        3); /* the first branch begins at a layer with weights, the second at its batch norm */
    expect_blocks(describe("linear 6\nlinear 6\nadd input\nlinear 3\n", "6"), 2);
}

static const ls_layer *layer_of(const ls_network *network, const char *name) {
    for (size_t l = 0; l < network->layer_count; l++)
        if (strcmp(network->layers[l].name, name) == 0) return &network->layers[l];
    return NULL;
}

TEST_IN(scratch, a_relu_is_taken_along_where_nobody_else_reads) {
    ls_network *network =
        make(describe("linear 4 name a\nrelu\nlinear 4 name b\nrelu name c\nadd b\nrelu\nlinear 4 name "
                      "d bias none\nrelu name e\n",
                      "4"));
    assert_true(layer_of(network, "a")->relu);
    assert_false(layer_of(network, "b")->relu); /* add reads the value, too */
    assert_ptr_equal(layer_of(network, "c")->kind, &ls_relu);
    assert_true(layer_of(network, "4")->relu); /* fused with the addition */
    assert_false(layer_of(network, "d")->relu);
    assert_ptr_equal(layer_of(network, "e")->kind, &ls_relu);
    ls_network_destroy(network);
}

TEST_IN(scratch, layers_are_cut_by_pairs) {
    ls_network *network = make("convnet");
    assert_int_equal(layer_of(network, "conv1")->cut, LS_CUT_OUTPUTS);
    assert_int_equal(layer_of(network, "conv2")->cut, LS_CUT_INPUTS);
    assert_int_equal(layer_of(network, "fc")->cut, LS_CUT_NONE);
    ls_network_destroy(network);
    network = make(describe("linear 4 name a\nrelu name x\nlinear 4 name b\nadd x\n", "4"));
    assert_int_equal(layer_of(network, "a")->cut, LS_CUT_NONE);
    assert_int_equal(layer_of(network, "b")->cut, LS_CUT_NONE);
    ls_network_destroy(network);
}

TEST_IN(scratch, a_line_reads_what_it_names) {
    ls_network *network = make(describe("linear 4\nlinear 4 from input name a\nlinear 4 from 0 name b\nadd a\n", "4"));
    assert_int_equal(layer_of(network, "a")->inputs[0], LS_NETWORK_INPUT);
    assert_int_equal(layer_of(network, "b")->inputs[0], 0);
    assert_int_equal(layer_of(network, "3")->inputs[0], 2);
    assert_int_equal(layer_of(network, "3")->inputs[1], 1);
    ls_network_destroy(network);
    network = make("convnet"); /* its flatten begins a block, and the next layer does not */
    assert_true(layer_of(network, "flatten")->begins_block);
    assert_false(layer_of(network, "fc")->begins_block);
    ls_network_destroy(network);
}

/* The longest name is kept whole, with the longest suffix. */
TEST_IN(scratch, names_are_those_of_the_text) {
    ls_network *network = make(describe("linear 4\nbatchnorm name a23456789.b23456789.c23456789_\nlinear 2\n", "4"));
    static const char *const names[] = {
        "0.weight", "0.bias", "a23456789.b23456789.c23456789_.weight", "a23456789.b23456789.c23456789_.bias",
        "2.weight", "2.bias"};
    assert_int_equal(network->parameter_count, COUNT_OF(names));
    for (size_t p = 0; p < COUNT_OF(names); p++) assert_string_equal(network->parameters[p].tensor.name, names[p]);
    assert_string_equal(network->buffers[0].name, "a23456789.b23456789.c23456789_.running_mean");
    ls_network_destroy(network);
}

/* --- sizes of the data --------------------------------------------------------------------------------------------------- */

static void expect_completed(const char *description, struct ls_shape input, const char *wanted) {
    char text[600];
    assert_int_equal(ls_network_complete(description, input, 10, text, sizeof text), LS_OK);
    assert_string_equal(text, wanted);
}

TEST_IN(scratch, a_network_takes_sizes_of_the_data) {
    bool open;
    static const char *const closed[] = {"mlp", "branched", "gpt", "convnet:3x32x32,10", "net.net:5,10", "?"};
    for (size_t i = 0; i < COUNT_OF(closed); i++) {
        assert_int_equal(ls_network_is_open(closed[i], &open), LS_OK);
        assert_false(open);
    }
    assert_int_equal(ls_network_is_open("convnet", &open), LS_OK);
    assert_true(open);
    assert_int_equal(ls_network_is_open(describe("input 5\nlinear classes\n", ""), &open), LS_OK);
    assert_true(open);
    assert_int_equal(ls_network_is_open(describe("input 5\nlinear 3\n", ""), &open), LS_OK);
    assert_false(open);
    expect_completed("convnet", (struct ls_shape){1, 28, 28, 0}, "convnet");
    expect_completed("convnet", (struct ls_shape){3, 32, 32, 0}, "convnet:3x32x32,10");
    expect_completed("a.net", (struct ls_shape){1, 28, 28, 0}, "a.net:1x28x28,10");
    expect_completed("a.net", (struct ls_shape){20, 1, 1, 0}, "a.net:20,10");
    char small[8];
    assert_int_equal(ls_network_complete("a.net", ls_features(20), 10, small, sizeof small), LS_ERR_USAGE);
    scratch_expect_error("the path is too long", NULL);
}

/* --- invalid texts ------------------------------------------------------------------------------------------------ */

struct refusal {
    const char *text, *sizes, *message;
};

static void expect_refused(const struct refusal *r) {
    ls_network *network;
    if (ls_network_create(&network, describe(r->text, r->sizes)) == LS_OK) fail_msg("'%s' is not refused", r->text);
    assert_null(network);
    scratch_expect_error(r->message, "net.net");
}

TEST_IN(scratch, sizes_that_do_not_fit) {
    static const struct refusal refusals[] = {
        {"conv 64 kernel 3 padding 1 name stem\nconv 128 kernel 3 stride 2 padding 1\nadd stem\n", "3x16x16",
         "net.net:3: add stem: 64x16x16 does not fit 128x8x8"},
        {"# an essay\n\ninput 3x4x4\nconv 8 kernel 7 padding 1 # too much\n", "",
         "net.net:4: conv 8: a kernel of 7x7 does not fit 3x4x4 with padding 1"},
        {"maxpool 5\n", "3x4x9", "net.net:1: maxpool 5: a window of 5x5 does not fit 3x4x9"},
        {"linear 10\n", "3x4x4", "net.net:1: linear needs features, but gets 3x4x4: put flatten before it"},
        {"avgpool global\nlinear 10\n", "3x4x4", "net.net:2: linear needs features, but gets 3x1x1"},
        {"conv 2 kernel 1\n", "12", "net.net:1: conv needs an image, but gets 12 features"},
        {"flatten\nadd input\n", "3x4x4", "net.net:2: add input: 3x4x4 does not fit 48"},
        {"conv 2 kernel 1\n", "3x4x4", "net.net:1: the last layer makes 2x4x4"},
        {"conv 60000 kernel 1\n", "1x60000x30000", "more than 2^31 values"},
        {"conv 60000 kernel 200\n", "1x200x200", "more than 2^31 values"},
        {"flatten\nlinear 16777216\n", "7x16384x16384", "more than 2^48 weights"},
        {"conv 2 kernel 1\n", "", "takes its input's shape from the data, which has none"},
        {"linear classes\n", "12", "net.net:1: the number of classes is not known without data"},
        {"input 5\nlinear 3\n", "3x4x4,10", "takes no sizes"},
        {"linear 3\n", "3x4", "expected sizes of the data"},
        {"linear 3\n", "3x4x4,", "expected sizes of the data"},
        {"linear 3\n", "3x4x4x5", "expected sizes of the data"},
        {"linear 3\n", "99999999999", "expected sizes of the data"},
    };
    for (size_t i = 0; i < COUNT_OF(refusals); i++) expect_refused(&refusals[i]);
}

TEST_IN(scratch, words_that_mean_nothing) {
    static const struct refusal refusals[] = {
        {"", "", "net.net has no layers"},
        {"dense 10\n", "5", "net.net:1: unknown layer dense; expected conv, batchnorm"},
        {"linear\n", "5", "net.net:1: linear needs a number from 1 to 16777216"},
        {"linear 0\n", "5", "not 0"},
        {"linear 5x\n", "5", "not 5x"},
        {"linear -1\n", "5", "not -1"},
        {"linear 99999999999\n", "5", "not 99999999999"},
        {"conv 5\n", "5x5x5", "net.net:1: conv needs `kernel K`"},
        {"conv 5 kernel\n", "5x5x5", "kernel needs a number from 1 to 255"},
        {"conv 5 kernel 3 stride 0\n", "5x5x5", "stride needs a number from 1 to 255, not 0"},
        {"conv 5 kernel 3 bias no\n", "5x5x5", "bias takes only `none`"},
        {"maxpool 16\n", "5x32x32", "maxpool needs a number from 2 to 15, not 16"},
        {"maxpool 2 stride 2\n", "5x5x5", "maxpool does not take `stride`; expected name NAME or from NAME"},
        {"linear 3 kernel 2\n", "5", "linear does not take `kernel`; expected bias none, name NAME"},
        {"avgpool 2\n", "5x5x5", "avgpool takes only `global`"},
        {"linear 5\nadd later\nlinear 5 name later\n", "5", "net.net:2: add later: no earlier layer is called later"},
        {"linear 5 from itself name itself\n", "5", "from itself: no earlier layer"},
        {"linear 5 name a\nlinear 5 name a\n", "5", "net.net:2: two layers are called a"},
        {"linear 5 name 1\n", "5", "name needs letters"},
        {"linear 5 name .a\n", "5", "name needs letters"},
        {"linear 5 name a..b\n", "5", "name needs letters"},
        {"linear 5 name a/b\n", "5", "name needs letters"},
        {"linear 5 name input\n", "5", "name needs letters"},
        {"linear 5 name a2345678901234567890123456789012\n", "5", "name needs letters"},
        {"linear 5\ninput 5\n", "", "net.net:2: input must precede the layers"},
        {"input 5x5\n", "", "net.net:1: input needs CHANNELSxHEIGHTxWIDTH"},
        {"input 0x5x5\n", "", "net.net:1: input needs CHANNELSxHEIGHTxWIDTH"},
        {"loss hinge\n", "5", "loss must be cross_entropy or squared_error"},
        {"linear 5\n\177ELF\n", "5", "net.net:2: byte 0x7f is not plain text"},
        {"a b c d e f g h i j k l m n o p q\n", "5", "more than 16 words"},
    };
    for (size_t i = 0; i < COUNT_OF(refusals); i++) expect_refused(&refusals[i]);
    char text[8000] = "";
    for (int i = 0; i < 1001; i++) memcpy(text + 5L * i, "relu\n", 6);
    expect_refused(&(struct refusal){text, "5", "net.net:1001: a network cannot have more than 1000 layers"});
    memset(text, ' ', 201);
    strcpy(text + 201, "\n");
    expect_refused(&(struct refusal){text, "5", "net.net:1: a line has 201 bytes; expected at most 200"});
    ls_network *network;
    assert_int_equal(ls_network_create(&network, scratch_path("nothing.net")), LS_ERR_IO);
    scratch_expect_error("nothing.net", "No such file");
}

/* --- damage -------------------------------------------------------------------------------------------------------------- */

/* A few edits of some bytes each, which are replaced, removed or doubled. Returns the new length. */
static size_t damage(char *text, size_t length, int edits, unsigned *random) {
    for (int edit = 0; edit < edits; edit++) {
        unsigned r = *random = *random * 1664525 + 1013904223;
        size_t at = (r >> 8) % length, part = 1 + (r >> 4) % 16;
        if (at + part > length) part = length - at;
        if (r % 3 == 0) text[at] = (char)(edits % 2 ? r >> 16 : '0' + (r >> 16) % 10);
        if (r % 3 == 1) memmove(text + at, text + at + part, length - part - at);
        if (r % 3 == 2) memmove(text + at + part, text + at, length - at);
        length += r % 3 == 2 ? part : r % 3 == 1 ? -part : 0;
    }
    return length;
}

/* If the text still describes a network, its sizes can be multiplied without overflow. */
TEST_IN(scratch, damaged_texts_are_refused_or_read) {
    enum { ROUNDS = 3000, EDITS = 3 };
    size_t nbytes;
    char *whole = scratch_read("examples/resnet18.net", &nbytes), *text = malloc(nbytes + 16L * EDITS), complaint[600];
    char description[600];
    assert_non_null(text);
    unsigned random = 1;
    int read = 0;
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(text, whole, nbytes);
        scratch_write("damaged.net", text, damage(text, nbytes, 1 + round % EDITS, &random));
        snprintf(description, sizeof description, "%s:3x32x32,10", scratch_path("damaged.net"));
        ls_network *network;
        ls_log_sink before = ls_log_capture(complaint, sizeof complaint);
        ls_status status = ls_network_create(&network, description);
        ls_log_restore(before);
        if (status != LS_OK && status != LS_ERR_FORMAT) fail_msg("round %d: status %d, %s", round, status, complaint);
        read += status == LS_OK;
        for (size_t l = 0; status == LS_OK && l < network->layer_count; l++)
            assert_in_range(ls_shape_count(network->layers[l].out), 1, INT32_MAX);
        ls_network_destroy(network);
    }
    assert_in_range(read, ROUNDS / 20, ROUNDS / 2);
    free(text);
    free(whole);
}
