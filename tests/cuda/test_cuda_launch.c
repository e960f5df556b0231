/* Launching kernels on the CPU (tests/cuda_on_cpu/threads_launch.cpp): launches that CUDA refuses, the state that a
 * launch keeps, and kernels that fail or cannot end. */
#include <cuda_on_cpu_threads.h>
#include <stdbool.h>
#include <string.h>

#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/cuda/arrays.h"
#include "tests/cuda_on_cpu/selftest.h"

static const char *const orders[] = {"ascending", "descending", "random:1", "random:77"};
enum { ORDERS = sizeof orders / sizeof *orders };

static int setup(void **state) {
    (void)state;
    roomy_machine(1, "eager");
    return 0;
}

static void expect_reversed(unsigned threads) {
    float in[1024], out[1024];
    for (unsigned i = 0; i < threads; i++) in[i] = (float)i + 1;
    float *device_in = to_device(in, threads * sizeof *in), *device_out = device_array(threads * sizeof *out);
    ok(selftest_reverse(NULL, threads, true, device_in, device_out));
    from_device(out, device_out, threads * sizeof *out);
    for (unsigned i = 0; i < threads; i++) assert_true(out[i] == in[threads - 1 - i]);
}

/* --- kernels that cannot end -------------------------------------------------------------------------------------- */

TEST_WITH(setup, NULL, a_kernel_that_cannot_end_breaks_its_device_and_says_why) {
    static const char *const cases[][3] = {
        {"left", "63 of 64 threads", "has left the kernel"},
        {"left", "left_kernel", "thread (5,0,0)"},
        {"apart", "apart_kernel", "different barriers"},
        {"lane", "lane_kernel", "1 of 64 threads wait in __syncthreads, but thread (0,0,0) waits in __shfl_down_sync"},
        {"masks", "masks_kernel", "mask 0xffff of"},
        {"stranger", "stranger_kernel", "its own lane"},
        {"width", "width_kernel", "12 is no width"},
    };
    for (size_t c = 0; c < ORDERS * sizeof cases / sizeof *cases; c++) {
        const char *const *expected = cases[c / ORDERS];
        roomy_machine(1, "eager");
        cuda_on_cpu_set_thread_order(orders[c % ORDERS]);
        int *memory = device_array(8 * sizeof *memory), out[8];
        stderr_begin();
        ok(selftest_stuck(NULL, expected[0], 8, memory));
        cudaError_t error = cudaDeviceSynchronize();
        const char *text = stderr_end();
        assert_int_equal(error, cudaErrorLaunchFailure);
        assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
        if (!strstr(text, expected[1]) || !strstr(text, expected[2])) {
            fail_msg("\"%s\" and \"%s\" in: %s", expected[1], expected[2], text);
        }
        assert_non_null(strstr(text, c % ORDERS == 0   ? "block (0,0,0)"
                                     : c % ORDERS == 1 ? "block (7,0,0)"
                                                       : "block ("));
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
        assert_int_equal(selftest_nothing(NULL, (struct selftest_geometry){{1, 1, 1}, {1, 1, 1}}),
                         cudaErrorLaunchFailure);
        /* The rest of the grid did not run, in particular not the block at the other end. */
        assert_int_equal(cuda_on_cpu_peek(out, memory, sizeof out), 0);
        if (c % ORDERS == 0) assert_int_equal(out[7], 0);
        if (c % ORDERS == 1) assert_int_equal(out[0], 0);
    }
    /* The fibres of threads that were left waiting are reusable. */
    roomy_machine(1, "eager");
    expect_reversed(1024);
}

TEST_WITH(setup, NULL, a_pointer_that_no_gpu_can_follow_breaks_the_device) {
    float in[32] = {0}, *out = device_array(sizeof in);
    stderr_begin();
    cudaError_t launched = selftest_reverse(NULL, 32, true, in, out), ended = cudaDeviceSynchronize();
    const char *text = stderr_end();
    assert_int_equal(launched, cudaSuccess);
    assert_int_equal(ended, cudaErrorIllegalAddress);
    assert_non_null(strstr(text, "argument number 2"));
    roomy_machine(1, "eager");
    /* Page-locked memory is accessible, and a pointer just past the end, or NULL, is valid if it is not followed. */
    float *pinned;
    ok(cudaHostAlloc((void **)&pinned, sizeof in, 0));
    for (int i = 0; i < 32; i++) pinned[i] = (float)i;
    out = device_array(sizeof in);
    ok(selftest_reverse(NULL, 32, true, pinned, out));
    int *full;
    ok(cudaMalloc((void **)&full, 256));
    ok(selftest_shuffle(NULL, 1, 'x', 1, 32, 0, full + 64));
    ok(selftest_shuffle(NULL, 1, 'x', 1, 32, 0, NULL));
    from_device(in, out, sizeof in);
    assert_true(in[0] == 31 && in[31] == 0);
    ok(cudaFreeHost(pinned));
}

