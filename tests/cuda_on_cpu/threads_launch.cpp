/* Launching kernels: CUDA's checks when a kernel is launched, and the execution when the stream reaches it.
 *
 *   launch    grid and block are checked as CUDA does for every GPU since compute capability 3.0; the failure is
 *             returned at once. The closure holds the arguments by value, so that the caller may change its variables,
 *             and a graph repeats them.
 *   run       pointers among the arguments are checked first: one that a GPU could not dereference breaks the device,
 *             as a kernel that dereferences it would. (Pointers inside of structures are not checked.) Then run_grid
 *             (threads.cpp).
 *   fails     a kernel that cannot end, or has such an argument, reports why on stderr and breaks its device:
 *             cudaErrorLaunchFailure, cudaErrorIllegalAddress */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include <cuda_on_cpu_threads.h>

#include "tests/cuda_on_cpu/engine.h"
#include "tests/cuda_on_cpu/threads.h"

namespace cuda_on_cpu {

namespace {

constexpr unsigned MAX_BLOCK_THREADS = 1024, MAX_BLOCK_Z = 64, MAX_GRID_YZ = 65535, MAX_GRID_X = 0x7fffffff;
constexpr size_t MAX_SHARED_NBYTES = 48 << 10;
constexpr size_t REMEMBERED = 4096;

std::mutex guard; /* guards all below */
bool order_is_known;
ThreadOrder current_order;
unsigned long kernels_run;
cuda_on_cpu_geometry geometries[REMEMBERED];

[[noreturn]] void refuse_order(const char *text) {
    std::fprintf(stderr, "cuda_on_cpu: CUDA_ON_CPU_THREADS is \"%s\"; it takes ascending, descending or random:SEED\n",
                 text);
    std::abort();
}

ThreadOrder order_of_now() {
    std::lock_guard<std::mutex> lock(guard);
    if (!order_is_known) {
        const char *text = std::getenv("CUDA_ON_CPU_THREADS");
        if (!parse_thread_order(text ? text : "ascending", &current_order)) refuse_order(text);
        order_is_known = true;
    }
    return current_order;
}

unsigned long remember(const Grid &grid) {
    std::lock_guard<std::mutex> lock(guard);
    geometries[kernels_run % REMEMBERED] = {{grid.blocks.x, grid.blocks.y, grid.blocks.z},
                                            {grid.threads.x, grid.threads.y, grid.threads.z}};
    return kernels_run++;
}

cudaError_t check(const cudaLaunchConfig_t &config) {
    const dim3 &grid = config.gridDim, &block = config.blockDim;
    bool empty = grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0;
    bool grid_too_large = grid.x > MAX_GRID_X || grid.y > MAX_GRID_YZ || grid.z > MAX_GRID_YZ;
    bool block_too_large = block.x > MAX_BLOCK_THREADS || block.y > MAX_BLOCK_THREADS || block.z > MAX_BLOCK_Z ||
                           uint64_t{block.x} * block.y * block.z > MAX_BLOCK_THREADS;
    if (empty || grid_too_large || block_too_large) return cudaErrorInvalidConfiguration;
    if (config.dynamicSmemBytes > MAX_SHARED_NBYTES) return cudaErrorInvalidValue;
    if (config.dynamicSmemBytes > 0 || config.numAttrs > 0) return cudaErrorNotSupported; /* only here, not in CUDA */
    return cudaSuccess;
}

/* A pointer to no elements may point just past the end of an array. */
bool is_reachable(const void *pointer) {
    const char *p = static_cast<const char *>(pointer);
    return in_device_memory(p, 1, nullptr) || in_pinned_memory(p, 1) || in_device_memory(p - 1, 1, nullptr) ||
           in_pinned_memory(p - 1, 1);
}

struct Kernel {
    Grid grid;
    std::function<void()> thread;
    std::vector<const void *> pointers;
    ThreadOrder order;

    Progress operator()() const {
        unsigned long number = remember(grid);
        for (size_t a = 0; a < pointers.size(); a++) {
            if (!pointers[a] || is_reachable(pointers[a])) continue;
            std::fprintf(stderr, "cuda_on_cpu: a kernel's argument number %zu is %p, which no GPU can reach\n", a + 1,
                         pointers[a]);
            break_context(cudaErrorIllegalAddress);
            return Progress::done;
        }
        std::string why;
        if (!run_grid(grid, thread, order, number, &why)) {
            std::fprintf(stderr, "cuda_on_cpu: %s\n", why.c_str());
            break_context(cudaErrorLaunchFailure);
        }
        return Progress::done;
    }
};

} // namespace

bool parse_thread_order(const char *text, ThreadOrder *order) {
    *order = ThreadOrder();
    if (std::strcmp(text, "ascending") == 0) return true;
    order->kind = ThreadOrder::descending;
    if (std::strcmp(text, "descending") == 0) return true;
    order->kind = ThreadOrder::random;
    if (std::strncmp(text, "random:", 7) != 0 || text[7] < '0' || text[7] > '9') return false;
    char *end;
    order->seed = std::strtoull(text + 7, &end, 10);
    return *end == 0;
}

void restart_threads() {
    std::lock_guard<std::mutex> lock(guard);
    order_is_known = false;
    kernels_run = 0;
    forget_grid();
}

cudaError_t launch_kernel(const cudaLaunchConfig_t *config, const void *kernel, std::function<void()> thread,
                          std::vector<const void *> pointers) {
    cudaError_t error = enter("cudaLaunchKernelEx");
    if (error != cudaSuccess) return error;
    if (!config) return fail(cudaErrorInvalidValue);
    if (!kernel) return fail(cudaErrorInvalidDeviceFunction);
    error = check(*config);
    if (error != cudaSuccess) return fail(error);
    return enqueue_kernel(
        config->stream, "kernel",
        Kernel{{config->gridDim, config->blockDim}, std::move(thread), std::move(pointers), order_of_now()});
}

} // namespace cuda_on_cpu

extern "C" void cuda_on_cpu_set_thread_order(const char *order) {
    cuda_on_cpu::ThreadOrder parsed;
    if (!cuda_on_cpu::parse_thread_order(order, &parsed)) cuda_on_cpu::refuse_order(order);
    std::lock_guard<std::mutex> lock(cuda_on_cpu::guard);
    cuda_on_cpu::current_order = parsed;
    cuda_on_cpu::order_is_known = true;
}

extern "C" unsigned long cuda_on_cpu_kernels_run(void) {
    std::lock_guard<std::mutex> lock(cuda_on_cpu::guard);
    return cuda_on_cpu::kernels_run;
}

extern "C" int cuda_on_cpu_kernel_geometry(unsigned long nth, struct cuda_on_cpu_geometry *geometry) {
    std::lock_guard<std::mutex> lock(cuda_on_cpu::guard);
    if (nth >= cuda_on_cpu::kernels_run || nth + cuda_on_cpu::REMEMBERED < cuda_on_cpu::kernels_run) return 1;
    *geometry = cuda_on_cpu::geometries[nth % cuda_on_cpu::REMEMBERED];
    return 0;
}
