/* gpu_check on the CPU's CUDA: that all of it runs, its output, and its verdicts. Its figures are meaningless there.
 * For verdicts, scripts stand for the programs that it starts. */
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

static program p;

static void expect_in(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

static void expect_not_in(const char *text, const char *part) {
    if (strstr(text, part)) fail_msg("'%s' is in: %s", part, text);
}

static double number(const cJSON *object, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

/* An executable in the test's folder, which stands for a program; the path is valid until the fourth call after this
 * one. */
static const char *make_script(const char *name, const char *body) {
    static char paths[4][600];
    static int next;
    char text[2000], *path = paths[next++ % 4];
    int nbytes = snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
    assert_in_range(nbytes, 1, sizeof text - 1);
    scratch_write(name, text, (size_t)nbytes);
    snprintf(path, sizeof paths[0], "%s", scratch_path(name));
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

#define PASSES "echo '[  PASSED  ] 3 test(s).' >&2"
#define SKIPS "echo '[  PASSED  ] 2 test(s).' >&2; echo '[  SKIPPED ] 1 test(s), listed below:' >&2"
#define FAILS "echo '[  FAILED  ] a_sum: 3 is not 4' >&2; echo '[  PASSED  ] 2 test(s).' >&2; exit 1"
#define CRASHES "echo '[ RUN      ] a_product'; kill -SEGV $$"

/* The last line of that name in gpu_check.jsonl. */
static cJSON *find_line(const char *name) {
    char *text = scratch_read_text("gpu_check.jsonl"), *rest;
    cJSON *found = NULL;
    for (char *at = strtok_r(text, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        cJSON *line = cJSON_Parse(at);
        bool is_it = line && strcmp(text_of(line, "name"), name) == 0;
        if (is_it) cJSON_Delete(found);
        if (is_it)
            found = line;
        else
            cJSON_Delete(line);
    }
    free(text);
    return found;
}

static void expect_verdict(const char *name, const char *verdict, const char *detail) {
    cJSON *line = find_line(name);
    if (!line) fail_msg("no line of %s: %s%s", name, p.out_text, p.err_text);
    if (strcmp(text_of(line, "verdict"), verdict) != 0) fail_msg("%s is %s", name, text_of(line, "verdict"));
    expect_in(text_of(line, "detail"), detail);
    cJSON_Delete(line);
}

/* --- a small run of the real programs ----------------------------------------------------------------------------- */

static void expect_rows(const cJSON *result, const char *list, const char *positive, int at_least) {
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(result, list), *row;
    assert_true(cJSON_GetArraySize(rows) >= at_least);
    cJSON_ArrayForEach(row, rows) {
        if (!(number(row, positive) > 0)) fail_msg("%s: %s of a row is not above 0", list, positive);
    }
}

static void expect_reference(void) {
    char *text = scratch_read_text("gpu_check.json");
    cJSON *result = cJSON_Parse(text);
    assert_non_null(result);
    const cJSON *gpu = cJSON_GetObjectItemCaseSensitive(result, "gpu");
    assert_string_equal(text_of(gpu, "name"), "CUDA on the CPU");
    assert_string_equal(text_of(gpu, "driver"), "580.1");
    expect_in(text_of(gpu, "cublas"), "13.");
    expect_in(text_of(gpu, "nccl"), "2.");
    const cJSON *peaks = cJSON_GetObjectItemCaseSensitive(result, "peaks");
    static const char *const names[] = {"copy_GBps",        "copy_to_gpu_GBps", "copy_from_gpu_GBps",
                                        "gemm_fp32_TFLOPs", "gemm_tf32_TFLOPs", "gemm_fp16_TFLOPs",
                                        "gemm_bf16_TFLOPs", "launch_us",        "launch_and_wait_us"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_true(number(peaks, names[i]) > 0);
    expect_rows(result, "operations", "us", 30);
    expect_rows(result, "operations", "share_of_peak", 30);
    expect_rows(result, "steps", "step_ms", 5);
    assert_true(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(result, "checks")) > 60);
    cJSON_Delete(result);
    free(text);
}

/* Every stage, with the real programs, except for the tests and NVIDIA's tools. */
TEST_IN(programs, every_stage_runs) {
    make_script("nvidia-smi", "echo '580.1, 1980 MHz, 700.00 W'");
    make_script("compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'");
    const char *kernels = make_script("test_a", PASSES), *training = make_script("test_training", PASSES);
    if (program_run(&p, "PATH=%s:/usr/bin:/bin CUDA_ON_CPU_DEVICES=1 gpu_check --quick --out=%s %s %s",
                    scratch_folder(), scratch_folder(), kernels, training) != 0)
        fail_msg("status %d, stderr: %s, stdout: %s", p.status, p.err_text, p.out_text);
    expect_in(p.out_text, "\n0 of ");
    expect_in(p.out_text, "1 need more GPUs, 1 need a tool that is not usable here, 0 were not run\n"); /* PyTorch */
    expect_in(p.out_text, "page-locking: yes");
    expect_in(p.out_text, "mlp: eager, and DDP over NCCL, one rank, as a graph: weights ");
    expect_reference();
    char *lines = scratch_read_text("gpu_check.jsonl");
    assert_int_equal(count_text(lines, "\"agree\""), 10);
    free(lines);
}

TEST_IN(programs, without_a_gpu_it_fails) {
    assert_int_equal(program_run(&p, "CUDA_ON_CPU_DEVICES=0 gpu_check --out=%s", scratch_folder()), 1);
    expect_in(p.err_text, "there is no GPU to check: the NVIDIA driver shows no GPU");
    expect_in(p.err_text, "so nothing passed");
    expect_verdict("gpu", "broken", "there is no GPU");
    assert_int_equal(program_run(&p, "CUDA_ON_CPU_DEVICES=1 gpu_check --find --gpu=1"), 2);
    expect_in(p.err_text, "GPU 1 does not exist; there are 0: CUDA on the CPU");
    assert_int_equal(program_run(&p, "gpu_check --only=look,kernel --out=%s", scratch_folder()), 2);
    expect_in(p.err_text, "unknown stage 'kernel'");
}

TEST_IN(programs, refused_page_locking_shows) {
    assert_int_equal(
        program_run(
            &p, "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaHostRegister:0:1 gpu_check --quick --only=peaks --out=%s",
            scratch_folder()),
        0);
    expect_in(p.out_text, "page-locking: REFUSED");
    expect_verdict("page-locking", "tool not usable here", "in two steps");
    expect_verdict("copies between host and GPU", "tool not usable here", "");
}

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

#define CHECK "CUDA_ON_CPU_DEVICES=1 gpu_check"

/* Only `broken` fails, and a test that did not run is never held. */
TEST_IN(programs, tests_are_judged) {
    const char *skips = make_script("test_skips", SKIPS), *training = make_script("test_training", PASSES);
    const char *silent = make_script("test_silent", "true");
    assert_int_equal(
        program_run(&p, CHECK " --only=kernels,training --out=%s %s %s", scratch_folder(), skips, training), 0);
    expect_verdict("test_skips", "needs more GPUs", "2 tests passed, 1 need more GPUs");
    expect_verdict("test_training", "held", "");
    expect_in(p.out_text, "0 of 8 results are broken; 7 held, 1 need more GPUs");
    const char *fails = make_script("test_fails", FAILS), *crashes = make_script("test_crashes", CRASHES);
    assert_int_equal(
        program_run(&p, CHECK " --only=kernels --out=%s %s %s %s", scratch_folder(), fails, crashes, silent), 1);
    expect_verdict("test_fails", "broken", "a_sum: ended with exit status 1");
    expect_verdict("test_crashes", "broken", "a_product: was killed by signal 11");
    expect_verdict("test_silent", "broken", "no test ran");
    expect_in(p.err_text, "3 results are wrong");
}

/* The program that tests all operations fails, so each operation and rung is tested by itself. */
TEST_IN(programs, a_broken_operation_is_found) {
    const char *walk = make_script("test_walk", "case \"$LS_ONE_OPERATION $LS_BACKEND\" in ' ' | 'gemm fast') " FAILS
                                                " ;; esac; " PASSES);
    assert_int_equal(program_run(&p, CHECK " --only=kernels --out=%s %s", scratch_folder(), walk), 1);
    expect_verdict("test_walk", "broken", "a_sum: ended with exit status 1");
    expect_verdict("test_walk gemm fast", "broken", "a_sum: ended with exit status 1");
    expect_verdict("test_walk gemm naive", "held", "");
    expect_verdict("test_walk fill fast", "held", "");
    expect_in(p.err_text, "2 results are wrong");
}

TEST_IN(programs, the_sanitizer_is_judged) {
    const char *test = make_script("test_a", PASSES), *another = make_script("test_b", PASSES);
    make_script("compute-sanitizer", "case $2 in memcheck) echo '========= ERROR SUMMARY: 2 errors'; exit 9 ;; esac\n"
                                     "echo x >>\"${0%/*}/asked\"; echo 'Device not supported'; exit 1");
    assert_int_equal(program_run(&p, "PATH=%s:/usr/bin:/bin " CHECK " --only=memcheck,racecheck --out=%s %s %s",
                                 scratch_folder(), scratch_folder(), test, another),
                     1);
    expect_verdict("test_b", "broken", "2 findings");
    expect_verdict("compute-sanitizer", "tool not usable here", "Device not supported");
    char *asked = scratch_read_text("asked");
    assert_string_equal(asked, "x\n"); /* one call, for racecheck */
    free(asked);
    /* a tool without a result for one program still checks the others */
    make_script("test_c", PASSES);
    make_script("compute-sanitizer",
                "case $* in *test_a) echo Killed; exit 1 ;; esac; echo '========= ERROR SUMMARY: 0 errors'");
    assert_int_equal(program_run(&p, "PATH=%s:/usr/bin:/bin " CHECK " --only=memcheck --out=%s %s %s %s",
                                 scratch_folder(), scratch_folder(), scratch_path("test_b"), scratch_path("test_a"),
                                 scratch_path("test_c")),
                     0);
    expect_verdict("compute-sanitizer", "held", "");
    expect_verdict("test_a", "tool not usable here", "Killed");
    expect_verdict("test_c", "held", "");
    make_script("compute-sanitizer", "echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'");
    assert_int_equal(program_run(&p, "PATH=%s:/usr/bin:/bin " CHECK " --only=racecheck --out=%s %s", scratch_folder(),
                                 scratch_folder(), scratch_path("test_a")),
                     0);
    expect_verdict("test_a", "held", "");
}

/* --continue repeats what was broken, not run, or not requested, and nothing else. */
TEST_IN(programs, a_second_command_goes_on) {
    const char *good = make_script("test_good", "echo x >>\"$0.ran\"; " PASSES), *bad = make_script("test_bad", FAILS);
    assert_int_equal(program_run(&p, CHECK " --only=kernels --out=%s %s %s", scratch_folder(), good, bad), 1);
    bad = make_script("test_bad", PASSES);
    const char *training = make_script("test_training", PASSES);
    assert_int_equal(program_run(&p, CHECK " --continue --only=kernels,training --out=%s %s %s %s", scratch_folder(),
                                 good, bad, training),
                     0);
    expect_verdict("test_bad", "held", "");
    expect_in(p.out_text, "0 of 9 results are broken; 9 held");
    char *ran = scratch_read_text("test_good.ran");
    assert_string_equal(ran, "x\n");
    free(ran);
}

/* A broken test stays broken until it holds, even if a second command has no time for it. */
TEST_IN(programs, what_is_broken_stays_broken) {
    const char *bad = make_script("test_bad", FAILS);
    assert_int_equal(program_run(&p, CHECK " --only=kernels --out=%s %s", scratch_folder(), bad), 1);
    make_script("test_bad", "sleep 50; " PASSES);
    assert_int_equal(program_run(&p, CHECK " --continue --budget=1 --only=kernels --out=%s %s", scratch_folder(), bad),
                     1);
    expect_in(p.out_text, "1 of ");
}

TEST_IN(programs, what_has_no_time_is_not_run) {
    const char *slow = make_script("test_slow", "sleep 50; " PASSES), *late = make_script("test_late", PASSES);
    assert_int_equal(program_run(&p, CHECK " --budget=1 --only=kernels --out=%s %s %s", scratch_folder(), slow, late),
                     0);
    expect_verdict("test_slow", "not run", "");
    expect_verdict("test_late", "not run", "no time left");
    expect_in(p.out_text, "0 need a tool that is not usable here, 2 were not run\n");
}

/* A copy of gpu_check beside scripts that stand for the training programs: $weights and $status are their results. */
static void run_with_trainers(const char *decide, const char *stages) {
    char body[1500];
    snprintf(
        body, sizeof body,
        "weights=0123456789abcdef status=0\ncase \"$*\" in %s esac\n[ $status -eq 0 ] || echo 'error: it failed' >&2\n"
        "echo '{\"summary\": {\"median_step_ms\": 2, \"final_loss\": 1, \"parameter_hash\": \"'$weights'\"}}'\n"
        "exit $status",
        decide);
    make_script("dp_train", body);
    make_script("ddp_train", body);
    char gpu_check[4200];
    snprintf(gpu_check, sizeof gpu_check, "%s/gpu_check", build_folder());
    assert_int_equal(program_run(&p, "/bin/cp %s %s", gpu_check, scratch_path("checks")), 0);
    assert_int_equal(rename(scratch_path("checks"), scratch_path("gpu_check")), 0);
    program_run(&p, "CUDA_ON_CPU_DEVICES=1 %s --only=%s --out=%s", scratch_path("gpu_check"), stages, scratch_folder());
}

TEST_IN(programs, runs_are_compared) {
    run_with_trainers("*--single*--cuda-graph*) weights=fedcba9876543210 ;; *--device-ids=0,0,0,0*) status=1 ;;",
                      "agree");
    assert_int_equal(p.status, 1);
    expect_verdict("mlp: eager, and as a graph", "broken", "weights 0123456789abcdef and fedcba9876543210");
    expect_verdict("mlp: eager, and with CUDA_LAUNCH_BLOCKING=1", "held", "weights 0123456789abcdef, both");
    expect_verdict("convnet on 2 logical devices: DP and DDP, staged", "held", "");
    expect_verdict("mlp on 4 logical devices: one device and DP", "broken", "ended with exit status 1: it failed");
    expect_verdict("the same on several GPUs, with NCCL and copies between them", "needs more GPUs", "");
}

/* The first steps fail: they are repeated with --debug-launches, which names the operation. */
TEST_IN(programs, a_red_start_is_looked_at) {
    run_with_trainers("*--debug-launches*) status=1 ;; *--steps=5*) status=1 ;;", "look,steps");
    assert_int_equal(p.status, 1);
    expect_verdict("mlp, 5 steps", "broken", "it failed");
    expect_verdict("mlp, 5 steps, --debug-launches", "broken", "it failed");
    expect_verdict("wide, batch 8192, bf16, single, graph", "held", "");
    expect_in(p.out_text, "convnet, batch 100, fp32, single               2.0000     2.0000");
    run_with_trainers("*) ;;", "look --continue");
    assert_int_equal(p.status, 0);
    expect_verdict("mlp, 5 steps, --debug-launches", "held", "");
}

/* --- interrupted -------------------------------------------------------------------------------------------------- */

/* Begins the second of two tests, during which gpu_check is killed. */
static void cut_short(const char *second, int signal) {
    const char *first = make_script("test_first", PASSES);
    second = make_script("test_second", second);
    program_start(&p, CHECK " --only=kernels,agree --out=%s %s %s", scratch_folder(), first, second);
    program_await(&p, "test_first");
    assert_int_equal(kill(p.pid, signal), 0);
    assert_int_equal(program_finish(&p), 128 + signal);
    programs_await_orphans(); /* the idle context and the test */
    expect_verdict("test_first", "held", "");
}

TEST_IN(programs, a_killed_check_leaves_a_summary) {
    cut_short("exec sleep 50", SIGKILL);
    FILE *file = fopen(scratch_path("gpu_check.jsonl"), "a");
    assert_true(fputs("{\"stage\":\"kernels\",\"name\":\"test_sec", file) >= 0);
    fclose(file);
    assert_int_equal(program_run(&p, "gpu_check --summary=%s --reference=%s", scratch_path("gpu_check.jsonl"),
                                 scratch_path("half.json")),
                     0);
    expect_in(p.out_text, "0 of 7 results are broken; 7 held");
    expect_in(p.out_text, "; the check was cut short\n");
    expect_in(p.out_text, "agree      nothing: it had not begun");
    expect_in(p.out_text, "peaks      not asked for");
    expect_not_in(p.out_text, "test_sec");
    char *half = scratch_read_text("half.json");
    expect_in(half, "CUDA on the CPU");
    free(half);
    make_script("test_second", PASSES); /* --continue appends after the truncated line */
    assert_int_equal(
        program_run(&p, CHECK " --continue --only=kernels --out=%s %s", scratch_folder(), scratch_path("test_second")),
        0);
    expect_verdict("test_second", "held", "");
    expect_in(p.out_text, "0 of 8 results are broken; 8 held");
}

TEST_IN(programs, a_signal_ends_all_of_it) {
    double begin_us = ls_now_us();
    cut_short("trap '' TERM; sleep 50 & sleep 50", SIGTERM);
    assert_true(ls_now_us() - begin_us < 40e6);
}
