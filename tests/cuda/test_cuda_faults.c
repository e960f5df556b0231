/* "CUDA on the CPU" fails where it is configured to, and as CUDA does: which later calls then fail too, and which do
 * not. */
#define _GNU_SOURCE
#include <string.h>

#include "tests/base/test.h"
#include "tests/cuda/machine.h"
#include "tests/cuda_on_cpu/selftest.h"

static const struct selftest_geometry one_thread = {{1, 1, 1}, {1, 1, 1}};

static cudaStream_t new_stream(void) {
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

TEST(the_nth_call_fails) {
    void *memory[4];
    machine(1, "eager");
    setenv("CUDA_ON_CPU_FAIL", "cudaMalloc:2:2,cudaHostAlloc:1:46", 1);
    OK(cudaMalloc(&memory[0], 4));
    FAILS(cudaErrorMemoryAllocation, cudaMalloc(&memory[1], 4));
    OK(cudaMalloc(&memory[1], 4));
    FAILS(cudaErrorMemoryAllocation, cudaGetLastError()); /* success does not clear it */
    OK(cudaGetLastError());
    FAILS(cudaErrorDevicesUnavailable, cudaHostAlloc(&memory[2], 4, 0));
    OK(cudaHostAlloc(&memory[2], 4, 0));
    assert_int_equal(cuda_on_cpu_calls("cudaMalloc"), 3);
    assert_int_equal(cuda_on_cpu_device_allocations(), 2);

    cuda_on_cpu_reset_faults("cudaMalloc:1:2");
    FAILS(cudaErrorMemoryAllocation, cudaMalloc(&memory[3], 4));
    OK(cudaMalloc(&memory[3], 4));
    cuda_on_cpu_reset_faults("cudaMalloc:0:2");
    for (int i = 0; i < 3; i++) FAILS(cudaErrorMemoryAllocation, cudaMalloc(&memory[3], 4));
    cuda_on_cpu_reset_faults("cudaLaunchKernelEx:2:98");
    OK(cudaMalloc(&memory[3], 4));
    OK(selftest_nothing(NULL, one_thread));
    FAILS(cudaErrorInvalidDeviceFunction, selftest_nothing(NULL, one_thread));
    OK(selftest_nothing(NULL, one_thread));
}

static void set_flag(void *flag) { *(int *)flag = 1; }

/* A kernel fails while it runs: no call reports it until the host waits or queries; from then on all calls on that
 * device fail. */
TEST(a_failed_kernel_breaks_its_device) {
    machine(2, "shuffle:1");
    cuda_on_cpu_reset_faults("kernel:2:700");
    cudaStream_t stream = new_stream();
    cudaEvent_t event;
    void *memory, *pinned;
    int flag = 0;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaMalloc(&memory, 4));
    OK(cudaHostAlloc(&pinned, 4, 0));
    OK(selftest_nothing(stream, one_thread));
    OK(cudaStreamSynchronize(stream));
    OK(selftest_nothing(stream, one_thread)); /* this one */
    OK(cudaLaunchHostFunc(stream, set_flag, &flag));
    OK(cudaEventRecord(event, stream));
    assert_int_equal(cuda_on_cpu_kernel_launches(), 2);
    FAILS(cudaErrorIllegalAddress, cudaStreamSynchronize(stream));
    assert_int_equal(flag, 0); /* later work was dropped */
    FAILS(cudaErrorIllegalAddress, cudaStreamQuery(stream));
    FAILS(cudaErrorIllegalAddress, cudaEventQuery(event));
    FAILS(cudaErrorIllegalAddress, cudaEventSynchronize(event));
    FAILS(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    FAILS(cudaErrorIllegalAddress, selftest_nothing(stream, one_thread));
    FAILS(cudaErrorIllegalAddress, cudaMemcpy(&flag, memory, 4, cudaMemcpyDefault));
    FAILS(cudaErrorIllegalAddress, cudaMalloc(&memory, 4));
    for (int i = 0; i < 2; i++) FAILS(cudaErrorIllegalAddress, cudaGetLastError());
    FAILS(cudaErrorIllegalAddress, cudaSetDevice(0));

    OK(cudaSetDevice(1)); /* another context */
    cudaStream_t there = new_stream();
    OK(selftest_nothing(there, one_thread));
    OK(cudaStreamSynchronize(there));
    OK(cudaStreamWaitEvent(there, event, 0)); /* does not hang */
    OK(cudaStreamSynchronize(there));
    FAILS(cudaErrorIllegalAddress, cudaMemsetAsync(memory, 0, 4, stream));

    FAILS(cudaErrorIllegalAddress, cudaSetDevice(0)); /* resources are freed nevertheless */
    FAILS(cudaErrorIllegalAddress, cudaFree(memory));
    FAILS(cudaErrorIllegalAddress, cudaFreeHost(pinned));
    FAILS(cudaErrorIllegalAddress, cudaEventDestroy(event));
    FAILS(cudaErrorIllegalAddress, cudaStreamDestroy(stream));
    assert_int_equal(cuda_on_cpu_device_bytes(), 0);
}

TEST(errors_of_contexts_stay) {
    machine(1, "eager");
    cudaStream_t stream = new_stream();
    cuda_on_cpu_reset_faults("cudaStreamSynchronize:1:719,cudaStreamQuery:1:999");
    FAILS(cudaErrorUnknown, cudaStreamQuery(stream)); /* this call succeeds */
    OK(cudaStreamQuery(stream));
    FAILS(cudaErrorLaunchFailure, cudaStreamSynchronize(stream));
    FAILS(cudaErrorLaunchFailure, cudaStreamSynchronize(stream));
    cuda_on_cpu_restart();
    cudaStream_t again = new_stream();
    OK(cudaStreamSynchronize(again));
}

TEST(a_kernel_in_a_graph_may_fail) {
    machine(1, "eager");
    cuda_on_cpu_reset_faults("kernel:3:719");
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 2; i++) OK(selftest_nothing(stream, one_thread));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaGraphLaunch(exec, stream));
    FAILS(cudaErrorLaunchFailure, cudaStreamSynchronize(stream));
    FAILS(cudaErrorLaunchFailure, cudaGraphLaunch(exec, stream));
    FAILS(cudaErrorLaunchFailure, cudaGraphExecDestroy(exec));
    FAILS(cudaErrorLaunchFailure, cudaGraphDestroy(graph));
}

