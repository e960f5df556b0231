/* How kernels run on the CPU: declarations shared by the files threads*.cpp. */
#ifndef CUDA_ON_CPU_THREADS_H
#define CUDA_ON_CPU_THREADS_H

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime.h>

namespace cuda_on_cpu {

/* The order in which the threads of a block run, between places where they wait for each other, and the order of the
 * blocks of a grid. */
struct ThreadOrder {
    enum Kind { ascending, descending, random } kind = ascending;
    uint64_t seed = 0;
};

/* "ascending", "descending" or "random:SEED"; false for any other text. */
bool parse_thread_order(const char *text, ThreadOrder *order);

struct Grid {
    dim3 blocks, threads;
};

/* Runs every thread of every block; the calling thread is the engine's. `number` distinguishes kernels in random
 * orders. False if threads waited for others that never arrived; *why names them, and the rest of the grid did not
 * run. */
bool run_grid(const Grid &grid, const std::function<void()> &thread, ThreadOrder order, uint64_t number,
              std::string *why);

/* In a child of a process that was forked while a kernel ran: discards the grid, which does not continue here. */
void forget_grid();

/* Resets the list of kernels that ran, and makes the next launch read CUDA_ON_CPU_THREADS again: for
 * cuda_on_cpu_restart. */
void restart_threads();

} // namespace cuda_on_cpu

#endif
