/* NVTX: the name of every range is recorded in order, so that tests see the phases of a program. A thread's ranges
 * nest, and a pop ends its own innermost range. */
#include "tests/cuda_on_cpu/ranges.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>

#include <nvtx3/nvToolsExt.h>

#include "tests/cuda_on_cpu/include/cuda_on_cpu.h"

namespace {

/* Never destroyed: threads may push ranges until the process ends. */
struct Ranges {
    std::mutex lock;
    std::deque<std::string> names;
    unsigned long pushed = 0; /* and not popped yet, in all threads */
};

Ranges &ranges() {
    static auto *it = new Ranges;
    return *it;
}

thread_local int depth = 0;

} // namespace

void cuda_on_cpu::forget_ranges() {
    std::lock_guard<std::mutex> guard(ranges().lock);
    ranges().names.clear();
}

extern "C" {

int nvtxRangePushA(const char *message) {
    std::lock_guard<std::mutex> guard(ranges().lock);
    ranges().names.emplace_back(message ? message : "");
    ranges().pushed++;
    return depth++;
}

int nvtxRangePop(void) {
    std::lock_guard<std::mutex> guard(ranges().lock);
    if (depth == 0) return -1;
    ranges().pushed--;
    return --depth;
}

unsigned long cuda_on_cpu_ranges(const char *name) {
    std::lock_guard<std::mutex> guard(ranges().lock);
    const auto &names = ranges().names;
    return name ? static_cast<unsigned long>(std::count(names.begin(), names.end(), name)) : names.size();
}

unsigned long cuda_on_cpu_open_ranges(void) {
    std::lock_guard<std::mutex> guard(ranges().lock);
    return ranges().pushed;
}

} // extern "C"
