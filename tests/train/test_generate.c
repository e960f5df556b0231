/* Texts in evaluation: loss and accuracy over all tokens, continuations, answers to sums. Outputs are scripted, so that
 * tests know the right results. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/train/evaluate.h"
#include "common/train/generate.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/nn/scripted.h"

enum { ROOM = 7 };

struct fixture {
    ls_device *device;
    ls_network *network;
    ls_model *model;
    ls_dataset *train, *test;
};

static struct fixture open_fixture(int context, int spare_outputs, scripted_outputs outputs) {
    struct fixture f = {.device = open_device(0)};
    assert_int_equal(ls_dataset_open_sums(&f.train, &f.test, 1, context), LS_OK);
    f.network = scripted_network(context, ls_dataset_spec(f.test)->classes + spare_outputs, outputs);
    assert_int_equal(ls_model_create_of(&f.model, f.device, f.network, ROOM, LS_FP32), LS_OK);
    return f;
}

static void close_fixture(struct fixture *f) {
    ls_model_destroy(f->model);
    ls_network_destroy(f->network);
    ls_dataset_close(f->train);
    ls_dataset_close(f->test);
    close_empty_device(f->device);
}

/* --- outputs without a pattern, which depend on every token seen -------------------------------------------------- */

static void mixed(const int32_t *tokens, size_t seen, float *outputs, size_t vocabulary) {
    uint32_t hash = 17;
    for (size_t t = 0; t < seen; t++) hash = (hash ^ (uint32_t)tokens[t]) * 2654435761u + (uint32_t)t;
    for (size_t c = 0; c < vocabulary; c++) {
        hash = hash * 1664525u + 1013904223u;
        outputs[c] = (float)(hash >> 8) / (float)(1 << 22) - 2;
    }
}

/* Row by row, in doubles. */
static struct ls_test_sums evaluate_slowly(const ls_dataset *set, int64_t begin, int64_t end) {
    enum { CONTEXT = 20, VOCABULARY = 13 };
    struct ls_test_sums sums = {0};
    for (int64_t i = begin; i < end; i++) {
        int32_t x[CONTEXT];
        int64_t y[CONTEXT];
        assert_int_equal(ls_dataset_read(set, &i, 1, x, y, NULL), LS_OK);
        for (size_t t = 0; t < CONTEXT; t++) {
            float outputs[VOCABULARY];
            double sum = 0;
            size_t best = 0;
            mixed(x, t + 1, outputs, VOCABULARY);
            for (size_t c = 0; c < VOCABULARY; c++) {
                sum += exp((double)outputs[c]);
                if (outputs[c] > outputs[best]) best = c;
            }
            sums.right += (int64_t)best == y[t];
            sums.loss += log(sum) - (double)outputs[y[t]];
        }
    }
    return sums;
}

TEST(loss_and_accuracy_are_those_of_all_tokens) {
    struct fixture f = open_fixture(20, 0, mixed);
    int64_t count = (int64_t)ls_dataset_count(f.test);
    struct ls_test_sums all = evaluate_slowly(f.test, 0, count), part = evaluate_slowly(f.test, 3, 24), sums;
    assert_in_range(all.right, 1, count * 20 - 1);
    static const size_t chunks[] = {1, 4, ROOM};
    for (size_t c = 0; c < 3; c++) {
        assert_int_equal(ls_evaluate(f.model, f.test, 0, (size_t)count, chunks[c], 0, &sums), LS_OK);
        assert_int_equal(sums.right, all.right);
        assert_true(fabs(sums.loss / all.loss - 1) <= 1e-6);
        assert_int_equal(ls_evaluate(f.model, f.test, 3, 24, chunks[c], 40, &sums), LS_OK);
        assert_int_equal(sums.right, part.right);
        assert_true(fabs(sums.loss / part.loss - 1) <= 1e-6);
    }
    close_fixture(&f);
}

/* --- continuations ---------------------------------------------------------------------------------------------------- */

enum { WRITTEN = 50 };

/* The test set's first tokens, and their continuation, as bytes. `temperature` 0: the most likely token. */
static void write_slowly(const struct fixture *f, size_t context, double temperature, uint64_t seed, uint8_t *bytes) {
    size_t count, vocabulary = (size_t)ls_dataset_spec(f->test)->classes;
    const uint8_t *test = ls_text_tokens(f->test, &count);
    int32_t tokens[200];
    ls_generator generator;
    ls_generator_seed(&generator, seed);
    for (size_t n = 0; n < context + WRITTEN; n++) {
        float outputs[20] = {0};
        double weights[20], sum = 0;
        size_t token = 0;
        if (n >= context) mixed(tokens + n - context, context, outputs, vocabulary);
        for (size_t c = 0; c < vocabulary; c++) {
            weights[c] = exp((double)outputs[c] / (temperature > 0 ? temperature : 1));
            sum += weights[c];
            if (outputs[c] > outputs[token]) token = c;
        }
        if (n >= context && temperature > 0) {
            double u = ls_uniform_double(&generator) * sum, up_to = weights[0];
            for (token = 0; u >= up_to;) up_to += weights[++token];
        }
        tokens[n] = n < context ? test[n] : (int32_t)token;
        bytes[n] = ls_text_vocabulary(f->test)[tokens[n]];
    }
}

