/* kernels/cuda/compile.sh: a build fails on kernels that spill registers or need too much shared memory, and prints one
 * line for each. The compiler is a script that prints ptxas's output. */
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program p;

#define KERNEL(mangled, chip, stores, loads, used)                                                                     \
    "ptxas info    : Compiling entry function '" mangled "' for '" chip "'\n"                                          \
    "ptxas info    : Function properties for " mangled "\n"                                                            \
    "    0 bytes stack frame, " stores " bytes spill stores, " loads " bytes spill loads\n"                            \
    "ptxas info    : Used 56 registers, used 1 barriers, " used "441 bytes cmem[0]\n"                                  \
    "ptxas info    : Compile time = 152.327 ms\n"
#define GOOD KERNEL("_Z4goodPf", "sm_80", "0", "0", "49152 bytes smem, ") KERNEL("_Z4goodPf", "sm_90", "0", "0", "")

/* The exit status of a build whose nvcc prints that and ends with that status. */
static int compile(const char *said, int status) {
    char script[4096];
    int length = snprintf(script, sizeof script, "cat >&2 <<'SAID'\nptxas info    : 0 bytes gmem\n%sSAID\nexit %d\n",
                          said, status);
    assert_in_range(length, 1, sizeof script - 1);
    scratch_write("nvcc.sh", script, (size_t)length);
    program_run(&p, "/bin/sh kernels/cuda/compile.sh kernels/cuda/some.cu /bin/sh %s", scratch_path("nvcc.sh"));
    return p.status;
}

static void expect(const char *said, int status, int expected_status, const char *expected) {
    if (compile(said, status) != expected_status || strcmp(p.err_text, expected) != 0 || p.out_text[0])
        fail_msg("status %d, not %d; it said '%s%s', not '%s'", p.status, expected_status, p.out_text, p.err_text,
                 expected);
}

TEST_IN(programs, good_kernels_are_quiet) {
    expect(GOOD, 0, 0, "");
    expect("", 0, 0, ""); /* a file without kernels */
}

TEST_IN(programs, spills_fail) {
    expect(GOOD KERNEL("_ZN38_GLOBAL__N__32449445_8_some_cu__Z2goPf4hugeILi3E6__halfEEvPT0_i", "sm_90", "816", "880",
                       "") GOOD,
           0, 1,
           "kernels/cuda/some.cu: kernel huge<3, __half> (sm_90) spills registers: 816 bytes of stores and 880 of "
           "loads\n");
    expect(KERNEL("_Z3lowPf", "sm_75", "0", "4", ""), 0, 1,
           "kernels/cuda/some.cu: kernel low (sm_75) spills registers: 0 bytes of stores and 4 of loads\n");
}

TEST_IN(programs, too_much_shared_memory_fails) {
    static const char line[] =
        "kernels/cuda/some.cu: kernel fat (sm_90) has 49156 bytes of static shared memory; 49152 are the most\n";
    expect(GOOD KERNEL("_Z3fatPf", "sm_90", "0", "0", "49156 bytes smem, "), 0, 1, line);
    /* ptxas fails by itself, with or without its figures */
#define REFUSED "ptxas error   : Entry function '_Z3fatPf' uses too much shared data (0xc004 bytes, 0xc000 max)\n"
    expect(REFUSED GOOD KERNEL("_Z3fatPf", "sm_90", "0", "0", "49156 bytes smem, "), 255, 255, line);
    expect(GOOD REFUSED, 255, 255, line);
}

/* Other output of the compiler is passed on, and its exit status is the build's. */
TEST_IN(programs, other_errors_are_passed_on) {
    expect("some.cu(3): error: expected a \";\"\n", 2, 2, "some.cu(3): error: expected a \";\"\n");
    expect("ptxas warning : Too big maxrregcount value\n" GOOD, 0, 0, "ptxas warning : Too big maxrregcount value\n");
}

/* Output of ptxas in another format must not be taken for a result without findings. */
TEST_IN(programs, unknown_figures_fail) {
    compile("ptxas info    : Compiling entry function '_Z4goodPf' for 'sm_90'\n"
            "    spilled: 0\n"
            "ptxas info    : Used 10 registers\n",
            0);
    assert_int_equal(p.status, 1);
    assert_non_null(strstr(p.err_text, "described 1 kernels, not in the way that compile.sh can read"));
    assert_int_equal(program_run(&p, "/bin/sh kernels/cuda/compile.sh some.cu /bin/true"), 1);
}
