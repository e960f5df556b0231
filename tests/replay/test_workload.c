/* The published networks of labs/replay/workloads against published figures, and the rules by which a file becomes
 * operations. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/engine/workload.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/expected_work.h"

static void expect_close(double got, double wanted, double tolerance) {
    if (!(fabs(got - wanted) <= tolerance * fabs(wanted))) fail_msg("%.17g, not %.17g", got, wanted);
}

static ls_workload *open_workload(const char *name) {
    ls_workload *w = NULL;
    assert_int_equal(ls_workload_open(&w, name), LS_OK);
    assert_non_null(w);
    assert_string_equal(w->name, name);
    return w;
}

/* Flops of a phase: all, or only those of matrix multiplies. */
static double phase_flops(const ls_workload *w, const char *phase, bool products_only) {
    double sum = 0;
    for (int i = 0; i < w->work_count; i++) {
        bool counts = strcmp(w->work[i].phase, phase) == 0 && (w->work[i].is_product || !products_only);
        if (counts) sum += w->work[i].flops;
    }
    return sum;
}

/* --- the files --------------------------------------------------------------------------------------------------- */

/* Parameters: torchvision's model pages; GPT-2's published weights; BERT's by counting (its page says 336 M). Flops:
 * torchvision's multiply-adds, to its 2 decimals; the transformers' are counted, and checked by formulas below. */
