/* generate — generates token after token from the outputs at the last position.
 *   idea  : a forward takes a whole context, and only one position's output is used. Attention is causal, so tokens
 *           after that position do not matter: a prompt that is shorter than the context is padded at its end, and of a
 *           longer one the last tokens are used
 *   cost  : a forward of a sample for each token. (With cached keys and values it would be a forward of a row; but
 *           positions are learnt, so that a window that has moved must be recomputed anyway)
 *   order : no sum depends on the number of samples of a forward, so a prompt's answer is the same on every rank */
#include "common/train/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/random.h"

struct writer {
    ls_model *model;
    ls_stream *compute;
    size_t room, context, outputs; /* samples, tokens of a sample, outputs of a token */
    size_t vocabulary;             /* the text's; the model may have more outputs */
    int32_t *tokens;               /* [room, context] */
    size_t *position;              /* per sample: the position whose output is used */
    float *logits;                 /* [room, outputs] */
    void *inputs;                  /* the tokens on the device */
};

static ls_status writer_open(struct writer *w, ls_model *model, const ls_dataset *text, size_t room) {
    ls_device *device = ls_model_device(model);
    *w = (struct writer){.model = model,
                         .compute = ls_device_stream(device, LS_STREAM_COMPUTE),
                         .room = room,
                         .context = ls_sample_input_count(ls_dataset_spec(text)),
                         .outputs = ls_shape_row_count(ls_model_output(model)),
                         .vocabulary = (size_t)ls_dataset_spec(text)->classes};
    w->tokens = calloc(room * w->context, sizeof *w->tokens);
    w->position = calloc(room, sizeof *w->position);
    w->logits = calloc(room * w->outputs, sizeof *w->logits);
    if (!w->tokens || !w->position || !w->logits)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write a text");
    return ls_device_alloc(device, LS_MEMORY_WORKSPACE, room * ls_model_input_nbytes(model), "prompts", &w->inputs);
}

static void writer_close(struct writer *w) {
    ls_device_free(ls_model_device(w->model), w->inputs);
    free(w->tokens);
    free(w->position);
    free(w->logits);
}

/* Sample i gets the last tokens of a text. */
static void put_text(struct writer *w, size_t i, const uint8_t *text, size_t count) {
    size_t seen = count < w->context ? count : w->context;
    int32_t *tokens = w->tokens + i * w->context;
    memset(tokens, 0, w->context * sizeof *tokens);
    for (size_t t = 0; t < seen; t++) tokens[t] = text[count - seen + t];
    w->position[i] = seen - 1;
}

/* The outputs after the last token of the first `count` samples. */
static ls_status predict(struct writer *w, size_t count) {
    size_t row_nbytes = w->outputs * sizeof(float);
    ls_copy(w->compute, w->inputs, w->tokens, count * w->context * sizeof *w->tokens);
    const float *y = ls_model_forward(w->model, w->inputs, count, false);
    for (size_t i = 0; i < count && y; i++) {
        const float *row = y + (i * w->context + w->position[i]) * w->outputs;
        ls_copy(w->compute, w->logits + i * w->outputs, row, row_nbytes);
    }
    return ls_stream_synchronize(w->compute);
}

/* --- the choice of a token ---------------------------------------------------------------------------------------- */

static uint8_t likeliest(const float *logits, size_t count) {
    size_t best = 0;
    for (size_t c = 1; c < count; c++) best = logits[c] > logits[best] ? c : best;
    return (uint8_t)best;
}

static uint8_t draw(const float *logits, size_t count, double temperature, ls_generator *generator) {
    double largest = (double)logits[likeliest(logits, count)], weights[256], sum = 0;
    for (size_t c = 0; c < count; c++) sum += weights[c] = exp(((double)logits[c] - largest) / temperature);
    double left = ls_uniform_double(generator) * sum;
    size_t token = 0;
    while (token + 1 < count && left >= weights[token]) left -= weights[token++];
    return (uint8_t)token;
}

/* --- a continuation ----------------------------------------------------------------------------------------------- */

