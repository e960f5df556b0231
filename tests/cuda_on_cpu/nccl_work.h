/* The engine's work for a call of the fake NCCL. */
#ifndef CUDA_ON_CPU_NCCL_WORK_H
#define CUDA_ON_CPU_NCCL_WORK_H

#include <atomic>
#include <memory>
#include <vector>

#include "tests/cuda_on_cpu/engine.h"
#include "tests/cuda_on_cpu/nccl_board.h"

namespace cuda_on_cpu {

/* The part of a communicator that its work needs; lives as long as any of the work. */
struct Crew {
    std::shared_ptr<BoardMap> map;
    int rank, size;
    std::atomic<bool> aborted{false};
    uint64_t collectives = 0; /* begun; the engine's thread only */
};
using CrewRef = std::shared_ptr<Crew>;

enum CallKind { ALL_REDUCE = 1, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER };

struct Collective {
    Call call;
    const void *send;
    void *receive;
};

struct Message {
    bool sends;
    int peer;
    void *buffer;
    size_t nbytes;
    int stage; /* 0: nothing yet; 1: posted; 2: done */
    uint64_t number;
};

size_t nbytes_of(ncclDataType_t type); /* 0: a type that the fake does not support */

Work work_of(const CrewRef &crew, const Collective &collective);
/* Messages of one group: they proceed at the same time, those of one pair in order. */
Work work_of(const CrewRef &crew, const std::vector<Message> &messages);

} // namespace cuda_on_cpu

#endif
