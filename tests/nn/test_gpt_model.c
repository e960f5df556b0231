/* The GPT as a network: its parameters, initial weights, blocks, memory and rounding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/checkpoint/safetensors.h"
#include "common/nn/gpt.h"
#include "common/nn/model_internal.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/checkpoint/stored.h"
#include "tests/nn/models.h"

#define TINY "gpt:2,2,32,16,27"
enum { BATCH = 3, CONTEXT = 16, VOCABULARY = 27, LOGITS = BATCH * CONTEXT * VOCABULARY };

/* --- parameters ------------------------------------------------------------------------------------------------------ */

/* The parameters in nanoGPT's state dict for layer `i`, in its order. */
static const char *const of_layer[] = {
    "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};

static void expect_shape(const struct ls_tensor *tensor, const char *name, size_t rows, size_t columns) {
    assert_string_equal(tensor->name, name);
    assert_int_equal(tensor->ndim, columns > 0 ? 2 : 1);
    assert_int_equal(tensor->shape[0], rows);
    assert_int_equal(tensor->count, columns > 0 ? rows * columns : rows);
}

TEST(parameters_are_nanogpts) {
    enum { LAYERS = 11, CHANNELS = 6 };
    static const size_t shapes[][2] = {{6, 0}, {6, 0}, {18, 6}, {18, 0}, {6, 6},  {6, 0},
                                       {6, 0}, {6, 0}, {24, 6}, {24, 0}, {6, 24}, {6, 0}};
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, "gpt:11,2,6,5,9", 1, 0);
    char name[64];
    size_t p = 0;
    expect_shape(ls_model_parameter(model, p++), "transformer.wte.weight", 9, 6);
    expect_shape(ls_model_parameter(model, p++), "transformer.wpe.weight", 5, 6);
    for (int l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < COUNT_OF(of_layer); i++) {
            snprintf(name, sizeof name, "transformer.h.%d.%s", l, of_layer[i]);
            expect_shape(ls_model_parameter(model, p++), name, shapes[i][0], shapes[i][1]);
        }
    expect_shape(ls_model_parameter(model, p++), "transformer.ln_f.weight", 6, 0);
    expect_shape(ls_model_parameter(model, p++), "transformer.ln_f.bias", 6, 0);
    assert_int_equal(p, ls_model_parameter_count(model));
    assert_int_equal(ls_model_buffer_count(model), 0);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(and_as_many_as_the_formula_says) {
    static const struct ls_gpt_sizes rows[] = {
        {4, 4, 128, 64, 65, false}, {2, 2, 32, 16, 27, true}, {1, 1, 1, 1, 1, false}, {3, 5, 35, 7, 11, false}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        size_t layers = (size_t)rows[i].layers, c = (size_t)rows[i].channels, t = (size_t)rows[i].context, count = 0;
        char text[LS_GPT_TEXT_NBYTES];
        ls_network *network;
        ls_gpt_describe(&rows[i], text, sizeof text);
        assert_int_equal(ls_network_create(&network, text), LS_OK);
        for (size_t p = 0; p < network->parameter_count; p++) count += network->parameters[p].tensor.count;
        assert_int_equal(count, (size_t)rows[i].vocabulary * c + t * c + layers * (12 * c * c + 13 * c) + 2 * c);
        assert_int_equal(network->input_nbytes, t * sizeof(int32_t));
        assert_int_equal(ls_network_answers(network), t);
        assert_int_equal(ls_network_output(network).channels, rows[i].vocabulary);
        ls_network_destroy(network);
    }
}

TEST_IN(scratch, without_a_vocabulary_there_is_no_network) {
    ls_network *network;
    assert_int_equal(ls_network_create(&network, "gpt"), LS_ERR_USAGE);
    scratch_expect_error("model \"gpt\" has no vocabulary", "gpt:4,4,128,64,65");
    assert_null(network);
    assert_int_equal(ls_network_create(&network, "gpt:2,3,16,8,9"), LS_ERR_USAGE);
    scratch_expect_error("3 heads do not divide 16 channels", NULL);
    assert_int_equal(ls_network_create(&network, "gpt:2,1,129,8,9"), LS_ERR_USAGE);
    scratch_expect_error("a head would have 129 channels", "128");
}

/* Made by hand. */
TEST_IN(scratch, attention_of_other_rows_is_refused) {
    static const struct {
        int channels, heads;
    } rows[] = {{7, 1}, {6, 0}, {9, 2}, {3 * 2 * (LS_ATTENTION_MAX_HEAD + 1), 2}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        ls_network *network = ls_network_begin(ls_features(rows[i].channels), LS_LOSS_CROSS_ENTROPY);
        const ls_layer layer = {.kind = &ls_attention, .name = "attn", .heads = rows[i].heads};
        assert_int_equal(ls_network_add(network, layer), LS_ERR_INVALID);
        scratch_expect_error("attn: rows of", "do not fit q, k and v");
        ls_network_destroy(network);
    }
}

/* --- initial weights ------------------------------------------------------------------------------------------------- */

/* PyTorch's values, except for the last bits of its vectorised logarithms: of each tensor at least the last
 * elements. */
static void expect_initial(const char *description, const char *file_path) {
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, description, 1, 3);
    ls_safetensors *file;
    assert_int_equal(ls_safetensors_open(&file, file_path), LS_OK);
    assert_int_equal(ls_safetensors_count(file), ls_model_parameter_count(model));
    for (size_t p = 0; p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        const ls_safetensor *stored = ls_safetensors_find(file, tensor->name);
        assert_non_null(stored);
        size_t count = stored->nbytes / sizeof(float);
        const float *wanted = stored->data, *got = tensor->data + (tensor->count - count);
        for (size_t i = 0; i < count; i++)
            if (!(fabsf(got[i] - wanted[i]) <= 1e-7f))
                fail_msg("%s: %s: element %zu of the last %zu is %.9g, in PyTorch %.9g", description, tensor->name, i,
                         count, (double)got[i], (double)wanted[i]);
    }
    ls_safetensors_close(file);
    ls_model_destroy(model);
    close_empty_device(device);
}

