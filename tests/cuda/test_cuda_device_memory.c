/* The memory of GPUs, from CUDA's pools and from the list that replaces them, its accounting, and copies of all kinds;
 * with streams that run eagerly and with streams that run only while a thread waits. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_on_cpu.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"

#define MIB ((size_t)1 << 20)
#define PERIOD ((size_t)256 * 251)

static void *must_alloc(ls_device *device, ls_memory_category category, size_t nbytes) {
    void *memory;
    assert_int_equal(ls_device_alloc(device, category, nbytes, "a test's array", &memory), LS_OK);
    return memory;
}

/* No two pages have the same bytes before the 251st. */
static unsigned char *pattern(size_t nbytes, unsigned seed) {
    unsigned char *values = malloc(nbytes + 1);
    assert_non_null(values);
    for (size_t i = 0; i < nbytes && i < PERIOD; i++) values[i] = (unsigned char)((i * 7 + i / 251 + seed) & 0xff);
    for (size_t done = PERIOD; done < nbytes; done *= 2)
        memcpy(values + done, values, nbytes - done < done ? nbytes - done : done);
    return values;
}

static bool without_pools;

/* --- memory ------------------------------------------------------------------------------------------------------ */

TEST_IN(scratch, memory_is_zero_and_aligned_also_the_second_time) {
    struct gpus gpus = open_gpus(1);
    size_t sizes[] = {0, 1, 63, 1000, 3 * MIB + 5};
    for (int round = 0; round < 3; round++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t nbytes = sizes[s];
            void *memory = gpu_alloc(gpus.device[0], nbytes);
            assert_int_equal((uintptr_t)memory % 64, 0);
            unsigned char *seen = pattern(nbytes, 1), *dirt = pattern(nbytes, 9);
            gpu_download(gpus.device[0], seen, memory, nbytes);
            if (nbytes > 0 && (seen[0] != 0 || memcmp(seen, seen + 1, nbytes - 1) != 0))
                fail_msg("of %zu bytes not all are 0 in round %d", nbytes, round);
            assert_int_equal(ls_copy_now(gpu_stream(&gpus, 0, LS_STREAM_COMPUTE), memory, dirt, nbytes), LS_OK);
            ls_device_free(gpus.device[0], memory);
            free(seen);
            free(dirt);
        }
    }
    close_gpus(&gpus);
}

TEST_IN(scratch, each_category_is_accounted_for) {
    struct gpus gpus = open_sharing_gpus(2);
    ls_memory_report report, other;
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        void *first = must_alloc(gpus.device[0], (ls_memory_category)c, 1000 + (size_t)c);
        void *second = must_alloc(gpus.device[0], (ls_memory_category)c, 500);
        ls_device_free(gpus.device[0], first);
        ls_device_memory(gpus.device[0], &report);
        assert_int_equal(report.current_bytes[c], 500);
        assert_int_equal(report.peak_bytes[c], 1500 + c);
        ls_device_free(gpus.device[0], second);
    }
    ls_device_memory(gpus.device[0], &report);
    assert_int_equal(report.current_total_bytes, 0);
    assert_int_equal(report.peak_total_bytes, 1500 + LS_MEMORY_COUNT - 1);
    ls_device_memory(gpus.device[1], &other); /* on the same GPU, with a pool and an accounting of its own */
    assert_int_equal(other.peak_total_bytes, 0);
    close_gpus(&gpus);
}

/* The memory that the pools have reserved is missing from the GPU's free memory. */
TEST_IN(scratch, the_accounting_agrees_with_the_gpu) {
    struct gpus gpus = open_sharing_gpus(2);
    size_t before[2], left_before, left_after, total;
    for (int d = 0; d < 2; d++) before[d] = ls_device_reserved_bytes(gpus.device[d]);
    assert_true(before[0] > 0); /* the device's own needs */
    assert_true(ls_device_memory_left(gpus.device[0], &left_before, &total));
    void *small = gpu_alloc(gpus.device[0], 100 * 1000), *large = gpu_alloc(gpus.device[1], 30 * MIB);
    assert_true(ls_device_memory_left(gpus.device[0], &left_after, &total));
    size_t taken[2];
    for (int d = 0; d < 2; d++) taken[d] = ls_device_reserved_bytes(gpus.device[d]) - before[d];
    assert_true(taken[1] >= 30 * MIB && taken[1] < 40 * MIB);
    assert_true(taken[0] <= 4 * MIB); /* possibly nothing: the pool may have room */
    size_t lacks = left_before - left_after, took = taken[0] + taken[1];
    assert_true(lacks >= took && lacks - took <= (without_pools ? 4096 : 0)); /* cudaMalloc may round up */
    ls_memory_report report;
    ls_device_memory(gpus.device[1], &report);
    assert_true(report.current_total_bytes <= ls_device_reserved_bytes(gpus.device[1]));
    ls_device_free(gpus.device[0], small);
    ls_device_free(gpus.device[1], large);
    close_gpus(&gpus);
}

