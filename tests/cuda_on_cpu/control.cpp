/* The functions of include/cuda_on_cpu.h, except cuda_on_cpu_restart, in device.cpp, and the NVTX ranges, in
 * ranges.cpp. */
#include <cstring>

#include "tests/cuda_on_cpu/include/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/state.h"

using namespace cuda_on_cpu;

extern "C" {

void cuda_on_cpu_reset_faults(const char *faults) {
    State &s = state();
    Guard guard(s.lock);
    s.faults = read_faults(faults);
}

int cuda_on_cpu_rounds(const char *how) {
    const Rounding &rounding = state().settings.rounding;
    return (rounding.slices > 1 && !std::strcmp(how, "slices")) || (rounding.place && !std::strcmp(how, "place")) ||
           (rounding.cut && !std::strcmp(how, "cut")) || (rounding.ulps && !std::strcmp(how, "ulps")) ||
           (rounding.flush && !std::strcmp(how, "flush"));
}

unsigned long cuda_on_cpu_kernel_launches(void) { return kernels_launched(); }

unsigned long cuda_on_cpu_device_allocations(void) {
    State &s = state();
    Guard guard(s.lock);
    return s.allocations;
}

size_t cuda_on_cpu_device_bytes(void) {
    State &s = state();
    Guard guard(s.lock);
    size_t nbytes = 0;
    for (const Device &device : s.devices) nbytes += device.direct_nbytes;
    for (const auto &pools : {s.pools, s.dying}) {
        for (cudaMemPool_t pool : pools) nbytes += pool->used_nbytes;
    }
    return nbytes;
}

unsigned long cuda_on_cpu_host_waits(void) {
    State &s = state();
    Guard guard(s.lock);
    return s.host_waits;
}

unsigned long cuda_on_cpu_calls(const char *function) {
    State &s = state();
    Guard guard(s.lock);
    auto found = s.calls.find(function);
    return found == s.calls.end() ? 0 : found->second;
}

int cuda_on_cpu_peek(void *to, const void *device_memory, size_t nbytes) {
    if (!in_device_memory(device_memory, nbytes, nullptr)) return -1;
    State &s = state();
    Guard guard(s.lock);
    bool was_open = s.arena->is_open();
    s.arena->open();
    std::memcpy(to, device_memory, nbytes);
    if (!was_open) s.arena->close();
    return 0;
}

} // extern "C"