TEST(networks_have_their_published_size) {
    static const struct {
        const char *name;
        uint64_t parameters;
        double giga_multiply_adds, tolerance;
        int optimizer_states;
    } rows[] = {
        {"resnet50", 25557032, 4.09, 0.005 / 4.09, 1},         {"resnet101", 44549160, 7.80, 0.005 / 7.80, 1},
        {"resnext50", 25028904, 4.23, 0.005 / 4.23, 1},        {"resnext101", 88791336, 16.41, 0.005 / 16.41, 1},
        {"vgg16", 138357544, 15.47, 0.005 / 15.47, 1},         {"bert-large", 336226108, 43.595859968, 1e-12, 2},
        {"gpt2-xl", 1557611200, 1753.3517824, 1e-12, 2},       {"gpt2-124m", 124439808, 145.8241536, 1e-12, 2},
        {"megatron-1.2b", 1213479936, 1369.0208256, 1e-12, 2}, {"megatron-8.3b", 8317040640, 8974.334164992, 1e-12, 2},
        {"gpt-534m", 533720064, 1292.114067456, 1e-12, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_workload *w = open_workload(rows[i].name);
        assert_true(ls_workload_parameters(w) == rows[i].parameters);
        expect_close(phase_flops(w, "forward", true) / 2e9, rows[i].giga_multiply_adds, rows[i].tolerance);
        assert_int_equal(w->optimizer_states, rows[i].optimizer_states);
        assert_true(strstr(w->source, "et al.") || strstr(w->source, "Simonyan"));
        ls_workload_close(w);
    }
}

/* 2 flops for each weight at each token, and the two matrix multiplies of attention: 4 s^2 d. */
TEST(transformers_have_the_flops_of_their_formula) {
    static const struct {
        const char *name;
        double d, layers, vocabulary, s;
    } rows[] = {{"gpt2-xl", 1600, 48, 50257, 1024},
                {"gpt2-124m", 768, 12, 50257, 1024},
                {"megatron-1.2b", 1536, 40, 51200, 1024},
                {"megatron-8.3b", 3072, 72, 51200, 1024},
                {"gpt-534m", 1536, 16, 50304, 2048}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double d = rows[i].d, s = rows[i].s;
        ls_workload *w = open_workload(rows[i].name);
        double formula = rows[i].layers * (2 * s * 12 * d * d + 4 * s * s * d) + 2 * s * d * rows[i].vocabulary;
        expect_close(phase_flops(w, "forward", true), formula, 1e-12);
        ls_workload_close(w);
    }
}

/* Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, equation 1: a layer keeps s h (34 + 5 a s / h) bytes
 * with elements of 2 bytes and masks of 1; with elements of 4 bytes that is s h 66 + 9 a s^2. */
TEST(transformers_keep_the_activations_of_their_formula) {
    const double s = 1024, h = 1600, a = 25, layers = 48;
    ls_workload *w = open_workload("gpt2-xl");
    double outside = (4 + 1) * s * h /* dropout after the embeddings */ + 4 * s * h /* the last norm */;
    expect_close(w->activation_bytes, layers * (66 * s * h + 9 * a * s * s) + outside, 1e-12);
    ls_workload_close(w);
}

/* The same without dropout's masks, 2 s h, and without scores: tile by tile, a head keeps a float for each row. */
TEST(attention_by_tiles_keeps_memory_linear_in_the_context) {
    const double s = 1024, h = 768, a = 12, layers = 12;
    ls_workload *w = open_workload("gpt2-124m");
    double outside = 4 * s * h /* the embeddings' sum */ + 4 * s * h /* the last norm */;
    expect_close(w->activation_bytes, layers * (64 * s * h + 4 * a * s) + outside, 1e-12);
    ls_workload_close(w);
}

/* The first layer computes no gradient of its input; all other matrix multiplies have twice their flops in backward. */
TEST(backward_has_twice_the_flops) {
    ls_workload *w = open_workload("resnet50");
    const double first = 2.0 * 3 * 64 * 7 * 7 * 112 * 112;
    expect_close(phase_flops(w, "backward", true), 2 * phase_flops(w, "forward", true) - first, 1e-12);
    assert_true(w->buffer_bytes == 4.0 * 2 * 26560); /* two for each channel that is normalised */
    expect_close(w->work[w->work_count - 1].bytes, 20.0 * 25557032, 1e-12); /* SGD with momentum */
    ls_workload_close(w);
    w = open_workload("gpt2-xl"); /* the first layer is a table, without a matrix multiply */
    expect_close(phase_flops(w, "backward", true), 2 * phase_flops(w, "forward", true), 1e-12);
    ls_workload_close(w);
}

TEST(each_parameter_is_ready_once_in_reverse_order) {
    static const char *const names[] = {"resnet50", "resnet101",  "resnext50", "resnext101",
                                        "vgg16",    "bert-large", "gpt2-xl",   "gpt2-124m"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        ls_workload *w = open_workload(names[n]);
        int next = 0;
        assert_int_equal(w->ready_count, w->parameter_count);
        for (int i = 0; i < w->ready_count; i++) assert_int_equal(w->ready[i], w->parameter_count - 1 - i);
        for (int i = 0; i < w->work_count; i++) {
            const struct ls_work *work = &w->work[i];
            if (work->ready_count == 0) continue;
            assert_string_equal(work->phase, "backward");
            assert_int_equal(work->first_ready, next);
            next += work->ready_count;
        }
        assert_int_equal(next, w->parameter_count);
        ls_workload_close(w);
    }
}

TEST(parameters_have_their_published_names) {
    static const struct {
        const char *workload, *first, *last;
        int index;
        const char *name;
        uint64_t count;
    } rows[] = {
        {"resnet50", "conv1.weight", "fc.bias", 12, "layer1.0.downsample.0.weight", 16384},
        {"resnet50", "conv1.weight", "fc.bias", 15, "layer1.1.conv1.weight", 16384},
        {"vgg16", "features.0.weight", "classifier.6.bias", 26, "classifier.0.weight", 102760448},
        {"gpt2-xl", "transformer.wte.weight", "transformer.ln_f.bias", 14, "transformer.h.1.ln_1.weight", 1600},
        {"gpt2-124m", "transformer.wte.weight", "transformer.ln_f.bias", 16, "transformer.h.1.attn.c_attn.weight",
         1769472},
        {"bert-large", "bert.embeddings.word_embeddings.weight", "cls.seq_relationship.bias", 5,
         "bert.encoder.layer.0.attention.self.query.weight", 1048576},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_workload *w = open_workload(rows[i].workload);
        assert_string_equal(w->parameter_names[0], rows[i].first);
        assert_string_equal(w->parameter_names[w->parameter_count - 1], rows[i].last);
        assert_string_equal(w->parameter_names[rows[i].index], rows[i].name);
        assert_true(w->parameter_counts[rows[i].index] == rows[i].count);
        ls_workload_close(w);
    }
}

/* A matrix multiply has 2 flops for each weight at each place: a wrong figure leaves a fraction. */
TEST(products_use_each_weight_a_whole_number_of_times) {
    static const char *const names[] = {"resnet50", "resnet101", "resnext50", "resnext101",
                                        "vgg16",    "gpt2-xl",   "gpt2-124m"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        ls_workload *w = open_workload(names[n]);
        int products = 0;
        for (int i = 0; i < w->work_count; i++) {
            const struct ls_work *work = &w->work[i];
            if (strcmp(work->phase, "forward") != 0 || work->fixed_bytes == 0 || !work->is_product) continue;
            double weights = 0;
            size_t length = strlen(work->name);
            for (int p = 0; p < w->parameter_count; p++) {
                bool own = strncmp(w->parameter_names[p], work->name, length) == 0;
                if (own && strcmp(w->parameter_names[p] + length, ".weight") == 0)
                    weights = (double)w->parameter_counts[p];
            }
            if (strcmp(work->name, "lm_head") == 0) weights = (double)w->parameter_counts[0]; /* tied */
            double places = work->flops / (2 * weights);
            if (!(places >= 1 && places == floor(places))) fail_msg("%s: %.17g places", work->name, places);
            products++;
        }
        assert_true(products >= 16);
        ls_workload_close(w);
    }
}

/* --- the rules --------------------------------------------------------------------------------------------------- */

static const char small[] =
    "{\"name\": \"small\", \"source\": \"a test\", \"notes\": [\"of two layers\"],\n"
    " \"input_bytes\": 40, \"answer_bytes\": 8, \"output_bytes\": 12, \"element_bytes\": 4,\n"
    " \"optimizer\": \"sgd\", \"parameters\": 63, \"forward_flops\": 120,\n"
    " \"layers\": [\n"
    "  {\"name\": \"body\", \"source\": \"here\", \"layers\": [\n"
    "   {\"name\": \"fc\", \"kind\": \"linear\", \"flops\": 100, \"input\": 10, \"output\": 5,\n"
    "    \"parameters\": {\"weight\": 50, \"bias\": 5}}]},\n"
    "  {\"name\": \"act\", \"source\": \"here\", \"repeat\": 2, \"first\": 1, \"layers\": [\n"
    "   {\"name\": \"relu\", \"kind\": \"activation\", \"flops\": 10, \"output\": 3, \"kept\": 0,\n"
    "    \"buffers\": 8, \"parameters\": {\"slope\": 4}}]}]}\n";

TEST(operations_follow_from_the_rules) {
    static const struct ls_work expected[] = {
        {"body.fc", "forward", 100, 4 * (10 + 5 + 55), 4 * 55, true, -1, -1, 0, 0, 0, {0}},
        {"act.1.relu", "forward", 10, 4 * (5 + 3 + 4), 4 * 4, false, -1, -1, 0, 0, 4, {0}},
        {"act.2.relu", "forward", 10, 4 * (3 + 3 + 4), 4 * 4, false, -1, -1, 0, 0, 4, {0}},
        {"loss", "loss", 15, 3 * 12 + 8, 0, false, -1, -1, 0, 0, 0, {0}},
        {"act.2.relu", "backward", 10, 4 * (2 * 3 + 3 + 4), 4 * 4, false, -1, -1, 0, 1, 4, {0}},
        {"act.1.relu", "backward", 10, 4 * (2 * 5 + 3 + 4), 4 * 4, false, -1, -1, 1, 1, 4, {0}},
        {"body.fc", "backward", 100, 4 * (10 + 5 + 55), 4 * 55, true, -1, -1, 2, 2, 0, {0}},
        {"optimizer", "optimizer", 2 * 63, 12 * 63, 12 * 63, false, -1, -1, 0, 0, 0, {0}},
    };
    ls_workload *w;
    assert_int_equal(ls_workload_parse(&w, "small", small, strlen(small)), LS_OK);
    expect_work(w, expected, (int)(sizeof expected / sizeof *expected));
    assert_true(w->samples == 1 && w->activation_bytes == 4 * 5 && w->exchange_bytes == 2 * 4 * 5);
    assert_string_equal(w->parameter_names[3], "act.2.relu.slope");
    ls_workload_close(w);
}

/* Replay's defaults without options: none, or those of the file. */
TEST(defaults_are_the_files) {
    static const struct {
        const char *text;
        struct ls_workload_defaults defaults;
    } rows[] = {
        {"", {0, LS_FP32, false, false}},
        {" \"defaults\": {},", {0, LS_FP32, false, false}},
        {" \"defaults\": {\"batch\": 384, \"precision\": \"fp16\", \"replicate\": \"both\"},",
         {384, LS_FP16, true, true}},
        {" \"defaults\": {\"precision\": \"bf16\", \"replicate\": \"collectives\"},", {0, LS_BF16, false, true}},
        {" \"defaults\": {\"replicate\": \"copies\"},", {0, LS_FP32, true, false}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2000];
        ls_workload *w;
        snprintf(text, sizeof text, "{%s%s", rows[i].text, small + 1);
        assert_int_equal(ls_workload_parse(&w, "small", text, strlen(text)), LS_OK);
        const struct ls_workload_defaults *got = &w->defaults, *wanted = &rows[i].defaults;
        assert_true(got->batch == wanted->batch && got->precision == wanted->precision);
        assert_true(got->copies == wanted->copies && got->collectives == wanted->collectives);
        ls_workload_close(w);
    }
}

/* --- refusals ---------------------------------------------------------------------------------------------------- */

/* The small file with its first `from` replaced by `to` is refused with these texts. */
static void expect_refusal(const char *from, const char *to, const char *line, const char *why) {
    char text[2000];
    const char *at = strstr(small, from);
    ls_workload *w = (ls_workload *)text;
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small), small, to, at + strlen(from));
    ls_status status = ls_workload_parse(&w, "small.json", text, strlen(text));
    if (status != LS_ERR_INVALID) fail_msg("taken: \"%s\" in place of \"%s\"", to, from);
    assert_null(w);
    scratch_expect_error(line, why);
}

