/* The simulated machine, which calls fail, and how often each was called: the environment's CUDA_ON_CPU_* and
 * CUDA_VISIBLE_DEVICES, read when the state is created (include/cuda_on_cpu.h lists them). An invalid setting ends the
 * process: a test that runs on a different machine than it assumes proves nothing. */
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

namespace {

constexpr int RUNTIME_VERSION = CUDART_VERSION, OLD_VERSION = 11040;

[[noreturn]] void misread(const char *name, const char *text, const char *expected) {
    std::fprintf(stderr, "cuda_on_cpu: %s=%s cannot be understood: it should be %s\n", name, text, expected);
    std::_Exit(1);
}

unsigned long long number_of(const char *name, const char *text, unsigned long long otherwise) {
    if (!text || !*text) return otherwise;
    char *end = nullptr;
    errno = 0;
    unsigned long long value = std::strtoull(text, &end, 10);
    if (errno || *end || *text == '-') misread(name, text, "a number");
    return value;
}

unsigned long long setting(const char *name, unsigned long long otherwise) {
    return number_of(name, std::getenv(name), otherwise);
}

/* CUDA's rule: numbers separated by commas; the first that does not name a device ends the list. */
std::vector<int> visible_devices(int machine_devices) {
    const char *text = std::getenv("CUDA_VISIBLE_DEVICES");
    std::vector<int> visible;
    for (int i = 0; !text && i < machine_devices; i++) visible.push_back(i);
    while (text && *text) {
        char *end = nullptr;
        long number = std::strtol(text, &end, 10);
        if (end == text || number < 0 || number >= machine_devices) break;
        if (std::count(visible.begin(), visible.end(), static_cast<int>(number)) > 0) return {};
        visible.push_back(static_cast<int>(number));
        text = *end == ',' ? end + 1 : "";
    }
    return visible;
}

int driver_version() {
    const char *text = std::getenv("CUDA_ON_CPU_DRIVER");
    if (!text || !*text) return RUNTIME_VERSION;
    if (!std::strcmp(text, "none")) return 0;
    if (!std::strcmp(text, "old")) return OLD_VERSION;
    misread("CUDA_ON_CPU_DRIVER", text, "none or old");
}

Rounding read_rounding(const char *text) {
    static const char name[] = "CUDA_ON_CPU_ROUNDING", expected[] = "some of slices:N, place, cut, ulps, flush";
    Rounding rounding;
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        std::string one = rest.substr(0, rest.find(','));
        rest.erase(0, one.size() + 1);
        bool slices = one.rfind("slices:", 0) == 0;
        if (slices) rounding.slices = static_cast<int>(number_of(name, one.c_str() + 7, 0));
        rounding.place |= one == "place";
        rounding.cut |= one == "cut";
        rounding.ulps |= one == "ulps";
        rounding.flush |= one == "flush";
        bool known = slices || one == "place" || one == "cut" || one == "ulps" || one == "flush";
        if (!known || rounding.slices < 1 || rounding.slices > 64) misread(name, text, expected);
    }
    return rounding;
}

} // namespace

Settings read_settings() {
    Settings settings;
    settings.rounding = read_rounding(std::getenv("CUDA_ON_CPU_ROUNDING"));
    settings.driver = driver_version();
    settings.machine_devices = static_cast<int>(setting("CUDA_ON_CPU_DEVICES", 0));
    if (settings.driver >= RUNTIME_VERSION) settings.visible = visible_devices(settings.machine_devices);
    settings.memory_nbytes = setting("CUDA_ON_CPU_MEMORY", 2ULL << 30);
    const char *streams = std::getenv("CUDA_ON_CPU_STREAMS");
    if (streams && *streams && std::strcmp(streams, "eager") != 0) {
        if (std::strncmp(streams, "shuffle:", 8) != 0) misread("CUDA_ON_CPU_STREAMS", streams, "eager or shuffle:SEED");
        settings.shuffle = true;
        settings.random = number_of("CUDA_ON_CPU_STREAMS", streams + 8, 0);
    }
    return settings;
}

std::vector<Fault> read_faults(const char *text) {
    static const char name[] = "CUDA_ON_CPU_FAIL", expected[] = "name:nth:code, more of them separated by commas";
    std::vector<Fault> faults;
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        std::string one = rest.substr(0, rest.find(','));
        rest.erase(0, one.size() + 1);
        size_t first = one.find(':'), second = one.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) misread(name, text, expected);
        Fault fault = {one.substr(0, first), 0, cudaSuccess, 0};
        fault.nth = number_of(name, one.substr(first + 1, second - first - 1).c_str(), 0);
        fault.error = static_cast<cudaError_t>(number_of(name, one.substr(second + 1).c_str(), 0));
        faults.push_back(fault);
    }
    return faults;
}

/* Counts the call; returns the error that CUDA_ON_CPU_FAIL requests for it. */
cudaError_t count_call(State &s, const char *function) {
    s.calls[function]++;
    cudaError_t error = cudaSuccess;
    for (Fault &fault : s.faults) {
        if (fault.function != function) continue;
        fault.seen++;
        if (error == cudaSuccess && (fault.nth == 0 || fault.nth == fault.seen)) error = fault.error;
    }
    return error;
}

/* Errors that break the context. */
bool breaks_context(cudaError_t error) {
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice: return true;
    default: return false;
    }
}

/* splitmix64: works with any 64-bit seed. */
uint64_t next_random(State &s) {
    uint64_t z = s.settings.random += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

} // namespace cuda_on_cpu
