/* Which targets of the Makefile build the plug-ins for GPUs: those that can use one, when they are asked to; and that
 * what make is given stays a word. Nothing is built: `make -n` prints what would be run in a build folder of its own,
 * with CUDA as if it were found, or not. */
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
    program_expect_text(&p, "DATA='a'\\''b\";c`d`' labs/recipes/recipes.sh");
    static const char *const builds[] = {"a;b", "a'b", "a$$(touch${IFS}injected)b", "a|b", "a\"b"};
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        assert_int_equal(program_run(&p, "/usr/bin/env MAKEFLAGS= make -n BUILD=%s help", builds[i]), 2);
        assert_non_null(strstr(p.err_text, "BUILD is '"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plugins, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(test_odd_words, programs_setup, programs_teardown)};
    return cmocka_run_group_tests_name("targets", tests, NULL, NULL);
}