static void use_stack(void *nbytes) {
    roomy_machine(1, "eager");
    int *memory;
    if (cudaMalloc((void **)&memory, 64 * sizeof *memory) != cudaSuccess) return;
    if (selftest_deep(NULL, 64, *(unsigned *)nbytes, memory) != cudaSuccess) return;
    cudaDeviceSynchronize();
}

/* In a process of its own, which must die rather than continue with corrupted memory. */
TEST_WITH(setup, NULL, a_stack_that_overflows_is_a_crash) {
    int *memory = device_array(64 * sizeof *memory), out[64];
    ok(selftest_deep(NULL, 64, 64 << 10, memory));
    from_device(out, memory, sizeof out);
    for (int i = 0; i < 64; i++) assert_int_equal(out[i], i);
    unsigned too_much = 4 << 20;
    assert_int_equal(dies(use_stack, &too_much), 1);
}

static void expect_three(const unsigned *got, const unsigned *want) { assert_memory_equal(got, want, 3 * sizeof *got); }

/* --- launches ----------------------------------------------------------------------------------------------------- */

TEST_WITH(setup, NULL, a_launch_is_checked_as_cuda_does) {
    static const struct {
        struct selftest_geometry geometry;
        cudaError_t error;
    } cases[] = {
        {{{1, 1, 1}, {1024, 1, 1}}, cudaSuccess},
        {{{1, 1, 1}, {1, 1024, 1}}, cudaSuccess},
        {{{1, 1, 1}, {1, 1, 64}}, cudaSuccess},
        {{{1, 65535, 1}, {1, 1, 1}}, cudaSuccess},
        {{{1, 1, 65535}, {1, 1, 1}}, cudaSuccess},
        {{{70000, 1, 1}, {1, 1, 1}}, cudaSuccess},
        {{{0, 1, 1}, {1, 1, 1}}, cudaErrorInvalidConfiguration},
        {{{1, 0, 1}, {1, 1, 1}}, cudaErrorInvalidConfiguration},
        {{{1, 1, 0}, {1, 1, 1}}, cudaErrorInvalidConfiguration},
        {{{1, 1, 1}, {0, 1, 1}}, cudaErrorInvalidConfiguration},
        {{{1, 1, 1}, {1, 0, 1}}, cudaErrorInvalidConfiguration},
        {{{1, 1, 1}, {1, 1, 0}}, cudaErrorInvalidConfiguration},
        {{{1, 1, 1}, {1025, 1, 1}}, cudaErrorInvalidConfiguration},
        {{{1, 1, 1}, {33, 32, 1}}, cudaErrorInvalidConfiguration},
        {{{1, 1, 1}, {1, 1, 65}}, cudaErrorInvalidConfiguration},
        {{{1, 65536, 1}, {1, 1, 1}}, cudaErrorInvalidConfiguration},
        {{{1, 1, 65536}, {1, 1, 1}}, cudaErrorInvalidConfiguration},
        {{{0x80000000u, 1, 1}, {1, 1, 1}}, cudaErrorInvalidConfiguration},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        unsigned long before = cuda_on_cpu_kernels_run(), launched = cuda_on_cpu_kernel_launches();
        assert_int_equal(selftest_nothing(NULL, cases[c].geometry), cases[c].error);
        assert_int_equal(cudaGetLastError(), cases[c].error);
        ok(cudaDeviceSynchronize());
        unsigned long expected = cases[c].error == cudaSuccess ? 1 : 0;
        assert_int_equal(cuda_on_cpu_kernels_run(), before + expected);
        assert_int_equal(cuda_on_cpu_kernel_launches(), launched + expected);
        struct cuda_on_cpu_geometry ran;
        assert_int_equal(cuda_on_cpu_kernel_geometry(before, &ran), expected ? 0 : 1);
        if (!expected) continue;
        expect_three(ran.grid, cases[c].geometry.grid);
        expect_three(ran.block, cases[c].geometry.block);
    }
}

TEST_WITH(setup, NULL, arguments_are_values_of_the_time_of_the_launch) {
    struct selftest_values values = {2.5, {1, -2, 3, -4, 5}}, got, *memory;
    roomy_machine(1, "shuffle:1");
    memory = device_array(sizeof *memory);
    ok(selftest_by_value(NULL, values, -3, memory));
    from_device(&got, memory, sizeof got);
    assert_true(got.number == -0.5);
    assert_memory_equal(got.list, values.list, sizeof got.list);
}
