/* A communicator of the fake NCCL, and how its operations begin. */
#ifndef CUDA_ON_CPU_NCCL_COMM_H
#define CUDA_ON_CPU_NCCL_COMM_H

#include <array>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/nccl_work.h"

namespace cuda_on_cpu {

struct Deferred {
    cudaStream_t stream;
    Work work;
};

enum class Phase { coming_up, up, finalizing, finalized };

struct Shape {
    size_t send_count, receive_count;
};

/* Checks the call and puts its work on the stream, at once or after some polls. `function` is NCCL's name, for
 * messages. */
ncclResult_t run_collective(const char *function, const Collective &c, const Shape &shape, ncclComm_t comm,
                            cudaStream_t stream);
/* The same, at the end of the group of calls if there is one. */
ncclResult_t add_message(const char *function, const Message &message, ncclDataType_t type, ncclComm_t comm,
                         cudaStream_t stream);

} // namespace cuda_on_cpu

struct ncclComm {
    cuda_on_cpu::CrewRef crew;
    int device;
    bool blocking, lost; /* lost: never initialized */
    cuda_on_cpu::Phase phase = cuda_on_cpu::Phase::coming_up;
    ncclResult_t error = ncclSuccess;
    std::string text;
    std::array<bool, 16> called{}; /* kinds of calls */
    int looks = 0;                 /* polls until the deferred calls are put on their streams */
    std::vector<cuda_on_cpu::Deferred> deferred;
};

#endif