TEST_IN(scratch, malformed_files_are_refused_with_their_line) {
    expect_refusal("\"name\": \"small\", ", "", "small.json:1: ", "name is missing");
    expect_refusal("\"source\": \"a test\"", "\"source\": 7", "small.json:1: ", "source must be a string");
    expect_refusal("[\"of two layers\"]", "[1]", "small.json:1: ", "a note must be a string");
    expect_refusal("\"input_bytes\": 40", "\"input_bytes\": -1", "small.json:2: ", "input_bytes must lie between");
    expect_refusal("\"answer_bytes\": 8", "\"answer_bytes\": 1e300", "small.json:2: ", "answer_bytes must lie between");
    expect_refusal("\"output_bytes\": 12", "\"output_byte\": 12", "small.json:", "output_byte");
    expect_refusal("\"element_bytes\": 4", "\"element_bytes\": 3", "small.json:", "2 or 4");
    expect_refusal("\"sgd\"", "\"newton\"", "small.json:3: ", "newton");
    expect_refusal("\"sgd\"", "\"sgd\", \"defaults\": 3", "small.json:3: ", "defaults must be an object");
    expect_refusal("\"sgd\"", "\"sgd\", \"defaults\": {\"batch\": 0}", "small.json:3: ", "batch must lie between");
    expect_refusal("\"sgd\"", "\"sgd\", \"defaults\": {\"n\": 2}", "small.json:", "n");
    expect_refusal("\"sgd\"", "\"sgd\", \"defaults\": {\"precision\": \"fp8\"}",
                   "small.json:3: ", "precision cannot be fp8");
    expect_refusal("\"sgd\"", "\"sgd\", \"defaults\": {\"replicate\": \"post\"}",
                   "small.json:3: ", "replicate cannot be post");
    expect_refusal("\"parameters\": 63", "\"parameters\": 64", "small.json:3: ", "63 parameters together; expected 64");
    expect_refusal("\"forward_flops\": 120", "\"forward_flops\": 121",
                   "small.json:3: ", "120 flops together; expected 121");
    expect_refusal("\"source\": \"here\", \"layers\"", "\"layers\"", "small.json:5: ", "source is missing");
    expect_refusal("\"linear\"", "\"quadratic\"", "small.json:6: ", "unknown kind of layer quadratic");
    expect_refusal("\"kind\": \"linear\"", "\"kind\": \"linear\", \"cut\": \"rows\"",
                   "small.json:6: ", "a layer is cut by outputs or inputs, not by rows");
    expect_refusal("\"kind\": \"linear\"", "\"kind\": \"linear\", \"heads\": 0",
                   "small.json:6: ", "heads must lie between");
    expect_refusal("\"flops\": 100", "\"flops\": -100", "small.json:6: ", "flops must lie between");
    expect_refusal("\"flops\": 100", "\"flops\": 1e300", "small.json:6: ", "flops must lie between");
    expect_refusal("\"flops\": 100, ", "", "small.json:6: ", "flops is missing");
    expect_refusal("\"input\": 10, ", "",
                   "small.json:6: ", "input is missing"); /* there is no layer before the first one */
    expect_refusal("\"output\": 5", "\"output\": 1e12", "small.json:6: ", "output must lie between");
    expect_refusal("\"weight\": 50", "\"weight\": 0", "small.json:7: ", "weight must lie between");
    expect_refusal("\"weight\": 50", "\"weight\": 50.5", "small.json:7: ", "whole number");
    expect_refusal("\"weight\": 50", "\"weight\": 1e13", "small.json:7: ", "weight must lie between");
    expect_refusal("{\"weight\": 50, \"bias\": 5}", "[50, 5]", "small.json:7: ", "parameters must be an object");
    expect_refusal("\"repeat\": 2", "\"repeat\": 0", "small.json:8: ", "repeat must lie between");
    expect_refusal("\"repeat\": 2", "\"repeat\": 1000000000", "small.json:8: ", "repeat must lie between");
    expect_refusal("\"repeat\": 2", "\"repeat\": 10000", "small.json:8: ", "too many layers; expected at most 10000");
    expect_refusal("\"first\": 1", "\"first\": -1", "small.json:8: ", "first must lie between");
    expect_refusal("\"first\": 1", "\"frist\": 1", "small.json:8: ", "frist");
    expect_refusal("\"kept\": 0", "\"kernels\": 17", "small.json:9: ", "kernels must lie between");
    expect_refusal("\"layers\": [\n  {", "\"layers\": [7,\n  {", "small.json:4: ", "object");
}