/* As in training: freed memory is kept, and reused. (The first allocation of a round may precede the end of the last
 * free.) */
TEST_IN(scratch, after_the_first_round_the_pool_takes_nothing_more) {
    struct gpus gpus = open_gpus(1);
    size_t reserved = 0, sizes[] = {64, 300 * 1000, 5 * MIB, 17 * MIB};
    for (int round = 0; round < 5; round++) {
        void *memory[4];
        for (int i = 0; i < 4; i++) memory[i] = gpu_alloc(gpus.device[0], sizes[i]);
        for (int i = 0; i < 4; i++) ls_device_free(gpus.device[0], memory[i]);
        size_t now = ls_device_reserved_bytes(gpus.device[0]);
        if (round == 0) reserved = now;
        assert_true(now >= reserved && now < reserved + 200 * 1000);
    }
    assert_true(reserved >= 22 * MIB);
    close_gpus(&gpus);
}

/* The list of blocks: a freed block is not used for a much smaller array. */
TEST_IN(scratch, a_small_array_does_not_take_a_large_block) {
    struct gpus gpus = open_gpus(1);
    void *large = gpu_alloc(gpus.device[0], 10 * MIB);
    ls_device_free(gpus.device[0], large);
    size_t before = ls_device_reserved_bytes(gpus.device[0]);
    void *small = gpu_alloc(gpus.device[0], 1000), *again = gpu_alloc(gpus.device[0], 9 * MIB);
    assert_true(ls_device_reserved_bytes(gpus.device[0]) < before + MIB);
    if (without_pools) assert_ptr_equal(again, large);
    ls_device_free(gpus.device[0], small);
    ls_device_free(gpus.device[0], again);
    close_gpus(&gpus);
}

/* Devices on one GPU: memory that one keeps unused is given to another that needs it; memory in use stays. */
TEST_IN(scratch, a_full_gpu_takes_back_what_others_keep) {
    struct gpus gpus = open_sharing_gpus(3);
    size_t left, total;
    assert_true(ls_device_memory_left(gpus.device[0], &left, &total));
    size_t half = left / 2 / MIB * MIB, most = left / 8 * 7 / MIB * MIB;
    unsigned char *values = pattern(1000, 8), *seen = pattern(1000, 9);
    void *used = gpu_upload(gpus.device[1], values, 1000);
    for (int d = 0; d < 2; d++) {
        void *kept = gpu_alloc(gpus.device[d], half / (size_t)(d + 1));
        ls_device_free(gpus.device[d], kept);
        assert_true(ls_device_reserved_bytes(gpus.device[d]) >= half / (size_t)(d + 1));
    }
    void *memory = gpu_alloc(gpus.device[2], most), *more;
    assert_int_equal(ls_device_alloc(gpus.device[0], LS_MEMORY_WORKSPACE, half, "a second half", &more),
                     LS_ERR_NO_MEMORY); /* no device keeps unused memory now */
    scratch_expect_error("device 0 is out of memory", NULL);
    gpu_download(gpus.device[1], seen, used, 1000);
    assert_memory_equal(seen, values, 1000);
    ls_device_free(gpus.device[2], memory);
    ls_device_free(gpus.device[1], used);
    close_gpus(&gpus);
    free(values);
    free(seen);
}

TEST_IN(scratch, nothing_is_left) { assert_int_equal(cuda_on_cpu_device_bytes(), 0); }