/* Also for a model whose vocabulary is larger than that of the text. */
TEST(a_continuation_sees_the_last_tokens_and_takes_the_likeliest) {
    for (int context = 1; context <= 12; context += 11) {
        for (int spare = 0; spare <= 3; spare += 3) {
            struct fixture f = open_fixture(context, spare, mixed);
            uint8_t bytes[200], slowly[200];
            size_t length = (size_t)context + WRITTEN;
            const struct ls_generation likeliest = {.count = WRITTEN, .seed = 5};
            assert_int_equal(ls_generate(f.model, f.test, &likeliest, bytes), LS_OK);
            write_slowly(&f, (size_t)context, 0, 0, slowly);
            assert_memory_equal(bytes, slowly, length);
            close_fixture(&f);
        }
    }
}

TEST(a_temperature_draws_from_the_seed) {
    struct fixture f = open_fixture(12, 0, mixed);
    uint8_t bytes[3][200], slowly[200];
    for (uint64_t seed = 0; seed < 3; seed++) {
        const struct ls_generation drawn = {.count = WRITTEN, .temperature = 0.7, .seed = seed};
        for (int again = 0; again < 2; again++) {
            assert_int_equal(ls_generate(f.model, f.test, &drawn, bytes[seed]), LS_OK);
            write_slowly(&f, 12, 0.7, seed, slowly);
            assert_memory_equal(bytes[seed], slowly, 12 + WRITTEN);
        }
    }
    assert_memory_not_equal(bytes[0], bytes[1], 12 + WRITTEN);
    const struct ls_generation cold = {.count = WRITTEN, .temperature = 1e-3}, likeliest = {.count = WRITTEN};
    assert_int_equal(ls_generate(f.model, f.test, &cold, bytes[0]), LS_OK);
    assert_int_equal(ls_generate(f.model, f.test, &likeliest, bytes[1]), LS_OK);
    assert_memory_equal(bytes[0], bytes[1], 12 + WRITTEN);
    close_fixture(&f);
}

TEST_IN(scratch, images_are_not_continued) {
    static const ls_sample_spec image = {.channels = 1, .height = 1, .width = 4, .classes = 10};
    const struct ls_generation generation = {.count = 1};
    uint8_t bytes[200];
    struct fixture f = open_fixture(4, 0, mixed);
    ls_dataset_close(f.test);
    assert_int_equal(ls_dataset_random(&f.test, 1, 10, &image), LS_OK);
    assert_int_equal(ls_generate(f.model, f.test, &generation, bytes), LS_ERR_INVALID);
    scratch_expect_error("needs a text to continue", NULL);
    close_fixture(&f);
}

/* --- answers ---------------------------------------------------------------------------------------------------------- */

static const char alphabet[] = "+0123456789;=";

/* Sums whose a + b has that remainder are answered wrongly: in the last digit, or by an answer that does not end. */
static struct {
    unsigned divisor, remainder;
    bool endless;
} mistake;

/* Answers the sum after the last ";" among the tokens seen. */
static void calculating(const int32_t *tokens, size_t seen, float *outputs, size_t vocabulary) {
    char text[200], right[16];
    unsigned a, b;
    for (size_t t = 0; t < seen; t++) text[t] = alphabet[tokens[t]];
    text[seen] = '\0';
    const char *last = strrchr(text, ';'), *sum = last ? last + 1 : text, *equals = strchr(sum, '=');
    char next = '0';
    if (equals && sscanf(sum, "%u+%u=", &a, &b) == 2) {
        bool wrong = (a + b) % mistake.divisor == mistake.remainder;
        unsigned answer = a + b + (wrong && !mistake.endless);
        snprintf(right, sizeof right, "%u%c", answer, wrong && mistake.endless ? '0' : ';');
        size_t written = strlen(equals + 1);
        if (written < strlen(right)) next = right[written];
    }
    for (size_t c = 0; c < vocabulary; c++) outputs[c] = c < 13 && alphabet[c] == next ? 1 : 0;
}