static ls_status write_on(struct writer *w, const struct ls_generation *g, uint8_t *tokens) {
    ls_generator generator;
    ls_status status = LS_OK;
    ls_generator_seed(&generator, g->seed);
    for (size_t n = w->context; status == LS_OK && n < w->context + g->count; n++) {
        put_text(w, 0, tokens, n);
        status = predict(w, 1);
        tokens[n] = g->temperature > 0 ? draw(w->logits, w->vocabulary, g->temperature, &generator)
                                       : likeliest(w->logits, w->vocabulary);
    }
    return status;
}

ls_status ls_generate(ls_model *model, const ls_dataset *text, const struct ls_generation *g, uint8_t *bytes) {
    struct writer w;
    size_t count;
    const uint8_t *tokens = ls_text_tokens(text, &count), *vocabulary = ls_text_vocabulary(text);
    if (!tokens) return ls_fail(LS_ERR_INVALID, "--generate needs a text to continue, which the data is not");
    ls_status status = writer_open(&w, model, text, 1);
    if (status == LS_OK) {
        memcpy(bytes, tokens, w.context);
        status = write_on(&w, g, bytes);
    }
    for (size_t i = 0; status == LS_OK && i < w.context + g->count; i++) bytes[i] = vocabulary[bytes[i]];
    writer_close(&w);
    return status;
}

/* --- answers to sums ---------------------------------------------------------------------------------------------- */

enum { QUESTION_TOKENS = sizeof ";99+99=" - 1 };

/* A sum of the test set, and the model's answer. */
struct sum {
    uint8_t text[QUESTION_TOKENS + LS_ANSWER_TOKENS]; /* the question, followed by the model's answer */
    size_t question_count, answer_count;
    const uint8_t *answer; /* the correct one, in the test set */
};

/* Reads the sum at `at`, and returns the position after it. The ";" before a sum marks the beginning of a number. */
static const uint8_t *read_sum(struct sum *sum, const uint8_t *at, int equals, int semicolon) {
    *sum = (struct sum){.text = {(uint8_t)semicolon}, .question_count = 1};
    while (*at != equals) sum->text[sum->question_count++] = *at++;
    sum->text[sum->question_count++] = *at++;
    sum->answer = at;
    while (*at++ != semicolon) sum->answer_count++;
    sum->answer_count++;
    return at;
}

/* Answers all at once, so that forwards are full, and counts the correct ones. */
static ls_status answer(struct writer *w, struct sum *sums, size_t count, int64_t *right) {
    ls_status status = LS_OK;
    for (size_t n = 0; status == LS_OK && n < LS_ANSWER_TOKENS; n++) {
        for (size_t i = 0; i < count; i++) put_text(w, i, sums[i].text, sums[i].question_count + n);
        status = predict(w, count);
        for (size_t i = 0; i < count; i++)
            sums[i].text[sums[i].question_count + n] = likeliest(w->logits + i * w->outputs, w->vocabulary);
    }
    for (size_t i = 0; i < count; i++)
        *right += memcmp(sums[i].text + sums[i].question_count, sums[i].answer, sums[i].answer_count) == 0;
    return status;
}

ls_status ls_count_answers(ls_model *model, const ls_dataset *dataset, size_t begin, size_t end, size_t chunk,
                           size_t passes, int64_t *right) {
    struct writer w;
    struct sum sums[LS_SUMS_HELD_OUT];
    size_t count;
    const uint8_t *at = ls_text_tokens(dataset, &count);
    int equals = ls_text_token(dataset, '='), semicolon = ls_text_token(dataset, ';');
    for (size_t i = 0; i < end; i++) at = read_sum(&sums[i], at, equals, semicolon);
    *right = 0;
    ls_status status = writer_open(&w, model, dataset, chunk);
    for (size_t pass = 0, i = begin; status == LS_OK && (pass < passes || i < end); pass++) {
        size_t together = end - i < chunk ? end - i : chunk;
        status = answer(&w, sums + i, together, right);
        i += together;
    }
    writer_close(&w);
    return status;
}