/* Nested blocks, each of which would be expanded 10,000 times. */
TEST_IN(scratch, blocks_that_explode_are_refused) {
    char text[4000];
    ls_workload *w;
    size_t length =
        (size_t)snprintf(text, sizeof text,
                         "{\"name\": \"bomb\", \"source\": \"\", \"input_bytes\": 0, \"answer_bytes\": 0, "
                         "\"output_bytes\": 0, \"element_bytes\": 4, \"optimizer\": \"sgd\", \"parameters\": 0,\n"
                         "\"forward_flops\": 0, \"layers\": [");
    for (int depth = 0; depth < 4; depth++) {
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "{\"name\": \"x\", \"source\": \"\", \"repeat\": 10000, \"layers\": [\n");
    }
    length +=
        (size_t)snprintf(text + length, sizeof text - length,
                         "{\"name\": \"y\", \"kind\": \"add\", \"flops\": 0, \"input\": 0, \"output\": 0}]}]}]}]}]}");
    assert_int_equal(ls_workload_parse(&w, "bomb", text, length), LS_ERR_INVALID);
    scratch_expect_error("bomb:", "too many layers; expected at most 10000");
    assert_int_equal(ls_workload_open(&w, "no-such-network"), LS_ERR_IO);
    scratch_expect_error("no-such-network", NULL);
}
