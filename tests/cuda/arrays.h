/* Arrays in device memory, for tests that call CUDA themselves. All functions are static, as in machine.h. */
#ifndef TESTS_CUDA_ARRAYS_H
#define TESTS_CUDA_ARRAYS_H

#include "tests/cuda/machine.h"

static inline void ok(cudaError_t error) {
    if (error != cudaSuccess) fail_msg("%s: %s", cudaGetErrorName(error), cudaGetErrorString(error));
}

/* A new machine with 64 MiB on each of its GPUs; blocks run their threads in ascending order. */
static inline void roomy_machine(int devices, const char *streams) {
    machine(devices, streams);
    setenv("CUDA_ON_CPU_MEMORY", "67108864", 1);
    unsetenv("CUDA_ON_CPU_THREADS");
    cuda_on_cpu_restart();
}

/* Zero-filled; an array that a test does not free lives as long as the machine. */
static inline void *device_array(size_t nbytes) {
    void *memory;
    ok(cudaMalloc(&memory, nbytes + 1));
    ok(cudaMemset(memory, 0, nbytes));
    return memory;
}

static inline void *to_device(const void *values, size_t nbytes) {
    void *memory = device_array(nbytes);
    ok(cudaMemcpy(memory, values, nbytes, cudaMemcpyHostToDevice));
    return memory;
}

static inline void from_device(void *values, const void *memory, size_t nbytes) {
    ok(cudaMemcpy(values, memory, nbytes, cudaMemcpyDeviceToHost));
}

#endif