TEST(initial_weights_are_pytorchs) {
    expect_initial(TINY, "tests/golden/gpt_tiny_initial.safetensors");
    expect_initial("gpt:4,4,128,64,65", "tests/golden/gpt_small_initial_ends.safetensors");
}

/* --- blocks, and the order of gradients ------------------------------------------------------------------------------ */

TEST(blocks_are_the_embedding_each_layer_and_the_head) {
    ls_network *network;
    assert_int_equal(ls_network_create(&network, TINY), LS_OK);
    assert_int_equal(ls_network_blocks(network).end, 4);
    for (int b = 1; b < 4; b++) {
        struct ls_shape input = ls_network_block_input(network, b);
        assert_int_equal(input.channels, 32);
        assert_int_equal(input.rows, CONTEXT);
    }
    for (size_t p = 0; p < network->parameter_count; p++) {
        int block = p < 2 ? 0 : p < 14 ? 1 : p < 26 ? 2 : 3;
        assert_int_equal(network->parameters[p].block, block);
    }
    for (int b = 0; b < 4; b++) assert_int_equal(ls_network_block_is_shared(network, b), b == 0);
    ls_network_destroy(network);
}

static size_t ready[64], ready_count;

static ls_status note_ready(void *context, size_t parameter) {
    (void)context;
    ready[ready_count++] = parameter;
    return LS_OK;
}

struct passes {
    ls_device *device;
    ls_model *model;
    int32_t tokens[BATCH * CONTEXT];
};

static struct passes open_passes(const char *description, ls_dtype precision) {
    struct passes p = {.device = open_device(0)};
    p.model = make_model_in(precision, p.device, description, BATCH, 3);
    for (int i = 0; i < BATCH * CONTEXT; i++) p.tokens[i] = i * i % VOCABULARY;
    return p;
}

static void close_passes(struct passes *p) {
    ls_model_destroy(p->model);
    close_empty_device(p->device);
}

static void backward(struct passes *p, bool accumulate) {
    static float dy[LOGITS];
    for (int i = 0; i < LOGITS; i++) dy[i] = (float)(i * 7 % 31 - 15) * 0x1p-9f;
    ls_model_backward(p->model, dy, accumulate);
}

/* Last to first, and the tied one once, after the look-up, which is the last operation of all. */
TEST(the_tied_gradient_is_ready_once_and_last) {
    struct passes p = open_passes(TINY, LS_FP32);
    ls_model_on_grad_ready(p.model, note_ready, NULL);
    (void)ls_model_forward(p.model, p.tokens, BATCH, true);
    ready_count = 0;
    backward(&p, false);
    size_t count = ls_model_parameter_count(p.model);
    assert_int_equal(ready_count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(ready[i], count - 1 - i);
    close_passes(&p);
}

TEST(gradients_add_up_and_are_overwritten) {
    struct passes p = open_passes(TINY, LS_FP32);
    float *all, *once;
    size_t count;
    ls_model_gradients(p.model, &all, &count);
    once = malloc(count * sizeof *once);
    (void)ls_model_forward(p.model, p.tokens, BATCH, true);
    backward(&p, false);
    memcpy(once, all, count * sizeof *once);
    backward(&p, false);
    assert_memory_equal(all, once, count * sizeof *once);
    backward(&p, true);
    for (size_t i = 0; i < count; i++) assert_true(fabsf(all[i] - 2 * once[i]) <= 1e-6f + 1e-4f * fabsf(once[i]));
    (void)ls_model_forward(p.model, NULL, 0, true);
    ls_model_backward(p.model, NULL, false);
    for (size_t i = 0; i < count; i++) assert_true(all[i] == 0);
    free(once);
    close_passes(&p);
}

/* A token changes no earlier position's logits, and no other sample's, but does change later ones. */
TEST(no_position_sees_a_later_one) {
    static const char *const kinds[] = {TINY, TINY ",scores"};
    enum { CHANGED = CONTEXT + 5 }; /* in the second sample */
    static float before[LOGITS];
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct passes p = open_passes(kinds[k], LS_FP32);
        memcpy(before, ls_model_forward(p.model, p.tokens, BATCH, false), sizeof before);
        p.tokens[CHANGED] = (p.tokens[CHANGED] + 1) % VOCABULARY;
        const float *after = ls_model_forward(p.model, p.tokens, BATCH, false);
        for (int row = 0; row < BATCH * CONTEXT; row++) {
            bool same = memcmp(before + row * VOCABULARY, after + row * VOCABULARY, VOCABULARY * sizeof(float)) == 0;
            assert_int_equal(same, row < CHANGED || row >= 2 * CONTEXT);
        }
        close_passes(&p);
    }
}

