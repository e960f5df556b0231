/* A grid of CUDA threads on one CPU thread.
 *
 *   idea      Blocks run one after the other. A block's threads run on fibres (threads_fibre.h), and a fibre is
 *             switched only where a thread must wait, in a barrier or a shuffle. The switch continues with the first
 *             thread, in the requested order, that can run: one that was waiting, on its fibre, or a new one, on a
 *             spare fibre. A fibre whose thread has left the kernel takes the next thread in the same way. So a kernel
 *             without barriers is a loop on one fibre, and one with barriers needs a fibre for each thread of the
 *             block.
 *   order     The first thread in the order runs as far ahead of all others as barriers allow. That is the worst that a
 *             GPU could do to a kernel that lacks a barrier: in ascending order thread 0 reads a value that thread 1
 *             has not yet written, in descending order the last thread reads one that the first has not. A random order
 *             is drawn for each block.
 *   warps     32 consecutive threads. A lane that shuffles stores its value and waits; the last lane of the mask gives
 *             every lane the value that it requested. Lanes that have left the kernel, or do not exist, count as
 *             absent.
 *   cost      about 8 ns for a thread, 40 ns for each of its waits (4 times as much with the address sanitizer)
 *   fails     when no thread can run although threads are left, or threads are at different barriers, the grid ends
 *             there: run_grid reports which threads wait where for which. The fibres of that block are cleared. */
#include "tests/cuda_on_cpu/threads.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/cuda_on_cpu/threads_fibre.h"

/* threadIdx and so on, as a kernel sees them: constants for the kernel (cuda_runtime.h), since each thread has its
 * own. */
uint3 cuda_on_cpu_now_thread __asm__("cuda_on_cpu_thread_index");
uint3 cuda_on_cpu_now_block __asm__("cuda_on_cpu_block_index");
dim3 cuda_on_cpu_now_block_dim __asm__("cuda_on_cpu_block_dim");
dim3 cuda_on_cpu_now_grid_dim __asm__("cuda_on_cpu_grid_dim");