/* The number of held-out sums from `begin` on that are answered correctly. */
static int64_t count_unmistaken(const ls_dataset *test, int begin, int end) {
    size_t count;
    const uint8_t *tokens = ls_text_tokens(test, &count);
    char text[3000], *at = text;
    int64_t right = 0;
    for (size_t t = 0; t < count; t++) text[t] = alphabet[tokens[t]];
    text[count] = '\0';
    for (int i = 0; i < end; i++) {
        unsigned a, b;
        assert_int_equal(sscanf(at, "%u+%u=", &a, &b), 2);
        if (i >= begin) right += (a + b) % mistake.divisor != mistake.remainder;
        at = strchr(at, ';') + 1;
    }
    return right;
}

TEST(answers_are_right_up_to_their_end) {
    static const unsigned divisors[] = {1000, 2, 3, 1}; /* no sum leaves a remainder of 999 */
    struct fixture f = open_fixture(40, 2, calculating);
    for (int endless = 0; endless < 2; endless++) {
        for (size_t d = 0; d < 4; d++) {
            int64_t right;
            mistake.divisor = divisors[d];
            mistake.remainder = divisors[d] == 1000 ? 999 : 0;
            mistake.endless = endless;
            int64_t all = count_unmistaken(f.test, 0, LS_SUMS_HELD_OUT), part = count_unmistaken(f.test, 30, 71);
            if (d == 0) assert_int_equal(all, LS_SUMS_HELD_OUT);
            if (d == 3) assert_int_equal(all, 0);
            assert_int_equal(ls_count_answers(f.model, f.test, 0, LS_SUMS_HELD_OUT, ROOM, 0, &right), LS_OK);
            assert_int_equal(right, all);
            assert_int_equal(ls_count_answers(f.model, f.test, 30, 71, 1 + d, 50, &right), LS_OK);
            assert_int_equal(right, part);
            assert_int_equal(ls_count_answers(f.model, f.test, 71, 71, ROOM, 3, &right), LS_OK);
            assert_int_equal(right, 0);
        }
    }
    close_fixture(&f);
}

/* A context that is slightly too short for a question and its answer: the model sees their last tokens, without the
 * ";". */
TEST(a_short_context_sees_a_questions_last_tokens) {
    int64_t right;
    struct fixture f = open_fixture(9, 0, calculating);
    mistake.divisor = 1000;
    mistake.remainder = 999;
    assert_int_equal(ls_count_answers(f.model, f.test, 0, LS_SUMS_HELD_OUT, ROOM, 0, &right), LS_OK);
    assert_int_equal(right, LS_SUMS_HELD_OUT);
    close_fixture(&f);
}

/* --- all ranks together ----------------------------------------------------------------------------------------------- */

static double totals[8];
static int meetings;

static ls_status add_to_totals(ls_parallel *p, double *values, size_t count) {
    (void)p;
    for (size_t i = 0; i < count; i++) totals[i] += values[i];
    meetings++;
    return LS_OK;
}

static ls_status be_ready(ls_parallel *p) { return (void)p, LS_OK; }

/* Three ranks, in turn: their sums are those of one rank that has all samples and all questions. */
TEST(ranks_share_samples_and_answers) {
    static const struct ls_process_ops process = {.sum_over_ranks = add_to_totals, .before_evaluation = be_ready};
    struct fixture f = open_fixture(40, 0, calculating);
    ls_train_options o = ls_train_defaults();
    ls_train_result whole = {0}, part = {0};
    o.batch_size = 12;
    o.data = "sums:1";
    mistake.divisor = 3;
    mistake.remainder = 0;
    mistake.endless = false;
    struct ls_parallel alone = {
        .model = f.model, .world_size = 1, .data_size = 1, .tensor_size = 1, .local_device_count = 2};
    struct ls_parallel p = alone;
    assert_int_equal(ls_measure(&alone, &o, f.test, &whole), LS_OK);
    p.world_size = p.data_size = 3;
    p.local_device_count = 1;
    p.process = &process;
    for (p.rank = 0; p.rank < 3; p.rank++) assert_int_equal(ls_measure(&p, &o, f.test, &part), LS_OK);
    double labels = (double)(ls_dataset_count(f.test) * 40);
    assert_int_equal(meetings, 3);
    assert_int_equal(whole.answers, LS_SUMS_HELD_OUT);
    assert_int_equal(whole.answers_right, count_unmistaken(f.test, 0, LS_SUMS_HELD_OUT));
    assert_true(fabs(totals[0] / labels - whole.accuracy) <= 1e-12 && whole.accuracy > 0.1 && whole.accuracy < 1);
    assert_true(fabs(totals[1] / labels - whole.test_loss) <= 1e-6 && whole.test_loss > 1);
    assert_true(totals[2] == (double)whole.answers_right);
    o.data = "random:1"; /* without answers */
    whole = (ls_train_result){0};
    assert_int_equal(ls_measure(&alone, &o, f.test, &whole), LS_OK);
    assert_int_equal(whole.answers, 0);
    close_fixture(&f);
}
