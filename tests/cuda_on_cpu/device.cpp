/* The state, its creation and reset, and the calls that concern devices.
 *
 * A device's context breaks when a kernel fails, and stays broken: every later call that concerns the device returns
 * the error. The other devices of the process still work. A child of a process that has used CUDA cannot use it
 * (cudaErrorInitializationError), as on a GPU; one forked before the first call can. */
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/cuda_on_cpu/include/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/ranges.h"
#include "tests/cuda_on_cpu/state.h"
#include "tests/cuda_on_cpu/threads.h"

namespace cuda_on_cpu {

namespace {

std::mutex making;
std::atomic<State *> existing{nullptr};
std::atomic<bool> used{false}, forked{false};
std::atomic<unsigned> generation{1};
/* State that a forked child cannot destroy, kept where leak checkers see it. */
std::vector<State *> *given_up = nullptr;

struct Current {
    unsigned generation;
    int device;
};
thread_local Current current = {0, 0};

void after_fork_in_child() {
    if (used.load()) forked = true;
}

State *make_state() {
    static bool watching = false;
    if (!watching) pthread_atfork(nullptr, nullptr, after_fork_in_child);
    watching = true;
    auto *s = new State;
    s->settings = read_settings();
    s->faults = read_faults(std::getenv("CUDA_ON_CPU_FAIL"));
    auto count = s->settings.visible.size();
    s->devices.resize(count);
    s->arena = std::make_unique<Arena>(static_cast<int>(count), s->settings.memory_nbytes);
    for (size_t d = 0; d < count; d++) {
        s->devices[d].legacy = new CUstream_st{static_cast<int>(d), nullptr, nullptr, {}};
        s->streams.insert(s->devices[d].legacy);
    }
    return s;
}

void destroy_state(State *s) {
    stop_engine(*s);
    for (cudaStream_t stream : s->streams) delete stream;
    for (cudaEvent_t event : s->events) delete event;
    for (cudaMemPool_t pool : s->pools) delete pool;
    for (cudaMemPool_t pool : s->dying) delete pool;
    for (cudaGraph_t graph : s->graphs) delete graph;
    for (cudaGraphExec_t exec : s->execs) delete exec;
    for (const CaptureRef &capture : s->captures) delete capture->graph;
    for (void *memory : s->pinned_own) std::free(memory);
    delete s;
}

cudaError_t no_devices(const Settings &settings) {
    if (settings.driver < CUDART_VERSION) return cudaErrorInsufficientDriver;
    return settings.visible.empty() ? cudaErrorNoDevice : cudaSuccess;
}

} // namespace

State &state() {
    State *s = existing.load();
    if (s) return *s;
    std::lock_guard<std::mutex> lock(making);
    if (!existing.load()) existing = make_state();
    return *existing.load();
}

bool forked_too_late() { return forked.load(); }

int current_device() { return current.generation == generation.load() ? current.device : 0; }

int device_count() {
    if (forked_too_late()) return 0;
    return static_cast<int>(state().devices.size());
}

cudaError_t injected(const char *function) {
    if (forked_too_late()) return cudaSuccess;
    State &s = state();
    Guard guard(s.lock);
    return count_call(s, function);
}

cudaError_t enter(const char *function) {
    if (forked_too_late()) return fail(cudaErrorInitializationError);
    used = true;
    State &s = state();
    Guard guard(s.lock);
    cudaError_t error = count_call(s, function), missing = no_devices(s.settings);
    if (missing != cudaSuccess) return fail(missing);
    cudaError_t &broken = s.devices[static_cast<size_t>(current_device())].broken;
    if (broken == cudaSuccess && breaks_context(error)) broken = error;
    return fail(broken != cudaSuccess ? broken : error);
}

/* For calls that need no working context: only a driver, a device and no injected fault. */
static cudaError_t look(const char *function) {
    if (forked_too_late()) return fail(cudaErrorInitializationError);
    used = true;
    cudaError_t error = injected(function), missing = no_devices(state().settings);
    return fail(missing != cudaSuccess ? missing : error);
}

static bool exists(int device) { return device >= 0 && device < device_count(); }

static int bus_of(int device) { return state().settings.visible[static_cast<size_t>(device)] + 1; }

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

void cuda_on_cpu_restart(void) {
    State *old = existing.exchange(nullptr);
    if (old && forked.exchange(false)) {
        new (&making) std::mutex;
        if (!given_up) given_up = new std::vector<State *>;
        given_up->push_back(old);
    } else if (old) {
        destroy_state(old);
    }
    used = false;
    forget_ranges();
    restart_threads();
    generation++;
}

cudaError_t cudaDriverGetVersion(int *driverVersion) {
    if (!driverVersion) return fail(cudaErrorInvalidValue);
    cudaError_t error = injected("cudaDriverGetVersion");
    if (error == cudaSuccess) *driverVersion = state().settings.driver;
    return fail(error);
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion) {
    if (!runtimeVersion) return fail(cudaErrorInvalidValue);
    cudaError_t error = injected("cudaRuntimeGetVersion");
    if (error == cudaSuccess) *runtimeVersion = CUDART_VERSION;
    return fail(error);
}

cudaError_t cudaGetDeviceCount(int *count) {
    if (!count) return fail(cudaErrorInvalidValue);
    cudaError_t error = look("cudaGetDeviceCount");
    *count = error == cudaSuccess ? device_count() : 0;
    return error;
}

/* As in CUDA, the device becomes the current one although its context is broken. */
cudaError_t cudaSetDevice(int device) {
    cudaError_t error = look("cudaSetDevice");
    if (error != cudaSuccess) return error;
    if (!exists(device)) return fail(cudaErrorInvalidDevice);
    current = {generation.load(), device};
    State &s = state();
    Guard guard(s.lock);
    return fail(s.devices[static_cast<size_t>(device)].broken);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device) {
    cudaError_t error = look("cudaDeviceGetAttribute");
    if (error != cudaSuccess) return error;
    if (!value) return fail(cudaErrorInvalidValue);
    if (!exists(device)) return fail(cudaErrorInvalidDevice);
    switch (attr) {
    case cudaDevAttrPciBusId: *value = bus_of(device); break;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId: *value = 0; break;
    case cudaDevAttrMemoryPoolsSupported: *value = std::getenv("CUDA_ON_CPU_NO_POOLS") ? 0 : 1; break;
    default: return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

/* The properties of a small GPU of compute capability 9.0. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
    cudaError_t error = look("cudaGetDeviceProperties");
    if (error != cudaSuccess) return error;
    if (!prop) return fail(cudaErrorInvalidValue);
    if (!exists(device)) return fail(cudaErrorInvalidDevice);
    std::memset(prop, 0, sizeof *prop);
    std::snprintf(prop->name, sizeof prop->name, "CUDA on the CPU");
    prop->totalGlobalMem = state().settings.memory_nbytes;
    prop->major = 9;
    prop->multiProcessorCount = 4;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device) {
    cudaError_t error = look("cudaDeviceGetPCIBusId");
    if (error != cudaSuccess) return error;
    if (!exists(device)) return fail(cudaErrorInvalidDevice);
    if (!pciBusId || len < 13) return fail(cudaErrorInvalidValue);
    auto bus = static_cast<unsigned>(bus_of(device)) & 0xff;
    std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0", bus);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    cudaError_t error = enter("cudaDeviceGetStreamPriorityRange");
    if (error != cudaSuccess) return error;
    if (leastPriority) *leastPriority = 0;
    if (greatestPriority) *greatestPriority = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice) {
    cudaError_t error = look("cudaDeviceCanAccessPeer");
    if (error != cudaSuccess) return error;
    if (!exists(device) || !exists(peerDevice)) return fail(cudaErrorInvalidDevice);
    *canAccessPeer = device != peerDevice;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
    cudaError_t error = enter("cudaDeviceEnablePeerAccess");
    if (error != cudaSuccess) return error;
    if (!exists(peerDevice) || peerDevice == current_device()) return fail(cudaErrorInvalidDevice);
    if (flags != 0) return fail(cudaErrorInvalidValue);
    State &s = state();
    Guard guard(s.lock);
    bool added = s.devices[static_cast<size_t>(current_device())].peers.insert(peerDevice).second;
    return fail(added ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}

} // extern "C"