TEST_IN(scratch, a_cap_holds) {
    ls_device *device = open_gpu((ls_device_options){.memory_capacity_bytes = 10000});
    void *first = gpu_alloc(device, 6000), *second;
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_ACTIVATION, 4001, "layer 3's output", &second),
                     LS_ERR_NO_MEMORY);
    scratch_expect_error("4001 bytes asked for layer 3's output (activation), 6000 of 10000 bytes in use",
                         "raise --device-memory");
    second = gpu_alloc(device, 4000);
    ls_device_free(device, first);
    ls_device_free(device, second);
    ls_device_close(device);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* Pageable host memory is copied to the GPU, within it, and back, including more than the staging memory holds. */
TEST_IN(scratch, copies_of_all_sizes_arrive) {
    struct gpus gpus = open_gpus(1);
    ls_stream *stream = gpu_stream(&gpus, 0, LS_STREAM_COPY);
    size_t sizes[] = {1, 4095, 512 * 1024, 512 * 1024 + 1, 2 * MIB, 7 * MIB + 3};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t nbytes = sizes[s];
        unsigned char *values = pattern(nbytes, (unsigned)s), *seen = pattern(nbytes, 77);
        void *first = gpu_alloc(gpus.device[0], nbytes), *second = gpu_alloc(gpus.device[0], nbytes);
        ls_copy(stream, first, values, nbytes);
        ls_copy(stream, second, first, nbytes);
        assert_int_equal(ls_copy_now(stream, seen, second, nbytes), LS_OK);
        assert_memory_equal(seen, values, nbytes);
        ls_device_free(gpus.device[0], first);
        ls_device_free(gpus.device[0], second);
        free(values);
        free(seen);
    }
    ls_copy(stream, NULL, NULL, 0);
    close_gpus(&gpus);
}

TEST_IN(scratch, a_copy_within_the_host_keeps_the_order) {
    struct gpus gpus = open_gpus(1);
    ls_stream *stream = gpu_stream(&gpus, 0, LS_STREAM_COPY);
    int values[3] = {1, 2, 3}, between[3] = {0}, seen[3] = {0};
    void *memory = gpu_upload(gpus.device[0], values, sizeof values);
    ls_copy(stream, between, memory, sizeof values);
    ls_copy(stream, seen, between, sizeof values);
    assert_int_equal(ls_stream_synchronize(stream), LS_OK);
    assert_memory_equal(seen, values, sizeof values);
    ls_device_free(gpus.device[0], memory);
    close_gpus(&gpus);
}

/* The host does not wait for a small batch in pageable memory; the batch is copied before it can be changed. */
TEST_IN(scratch, a_small_batch_does_not_hold_the_host_up) {
    struct gpus gpus = open_gpus(1);
    ls_stream *stream = gpu_stream(&gpus, 0, LS_STREAM_COPY);
    unsigned char *values = pattern(MIB, 5), *seen = pattern(MIB, 6);
    void *memory = gpu_upload(gpus.device[0], values, MIB);
    unsigned long waits = cuda_on_cpu_host_waits(), calls = cuda_on_cpu_calls("cudaMemcpyAsync");
    ls_copy(stream, memory, seen, MIB);
    assert_int_equal(cuda_on_cpu_host_waits(), waits);
    assert_int_equal(cuda_on_cpu_calls("cudaMemcpyAsync"), calls + 2); /* two pieces */
    gpu_download(gpus.device[0], values, memory, MIB);
    assert_memory_equal(values, seen, MIB);
    ls_device_free(gpus.device[0], memory);
    free(values);
    free(seen);
    close_gpus(&gpus);
}