namespace cuda_on_cpu {

namespace {

constexpr unsigned LANES = 32;
constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned NOBODY = MAX_THREADS;

enum class State : uint8_t { fresh, running, at_barrier, in_warp, left };

struct Thread {
    Fibre *fibre;     /* from its start to its end */
    const Site *site; /* where it waits: on its stack, as long as it does */
    Exchange kind;
    unsigned mask, argument;
    int width;
    uint64_t value; /* the value that it gives, and then the one that it gets */
};

struct Warp {
    unsigned there, waiting; /* lanes that have not left; those of them that wait in an exchange */
};

struct Block {
    const std::function<void()> *body;
    unsigned count; /* threads */
    unsigned there; /* that have not left */
    unsigned now;   /* the running one */
    unsigned at_barrier, first_at_barrier;
    uint64_t runnable[MAX_THREADS / 64]; /* bit r: the thread of rank r can run */
    unsigned lowest;                     /* no word before it has a bit set */
    unsigned thread_of_rank[MAX_THREADS], rank_of_thread[MAX_THREADS];
    State state[MAX_THREADS];
    Thread threads[MAX_THREADS];
    Warp warps[MAX_THREADS / LANES];
    std::string failure;
};

/* Never destroyed: the engine may still run when the process ends. */
Block &block = *new Block();

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char *pattern, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

/* --- scheduling --------------------------------------------------------------------------------------------------- */

void make_runnable(unsigned thread) {
    unsigned rank = block.rank_of_thread[thread];
    block.runnable[rank / 64] |= uint64_t{1} << rank % 64;
    block.lowest = std::min(block.lowest, rank / 64);
}

void make_all_runnable() {
    block.lowest = 0;
    for (unsigned first = 0; first < block.count; first += 64) {
        block.runnable[first / 64] =
            block.count - first >= 64 ? UINT64_MAX : (uint64_t{1} << (block.count - first)) - 1;
    }
}

unsigned first_runnable() {
    for (; block.lowest < MAX_THREADS / 64; block.lowest++) {
        uint64_t word = block.runnable[block.lowest];
        if (word) return block.thread_of_rank[block.lowest * 64 + static_cast<unsigned>(__builtin_ctzll(word))];
    }
    return NOBODY;
}

uint3 index_of(unsigned thread) {
    const dim3 &size = cuda_on_cpu_now_block_dim;
    if (size.x == block.count) return uint3{thread, 0, 0};
    return uint3{thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

/* The calling fibre becomes this thread. */
void become(unsigned thread) {
    unsigned rank = block.rank_of_thread[thread];
    block.runnable[rank / 64] &= ~(uint64_t{1} << rank % 64);
    block.state[thread] = State::running;
    block.now = thread;
    cuda_on_cpu_now_thread = index_of(thread);
}

void complete_exchanges(unsigned warp);

void leave(unsigned thread) {
    block.state[thread] = State::left;
    block.threads[thread].fibre = nullptr;
    block.there--;
    Warp &warp = block.warps[thread / LANES];
    warp.there &= ~(1u << thread % LANES);
    if (warp.waiting) complete_exchanges(thread / LANES);
}

/* The body of a fibre: runs one thread after another. Between threads it may be idle for any time. */
void run_threads() {
    for (;;) {
        unsigned next = first_runnable();
        if (next == NOBODY || block.threads[next].fibre) {
            fibre_give(fibre_running(), false);
            fibre_switch(next == NOBODY ? fibre_outside() : block.threads[next].fibre);
            continue;
        }
        block.threads[next].fibre = fibre_running();
        become(next);
        (*block.body)();
        leave(next);
    }
}

/* The calling thread waits until it is the first that can run. */
void wait_for_turn() {
    unsigned self = block.now, next = first_runnable();
    if (next == NOBODY) {
        fibre_switch(fibre_outside()); /* for ever */
    } else if (next != self) {
        Fibre *fibre = block.threads[next].fibre;
        fibre_switch(fibre ? fibre : fibre_take(run_threads));
    }
    become(self);
}

/* Ends the grid from within a thread, which has set block.failure. Its stack must not contain objects with
 * destructors. */
void give_up() { fibre_switch(fibre_outside()); }

/* --- for messages ------------------------------------------------------------------------------------------------- */

std::string name_of(unsigned thread) {
    uint3 index = index_of(thread);
    return format("thread (%u,%u,%u)", index.x, index.y, index.z);
}

std::string name_of(const Site &site) { return format("%s (%s:%d)", site.function, site.file, site.line); }

const char *name_of(Exchange kind) {
    static const char *const names[] = {
        "", "__syncwarp", "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"};
    return names[static_cast<int>(kind)];
}

/* What a thread is doing while others wait for it. */
std::string doing(unsigned thread) {
    const Thread &t = block.threads[thread];
    switch (block.state[thread]) {
    case State::left: return name_of(thread) + " has left the kernel";
    case State::at_barrier: return name_of(thread) + " waits in __syncthreads of " + name_of(*t.site);
    case State::in_warp:
        return name_of(thread) + format(" waits in %s with mask 0x%x of ", name_of(t.kind), t.mask) + name_of(*t.site);
    default: return name_of(thread) + " has not come";
    }
}

std::string name_of_block() {
    const uint3 &b = cuda_on_cpu_now_block;
    return format(", block (%u,%u,%u): ", b.x, b.y, b.z);
}

std::string who_waits() {
    std::string where = name_of_block();
    if (block.at_barrier > 0) {
        unsigned missing = 0;
        while (block.state[missing] == State::at_barrier) missing++;
        return name_of(*block.threads[block.first_at_barrier].site) + where +
               format("%u of %u threads wait in __syncthreads, but ", block.at_barrier, block.count) + doing(missing);
    }
    for (unsigned t = 0; t < block.count; t++) {
        if (block.state[t] != State::in_warp) continue;
        const Thread &waiting = block.threads[t];
        unsigned lanes = waiting.mask & block.warps[t / LANES].there, missing = 0;
        for (unsigned l = 0; l < LANES; l++) {
            unsigned other = t / LANES * LANES + l;
            bool comes = (lanes >> l & 1) == 0 ||
                         (block.state[other] == State::in_warp && block.threads[other].mask == waiting.mask &&
                          block.threads[other].kind == waiting.kind);
            if (!comes) missing = other;
        }
        return name_of(*waiting.site) + where + doing(t) + " for a lane that does not come: " + doing(missing);
    }
    return "a kernel" + where + "no thread can run";
}

} // namespace

/* --- waiting for each other --------------------------------------------------------------------------------------- */

void block_barrier(const Site &site) {
    unsigned self = block.now;
    Thread &thread = block.threads[self];
    thread.site = &site;
    block.state[self] = State::at_barrier;
    if (block.at_barrier++ == 0) block.first_at_barrier = self;
    const Site &first = *block.threads[block.first_at_barrier].site;
    if (first.line != site.line || (first.file != site.file && std::strcmp(first.file, site.file) != 0)) {
        block.failure = name_of(site) + name_of_block() +
                        "threads of a block are at different barriers: " + doing(self) + ", " +
                        doing(block.first_at_barrier);
        give_up();
    }
    if (block.at_barrier == block.count) {
        block.at_barrier = 0;
        make_all_runnable();
    }
    wait_for_turn();
}

namespace {

/* The lane whose value `lane` gets: itself if the requested one is outside its part of the warp. */
unsigned source_of(const Thread &thread, unsigned lane) {
    unsigned width = static_cast<unsigned>(thread.width), first = lane & ~(width - 1), last = first + width - 1;
    switch (thread.kind) {
    case Exchange::index: return first + (thread.argument & (width - 1));
    case Exchange::up: return thread.argument <= lane - first ? lane - thread.argument : lane;
    case Exchange::down: return thread.argument <= last - lane ? lane + thread.argument : lane;
    case Exchange::exclusive_or: return (lane ^ thread.argument) <= last ? lane ^ thread.argument : lane;
    default: return lane;
    }
}

/* Whether all lanes that `thread` waits for are waiting for the same exchange; if so they get their values and can
 * run. */
bool complete_exchange(unsigned thread) {
    Warp &warp = block.warps[thread / LANES];
    Thread *lanes = block.threads + thread / LANES * LANES;
    const Thread &asking = block.threads[thread];
    unsigned group = asking.mask & warp.there;
    if ((group & ~warp.waiting) != 0) return false;
    uint64_t given[LANES];
    for (unsigned l = 0; l < LANES; l++) {
        given[l] = UINT64_MAX;
        if ((group >> l & 1) == 0) continue;
        if (lanes[l].mask != asking.mask || lanes[l].kind != asking.kind) return false;
        given[l] = lanes[l].value;
    }
    for (unsigned l = 0; l < LANES; l++) {
        if ((group >> l & 1) == 0) continue;
        lanes[l].value = given[source_of(lanes[l], l) % LANES];
        make_runnable(thread / LANES * LANES + l);
    }
    warp.waiting &= ~group;
    return true;
}

/* A lane has left: others may have waited only for it. */
void complete_exchanges(unsigned warp) {
    for (unsigned waiting = block.warps[warp].waiting; waiting; waiting &= waiting - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(waiting));
        if (block.warps[warp].waiting >> lane & 1) complete_exchange(warp * LANES + lane);
    }
}

} // namespace

uint64_t warp_exchange(Exchange kind, unsigned mask, uint64_t value, unsigned argument, int width, const Site &site) {
    unsigned self = block.now, lane = self % LANES;
    Thread &thread = block.threads[self];
    thread.site = &site;
    thread.kind = kind;
    thread.mask = mask;
    thread.argument = argument;
    thread.width = width;
    thread.value = value;
    block.state[self] = State::in_warp;
    bool is_width = width >= 1 && width <= static_cast<int>(LANES) && (width & (width - 1)) == 0;
    if ((mask >> lane & 1) == 0 || !is_width) {
        block.failure =
            name_of(site) + name_of_block() + doing(self) +
            (is_width ? ", which does not name its own lane" : format(": %d is no width of a shuffle", width));
        give_up();
    }
    block.warps[self / LANES].waiting |= 1u << lane;
    complete_exchange(self);
    wait_for_turn();
    return thread.value;
}

/* --- grids -------------------------------------------------------------------------------------------------------- */

namespace {

/* A sequence of well-mixed random numbers (splitmix64). */
uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

template <class T> void shuffle_order(T *order, uint64_t count, uint64_t *random) {
    for (uint64_t i = count; i > 1; i--) std::swap(order[i - 1], order[next_random(random) % i]);
}

void order_threads(ThreadOrder::Kind kind, uint64_t *random) {
    for (unsigned r = 0; r < block.count; r++) {
        block.thread_of_rank[r] = kind == ThreadOrder::descending ? block.count - 1 - r : r;
    }
    if (kind == ThreadOrder::random) shuffle_order(block.thread_of_rank, block.count, random);
    for (unsigned r = 0; r < block.count; r++) block.rank_of_thread[block.thread_of_rank[r]] = r;
}

bool run_block(uint64_t number) {
    const dim3 &grid = cuda_on_cpu_now_grid_dim;
    cuda_on_cpu_now_block =
        uint3{static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
              static_cast<unsigned>(number / grid.x / grid.y)};
    block.there = block.count;
    block.at_barrier = 0;
    std::fill_n(block.state, block.count, State::fresh);
    make_all_runnable();
    for (unsigned first = 0; first < block.count; first += LANES) {
        unsigned lanes = std::min(block.count - first, LANES);
        block.warps[first / LANES] = Warp{static_cast<unsigned>((uint64_t{1} << lanes) - 1), 0};
    }
    fibre_switch(fibre_take(run_threads));
    if (block.there == 0 && block.failure.empty()) return true;
    if (block.failure.empty()) block.failure = who_waits();
    for (unsigned t = 0; t < block.count; t++) {
        if (block.threads[t].fibre) fibre_give(block.threads[t].fibre, true);
        block.threads[t].fibre = nullptr;
    }
    std::fill(std::begin(block.runnable), std::end(block.runnable), 0);
    return false;
}

} // namespace

void forget_grid() {
    if (!fibre_forget_all()) return;
    for (Thread &thread : block.threads) thread.fibre = nullptr;
    std::fill(std::begin(block.runnable), std::end(block.runnable), 0);
}

bool run_grid(const Grid &grid, const std::function<void()> &thread, ThreadOrder order, uint64_t number,
              std::string *why) {
    cuda_on_cpu_now_grid_dim = grid.blocks;
    cuda_on_cpu_now_block_dim = grid.threads;
    block.body = &thread;
    block.count = grid.threads.x * grid.threads.y * grid.threads.z;
    block.failure.clear();
    uint64_t blocks = uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
    uint64_t random = order.seed ^ (number + 1) * 0x9e3779b97f4a7c15u;
    std::vector<uint64_t> places(order.kind == ThreadOrder::random ? blocks : 0);
    std::iota(places.begin(), places.end(), uint64_t{0});
    shuffle_order(places.data(), places.size(), &random);
    order_threads(order.kind, &random);
    for (uint64_t b = 0; b < blocks; b++) {
        if (order.kind == ThreadOrder::random && b > 0) order_threads(order.kind, &random);
        uint64_t place = order.kind == ThreadOrder::ascending    ? b
                         : order.kind == ThreadOrder::descending ? blocks - 1 - b
                                                                 : places[b];
        if (run_block(place)) continue;
        *why = block.failure;
        return false;
    }
    return true;
}

} // namespace cuda_on_cpu
