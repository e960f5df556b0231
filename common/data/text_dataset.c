/* text_dataset — samples of a text: consecutive windows of its stream.
 *   idea  : the stream is kept as one byte a token, an eighth of a label's size; a read widens T + 1 of them. Each set
 *           has a copy of its own part, so that the last label of training precedes the first token of the test
 *   cost  : a byte a token; a read is some 2 T loads and stores */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/data/text_internal.h"

enum { TEST_ONE_IN = 10 }; /* of a file's tokens, one in ten */

struct text_dataset {
    ls_dataset base;
    size_t token_count;
    uint8_t tokens[]; /* indices into base.vocabulary */
};

static ls_status text_read(const ls_dataset *dataset, int64_t index, bool alone, void *input, int64_t *label,
                           float *target) {
    (void)alone, (void)target;
    size_t context = (size_t)dataset->spec.rows;
    const uint8_t *window = ((const struct text_dataset *)dataset)->tokens + (size_t)index * context;
    int32_t *tokens = input;
    for (size_t t = 0; t < context; t++) tokens[t] = window[t];
    for (size_t t = 0; label && t < context; t++) label[t] = window[t + 1];
    return LS_OK;
}

static void text_close(ls_dataset *dataset) { free(dataset); }

static const ls_dataset_kind text_kind = {.read = text_read, .close = text_close};

/* --- the vocabulary ---------------------------------------------------------------------------------------------- */

struct vocabulary {
    uint8_t bytes[256]; /* of each token */
    uint8_t token_of[256];
    int count;
};

static void find_vocabulary(struct vocabulary *v, const struct ls_text_sets *sets) {
    bool occurs[256] = {false};
    for (size_t i = 0; i < sets->train_count; i++) occurs[sets->train[i]] = true;
    for (size_t i = 0; i < sets->test_count; i++) occurs[sets->test[i]] = true;
    *v = (struct vocabulary){.count = 0};
    for (int byte = 0; byte < 256; byte++) {
        if (!occurs[byte]) continue;
        v->token_of[byte] = (uint8_t)v->count;
        v->bytes[v->count++] = (uint8_t)byte;
    }
}

/* --- both sets --------------------------------------------------------------------------------------------------- */

static ls_dataset *make_set(const uint8_t *bytes, size_t count, const struct vocabulary *v, int context) {
    struct text_dataset *text = malloc(sizeof *text + count);
    if (!text) return NULL;
    text->base = (ls_dataset){
        .kind = &text_kind,
        .spec = {.channels = 1, .height = 1, .width = 1, .rows = context, .tokens = true, .classes = v->count},
        .count = (count - 1) / (size_t)context};
    memcpy(text->base.vocabulary, v->bytes, sizeof text->base.vocabulary);
    text->token_count = count;
    for (size_t i = 0; i < count; i++) text->tokens[i] = v->token_of[bytes[i]];
    return &text->base;
}

ls_status ls_text_open_sets(ls_dataset **train, ls_dataset **test, const struct ls_text_sets *sets, int context) {
    struct vocabulary v;
    size_t least = sets->train_count < sets->test_count ? sets->train_count : sets->test_count;
    *train = *test = NULL;
    if (context < 1) return ls_fail(LS_ERR_INVALID, "a context cannot have %d tokens; expected 1 or more", context);
    if (least < (size_t)context + 1) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is too short: %zu bytes for training and %zu for the test, but a sample of %d tokens takes "
                       "%d; give a longer text or a shorter context",
                       sets->name, sets->train_count, sets->test_count, context, context + 1);
    }
    find_vocabulary(&v, sets);
    *train = make_set(sets->train, sets->train_count, &v, context);
    *test = make_set(sets->test, sets->test_count, &v, context);
    if (*train && *test) return LS_OK;
    ls_dataset_close(*train);
    ls_dataset_close(*test);
    *train = *test = NULL;
    return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the tokens of %s", sets->name);
}

ls_status ls_dataset_open_text(ls_dataset **train, ls_dataset **test, const char *files, int context) {
    struct ls_bytes bytes;
    char name[300];
    *train = *test = NULL;
    ls_status status = ls_text_read_files(&bytes, files);
    if (status != LS_OK) return status;
    snprintf(name, sizeof name, "text:%s", files);
    size_t test_count = bytes.count / TEST_ONE_IN, train_count = bytes.count - test_count;
    const struct ls_text_sets sets = {.name = name,
                                      .train = bytes.data,
                                      .train_count = train_count,
                                      .test = bytes.data + train_count,
                                      .test_count = test_count};
    status = ls_text_open_sets(train, test, &sets, context);
    free(bytes.data);
    return status;
}

/* --- queries about a text ----------------------------------------------------------------------------------------- */

const uint8_t *ls_text_tokens(const ls_dataset *dataset, size_t *count) {
    bool is_text = dataset->kind == &text_kind;
    const struct text_dataset *text = (const struct text_dataset *)dataset;
    *count = is_text ? text->token_count : 0;
    return is_text ? text->tokens : NULL;
}

const uint8_t *ls_text_vocabulary(const ls_dataset *dataset) { return dataset->vocabulary; }

int ls_text_token(const ls_dataset *dataset, char byte) {
    for (int token = 0; token < dataset->spec.classes; token++)
        if (dataset->vocabulary[token] == (uint8_t)byte) return token;
    return -1;
}
