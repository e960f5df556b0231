/* Fibres: stacks and the switch between them.
 *
 *   stack     256 KiB of address space with an inaccessible page below, so that an overflow is a crash and not a
 *             corruption. Only pages that were used are backed by memory. Stacks are never freed: the next block of
 *             1024 threads needs as many.
 *   colour    the tops of stacks are shifted by a few cache lines each, since otherwise the same lines of all stacks
 *             would compete for one cache set
 *   switch    on x86-64 a dozen instructions: the callee-saved registers are pushed onto the stack, and the stack
 *             pointers are exchanged. Rounding modes and signal masks are not switched: kernels change neither.
 *             Elsewhere swapcontext, with two system calls.
 *   checkers  the address sanitizer is told which stack is in use, and the thread sanitizer which fibre runs; a switch
 *             orders memory for the latter, so that fibres do not race with each other
 *   fails     aborts, if there is no more address space */
#include "tests/cuda_on_cpu/threads_fibre.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBRES_WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBRES_WITH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBRES_WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBRES_WITH_TSAN 1
#endif
#endif
#ifdef FIBRES_WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBRES_WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__) || defined(CUDA_ON_CPU_UCONTEXT)
#define FIBRES_WITH_UCONTEXT 1
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

struct Fibre {
#ifdef FIBRES_WITH_UCONTEXT
    ucontext_t context;
#endif
    void *stack_pointer; /* while it does not run */
    char *stack;         /* null: the thread's own stack, whose address is known once a fibre has switched from it */
    size_t stack_nbytes;
    void *fake_stack; /* the address sanitizer's */
    void *tsan;       /* the thread sanitizer's handle */
    void (*loop)();
    unsigned number;
};

namespace {

constexpr size_t STACK_NBYTES = 256 << 10;
constexpr unsigned COLOURS = 32;
constexpr size_t COLOUR_NBYTES = 128;

Fibre outside;
Fibre *running = &outside;
Fibre *before; /* the fibre left at the last switch */
/* Never destroyed: the engine may still run when the process ends. */
std::vector<Fibre *> &idle = *new std::vector<Fibre *>, &all = *new std::vector<Fibre *>;

/* Runs first after a switch, on the new stack. */
void arrived() {
#ifdef FIBRES_WITH_ASAN
    const void *stack = nullptr;
    size_t nbytes = 0;
    __sanitizer_finish_switch_fiber(running->fake_stack, &stack, &nbytes);
    before->stack = static_cast<char *>(const_cast<void *>(stack));
    before->stack_nbytes = nbytes;
#endif
}

[[noreturn]] void enter() {
    arrived();
    running->loop();
    std::fputs("cuda_on_cpu: a fibre's loop returned\n", stderr);
    std::abort();
}

#ifdef FIBRES_WITH_UCONTEXT

void exchange_stacks(Fibre *from, Fibre *to) { swapcontext(&from->context, &to->context); }

void prepare(Fibre *fibre) {
    getcontext(&fibre->context);
    fibre->context.uc_stack.ss_sp = fibre->stack;
    fibre->context.uc_stack.ss_size = fibre->stack_nbytes - fibre->number % COLOURS * COLOUR_NBYTES;
    fibre->context.uc_link = nullptr;
    makecontext(&fibre->context, enter, 0);
}

#else

/* cuda_on_cpu_switch(&old stack pointer, new stack pointer) */
extern "C" void cuda_on_cpu_switch(void **old, void *fresh);
asm(R"(
    .text
    .hidden cuda_on_cpu_switch
    .globl cuda_on_cpu_switch
    .type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cuda_on_cpu_switch, .-cuda_on_cpu_switch
)");

void exchange_stacks(Fibre *from, Fibre *to) { cuda_on_cpu_switch(&from->stack_pointer, to->stack_pointer); }

/* As if it had been left just before enter(): six registers, all 0, and the return address. Above that is a return
 * address of 0, where a stack walk stops; the stack is then aligned as at a call. */
void prepare(Fibre *fibre) {
    auto top = reinterpret_cast<uintptr_t>(fibre->stack + fibre->stack_nbytes);
    top -= fibre->number % COLOURS * COLOUR_NBYTES;
    auto *words = reinterpret_cast<void **>(top) - 8;
    for (int w = 0; w < 8; w++) words[w] = nullptr;
    words[6] = reinterpret_cast<void *>(enter);
    fibre->stack_pointer = words;
}

#endif

Fibre *make() {
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *memory = mmap(nullptr, page + STACK_NBYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
        std::fprintf(stderr, "cuda_on_cpu: no memory for the stack of fibre %zu\n", all.size());
        std::abort();
    }
    auto *fibre = new Fibre();
    fibre->stack = static_cast<char *>(memory) + page;
    fibre->stack_nbytes = STACK_NBYTES;
    fibre->number = static_cast<unsigned>(all.size());
    all.push_back(fibre);
    return fibre;
}

} // namespace

Fibre *fibre_outside() { return &outside; }

Fibre *fibre_running() { return running; }

bool fibre_forget_all() {
    if (running == &outside) return false;
    running = &outside;
    idle.clear();
    return true;
}

Fibre *fibre_take(void (*loop)()) {
    Fibre *fibre;
    if (idle.empty()) {
        fibre = make();
    } else {
        fibre = idle.back();
        idle.pop_back();
        if (fibre->loop == loop) return fibre; /* its thread waits there */
    }
    fibre->loop = loop;
#ifdef FIBRES_WITH_TSAN
    if (!fibre->tsan) fibre->tsan = __tsan_create_fiber(0);
#endif
    prepare(fibre);
    return fibre;
}

void fibre_give(Fibre *fibre, bool stopped_inside) {
    if (stopped_inside) {
        fibre->loop = nullptr;
        fibre->fake_stack = nullptr;
#ifdef FIBRES_WITH_ASAN
        __asan_unpoison_memory_region(fibre->stack, fibre->stack_nbytes);
#endif
#ifdef FIBRES_WITH_TSAN
        __tsan_destroy_fiber(fibre->tsan);
        fibre->tsan = nullptr;
#endif
    }
    idle.push_back(fibre);
}

void fibre_switch(Fibre *to) {
    Fibre *from = running;
    before = from;
    running = to;
#ifdef FIBRES_WITH_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_nbytes);
#endif
#ifdef FIBRES_WITH_TSAN
    if (from == &outside) outside.tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    exchange_stacks(from, to);
    arrived();
}

} // namespace cuda_on_cpu