TEST_IN(scratch, a_pinned_batch_is_copied_as_it_is_and_in_one_piece) {
    struct gpus gpus = open_gpus(1);
    ls_stream *stream = gpu_stream(&gpus, 0, LS_STREAM_COPY);
    size_t nbytes = 3 * MIB;
    unsigned char *values = pattern(nbytes, 5), *back = pattern(nbytes, 6);
    assert_true(ls_device_pin_host(gpus.device[0], values, nbytes));
    assert_false(ls_device_pin_host(gpus.device[0], values, nbytes)); /* refused, without a message */
    assert_true(ls_device_pin_host(gpus.device[0], back, nbytes));
    void *memory = gpu_alloc(gpus.device[0], nbytes);
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_OK);
    unsigned long waits = cuda_on_cpu_host_waits(), calls = cuda_on_cpu_calls("cudaMemcpyAsync");
    ls_copy(stream, memory, values, nbytes);
    ls_copy(stream, back, memory, nbytes);
    assert_int_equal(cuda_on_cpu_host_waits(), waits); /* for neither direction */
    assert_int_equal(cuda_on_cpu_calls("cudaMemcpyAsync"), calls + 2);
    assert_int_equal(ls_stream_synchronize(stream), LS_OK);
    assert_memory_equal(back, values, nbytes);
    unsigned long unpinned = cuda_on_cpu_calls("cudaHostUnregister");
    ls_device_unpin_host(gpus.device[0], values);
    ls_device_unpin_host(gpus.device[0], values); /* not pinned: no effect */
    assert_int_equal(cuda_on_cpu_calls("cudaHostUnregister"), unpinned + 1);
    ls_device_free(gpus.device[0], memory);
    close_gpus(&gpus); /* unpins the other */
    assert_int_equal(cuda_on_cpu_calls("cudaHostUnregister"), unpinned + 2);
    free(values);
    free(back);
}

TEST_IN(scratch, copies_reach_other_gpus) {
    struct gpus gpus = open_gpus(3);
    const char *gives = without_pools ? "cudaDeviceEnablePeerAccess" : "cudaMemPoolSetAccess";
    assert_true(cuda_on_cpu_calls(gives) >= 6); /* each device for both others */
    unsigned char *values = pattern(MIB, 3), *seen = pattern(MIB, 4);
    void *memory[3] = {gpu_upload(gpus.device[0], values, MIB), gpu_alloc(gpus.device[1], MIB),
                       gpu_alloc(gpus.device[2], MIB)};
    ls_event *ready;
    assert_int_equal(ls_event_create(&ready, "ready"), LS_OK);
    for (int d = 1; d < 3; d++) { /* the event moves from GPU to GPU */
        ls_stream *stream = gpu_stream(&gpus, d, LS_STREAM_COPY);
        ls_stream_wait_event(stream, ready);
        ls_copy(stream, memory[d], memory[d - 1], MIB);
        ls_event_record(ready, stream);
    }
    assert_int_equal(ls_event_synchronize(ready), LS_OK);
    gpu_download(gpus.device[2], seen, memory[2], MIB);
    assert_memory_equal(seen, values, MIB);
    for (int d = 0; d < 3; d++) ls_device_free(gpus.device[d], memory[d]);
    close_gpus(&gpus);
    ls_event_destroy(ready); /* later than the devices */
    free(values);
    free(seen);
}

TEST_IN(scratch, addresses_are_told_apart) {
    struct gpus gpus = open_gpus(2);
    int here = 0;
    void *memory = gpu_alloc(gpus.device[1], 1000), *pinned = malloc(1000);
    ls_device_pin_host(gpus.device[0], pinned, 1000);
    for (int d = 0; d < 2; d++) {
        assert_true(ls_device_is_gpu_memory(gpus.device[d], memory));
        assert_true(ls_device_is_gpu_memory(gpus.device[d], (char *)memory + 999));
        assert_false(ls_device_is_gpu_memory(gpus.device[d], &here));
        assert_false(ls_device_is_gpu_memory(gpus.device[d], pinned));
        assert_false(ls_device_is_gpu_memory(gpus.device[d], NULL));
    }
    ls_device_unpin_host(gpus.device[0], pinned);
    free(pinned);
    ls_device_free(gpus.device[1], memory);
    close_gpus(&gpus);
}

/* Runs all tests once in each setting. */
int main(void) {
    int failed = 0;
    setenv("CUDA_ON_CPU_MEMORY", "100663296", 1); /* small enough to be filled */
    for (int setting = 0; setting < 4; setting++) {
        without_pools = setting % 2 == 1;
        printf("%s, %s\n", without_pools ? "without pools" : "with pools", setting < 2 ? "eager" : "shuffled");
        if (without_pools)
            setenv("CUDA_ON_CPU_NO_POOLS", "1", 1);
        else
            unsetenv("CUDA_ON_CPU_NO_POOLS");
        setenv("CUDA_ON_CPU_STREAMS", setting < 2 ? "eager" : "shuffle:5", 1);
        cuda_on_cpu_restart();
        failed += run_added_tests();
    }
    return failed;
}
