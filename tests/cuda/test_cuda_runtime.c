/* "CUDA on the CPU" enforces those rules of CUDA whose violations this project's tests look for: order, memory,
 * copies. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/cuda/machine.h"
#include "tests/cuda_on_cpu/selftest.h"

#define SEEDS 40

static cudaStream_t new_stream(void) {
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t new_event(void) {
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

static float *new_floats(size_t count) {
    void *memory;
    OK(cudaMalloc(&memory, count * sizeof(float)));
    return memory;
}

static float *new_pinned_floats(size_t count) {
    void *memory;
    OK(cudaHostAlloc(&memory, count * sizeof(float), 0));
    return memory;
}

static void put(cudaStream_t stream, float *to, float value) {
    OK(cudaMemcpyAsync(to, &value, sizeof value, cudaMemcpyHostToDevice, stream));
}

static float get(const float *from) {
    float value = 0;
    OK(cudaMemcpy(&value, from, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

static void set_flag(void *flag) { *(int *)flag = 1; }

/* --- order -------------------------------------------------------------------------------------------------------- */

TEST(shuffled_work_waits_for_the_host) {
    machine(1, "shuffle:1");
    cudaStream_t stream = new_stream();
    int flag = 0;
    OK(cudaLaunchHostFunc(stream, set_flag, &flag));
    usleep(20000);
    assert_int_equal(flag, 0);
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(flag, 1);

    int other = 0;
    OK(cudaLaunchHostFunc(stream, set_flag, &other));
    while (cudaStreamQuery(stream) == cudaErrorNotReady) continue; /* querying is enough */
    assert_int_equal(other, 1);
}

/* b copies what a wrote; returns how often it saw the value among SEEDS orders */
static int orders_that_see_it(int waits) {
    int seen = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        shuffled_machine(1, seed);
        cudaStream_t a = new_stream(), b = new_stream();
        cudaEvent_t written = new_event();
        float *x = new_floats(1), *y = new_floats(1);
        put(a, x, 5);
        OK(cudaEventRecord(written, a));
        if (waits) OK(cudaStreamWaitEvent(b, written, 0));
        OK(cudaMemcpyAsync(y, x, sizeof *x, cudaMemcpyDeviceToDevice, b));
        OK(cudaDeviceSynchronize());
        seen += get(y) == 5;
    }
    return seen;
}

TEST(a_wait_orders_streams) {
    assert_int_equal(orders_that_see_it(1), SEEDS);
    assert_in_range(orders_that_see_it(0), 1, SEEDS - 1);
}

TEST(a_wait_is_for_the_record_before_it) {
    int early = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        shuffled_machine(1, seed);
        cudaStream_t a = new_stream(), b = new_stream();
        cudaEvent_t event = new_event();
        float *x = new_floats(1), *y = new_floats(1);
        OK(cudaStreamWaitEvent(b, event, 0)); /* never recorded: no wait */
        put(a, x, 1);
        OK(cudaEventRecord(event, a));
        OK(cudaStreamWaitEvent(b, event, 0));
        put(a, x, 2);
        OK(cudaEventRecord(event, a));
        OK(cudaMemcpyAsync(y, x, sizeof *x, cudaMemcpyDefault, b));
        OK(cudaDeviceSynchronize());
        float value = get(y);
        assert_true(value == 1 || value == 2);
        early += value == 1;
    }
    assert_in_range(early, 1, SEEDS - 1);
}

TEST(the_same_seed_gives_the_same_order) {
    float first[SEEDS], again[SEEDS];
    for (int round = 0; round < 2; round++) {
        for (int seed = 0; seed < SEEDS; seed++) {
            shuffled_machine(1, seed);
            float *x = new_floats(1);
            for (int s = 0; s < 6; s++) put(new_stream(), x, (float)s);
            OK(cudaDeviceSynchronize());
            (round ? again : first)[seed] = get(x);
        }
    }
    int differ = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        assert_true(first[seed] == again[seed]);
        differ += first[seed] != first[0];
    }
    assert_true(differ > 0);
}

