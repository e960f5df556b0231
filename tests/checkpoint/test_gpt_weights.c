/* --init from nanoGPT's state dict as safetensors: tied weights under two names, causal masks, the names of a compiled
 * model; and files that do not fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/weights.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/checkpoint/content.h"
#include "tests/checkpoint/stored.h"
#include "tests/nn/models.h"

#define TINY "gpt:2,2,32,16,27"
#define INITIAL "gpt_tiny_initial"

static void add(struct content *c, const char *name, const ls_safetensor *like) {
    assert_true(c->count < CONTENT_TENSORS_MAX);
    c->tensors[c->count] = *like;
    c->tensors[c->count++].name = name;
}

/* PyTorch's weights, and all other entries of nanoGPT's state dict. */
static struct content state_dict(void) {
    static uint8_t ones[2 * 16 * 16];
    static float minus;
    struct content c = content_open("tests/golden/" INITIAL ".safetensors");
    const ls_safetensor mask = {
        .dtype = LS_SAFETENSOR_BOOL, .ndim = 4, .shape = {1, 1, 16, 16}, .data = ones, .nbytes = sizeof ones / 2};
    add(&c, "transformer.h.0.attn.bias", &mask);
    add(&c, "transformer.h.1.attn.bias", &mask);
    add(&c, "transformer.h.1.attn.masked_bias",
        &(ls_safetensor){.dtype = LS_SAFETENSOR_F32, .data = &minus, .nbytes = sizeof minus});
    add(&c, "lm_head.weight", content_find(&c, "transformer.wte.weight"));
    return c;
}

static ls_model *open_model(void) { return make_model(open_device(0), TINY, 1, 8); }

static void close_model(ls_model *model) {
    ls_device *device = ls_model_device(model);
    ls_model_destroy(model);
    close_empty_device(device);
}

static void put_prefix(struct content *c, const char *prefix) {
    static char names[CONTENT_TENSORS_MAX][100];
    for (size_t t = 0; t < c->count; t++) {
        snprintf(names[t], sizeof names[t], "%s%s", prefix, c->tensors[t].name);
        c->tensors[t].name = names[t];
    }
}

/* --- files that fit ----------------------------------------------------------------------------------------------- */

TEST_IN(scratch, a_nanogpts_state_dict_is_loaded) {
    static const char *const prefixes[] = {"", "_orig_mod.", "module."};
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        struct content c = state_dict();
        put_prefix(&c, prefixes[i]);
        content_close(&c, scratch_path("weights"));
        ls_model *model = open_model();
        stderr_begin();
        assert_int_equal(ls_weights_load(model, scratch_path("weights"), true), LS_OK);
        const char *note = stderr_end();
        assert_non_null(strstr(note, "4 masks and second names of tensors left out\n"));
        assert_int_equal(strstr(note, "32 names without their") != NULL, i > 0);
        assert_true(stored_weights_difference(INITIAL, model) == 0);
        close_model(model);
    }
}

/* A file of lockstep has neither the masks nor the name of the head, and both programs load it. */
TEST_IN(scratch, what_is_saved_has_nanogpts_names_and_is_loaded) {
    ls_model *model = open_model(), *loaded = make_model(ls_model_device(model), TINY, 1, 9);
    assert_true(stored_load(INITIAL, "", model));
    assert_int_equal(ls_weights_save(model, scratch_path("weights"), ""), LS_OK);
    struct content c = content_open(scratch_path("weights")),
                   torchs = content_open("tests/golden/" INITIAL ".safetensors");
    assert_int_equal(c.count, torchs.count);
    for (size_t t = 0; t < torchs.count; t++) {
        const ls_safetensor *tensor = content_find(&c, torchs.tensors[t].name);
        assert_int_equal(tensor->nbytes, torchs.tensors[t].nbytes);
        assert_memory_equal(tensor->data, torchs.tensors[t].data, tensor->nbytes);
    }
    content_close(&c, scratch_path("again"));
    ls_safetensors_close(torchs.file);
    stderr_begin();
    assert_int_equal(ls_weights_load(loaded, scratch_path("again"), true), LS_OK);
    assert_string_equal(stderr_end(), "");
    assert_true(stored_weights_difference(INITIAL, loaded) == 0);
    ls_model_destroy(loaded);
    close_model(model);
}

/* --- files that do not fit ---------------------------------------------------------------------------------------- */

static float *copy_of(const ls_safetensor *tensor) {
    float *copy = malloc(tensor->nbytes);
    assert_non_null(copy);
    memcpy(copy, tensor->data, tensor->nbytes);
    return copy;
}

static void *untie(struct content *c) {
    ls_safetensor *head = content_find(c, "lm_head.weight");
    float *other = copy_of(head);
    other[head->nbytes / sizeof *other - 1] += 1e-6f;
    head->data = other;
    return other;
}
static void *half_head(struct content *c) {
    ls_safetensor *head = content_find(c, "lm_head.weight");
    head->dtype = LS_SAFETENSOR_F16;
    head->nbytes /= 2;
    return NULL;
}
static void *other_vocabulary(struct content *c) {
    content_find(c, "transformer.wte.weight")->shape[0]--;
    content_find(c, "transformer.wte.weight")->nbytes -= 32 * sizeof(float);
    return NULL;
}
static void *no_bias(struct content *c) {
    content_drop(c, "transformer.h.1.mlp.c_fc.bias");
    return NULL;
}
static void *only_head(struct content *c) {
    content_drop(c, "transformer.wte.weight");
    return NULL;
}
static void *rename_to(struct content *c, const char *from, const char *name) {
    content_find(c, from)->name = name;
    return NULL;
}
static void *mask_of_another_layer(struct content *c) {
    return rename_to(c, "transformer.h.0.attn.bias", "transformer.h.2.attn.bias");
}
static void *mask_of_no_attention(struct content *c) {
    return rename_to(c, "transformer.h.0.attn.bias", "transformer.h.0.mlp.bias");
}
static void *mask_of_another_name(struct content *c) {
    return rename_to(c, "transformer.h.0.attn.bias", "transformer.h.0.attn.bias2");
}

TEST_IN(scratch, what_does_not_fit_is_refused_by_name) {
    static const struct {
        void *(*change)(struct content *c);
        const char *said;
    } rows[] = {
        {untie,
         "/weights: lm_head.weight differs from transformer.wte.weight, but in the model both are the same tensor"},
        {half_head, "lm_head.weight differs from"},
        {other_vocabulary, "transformer.wte.weight has shape [26, 32]; the model needs [27, 32]"},
        {no_bias, "has no tensor transformer.h.1.mlp.c_fc.bias, which the model needs"},
        {only_head, "has no tensor transformer.wte.weight, which the model needs"},
        {mask_of_another_layer, "has a tensor transformer.h.2.attn.bias, which the model does not have"},
        {mask_of_no_attention, "has a tensor transformer.h.0.mlp.bias, which the model does not have"},
        {mask_of_another_name, "has a tensor transformer.h.0.attn.bias2, which the model does not have"},
    };
    ls_model *model = open_model();
    assert_true(stored_load(INITIAL, "", model));
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct content c = state_dict();
        void *owned = rows[i].change(&c);
        content_close(&c, scratch_path("weights"));
        free(owned);
        assert_int_equal(ls_weights_load(model, scratch_path("weights"), true), LS_ERR_INVALID);
        scratch_expect_error(rows[i].said, NULL);
        assert_true(stored_weights_difference(INITIAL, model) == 0);
    }
    close_model(model);
}
