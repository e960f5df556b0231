/* The back-ends that run operations, and the runner that gives every test to every one of them:
 *   - the builds for this processor's instruction sets
 *   - both rungs of a GPU: of tests/cuda_on_cpu, where a block's threads take turns in several orders and results are
 *     rounded in several ways; or of a real GPU, which does as it likes
 * A test calls operations on kernel_stream() with arrays of fixture.h. Each of them is copied to the back-end's memory
 * and back, and of each call it is asserted, whatever the test then asserts itself, that
 *   - nothing but outputs and workspace was written: no input, and nothing before or behind an array
 *   - outputs have the bits of this processor's best build (a NaN may be any NaN), except for sums that the back-end
 *   takes in
 *     an order of its own, and what comes of expf and logf
 * The types in ops.def say what is an output. From call to call arrays lie otherwise (kernel_alignment). */
#ifndef TESTS_KERNELS_BACKENDS_H
#define TESTS_KERNELS_BACKENDS_H

#include "tests/kernels/fixture.h"

/* Kinds of back-ends, to be combined. */
enum {
    ON_BEST = 1, /* the build that this processor runs best */
    ON_OTHER_BUILDS = 2,
    ON_NAIVE = 4, /* the rungs of a GPU; the naive one in random order */
    ON_FAST = 8,
    ON_FAST_OTHERWISE = 16, /* other orders of threads, other ways to round */
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

/* Runs all tests on all back-ends ("gemm@fast") and returns how many failed. The environment's LS_BACKEND names the only
 * one that is to be used; LS_PLUGINS (common/device/plugin.h) is tests/cuda_on_cpu unless it is set. On real GPUs, and with
 * a CUDA_ON_CPU_ROUNDING from outside, the builds for CPUs are left out. */
#define RUN_EVERYWHERE(group, tests) kernel_run(group, tests, sizeof(tests) / sizeof *(tests))
int kernel_run(const char *group, const struct kernel_test *tests, size_t count);

/* The back-end that this test runs on. */
bool kernel_is_on(unsigned kinds);
ls_device_kind kernel_device_kind(void);
/* The compute stream of the GPU, NULL on CPUs. */
ls_stream *kernel_gpu_stream(void);

/* Until the test ends, calls that before (true) and after each launch on a GPU. */
void kernel_around_launches(void (*around)(bool begin));

/* The tolerance of sums that CPUs and naive rungs take in the formula's order, and fast ones do not. */
double kernel_unless_in_order(double tolerance);

/* Asserts equal elements of that type: the same bits, but that a NaN on a GPU may be any NaN. */
void kernel_expect_elements(const char *what, ls_dtype dtype, const void *got, const void *want, size_t count);

/* Where arrays of floats and halves begin from now on: at a multiple of 64 bytes, one element behind that, or every second
 * of them there, from the second or from the first on; KERNEL_IN_TURN: otherwise at each call. */
typedef enum kernel_alignment {
    KERNEL_ALIGNED,
    KERNEL_SHIFTED,
    KERNEL_SECOND_SHIFTED,
    KERNEL_FIRST_SHIFTED,
    KERNEL_IN_TURN
} kernel_alignment;
void kernel_align(kernel_alignment alignment);

/* Whether operations run on this processor's best build from now on, whatever back-end the test is for. */
void kernel_use_best(bool use);
/* Outputs (bit i: the i-th that ops.def names) that this back-end need not have the best build's bits of. */
unsigned kernel_own_way(ls_op_id id);

#endif
