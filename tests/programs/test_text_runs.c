/* dp_train and ddp_train on texts: the same weights, measurements and continuations in both modes, resumed runs, output
 * and files, and refusals in one line. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

#define MODEL "--model gpt:1,2,16,16 --batch-size 8 --quiet"
#define TEXT " --data text:README.md,LICENSE"

static program p;

/* Copies from there to the line's end, or to the next "(". */
static void copy_line(const char *text, const char *from, char *line, size_t capacity) {
    const char *begin = strstr(text, from);
    if (!begin) fail_msg("there is no \"%s\" in %s", from, text);
    size_t length = strcspn(begin, "\n("); /* DDP has a hint after the hash */
    snprintf(line, capacity, "%.*s", (int)length, begin);
}

/* A run's report of the test samples and the weights, and the text that it generated (--generate). */
struct outcome {
    char line[300], text[2000];
};
static struct outcome run(const char *format, const char *options) {
    struct outcome outcome = {"", ""};
    if (program_run(&p, format, options) != 0)
        fail_msg("%s %s: status %d, stderr: %s", format, options, p.status, p.err_text);
    copy_line(p.out_text, "test loss", outcome.line, sizeof outcome.line);
    copy_line(strstr(p.out_text, "final loss"), "test loss", outcome.line, sizeof outcome.line);
    const char *text = strstr(p.out_text, "the test set begins");
    if (text) snprintf(outcome.text, sizeof outcome.text, "%s", text);
    return outcome;
}

static void expect_same(const struct outcome *a, const struct outcome *b, const char *options) {
    if (strcmp(a->line, b->line) != 0) fail_msg("%s: %s and %s", options, a->line, b->line);
    if (strcmp(a->text, b->text) != 0) fail_msg("%s: %s and %s", options, a->text, b->text);
}

TEST_IN(programs, test_both_modes_are_the_same) {
    static const char *const options[] = {
        "--steps 12 --generate 40",
        "--steps 12 --generate 40 --temperature 0.8 --seed 3",
        "--epochs 1 --batch-size 60 --drop-last --optimizer adamw --clip-norm 0.5",
        "--epochs 1 --batch-size 60 --workers 3 --prefetch 2", /* the last step is short */
        "--steps 12 --resident-batches 3",
        "--steps 12 --precision bf16 --generate 40",
        "--steps 12 --checkpoint-activations 1",
        "--steps 12 --data sums:1 --generate 40",
    };
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        for (int n = 2; n <= 4; n += 2) {
            char dp[200], ddp[200];
            snprintf(dp, sizeof dp, "dp_train " MODEL TEXT " --devices %d %%s", n);
            snprintf(ddp, sizeof ddp, "ddp_train " MODEL TEXT " --spawn %d --shard contiguous %%s", n);
            struct outcome of_dp = run(dp, options[i]), of_ddp = run(ddp, options[i]);
            expect_same(&of_dp, &of_ddp, options[i]);
            assert_true((of_dp.text[0] != '\0') == (strstr(options[i], "--generate") != NULL));
        }
    }
}

/* Shards hold parts of the parameters, which all ranks gather to evaluate and to generate. */
TEST_IN(programs, test_single_and_shards) {
    static const char *const same[] = {"--spawn 2 --shard-state 1", "--spawn 2 --shard-state 2",
                                       "--spawn 2 --debug-ranks"};
    const char *more = "--steps 12 --generate 40";
    struct outcome one = run("dp_train " MODEL TEXT " --single %s", more),
                   dp = run("dp_train " MODEL TEXT " --devices 1 %s", more),
                   two = run("ddp_train " MODEL TEXT " --shard contiguous --spawn 2 %s", more);
    expect_same(&one, &dp, "one device");
    for (size_t i = 0; i < COUNT_OF(same); i++) {
        char line[200];
        snprintf(line, sizeof line, "ddp_train " MODEL TEXT " --shard contiguous %s %%s", same[i]);
        struct outcome sharded = run(line, more);
        expect_same(&two, &sharded, same[i]);
    }
}

