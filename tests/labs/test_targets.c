/* Which targets of the Makefile build the plug-ins for GPUs: those that can use one, when they are asked to; for which
 * chips; what they install; and that what make is given stays a word. Nothing is built: `make -n` prints what would be
 * run in a build folder of its own, with CUDA as if it were found, or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/programs/program.h"

static const char script[] =
    "set -e\n"
    "unset ROOMS\n" /* of the make that runs this test: gpu-check needs all of them */
    "MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" SAN= HAVE_nvcc=\"${2#no}\" HAVE_NCCL=\"${2#no}\" \"$3\" DEVICE=\"$4\" "
    ">\"$1.said\"\n"
    "echo $(grep -c -e '-shared.*/lib/ls_cuda.so' \"$1.said\") $(grep -c 'common/base/log.c' \"$1.said\")\n";

static void expect_plugins(const char *target, const char *has_cuda, const char *device, bool built) {
    static program p;
    int plugins = -1, sources = -1;
    scratch_write("try.sh", script, strlen(script));
    program_run(&p, "/bin/sh %s %s %s %s %s", scratch_path("try.sh"), scratch_path("build"), has_cuda, target, device);
    if (sscanf(p.out_text, "%d %d", &plugins, &sources) != 2 || sources < 1)
        fail_msg("make -n %s: status %d, %s%s", target, p.status, p.out_text, p.err_text);
    if ((plugins > 0) != built) fail_msg("%s DEVICE=%s: ls_cuda.so is %sbuilt", target, device, built ? "not " : "");
}

static void test_plugins(void **state) {
    (void)state;
    expect_plugins("bench-dp-vs-ddp", "yes", "cuda", true);
    expect_plugins("accuracy", "yes", "cuda", true);
    expect_plugins("recipes", "yes", "cuda", true);
    expect_plugins("gpu-check", "yes", "cpu", true);        /* which is for GPUs alone */
    expect_plugins("bench-dp-vs-ddp", "yes", "cpu", false); /* nvcc takes minutes */
    expect_plugins("bench-dp-vs-ddp", "no", "cuda", false); /* there is no nvcc */
    expect_plugins("tables", "yes", "cuda", false);         /* has no use for one */
}

/* What is given to make is one word of the command that it prints, or refused. */
static void test_odd_words(void **state) {
    (void)state;
    static program p;
    static const char quoted[] =
        "MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" SAN= HAVE_nvcc= recipes \"DATA=$2\" | tail -n 1\n";
    scratch_write("try.sh", quoted, strlen(quoted));
    assert_int_equal(program_run(&p, "/bin/sh %s %s a'b\";c`d`", scratch_path("try.sh"), scratch_path("build")), 0);
    program_expect_text(&p, "DATA='a'\\''b\";c`d`' labs/bench/recipes/recipes.sh");
    static const char *const builds[] = {"a;b", "a'b", "a$$(touch${IFS}injected)b", "a|b", "a\"b"};
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        assert_int_equal(program_run(&p, "/usr/bin/env MAKEFLAGS= make -n BUILD=%s help", builds[i]), 2);
        assert_non_null(strstr(p.err_text, "BUILD is '"));
    }
}

/* How many lines of what make -n says of a target have each pattern of grep's, in which a dot stands for a blank. */
static void count_said(const char *variables, const char *target, const char *const patterns[2], int counts[2]) {
    static const char counting[] =
        "unset ROOMS\n" /* as above */
        "MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" SAN= $(echo \"$2\" | tr , ' ') \"$3\" >\"$1.said\"\n"
        "echo $(grep -c -e \"$4\" \"$1.said\") $(grep -c -e \"$5\" \"$1.said\")\n";
    static program p;
    scratch_write("count.sh", counting, strlen(counting));
    program_run(&p, "/bin/sh %s %s %s %s %s %s", scratch_path("count.sh"), scratch_path("build"), variables, target,
                patterns[0], patterns[1]);
    if (sscanf(p.out_text, "%d %d", &counts[0], &counts[1]) != 2) fail_msg("make -n %s: %s", target, p.err_text);
}

/* gpu-check needs no pictures, and without cmocka it leaves its tests out; others do install what they need. */
static void test_gpu_check_installs_nothing(void **state) {
    (void)state;
    static const char *const patterns[] = {"apt-get.install", "gpu_check.sh"};
    int counts[2];
    count_said("HAVE_gnuplot=,HAVE_cmocka=", "gpu-check", patterns, counts);
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[1], 1);
    count_said("HAVE_gnuplot=", "tables", patterns, counts);
    assert_true(counts[0] > 0);
}

/* A bundle is for sm_90 unless CUDA_ARCH says otherwise; without nvcc there is none, which one line says. */
static void test_bundle(void **state) {
    (void)state;
    static const char *const patterns[] = {"compile.sh.*-gencode.arch=compute_90,code=sm_90.-c", "code=sm_80"};
    static const char *const files[] = {"bundle.sh.*ls_nccl.so.*test_cuda_kernels", "code=sm_80"};
    static program p;
    int counts[2];
    count_said("HAVE_nvcc=yes", "gpu-bundle", patterns, counts);
    assert_true(counts[0] > 10);
    assert_int_equal(counts[1], 0);
    count_said("HAVE_nvcc=yes,HAVE_NCCL=yes,CUDA_ARCH=80", "gpu-bundle", files, counts);
    assert_int_equal(counts[0], 1);
    assert_true(counts[1] > 10);
    assert_int_equal(program_run(&p, "/bin/sh labs/bench/gpu_bundle/bundle.sh %s 90", scratch_path("build")), 1);
    assert_int_equal(count_lines(p.err_text) + count_lines(p.out_text), 1);
    assert_non_null(strstr(p.err_text, "nvcc was not found"));
}

/* What `make lab LAB=01` links into an empty BUILD, and how it counts where no terminal is. */
static void test_a_lab_builds_what_it_needs_and_counts(void **state) {
    (void)state;
    static program p;
    static const char first_lab[] = "MAKEFLAGS= MAKELEVEL=0 make -n BUILD=\"$1\" SAN= lab LAB=01 | "
                                    "grep -oE 'building: file [0-9]+ |-o [^ ]*/(hello|ddprun|replay)$'\n";
    scratch_write("try.sh", first_lab, strlen(first_lab));
    assert_int_equal(program_run(&p, "/bin/sh %s %s", scratch_path("try.sh"), scratch_path("build")), 0);
    program_expect_text(&p, "build/hello");
    program_expect_text(&p, "build/ddprun");
    assert_null(strstr(p.out_text, "build/replay"));
    program_expect_text(&p, "building: file 1 ");
    program_expect_text(&p, "building: file 100 ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plugins, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_gpu_check_installs_nothing, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_a_lab_builds_what_it_needs_and_counts, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_bundle, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_odd_words, programs_setup, programs_teardown)};
    return cmocka_run_group_tests_name("targets", tests, NULL, NULL);
}