/* --- processes ---------------------------------------------------------------------------------------------------- */

static void child_uses_cuda(void *expected) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess) error = cudaSetDevice(1);
    void *memory;
    if (error == cudaSuccess) error = cudaMalloc(&memory, 64);
    if (error == cudaSuccess) error = cudaMemset(memory, 0, 64);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = selftest_nothing(NULL, one_thread);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error != *(cudaError_t *)expected) abort();
}

static void child_starts_anew(void *expected) {
    cuda_on_cpu_restart();
    child_uses_cuda(expected);
}

TEST(a_child_works_if_its_parent_used_nothing) {
    cudaError_t works = cudaSuccess, does_not = cudaErrorInitializationError;
    int version, count;
    machine(2, "eager");
    OK(cudaDriverGetVersion(&version)); /* does not initialize CUDA */
    assert_int_equal(dies(child_uses_cuda, &works), 0);
    assert_int_equal(dies(child_uses_cuda, &works), 0);
    OK(cudaGetDeviceCount(&count)); /* does */
    assert_int_equal(dies(child_uses_cuda, &does_not), 0);
    assert_int_equal(dies(child_starts_anew, &works), 0); /* works only in the fake */
    OK(cudaDeviceSynchronize());
    assert_int_equal(dies(child_uses_cuda, &does_not), 0);
    OK(cudaDeviceSynchronize());
}

TEST(peers_are_introduced_once) {
    int can = -1;
    machine(2, "eager");
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    OK(cudaDeviceCanAccessPeer(&can, 1, 1));
    assert_int_equal(can, 0);
    OK(cudaDeviceEnablePeerAccess(1, 0));
    FAILS(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
    FAILS(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(0, 0));
    FAILS(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(2, 0));
}