/* --- values that are not finite, invalid tokens ------------------------------------------------------------------- */

static void expect_place(struct passes *p, const char *expected) {
    char place[64];
    (void)ls_model_forward(p->model, p->tokens, BATCH, true);
    assert_int_equal(ls_model_find_nonfinite(p->model, place, sizeof place), LS_OK);
    assert_string_equal(place, expected);
}

TEST(what_is_not_finite_is_named) {
    struct passes p = open_passes(TINY, LS_FP32);
    expect_place(&p, "");
    float *weight = ls_model_parameter(p.model, 16)->data; /* of h.1's c_attn */
    weight[0] = INFINITY;
    expect_place(&p, "parameter transformer.h.1.attn.c_attn.weight");
    for (size_t i = 0; i < ls_model_parameter(p.model, 16)->count; i++) weight[i] = 3e38f;
    expect_place(&p, "the output of transformer.h.1.attn.c_attn");
    close_passes(&p);
}

TEST_IN(scratch, a_token_beyond_the_vocabulary_poisons_the_device) {
    struct passes p = open_passes(TINY, LS_FP32);
    p.tokens[7] = VOCABULARY;
    (void)ls_model_forward(p.model, p.tokens, BATCH, true);
    assert_int_equal(ls_device_status(p.device), LS_ERR_INVALID);
    scratch_expect_error("27", NULL);
    close_passes(&p);
}

/* --- half precision -------------------------------------------------------------------------------------------------- */

/* A few roundings of 2^-11 and 2^-8. */
TEST(a_gpt_in_half_is_near_a_gpt) {
    static const ls_dtype halves[] = {LS_FP16, LS_BF16};
    static const double tolerance[] = {0.005, 0.04};
    static float logits[LOGITS];
    struct passes full = open_passes(TINY, LS_FP32);
    memcpy(logits, ls_model_forward(full.model, full.tokens, BATCH, true), sizeof logits);
    backward(&full, false);
    for (size_t h = 0; h < COUNT_OF(halves); h++) {
        struct passes half = open_passes(TINY, halves[h]);
        const float *y = ls_model_forward(half.model, half.tokens, BATCH, true);
        assert_true(expect_half_near("y", y, logits, LOGITS, tolerance[h]) > 0); /* it was rounded */
        backward(&half, false);
        for (size_t p = 0; p < ls_model_parameter_count(full.model); p++) {
            const struct ls_tensor *a = ls_model_parameter(half.model, p), *b = ls_model_parameter(full.model, p);
            assert_true(expect_half_near(a->name, a->gradient, b->gradient, a->count, tolerance[h]) > 0);
        }
        close_passes(&half);
    }
    close_passes(&full);
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

static size_t activation_bytes(const char *description, ls_dtype precision, size_t batch) {
    ls_device *device = open_device(0);
    ls_model *model = make_model_in(precision, device, description, batch, 3);
    ls_memory_report memory;
    ls_device_memory(device, &memory);
    ls_model_destroy(model);
    close_empty_device(device);
    return memory.current_bytes[LS_MEMORY_ACTIVATION];
}

/* All activations of one layer of C channels and a sample of T positions: 20 C elements a position in outputs (the
 * embedding's, ln_1, 3 of c_attn, attention, c_proj, the sum; ln_2, 4 of c_fc and 4 before its GELU, c_proj, the sum;
 * ln_f) ... */
enum { T = 16, C = 16, V = 8, OUTPUTS = 20 * C + V, STATISTICS = 3 * 2 };

TEST(activations_are_what_the_layers_say) {
    static const char *const kinds[] = {"gpt:1,2,16,16,8", "gpt:1,2,16,16,8,scores"};
    static const ls_dtype dtypes[] = {LS_FP32, LS_BF16};
    for (size_t batch = 4; batch <= 8; batch += 4)
        for (size_t k = 0; k < 2; k++)
            for (size_t d = 0; d < 2; d++) {
                size_t element = ls_dtype_nbytes(dtypes[d]), slots = 3 * 4 * C * element; /* for gradients */
                size_t attention = k == 0 ? 2 * sizeof(float) : 2 * T * element;
                size_t position = OUTPUTS * element + STATISTICS * sizeof(float) + attention + slots;
                if (dtypes[d] != LS_FP32) position += V * sizeof(float); /* the logits in fp32 */
                assert_int_equal(activation_bytes(kinds[k], dtypes[d], batch), batch * T * position);
            }
}
