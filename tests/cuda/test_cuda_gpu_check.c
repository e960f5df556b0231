/* gpu_check on the CPU's CUDA: that all of it runs, and what it writes. Its figures mean nothing there. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/programs/program.h"

static program p;

static void expect_in(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

static cJSON *read_result(void) {
    static char text[1 << 18];
    FILE *file = fopen(scratch_path("gpu_check.json"), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cJSON *result = cJSON_Parse(text);
    assert_non_null(result);
    return result;
}

static double number(const cJSON *object, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

static void expect_rows(const cJSON *result, const char *list, const char *positive, int at_least) {
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(result, list), *row;
    assert_true(cJSON_GetArraySize(rows) >= at_least);
    cJSON_ArrayForEach(row, rows) {
        if (!(number(row, positive) > 0)) fail_msg("%s: %s of a row is not above 0", list, positive);
    }
}

static void everything_is_measured_and_judged(void **state) {
    (void)state;
    if (program_run(&p, "CUDA_ON_CPU_DEVICES=1 gpu_check --quick --out=%s", scratch_path("")) != 0)
        fail_msg("status %d, stderr: %s, stdout: %s", p.status, p.err_text, p.out_text);
    expect_in(p.out_text, "CUDA on the CPU (compute capability 9.0");
    expect_in(p.out_text, "gemm of bf16");
    expect_in(p.out_text, "5 checks: 5 passed, 0 failed, 0 not run");
    cJSON *result = read_result();
    assert_string_equal(text_of(cJSON_GetObjectItemCaseSensitive(result, "gpu"), "name"), "CUDA on the CPU");
    const cJSON *peaks = cJSON_GetObjectItemCaseSensitive(result, "peaks");
    static const char *const names[] = {"copy_GBps", "gemm_fp32_TFLOPs", "gemm_tf32_TFLOPs", "gemm_fp16_TFLOPs",
                                        "gemm_bf16_TFLOPs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_true(number(peaks, names[i]) > 0);
    expect_rows(result, "operations", "us", 30);
    expect_rows(result, "steps", "step_ms", 5);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(result, "checks")), 5);
    cJSON_Delete(result);
}

/* What earlier checks said counts: one that did not run, or did not pass, is not a pass. */
static void what_did_not_run_is_not_a_pass(void **state) {
    (void)state;
    FILE *file = fopen(scratch_path("tests.tsv"), "w");
    assert_non_null(file);
    fputs("test_a\tpassed\t3 tests\ntest_b\tnot run\tno tool\n", file);
    fclose(file);
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path(""));
    assert_int_equal(
        program_run(&p, "CUDA_ON_CPU_DEVICES=1 gpu_check --quick --out=%s --tests=%s/tests.tsv", folder, folder), 1);
    expect_in(p.out_text, "not run  test_b: no tool");
    expect_in(p.out_text, "7 checks: 6 passed, 0 failed, 1 not run");
    expect_in(p.err_text, "1 checks did not pass and 0 runs have no figures");
}

/* What has not begun when the time is over is not run, and not passed; what was measured is written all the same. */
static void a_budget_leaves_out_what_comes_last(void **state) {
    (void)state;
    assert_int_equal(
        program_run(&p, "CUDA_ON_CPU_DEVICES=1 gpu_check --quick --budget=0.001 --out=%s", scratch_path("")), 1);
    expect_in(p.out_text, "not run: no time left of 0.001 s (--budget)");
    expect_in(p.out_text, "5 checks: 0 passed, 0 failed, 5 not run");
    expect_in(p.err_text, "5 checks did not pass and 5 runs have no figures");
    cJSON *result = read_result();
    expect_rows(result, "operations", "us", 30);
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(result, "steps");
    expect_in(text_of(cJSON_GetArrayItem(steps, 0), "not_run"), "no time left");
    cJSON_Delete(result);
}

static void without_a_gpu_it_fails(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "CUDA_ON_CPU_DEVICES=0 gpu_check --find"), 1);
    expect_in(p.err_text, "there is no GPU to check: the NVIDIA driver shows no GPU");
    expect_in(p.err_text, "which is not a pass");
    assert_int_equal(program_run(&p, "CUDA_ON_CPU_DEVICES=1 gpu_check --find --gpu=1"), 2);
    expect_in(p.err_text, "GPU 1 does not exist; there are 0: CUDA on the CPU");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, programs_setup, programs_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(everything_is_measured_and_judged),
        TEST(what_did_not_run_is_not_a_pass),
        TEST(a_budget_leaves_out_what_comes_last),
        TEST(without_a_gpu_it_fails),
    };
    return cmocka_run_group_tests_name("gpu_check", tests, NULL, NULL);
}
