/* "CUDA on the CPU": device memory is inaccessible to the host, limited, and checked for overruns. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/cuda/machine.h"
#include "tests/cuda_on_cpu/selftest.h"

static float get(const float *from) {
    float value = 0;
    OK(cudaMemcpy(&value, from, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

static size_t free_nbytes(void) {
    size_t left = 0, total = 0;
    OK(cudaMemGetInfo(&left, &total));
    assert_int_equal(total, MACHINE_NBYTES);
    return left;
}

/* --- access ------------------------------------------------------------------------------------------------------- */

static void read_device_memory(void *streams) {
    machine(1, streams);
    float *x;
    if (cudaMalloc((void **)&x, 4) != cudaSuccess || cudaMemset(x, 0, 4) != cudaSuccess) _exit(0);
    if (cudaDeviceSynchronize() != cudaSuccess) _exit(0);
    if (*(volatile float *)x == 1) _exit(0);
}

/* Right after cudaMalloc, before any wait. */
static void write_device_memory(void *streams) {
    machine(1, streams);
    float *x;
    if (cudaMalloc((void **)&x, 4) != cudaSuccess) _exit(0);
    *(volatile float *)x = 1;
}

static void peek_at_device_memory(void *streams) {
    machine(1, streams);
    float *x, value = 1;
    int refused = cudaMalloc((void **)&x, 4) != cudaSuccess || cudaMemset(x, 0, 4) != cudaSuccess ||
                  cudaDeviceSynchronize() != cudaSuccess || cuda_on_cpu_peek(&value, x, 4) != 0;
    if (refused || value != 0) abort();
    if (cuda_on_cpu_peek(&value, x, 5) == 0) abort();
}

TEST(host_threads_cannot_touch_device_memory) {
    char *modes[] = {"eager", "shuffle:1"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dies(read_device_memory, modes[i]), 1);
        assert_int_equal(dies(write_device_memory, modes[i]), 1);
        assert_int_equal(dies(peek_at_device_memory, modes[i]), 0);
    }
}

/* A kernel that writes `short_nbytes` beyond the end of an allocation, which is then freed. */
static void write_beyond(void *short_nbytes) {
    machine(1, "eager");
    struct selftest_geometry geometry = {{1, 1, 1}, {8, 1, 1}};
    struct selftest_place *places;
    unsigned *turns;
    size_t nbytes = 8 * sizeof *places - *(size_t *)short_nbytes;
    if (cudaMalloc((void **)&turns, sizeof *turns) != cudaSuccess) _exit(0);
    if (cudaMalloc((void **)&places, nbytes) != cudaSuccess || cudaMemset(turns, 0, 4) != cudaSuccess) _exit(0);
    if (selftest_places(NULL, geometry, places, turns) != cudaSuccess) _exit(0);
    if (cudaDeviceSynchronize() != cudaSuccess) _exit(0);
    (void)cudaFree(places);
}

/* A kernel that reads the float after an allocation's end. */
static void read_beyond(void *unused) {
    (void)unused;
    machine(1, "eager");
    float *in, *out;
    if (cudaMalloc((void **)&in, 7 * sizeof *in) != cudaSuccess) _exit(0);
    if (cudaMalloc((void **)&out, 8 * sizeof *out) != cudaSuccess) _exit(0);
    if (selftest_reverse(NULL, 8, true, in, out) == cudaSuccess) (void)cudaDeviceSynchronize();
}

#ifdef __SANITIZE_ADDRESS__
#define READS_ARE_WATCHED 1
#else
#define READS_ARE_WATCHED 0
#endif

TEST(what_is_read_beyond_an_end_is_noticed_under_asan) { assert_int_equal(dies(read_beyond, NULL), READS_ARE_WATCHED); }

TEST(what_is_written_beyond_an_end_is_noticed) {
    size_t exact = 0, one = 1, many = sizeof(struct selftest_place);
    assert_int_equal(dies(write_beyond, &exact), 0);
    assert_int_equal(dies(write_beyond, &one), 1);
    assert_int_equal(dies(write_beyond, &many), 1);
}

/* --- sizes and accounting ----------------------------------------------------------------------------------------- */

TEST(fresh_memory_is_nan) {
    machine(1, "eager");
    for (int round = 0; round < 2; round++) {
        float *x;
        OK(cudaMalloc((void **)&x, 1000 * sizeof *x));
        assert_true(isnan(get(x)) && isnan(get(x + 999)));
        OK(cudaMemset(x, 0, 1000 * sizeof *x));
        assert_true(get(x + 999) == 0);
        OK(cudaFree(x)); /* the second round gets the same memory */
    }
}

