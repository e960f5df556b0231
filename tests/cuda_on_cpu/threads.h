/* How kernels run on the CPU: what the files threads*.cpp share. */
#ifndef CUDA_ON_CPU_THREADS_H
#define CUDA_ON_CPU_THREADS_H

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime.h>

namespace cuda_on_cpu {

/* In which order the threads of a block run, between places where they wait for each other, and in which the blocks of
 * a grid. */
struct ThreadOrder {
    enum Kind { ascending, descending, random } kind = ascending;
    uint64_t seed = 0;
};

/* "ascending", "descending" or "random:SEED"; false if the text is none of them. */
bool parse_thread_order(const char *text, ThreadOrder *order);

struct Grid {
    dim3 blocks, threads;
};

/* Runs every thread of every block; the calling thread is the engine's. `number` tells kernels apart in random orders.
 * False: threads waited for others that never came; *why says which, the rest of the grid did not run. */
bool run_grid(const Grid &grid, const std::function<void()> &thread, ThreadOrder order, uint64_t number,
              std::string *why);

/* In a child of a process that was forked while a kernel ran: the grid that will not go on here is forgotten. */
void forget_grid();

/* Forgets which kernels ran and reads CUDA_ON_CPU_THREADS again at the next launch: for cuda_on_cpu_restart. */
void restart_threads();

} // namespace cuda_on_cpu

#endif