TEST_IN(programs, test_a_checkpoint_in_the_middle_of_an_epoch) {
    char line[700];
    const char *checkpoint = scratch_path("checkpoint");
    struct outcome whole = run("dp_train " MODEL TEXT " --devices 2 %s", "--epochs 2 --batch-size 40 --generate 20");
    snprintf(line, sizeof line, "--steps 15 --batch-size 40 --save %s", checkpoint);
    (void)run("ddp_train " MODEL TEXT " --shard contiguous --spawn 2 %s", line);
    snprintf(line, sizeof line, "--epochs 2 --batch-size 40 --generate 20 --resume %s", checkpoint);
    struct outcome resumed = run("dp_train " MODEL TEXT " --devices 2 %s", line);
    expect_same(&whole, &resumed, "dp_train --resume");
    resumed = run("ddp_train " MODEL TEXT " --shard contiguous --spawn 2 %s", line);
    expect_same(&whole, &resumed, "ddp_train --resume");
    /* a different text has a different vocabulary, and so a different model */
    assert_int_equal(program_run(&p, "dp_train " MODEL " --data sums:0 --steps 20 --resume %s", checkpoint), 1);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "was written by a run with model gpt:1,2,16,16,"));
}

TEST_IN(programs, test_uneven_ends) {
    (void)run("ddp_train " MODEL TEXT " --spawn 3 --uneven --join --debug-ranks --batch-size 90 %s", "");
    /* 16 ranks and 10 sequences, in modes that also exist for images */
    char line[400];
    char text[180];
    for (size_t i = 0; i < sizeof text; i++) text[i] = "To be, or not to be: that "[i % 26];
    scratch_write("short", text, sizeof text);
    snprintf(line, sizeof line, "--data text:%s --batch-size 16 --epochs 1", scratch_path("short"));
    (void)run("ddp_train " MODEL " --spawn 16 %s", line);
    struct outcome ddp = run("ddp_train " MODEL " --spawn 16 --shard contiguous %s", line),
                   dp = run("dp_train " MODEL " --devices 16 %s", line);
    expect_same(&dp, &ddp, "16 ranks");
}

/* --- output ----------------------------------------------------------------------------------------------------------- */

static double number_of(const cJSON *object, const char *name) {
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(number)) fail_msg("%s is no number", name);
    return number->valuedouble;
}

TEST_IN(programs, test_metrics_and_summary) {
    const char *metrics = scratch_path("metrics"), *folder = scratch_path("trace");
    size_t nbytes;
    program_run(&p,
                "ddp_train --model gpt:1,2,16,16 --batch-size 8 --spawn 2 --steps 15 --metrics %s --trace %s "
                "--generate 30 --summary -",
                metrics, folder);
    assert_int_equal(p.status, 0);
    program_expect_text(&p, "batch: 8 samples a step = 2 devices x 4, of 16 tokens each\n");
    program_expect_text(&p, " tokens/s\n");
    program_expect_text(&p, "next-token accuracy");
    program_expect_text(&p, " of 200 held-out sums right, weights ");
    program_expect_text(&p, "the test set begins with these 16 tokens:\n");
    program_expect_text(&p, "\nand the model goes on with 30 tokens, each the likeliest:\n");
    const char *last = strstr(p.out_text, "\n{\"summary\":"); /* the last line, even after a text */
    assert_non_null(last);
    assert_int_equal(count_lines(last), 2);
    cJSON *summary = cJSON_Parse(last), *object = cJSON_GetObjectItem(summary, "summary");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(object, "model")), "gpt:1,2,16,16,13");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(object, "data")), "sums:0");
    assert_true(number_of(object, "tokens_per_sample") == 16);
    double rate = number_of(object, "tokens_per_s") / number_of(object, "samples_per_s");
    assert_true(fabs(rate - 16) <= 1e-6);
    double loss = number_of(object, "test_loss"), accuracy = number_of(object, "test_accuracy");
    assert_true(loss > 2 && loss < 3 && accuracy > 0 && accuracy < 1); /* ln 13 is 2.56 */
    assert_true(fabs(number_of(object, "test_perplexity") / exp(loss) - 1) <= 1e-9);
    assert_true(number_of(object, "held_out_sums") == 200 && number_of(object, "held_out_sums_right") >= 0);
    cJSON_Delete(summary);
    char *lines = scratch_read(metrics, &nbytes);
    object = cJSON_Parse(lines);
    assert_true(fabs(number_of(object, "tokens_per_s") / number_of(object, "samples_per_s") - 16) <= 0.1);
    cJSON_Delete(object);
    free(lines);
}