TEST(memory_ends) {
    machine(2, "eager");
    void *all, *more = &more, *other;
    assert_int_equal(free_nbytes(), MACHINE_NBYTES);
    OK(cudaMalloc(&all, MACHINE_NBYTES - 512));
    assert_int_equal(free_nbytes(), 512);
    FAILS(cudaErrorMemoryAllocation, cudaMalloc(&more, 1024));
    assert_null(more);
    FAILS(cudaErrorMemoryAllocation, cudaMalloc(&more, SIZE_MAX - 100));
    FAILS(cudaErrorMemoryAllocation, cudaGetLastError());
    OK(cudaGetLastError());
    OK(cudaSetDevice(1)); /* has its own */
    OK(cudaMalloc(&other, MACHINE_NBYTES));
    assert_int_equal(free_nbytes(), 0);
    OK(cudaSetDevice(0));
    assert_int_equal(cuda_on_cpu_device_allocations(), 2);
    assert_int_equal(cuda_on_cpu_device_bytes(), 2 * MACHINE_NBYTES - 512);
    FAILS(cudaErrorInvalidValue, cudaFree((char *)all + 256));
    OK(cudaFree(all));
    FAILS(cudaErrorInvalidValue, cudaFree(all));
    OK(cudaFree(NULL));
    assert_int_equal(free_nbytes(), MACHINE_NBYTES);
    OK(cudaMalloc(&more, 0));
    assert_null(more);
    OK(cudaMalloc(&more, MACHINE_NBYTES)); /* in one piece again */
    OK(cudaFree(more));
    OK(cudaFree(other));
    assert_int_equal(cuda_on_cpu_device_bytes(), 0);
}

TEST(holes_join) {
    machine(1, "eager");
    void *pieces[8], *whole;
    for (int i = 0; i < 8; i++) OK(cudaMalloc(&pieces[i], MACHINE_NBYTES / 8));
    FAILS(cudaErrorMemoryAllocation, cudaMalloc(&whole, 1));
    for (int i = 0; i < 8; i += 2) OK(cudaFree(pieces[i]));
    for (int i = 1; i < 8; i += 2) OK(cudaFree(pieces[i]));
    OK(cudaMalloc(&whole, MACHINE_NBYTES));
    assert_ptr_equal(whole, pieces[0]);
}

TEST(addresses_know_their_device) {
    machine(2, "eager");
    struct cudaPointerAttributes attributes;
    char *there, *pinned, local[16];
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&there, 100));
    OK(cudaSetDevice(0));
    OK(cudaPointerGetAttributes(&attributes, there + 99));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    assert_int_equal(attributes.device, 1);
    assert_ptr_equal(attributes.devicePointer, there + 99);
    assert_null(attributes.hostPointer);
    OK(cudaPointerGetAttributes(&attributes, there + 100));
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    OK(cudaHostAlloc((void **)&pinned, 64, 0));
    OK(cudaPointerGetAttributes(&attributes, pinned + 63));
    assert_int_equal(attributes.type, cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&attributes, local));
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    assert_ptr_equal(attributes.hostPointer, local);
}

TEST(host_memory_is_registered_once) {
    machine(1, "eager");
    static char memory[4096];
    void *pinned;
    FAILS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(memory));
    OK(cudaHostRegister(memory + 1000, 1000, cudaHostRegisterDefault));
    FAILS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory + 1000, 1000, 0));
    FAILS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory, 1001, 0));
    FAILS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory + 1999, 1000, 0));
    FAILS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory, 4096, 0));
    OK(cudaHostRegister(memory, 1000, cudaHostRegisterDefault));
    OK(cudaHostRegister(memory + 2000, 1000, cudaHostRegisterDefault));
    for (int i = 0; i < 3; i++) OK(cudaHostUnregister(memory + (size_t)i * 1000));
    OK(cudaHostAlloc(&pinned, 100, cudaHostAllocMapped));
    FAILS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(pinned));
    OK(cudaFreeHost(pinned));
    FAILS(cudaErrorInvalidValue, cudaFreeHost(pinned));
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

static cudaMemPool_t new_pool(uint64_t keep) {
    struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                          .location = {cudaMemLocationTypeDevice, 0}};
    cudaMemPool_t pool;
    OK(cudaMemPoolCreate(&pool, &properties));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    return pool;
}

