/* The back-ends that run operations, and the runner that runs every test on each of them:
 *   - the builds for this processor's instruction sets
 *   - both rungs of a GPU: of tests/cuda_on_cpu, where a block's threads take turns in several orders and results are
 *     rounded in several ways; or of a real GPU, with its own order and rounding
 * A test calls operations on kernel_stream() with arrays of fixture.h. Each array is copied to the back-end's memory
 * and back. In addition to the test's own assertions, the runner asserts for each call that
 *   - only outputs and workspace were written: no input, and no bytes before or after an array
 *   - outputs have the bits of this processor's best build (a NaN may be any NaN), except for sums that the back-end
 *     takes in an order of its own, and results of expf and logf
 * The types in ops.def define the outputs. The position of arrays changes from call to call (kernel_alignment). */
#ifndef TESTS_KERNELS_BACKENDS_H
#define TESTS_KERNELS_BACKENDS_H

#include "tests/kernels/fixture.h"

/* Kinds of back-ends, to be combined. */
enum {
    ON_BEST = 1, /* the best build for this processor */
    ON_OTHER_BUILDS = 2,
    ON_NAIVE = 4, /* the rungs of a GPU; the naive one in random order */
    ON_FAST = 8,
    ON_FAST_OTHERWISE = 16, /* other orders of threads, other rounding */
    ON_BUILDS = ON_BEST | ON_OTHER_BUILDS,
    ON_GPUS = ON_NAIVE | ON_FAST | ON_FAST_OTHERWISE,
    EVERYWHERE = ON_BUILDS | ON_GPUS,
    EACH_ONCE = ON_BUILDS | ON_NAIVE | ON_FAST
};

struct kernel_test {
    const char *name;
    void (*run)(void **state);
    unsigned where;
};
#define ROW(name)                                                                                                      \
    { #name, name, EVERYWHERE }
#define ROW_ON(where, name)                                                                                            \
    { #name, name, where }

/* Runs all tests on all back-ends ("gemm@fast") and returns the number that failed. The environment's LS_BACKEND
 * selects a single back-end; LS_PLUGINS (common/device/plugin.h) is tests/cuda_on_cpu unless it is set. On real GPUs,
 * and with a CUDA_ON_CPU_ROUNDING from outside, the builds for CPUs are left out. */
#define RUN_EVERYWHERE(group, tests) kernel_run(group, tests, sizeof(tests) / sizeof *(tests))
int kernel_run(const char *group, const struct kernel_test *tests, size_t count);

/* True if this test runs on a back-end of these kinds. */
bool kernel_is_on(unsigned kinds);
ls_device_kind kernel_device_kind(void);
/* The compute stream of the GPU, NULL on CPUs. */
ls_stream *kernel_gpu_stream(void);

/* Until the test ends, calls that before (true) and after each launch on a GPU. */
void kernel_around_launches(void (*around)(bool begin));

/* The tolerance for sums that CPUs and naive rungs, but not fast ones, take in the formula's order: 0 on the former. */
double kernel_unless_in_order(double tolerance);

/* Asserts equal elements of that type: the same bits, except that a NaN on a GPU may be any NaN. */
void kernel_expect_elements(const char *what, ls_dtype dtype, const void *got, const void *want, size_t count);

/* Where arrays of floats and halves begin from now on: at a multiple of 64 bytes; one element after that; or
 * alternately, with the second or the first array shifted. KERNEL_IN_TURN: changes at each call. */
typedef enum kernel_alignment {
    KERNEL_ALIGNED,
    KERNEL_SHIFTED,
    KERNEL_SECOND_SHIFTED,
    KERNEL_FIRST_SHIFTED,
    KERNEL_IN_TURN
} kernel_alignment;
void kernel_align(kernel_alignment alignment);

/* If `use`, operations run on this processor's best build from now on, whatever the test's back-end. */
void kernel_use_best(bool use);
/* The outputs (bit i: the i-th in ops.def) that may differ from the best build's bits on this back-end. */
unsigned kernel_own_way(ls_op_id id);

#endif