TEST(events_know_whether_they_happened) {
    machine(2, "shuffle:3");
    cudaStream_t stream = new_stream();
    cudaEvent_t begin, end, untimed = new_event();
    float milliseconds = -1;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    OK(cudaEventQuery(begin)); /* never recorded */
    OK(cudaEventRecord(begin, stream));
    OK(cudaEventRecord(end, stream));
    FAILS(cudaErrorNotReady, cudaEventElapsedTime(&milliseconds, begin, end));
    OK(cudaEventSynchronize(end));
    OK(cudaEventQuery(begin));
    OK(cudaEventElapsedTime(&milliseconds, begin, end));
    assert_true(milliseconds >= 0);
    OK(cudaEventRecord(end, stream)); /* the later record counts */
    FAILS(cudaErrorNotReady, cudaEventElapsedTime(&milliseconds, begin, end));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&milliseconds, begin, end));
    OK(cudaEventRecord(untimed, stream));
    FAILS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, begin, untimed));
    OK(cudaSetDevice(1));
    cudaEvent_t elsewhere = new_event();
    FAILS(cudaErrorInvalidResourceHandle, cudaEventRecord(elsewhere, stream));
    struct selftest_geometry one = {{1, 1, 1}, {1, 1, 1}};
    FAILS(cudaErrorInvalidResourceHandle, selftest_nothing(stream, one));
    OK(cudaStreamWaitEvent(new_stream(), end, 0)); /* a stream of another device may wait */
    OK(cudaStreamDestroy(stream));
    FAILS(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(stream));
}

TEST(a_destroyed_stream_finishes) {
    machine(1, "shuffle:3");
    cudaStream_t stream = new_stream();
    int flag = 0;
    OK(cudaLaunchHostFunc(stream, set_flag, &flag));
    OK(cudaStreamDestroy(stream));
    OK(cudaDeviceSynchronize());
    assert_int_equal(flag, 1);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

TEST(pageable_memory_is_staged_and_pinned_is_not) {
    machine(1, "shuffle:5");
    cudaStream_t stream = new_stream();
    float *x = new_floats(3), *pinned = new_pinned_floats(1), pageable = 1, registered[1] = {1};
    *pinned = 1;
    OK(cudaHostRegister(registered, sizeof registered, cudaHostRegisterDefault));
    OK(cudaMemcpyAsync(x, &pageable, sizeof *x, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(x + 1, pinned, sizeof *x, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(x + 2, registered, sizeof *x, cudaMemcpyHostToDevice, stream));
    pageable = *pinned = registered[0] = 2; /* too early for the latter two */
    unsigned long waits = cuda_on_cpu_host_waits();
    assert_int_equal(waits, 0);
    float early = 0;
    assert_int_equal(cuda_on_cpu_peek(&early, x, sizeof early), 0);
    assert_true(isnan(early));
    OK(cudaStreamSynchronize(stream));
    assert_true(get(x) == 1 && get(x + 1) == 2 && get(x + 2) == 2);

    OK(cudaHostUnregister(registered));
    *pinned = 0;
    OK(cudaMemcpyAsync(pinned, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
    assert_true(*pinned == 0);
    OK(cudaMemcpyAsync(&pageable, x, sizeof *x, cudaMemcpyDeviceToHost, stream)); /* returns when the copy is done */
    assert_true(pageable == 1 && *pinned == 1);
    assert_true(cuda_on_cpu_host_waits() > waits);
    OK(cudaFreeHost(pinned));
}

TEST(copies_stay_inside_of_their_memory) {
    machine(2, "eager");
    cudaStream_t stream = new_stream();
    float *x = new_floats(10), host[11] = {0}, *pinned = new_pinned_floats(5);
    FAILS(cudaErrorInvalidValue, cudaMemcpyAsync(x, host, 11 * sizeof *x, cudaMemcpyHostToDevice, stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpyAsync(x + 9, host, 2 * sizeof *x, cudaMemcpyDefault, stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpyAsync(host, x, 40, cudaMemcpyHostToDevice, stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpyAsync(x, pinned, 21, cudaMemcpyDefault, stream));
    FAILS(cudaErrorInvalidValue, cudaMemcpyAsync(x, pinned + 4, 5, cudaMemcpyDefault, stream));
    FAILS(cudaErrorInvalidValue, cudaMemsetAsync(x, 0, 41, stream));
    FAILS(cudaErrorInvalidValue, cudaMemset(host, 0, 4));
    OK(cudaMemset(x, 0, 40));
    assert_true(get(x + 9) == 0);

    OK(cudaSetDevice(1));
    float *there = new_floats(1);
    put(NULL, there, 7);
    OK(cudaMemcpy(x, there, sizeof *x, cudaMemcpyDefault));
    OK(cudaDeviceSynchronize());
    assert_true(get(x) == 7);
    put(NULL, x, 8);
    OK(cudaMemcpyAsync(there, x, sizeof *x, cudaMemcpyDefault, NULL));
    assert_true(get(there) == 8);
    OK(cudaFree(x));
    FAILS(cudaErrorInvalidValue, cudaMemcpyAsync(x, host, 4, cudaMemcpyHostToDevice, NULL));
}