TEST_IN(programs, test_images_stay_as_they_were) {
    static const char *const absent[] = {"tokens", "perplexity", "test loss", "held-out", "test_loss"};
    program_run(&p, "dp_train --model mlp:784,8,10 --steps 12 --summary -");
    assert_int_equal(p.status, 0);
    for (size_t i = 0; i < COUNT_OF(absent); i++)
        if (strstr(p.out_text, absent[i])) fail_msg("%s in %s", absent[i], p.out_text);
    program_expect_text(&p, ", test accuracy ");
}

/* --- refusals ----------------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_refusals_take_one_line) {
    static const struct {
        const char *options, *words;
        int status;
    } rows[] = {
        {"--model gpt --data text:no-such-file", "cannot open no-such-file: No such file", 1},
        {"--model gpt --data text:data", "data is not a regular file", 1},
        {"--model gpt --data text:data/digits/t10k-labels-idx1-ubyte.gz", "is binary: byte 0 is zero", 1},
        {"--model gpt --data text:%s", "empty is empty", 1},
        {"--model gpt:1,1,8,4096 --data text:LICENSE", "text:LICENSE is too short", 1},
        {"--model gpt:1,1,8,4096", "the text of generated sums is too short", 1},
        {"--model gpt:1,1,8,8,9 --data text:LICENSE", "its vocabulary of 9 is too small", 2},
        {"--model gpt --data data/digits", "--data data/digits has images, but gpt takes tokens", 2},
        {"--model mlp --data text:LICENSE", "--data text:LICENSE is a text, but mlp takes images", 2},
        {"--model gpt:1,3,8,8", "8", 2}, /* HEADS that do not divide CHANNELS */
        {"--generate 3", "--generate continues a text, but mlp takes images", 2},
        {"--model gpt --generate 3 --data random:0", "--generate continues a text, but --data random:0 is not a text",
         2},
        {"--model gpt --generate 0", "--generate", 2},
        {"--model gpt --temperature 0 --generate 3", "--temperature", 2},
    };
    scratch_write("empty", "", 0);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        static const char *const programs[] = {"dp_train", "ddp_train --spawn 2", "ddp_train"};
        for (size_t m = 0; m < COUNT_OF(programs); m++) {
            char options[400], line[500];
            bool named = strstr(rows[i].options, "%s") != NULL;
            if (named)
                snprintf(options, sizeof options, "--model gpt --data text:%s", scratch_path("empty"));
            else
                snprintf(options, sizeof options, "%s", rows[i].options);
            snprintf(line, sizeof line, "%s %s", programs[m], options);
            program_run(&p, "%s", line);
            if (p.status != rows[i].status) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
            if (count_lines(p.err_text) != 1) fail_msg("%s: %s", line, p.err_text);
            if (!strstr(p.err_text, rows[i].words)) fail_msg("%s: %s", line, p.err_text);
            assert_string_equal(p.out_text, "");
        }
    }
}

/* Not an error. */
TEST_IN(programs, test_a_temperature_without_a_text_is_noted) {
    program_run(&p, "dp_train --model gpt:1,1,8,8 --steps 1 --temperature 0.5");
    assert_int_equal(p.status, 0);
    assert_non_null(strstr(p.err_text, "--temperature has no effect: there is no --generate"));
}
