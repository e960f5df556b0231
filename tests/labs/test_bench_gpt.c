/* bench_gpt: its command line, the figures that it reads from a run, its arithmetic and its sentences on synthetic
 *            rows; and one complete run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "labs/bench/gpt/bench_gpt.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

static gpt_settings settings;
static gpt_results results;

static ls_status parse(char *a, char *b) {
    char name[] = "bench_gpt";
    char *argv[] = {name, a, b, NULL};
    bool help;
    return gpt_parse(&settings, a ? b ? 3 : 2 : 1, argv, &help);
}

#define WORD(text) ((char[]){text})

/* --- the command line --------------------------------------------------------------------------------------------- */

TEST(defaults) {
    assert_int_equal(parse(NULL, NULL), LS_OK);
    assert_int_equal(settings.sizes.layers, 4);
    assert_int_equal(settings.sizes.vocabulary, 65);
    assert_int_equal(settings.batch, 12);
    assert_int_equal(settings.contexts.count, 5);
    assert_string_equal(settings.python, "python3");
    assert_int_equal(parse(WORD("--python=none"), WORD("--model=gpt:1,2,8,4,9")), LS_OK);
    assert_null(settings.python);
    assert_int_equal(settings.sizes.vocabulary, 9);
}

TEST_IN(scratch, wrong_usage) {
    static const struct {
        const char *word, *error;
    } cases[] = {{"--model=mlp", "--model: expected a gpt, found mlp"},
                 {"--model=gpt:1,3,8,4", "3 heads do not divide 8 channels"},
                 {"--model=gpt:1,2,8,4,scores", "both forms of attention are measured"},
                 {"--batch=7", "2 devices cannot share 7 sequences equally"},
                 {"--contexts=1,2,3,4,5,6,7,8,9", "--contexts: too many numbers; expected at most 8"},
                 {"--contexts=0", "--contexts"},
                 {"--steps=10", "--steps"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char word[64];
        snprintf(word, sizeof word, "%s", cases[i].word);
        assert_int_equal(parse(word, NULL), LS_ERR_USAGE);
        scratch_expect_error(cases[i].error, NULL);
    }
}

/* --- synthetic rows ----------------------------------------------------------------------------------------------- */

static gpt_row *row_of(gpt_kind kind, int context) {
    gpt_row *row = (gpt_row *)(void *)gpt_find(&results, kind, context);
    assert_non_null(row);
    return row;
}

static void fill(gpt_row *row, double first, double second, double third) {
    const double ms[] = {first, second, third};
    memcpy(row->run_ms, ms, sizeof ms);
    row->run_count = 3;
}

/* In the second round, the machine was half as fast. */
static void make_rows(void) {
    assert_int_equal(parse(WORD("--contexts=128,64"), NULL), LS_OK);
    settings.cores = 2;
    results = (gpt_results){.machine = &example_machine, .settings = &settings, .pytorch = "2.15.0"};
    gpt_plan_rows(&results);
    assert_int_equal(results.row_count, GPT_STEP_ROWS + 4);
    fill(row_of(GPT_SINGLE, 0), 50, 100, 50);
    fill(row_of(GPT_PRODUCTS, 0), 40, 80, 40);
    fill(row_of(GPT_EAGER, 0), 75, 150, 80);
    fill(row_of(GPT_COMPILED, 0), 70, 140, 70);
    fill(row_of(GPT_DP, 0), 30, 60, 30);
    fill(row_of(GPT_DDP, 0), 25, 60, 25);
    for (int i = 0; i < 3; i++) results.rates[i] = 1e11, results.shapes_ms[i] = 44;
    strcpy(row_of(GPT_DP, 0)->weights, "ab");
    strcpy(row_of(GPT_DDP, 0)->weights, "ab");
    for (int context = 64; context <= 128; context += 64) {
        fill(row_of(GPT_SCORES, context), 2, 4, 2);
        fill(row_of(GPT_TILES, context), context == 64 ? 2.5 : 1, 2, context == 64 ? 2.5 : 1);
        row_of(GPT_SCORES, context)->activation_bytes = 4e6;
        row_of(GPT_TILES, context)->activation_bytes = 3e6;
    }
}

static char *answers(void) {
    bench_text written;
    FILE *file = bench_text_open(&written);
    gpt_put_answers(file, &results);
    return bench_text_close(&written);
}

static void expect_answer(const char *text) {
    char *all = answers();
    if (!strstr(all, text)) fail_msg("\"%s\" is not in:\n%s", text, all);
    free(all);
}

TEST(flops_of_the_matrix_multiplies) {
    assert_int_equal(parse(NULL, NULL), LS_OK); /* 12 x 64 rows; 4 layers of 3 + 1 + 4 + 4 squares of 128; 65 tokens */
    expect_near(gpt_product_flops(&settings), 3.0 * 2 * 768 * (4 * 12 * 128 * 128 + 65 * 128));
}

TEST(rows_are_compared_within_rounds) {
    make_rows();
    gpt_assemble(&results);
    expect_near(row_of(GPT_SINGLE, 0)->ms, 50);
    expect_near(row_of(GPT_SINGLE, 0)->ms_max, 100);
    expect_near(row_of(GPT_SINGLE, 0)->speed, 1);
    expect_near(row_of(GPT_PRODUCTS, 0)->speed, 1.25);
    expect_near(row_of(GPT_EAGER, 0)->speed, 50.0 / 75);
    expect_near(row_of(GPT_EAGER, 0)->speed_min, 0.625);
    expect_near(row_of(GPT_DDP, 0)->speed, 2);
    expect_near(row_of(GPT_TILES, 64)->speed, 0.8);
    expect_near(row_of(GPT_TILES, 128)->speed, 2);
    expect_answer("gpt:4,4,128,64,65, 12 sequences, AdamW, one core, measured: 50.0 ms a step (spread 100.0 %), 15360 "
                  "tokens/s\n");
    expect_answer(
        "3.66 GFLOP, 40.0 ms at this core's 100 GFLOP/s: the step takes 1.25x that (in their own shapes 44.0 ms)\n");
    expect_answer(
        "PyTorch 2.15.0 on the same core, compiled: 70.0 ms; lockstep is 1.40x as fast (rounds 1.40 to 1.40)\n");
    expect_answer("N = 2: DP 1.67x, DDP 2.00x one core's speed; same weights: yes, bit for bit, in every run\n");
    expect_answer(
        "not slower than scores in memory from T = 128 on; at T = 128 it takes 0.50x the time, and the network's "
        "activations 0.75x the memory\n");
}

TEST(missing_and_failed_rows_are_told) {
    make_rows();
    row_of(GPT_COMPILED, 0)->run_count = 0;
    row_of(GPT_COMPILED, 0)->missing = true;
    row_of(GPT_DDP, 0)->failed = true;
    gpt_assemble(&results);
    expect_answer("eager: 80.0 ms; lockstep is 1.50x as fast (rounds 1.50 to 1.60); it does not compile here\n");
    expect_answer("N = 2: a run failed, so nothing is compared\n");
    assert_false(gpt_have_weights(&results));
    row_of(GPT_EAGER, 0)->run_count = 0;
    fill(row_of(GPT_TILES, 128), 2.5, 5, 2.5);
    gpt_assemble(&results);
    expect_answer("PyTorch: not here, so not compared with\n");
    expect_answer("tile by tile is slower than scores in memory at T = 128");
    row_of(GPT_SINGLE, 0)->failed = true;
    gpt_assemble(&results);
    assert_true(isnan(row_of(GPT_DP, 0)->speed));
    expect_answer("one core, measured: failed\n");
}

TEST(other_weights_are_told) {
    make_rows();
    assert_true(gpt_same_weights(&results));
    strcpy(row_of(GPT_DDP, 0)->weights, "cd");
    gpt_assemble(&results);
    expect_answer("same weights: no\n");
    strcpy(row_of(GPT_DDP, 0)->weights, "ab");
    row_of(GPT_DP, 0)->repeats = false;
    assert_false(gpt_same_weights(&results));
}

/* --- reading a run ------------------------------------------------------------------------------------------------ */

#define SUMMARY(devices, ms, hash)                                                                                     \
    "{\"summary\":{\"devices\":" devices ",\"batch_size\":12,\"median_step_ms\":" ms ",\"parameter_hash\":\"" hash     \
    "\",\"device_table\":[{\"peak_bytes\":{\"activation\":30}},{\"peak_bytes\":{\"activation\":40}}]}}"

TEST_IN(scratch, a_summary_is_read) {
    make_rows();
    gpt_plan_rows(&results);
    gpt_row *row = row_of(GPT_DDP, 0);
    assert_int_equal(gpt_read_summary(row, SUMMARY("2", "12.5", "ab")), LS_OK);
    assert_int_equal(gpt_read_summary(row, SUMMARY("2", "11.5", "ab")), LS_OK);
    assert_true(row->repeats && row->run_count == 2 && row->run_ms[1] == 11.5 && row->activation_bytes == 40);
    assert_int_equal(gpt_read_summary(row, SUMMARY("2", "11.5", "cd")), LS_OK);
    assert_false(row->repeats);
    static const char *const bad[] = {"",
                                      "{}",
                                      SUMMARY("1", "12.5", "ab"),
                                      SUMMARY("2", "0", "ab"),
                                      SUMMARY("2", "null", "ab"),
                                      SUMMARY("2", "12.5", "")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(gpt_read_summary(row, bad[i]), LS_ERR_FORMAT);
        scratch_expect_error("the summary of DDP on 2 devices cannot be read", NULL);
    }
    assert_int_equal(row->run_count, 3);
}

TEST_IN(scratch, pytorch_is_read) {
    make_rows();
    gpt_plan_rows(&results);
    gpt_row *eager = row_of(GPT_EAGER, 0), *compiled = row_of(GPT_COMPILED, 0);
    static const char line[] = "{\"version\": \"2.15.0+cpu\", \"eager_ms\": 70.5, \"compiled_ms\": null}";
    assert_int_equal(gpt_read_pytorch(eager, &results, line), LS_OK);
    assert_int_equal(gpt_read_pytorch(compiled, &results, line), LS_OK);
    assert_true(!eager->missing && eager->run_ms[0] == 70.5 && compiled->missing && compiled->run_count == 0);
    assert_string_equal(results.pytorch, "2.15.0+cpu");
    assert_int_equal(gpt_read_pytorch(eager, &results, "Traceback"), LS_ERR_FORMAT);
    scratch_expect_error("the line of bench_pytorch_gpt.py cannot be read: Traceback", NULL);
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static program p;

/* With a Python that has no PyTorch. */
TEST_WITH(programs_setup_to_compute, programs_teardown, a_small_run) {
    static const char python[] = "#!/bin/sh\necho '{\"version\": null, \"eager_ms\": null, \"compiled_ms\": null}'\n";
    scratch_write("python", python, strlen(python));
    assert_int_equal(chmod(scratch_path("python"), 0700), 0);
    program_start(
        &p,
        "bench_gpt --model=gpt:1,2,8,8 --batch=4 --contexts=16,8 --rounds=2 --steps=11 --python=%s --quiet --out=%s",
        scratch_path("python"), scratch_folder());
    assert_int_equal(program_finish_within(&p, 150), 0);
    program_expect_text(&p, "gpt:1,2,8,8,65, 4 sequences, AdamW, one core, measured: ");
    program_expect_text(&p, "PyTorch: not here, so not compared with");
    program_expect_text(&p, "same weights: yes, bit for bit, in every run");
    char *csv = scratch_read_text("gpt.csv"), *json = scratch_read_text("gpt.json"),
         *text = scratch_read_text("gpt.txt");
    assert_non_null(strstr(csv, "gpt,\"step\",\"DDP\",2,8,4,2,"));
    assert_non_null(strstr(csv, "gpt,\"attention\",\"tiles\",1,16,4,2,"));
    assert_non_null(strstr(text, "backward MiB"));
    cJSON *object = cJSON_Parse(json);
    const cJSON *rows = cJSON_GetObjectItem(object, "rows"), *scores[2], *tiles[2];
    assert_int_equal(cJSON_GetArraySize(rows), GPT_STEP_ROWS + 4);
    for (int i = 0; i < 2; i++) {
        scores[i] = cJSON_GetArrayItem(rows, GPT_STEP_ROWS + i);
        tiles[i] = cJSON_GetArrayItem(rows, GPT_STEP_ROWS + 2 + i);
    }
    /* of 8 and 16 tokens: quadratic, and linear */
    expect_near(bench_number_of(scores[1], "kept_bytes"), 4 * bench_number_of(scores[0], "kept_bytes"));
    expect_near(bench_number_of(tiles[1], "kept_bytes"), 2 * bench_number_of(tiles[0], "kept_bytes"));
    assert_true(bench_number_of(tiles[1], "activations_bytes") < bench_number_of(scores[1], "activations_bytes"));
    assert_true(bench_number_of(tiles[1], "ms") > 0);
    cJSON_Delete(object);
    free(csv);
    free(json);
    free(text);
}
