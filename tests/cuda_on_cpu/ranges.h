/* NVTX ranges: the interface of ranges.cpp for control.cpp and device.cpp. */
#ifndef CUDA_ON_CPU_RANGES_H
#define CUDA_ON_CPU_RANGES_H

namespace cuda_on_cpu {

void forget_ranges();

}

#endif
