/* The state of the CUDA calls, shared by the files of the fake runtime. All of it is guarded by State::lock, except for
 * an item's work, which the engine's thread runs without the lock. */
#ifndef CUDA_ON_CPU_STATE_H
#define CUDA_ON_CPU_STATE_H

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_cpu/arena.h"
#include "tests/cuda_on_cpu/engine.h"

namespace cuda_on_cpu {

/* --- work: items, each of which follows others -------------------------------------------------------------------- */

enum class Kind { work, kernel, host_function };

/* A stream's next work, once all items that it follows are done. A graph consists of tasks, too. */
struct Task {
    const char *label = "";
    int device = 0;
    Kind kind = Kind::work;
    Work work;                   /* empty: only a position in the order */
    const void *owner = nullptr; /* for is_recorded */
};

struct Item;
using ItemRef = std::shared_ptr<Item>;

struct Item {
    Task task;
    cudaError_t fails = cudaSuccess; /* the error, instead of the work */
    unsigned follows = 0;            /* items that must be done before */
    std::vector<ItemRef> followers;
    unsigned waiters = 0; /* host threads */
    bool done = false;
    double done_ms = 0;
};

/* --- capture and graphs ------------------------------------------------------------------------------------------- */

struct Capture;
using CaptureRef = std::shared_ptr<Capture>;
using Nodes = std::set<int>;

struct Capture {
    cudaStream_t origin = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread;
    bool invalid = false, ended = false;
    cudaGraph_t graph = nullptr; /* being built */
    std::set<cudaStream_t> members;
};

/* How this GPU rounds where CUDA does not specify it (include/cuda_on_cpu.h). */
struct Rounding {
    int slices = 1;
    bool place = false, cut = false, ulps = false, flush = false;
};

struct Settings {
    Rounding rounding;        /* needs no lock: it changes only while nothing runs */
    int machine_devices = 0;  /* of the machine */
    std::vector<int> visible; /* numbers in the machine of the devices that this process sees */
    size_t memory_nbytes = 0; /* of each */
    int driver = 0;           /* version as CUDA writes it; 0: none */
    bool shuffle = false;     /* else eager */
    uint64_t random = 0;      /* seed, then state */
};

struct Fault {
    std::string function;
    unsigned long nth; /* 0: every call */
    cudaError_t error;
    unsigned long seen; /* calls since the fault was set */
};

struct Device {
    cudaError_t broken = cudaSuccess;
    std::set<int> peers;
    cudaStream_t legacy = nullptr;
    std::vector<ItemRef> orphans; /* last items of streams that were destroyed */
    std::vector<ItemRef> frees;   /* of cudaFreeAsync, possibly not done yet */
    size_t direct_nbytes = 0;     /* of cudaMalloc */
};

struct State {
    std::mutex lock;
    Settings settings;
    std::vector<Device> devices;
    std::unique_ptr<Arena> arena;
    std::map<uintptr_t, size_t> pinned; /* pinned host memory: start, bytes */
    std::set<void *> pinned_own;        /* those that cudaMallocHost allocated */
    std::map<uintptr_t, cudaMemPool_t> pool_of;
    std::set<const void *> freeing; /* cudaFreeAsync was called, and the stream has not reached it */

    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::set<cudaMemPool_t> pools;
    std::set<cudaMemPool_t> dying; /* destroyed, with memory that is not freed yet */
    std::set<cudaGraph_t> graphs;
    std::set<cudaGraphExec_t> execs;
    std::vector<CaptureRef> captures; /* in progress */

    /* the engine */
    std::deque<ItemRef> ready;
    std::thread thread;
    std::condition_variable wake;    /* for the engine: there may be work */
    std::condition_variable changed; /* for host threads: an item is done, or the engine stopped */
    unsigned waits = 0;              /* host threads that wait for items that are not done */
    unsigned allowance = 0;          /* shuffle: items that may run although no thread waits */
    unsigned idle_turns = 0;         /* consecutive items that returned "later" */
    bool running = false, stop = false;

    /* counts */
    std::map<std::string, unsigned long> calls;
    std::vector<Fault> faults;
    unsigned long kernels = 0, allocations = 0, host_waits = 0;
};

using Guard = std::unique_lock<std::mutex>;

/* The state, created at the first call. */
State &state();
/* In the child of a process that has used CUDA: no call works there. */
bool forked_too_late();

/* settings.cpp; with the lock held */
Settings read_settings();
std::vector<Fault> read_faults(const char *text);
cudaError_t count_call(State &s, const char *function);
uint64_t next_random(State &s);
bool breaks_context(cudaError_t error);

/* engine.cpp; with the lock held */
ItemRef add_item(State &s, Task task, const std::vector<ItemRef> &after);
void count_kernel(State &s, Item &item);
void wait_for(State &s, Guard &guard, const ItemRef &item);
void let_run(State &s, Guard &guard, const ItemRef &goal);
void wait_for_device(State &s, Guard &guard, int device);
void close_if_idle(State &s, Guard &guard);
void stop_engine(State &s);

/* streams.cpp; with the lock held. The handle's stream (the current device's legacy stream if NULL), or nullptr if
 * there is none */
cudaStream_t find_stream(State &s, cudaStream_t handle);
cudaError_t append(State &s, cudaStream_t stream, Task task, ItemRef *out);

/* capture.cpp; with the lock held */
cudaError_t invalidate(cudaStream_t stream, cudaError_t why);
cudaError_t capture_task(cudaStream_t stream, const Task &task);
cudaError_t capture_record(cudaStream_t stream, cudaEvent_t event);
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event);
cudaError_t refuse_while_capturing(State &s);
void leave_capture(State &s, Capture &capture);

/* memory.cpp, pools.cpp; with the lock held */
bool is_pinned(State &s, const void *address, size_t nbytes);
bool touches_pinned(State &s, const void *address);
/* Whether it may be freed; sets *nbytes to the requested size. */
bool begins_allocation(State &s, const void *memory, int *device, size_t *nbytes);
void release_device_memory(State &s, void *memory);
void *allocate_device_memory(State &s, Guard &guard, int device, size_t nbytes);

} // namespace cuda_on_cpu

/* --- the types behind the handles --------------------------------------------------------------------------------- */

struct CUstream_st {
    int device;
    cuda_on_cpu::ItemRef tail;       /* the last item; NULL if there never was one */
    cuda_on_cpu::CaptureRef capture; /* NULL: none */
    cuda_on_cpu::Nodes front;        /* nodes that the next one follows */
};

struct CUevent_st {
    int device;
    unsigned flags;
    cuda_on_cpu::ItemRef latest;     /* its latest record, if outside of captures */
    cuda_on_cpu::CaptureRef capture; /* that of the latest record; NULL: none */
    cuda_on_cpu::Nodes front;
};

struct CUgraphNode_st {
    cuda_on_cpu::Task task;
    cuda_on_cpu::Nodes after;
};

struct CUgraph_st {
    std::deque<CUgraphNode_st> nodes;
};

struct CUgraphExec_st {
    std::deque<CUgraphNode_st> nodes;
    cuda_on_cpu::ItemRef last; /* the end of its latest launch: launches of one graph follow one another */
};

struct CUmemPoolHandle_st {
    int device;
    size_t used_nbytes, reserved_nbytes, release_threshold;
    std::vector<cuda_on_cpu::ItemRef> frees; /* of cudaFreeAsync, possibly not done yet */
};

#endif
