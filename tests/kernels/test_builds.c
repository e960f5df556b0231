/* The builds for different instruction sets give the same bits for every operation but the matrix product. The build is
 * chosen once per process, so each runs in a child, which leaves its hashes in shared memory. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "kernels/cpu/cpu.h"
#include "tests/base/scratch.h"
#include "tests/kernels/problems.h"

static const int sizes[] = {0, 1, 2, 3, 5, 8, 13, 16, 17, 31, 34, 67};
#define SIZE_COUNT (sizeof sizes / sizeof *sizes)

/* What a child found out. */
struct report {
    char build[16];
    bool failed;
    uint64_t casts[2]; /* to and from each half type */
    uint64_t hashes[LS_OP_COUNT][PROBLEM_DTYPES][SIZE_COUNT];
};

/* Every half widened, and floats of every exponent rounded: NaNs of every kind, subnormals, and what lies midway. */
static uint64_t hash_casts(ls_dtype dtype) {
    enum { HALVES = 1 << 16, FLOATS = 4 * HALVES };
    static const uint32_t low_bits[] = {0, 0x8000, 0x1000, 0xffff};
    uint16_t *x = kernel_elements(dtype, HALVES), *y = kernel_elements(dtype, FLOATS);
    float *wide = kernel_floats(HALVES), *values = kernel_floats(FLOATS);
    for (uint32_t i = 0; i < HALVES; i++) x[i] = (uint16_t)i;
    for (uint32_t i = 0; i < FLOATS; i++) {
        uint32_t bits = i / 4 << 16 | low_bits[i % 4];
        memcpy(&values[i], &bits, sizeof bits);
    }
    ls_cast(kernel_stream(), LS_FP32, wide, dtype, x, HALVES);
    kernel_done();
    ls_cast(kernel_stream(), dtype, y, LS_FP32, values, FLOATS);
    kernel_done();
    return ls_hash(ls_hash(LS_HASH_SEED, wide, HALVES * sizeof *wide), y, FLOATS * sizeof *y);
}

static void run_sizes(ls_op_id id, int dtype, struct report *report) {
    for (size_t s = 0; s < SIZE_COUNT; s++) {
        struct problem problem = make_problem(id, sizes[s], problem_dtypes[dtype]);
        ls_enqueue(kernel_stream(), &problem.op);
        if (ls_device_status(ls_stream_device(kernel_stream())) != LS_OK) report->failed = true;
        report->hashes[id][dtype][s] = hash_of_outputs(&problem);
    }
}

static void run_build(const char *isa, struct report *report) {
    alarm(60);
    setenv("LS_CPU_ISA", isa, 1);
    setenv("LS_CPU_STREAMS", "inline", 1);
    report->failed = kernel_setup(NULL) != 0;
    snprintf(report->build, sizeof report->build, "%s", ls_cpu_kernels()->name);
    report->casts[0] = hash_casts(LS_FP16);
    report->casts[1] = hash_casts(LS_BF16);
    for (int id = 0; id < LS_OP_COUNT && !report->failed; id++) {
        if (id == LS_OP_gemm) continue;
        for (int d = 0; d < (op_has_dtype((ls_op_id)id) ? PROBLEM_DTYPES : 1); d++) run_sizes((ls_op_id)id, d, report);
    }
    if (kernel_teardown(NULL) != 0) report->failed = true;
}

static void run_in_child(const char *isa, struct report *report) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run_build(isa, report);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_false(report->failed);
}

static void builds_agree(void **state) {
    (void)state;
    static const char *const isas[] = {"v4", "v3", "v2"};
    struct report *reports = mmap(NULL, 3 * sizeof *reports, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(reports, MAP_FAILED);
    for (int b = 0; b < 3; b++) run_in_child(isas[b], &reports[b]);
    for (int b = 1; b < 3; b++) {
        print_message("%s against %s\n", reports[b].build, reports[0].build);
        assert_true(reports[b].casts[0] == reports[0].casts[0] && reports[b].casts[1] == reports[0].casts[1]);
        for (int i = 0; i < LS_OP_COUNT * PROBLEM_DTYPES * (int)SIZE_COUNT; i++) {
            int id = i / (PROBLEM_DTYPES * (int)SIZE_COUNT), d = i / (int)SIZE_COUNT % PROBLEM_DTYPES;
            int s = i % (int)SIZE_COUNT;
            if (reports[b].hashes[id][d][s] == reports[0].hashes[id][d][s]) continue;
            fail_msg("%s of %s, size %d: %s and %s differ", ls_op_name((ls_op_id)id), ls_dtype_name(problem_dtypes[d]),
                     sizes[s], reports[b].build, reports[0].build);
        }
    }
    munmap(reports, 3 * sizeof *reports);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(builds_agree)};
    return cmocka_run_group_tests_name("builds", tests, NULL, NULL);
}