static uint64_t attribute(cudaMemPool_t pool, enum cudaMemPoolAttr which) {
    uint64_t value = 0;
    OK(cudaMemPoolGetAttribute(pool, which, &value));
    return value;
}

TEST(a_pool_keeps_what_was_freed) {
    machine(1, "shuffle:1");
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaMemPool_t pool = new_pool(UINT64_MAX);
    void *memory, *whole;
    OK(cudaMallocFromPoolAsync(&memory, 1024, pool, stream));
    assert_int_equal(attribute(pool, cudaMemPoolAttrUsedMemCurrent), 1024);
    OK(cudaFreeAsync(memory, stream));
    assert_int_equal(cuda_on_cpu_device_bytes(), 0); /* although the stream has not reached the free */
    FAILS(cudaErrorInvalidValue, cudaFreeAsync(memory, stream));
    FAILS(cudaErrorInvalidValue, cudaFree(memory));
    FAILS(cudaErrorInvalidValue, cudaFreeAsync(NULL, stream));
    FAILS(cudaErrorInvalidValue, cudaMemsetAsync(memory, 0, 4, stream));
    OK(cudaMallocFromPoolAsync(&whole, MACHINE_NBYTES, pool, stream)); /* waits for the free */
    OK(cudaFreeAsync(whole, stream));
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(attribute(pool, cudaMemPoolAttrUsedMemCurrent), 0);
    assert_int_equal(attribute(pool, cudaMemPoolAttrReservedMemCurrent), MACHINE_NBYTES);
    assert_int_equal(free_nbytes(), 0);
    OK(cudaMalloc(&memory, MACHINE_NBYTES)); /* takes memory that the pool only keeps */
    OK(cudaFree(memory));
    OK(cudaMemPoolTrimTo(pool, 4096));
    assert_int_equal(attribute(pool, cudaMemPoolAttrReservedMemCurrent), 4096);
    OK(cudaMallocFromPoolAsync(&memory, 512, pool, stream));
    OK(cudaMallocFromPoolAsync(&whole, 1024, pool, stream));
    OK(cudaMemPoolDestroy(pool)); /* its allocations stay valid */
    assert_int_equal(free_nbytes(), MACHINE_NBYTES - 1536);
    OK(cudaFreeAsync(memory, stream));
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(free_nbytes(), MACHINE_NBYTES - 1024); /* and it keeps nothing any more */
    OK(cudaFreeAsync(whole, stream));
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(free_nbytes(), MACHINE_NBYTES);
    assert_int_equal(cuda_on_cpu_device_bytes(), 0);
}

/* Memory that a pool keeps is available to other pools once it is trimmed; a pending free prevents that. */
TEST(pools_do_not_share_what_they_keep) {
    machine(1, "shuffle:1");
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaMemPool_t first = new_pool(UINT64_MAX), second = new_pool(UINT64_MAX);
    void *memory;
    OK(cudaMallocFromPoolAsync(&memory, MACHINE_NBYTES - 1024, first, stream));
    OK(cudaFreeAsync(memory, stream));
    FAILS(cudaErrorMemoryAllocation, cudaMallocFromPoolAsync(&memory, 2048, second, stream));
    OK(cudaMemPoolTrimTo(first, 0));
    FAILS(cudaErrorMemoryAllocation, cudaMallocFromPoolAsync(&memory, 2048, second, stream));
    OK(cudaStreamSynchronize(stream));
    FAILS(cudaErrorMemoryAllocation, cudaMallocFromPoolAsync(&memory, 2048, second, stream));
    OK(cudaMemPoolTrimTo(first, 0));
    OK(cudaMallocFromPoolAsync(&memory, 2048, second, stream));
    OK(cudaFreeAsync(memory, stream));
    OK(cudaStreamSynchronize(stream));
}

/* Memory of cudaMallocFromPoolAsync belongs to the work that is ordered after it. */
TEST(using_pool_memory_too_early_shows) {
    int spoilt = 0;
    for (int seed = 0; seed < 40; seed++) {
        shuffled_machine(1, seed);
        cudaStream_t a, b;
        OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
        OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
        float *x;
        OK(cudaMallocFromPoolAsync((void **)&x, sizeof *x, new_pool(0), a));
        OK(cudaMemsetAsync(x, 0, sizeof *x, b)); /* has not waited for a */
        OK(cudaDeviceSynchronize());
        spoilt += get(x) != 0;
    }
    assert_in_range(spoilt, 1, 39);
}
