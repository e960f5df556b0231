/* The machine that a test simulates, for tests of "CUDA on the CPU" itself. All functions are static: helper files are
 * linked into tests that have no CUDA at all. */
#ifndef TESTS_CUDA_MACHINE_H
#define TESTS_CUDA_MACHINE_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_on_cpu.h>
#include <cuda_runtime_api.h>

#define MACHINE_NBYTES ((size_t)1 << 20)

#define OK(call) assert_int_equal((call), cudaSuccess)
#define FAILS(code, call) assert_string_equal(cudaGetErrorName(call), cudaGetErrorName(code))

/* A new machine of so many GPUs of 1 MiB, with CUDA_ON_CPU_STREAMS=`streams`: "eager", "shuffle:7". */
static inline void machine(int devices, const char *streams) {
    (void)cudaGetLastError(); /* clear the last test's error */
    char count[16], memory[32];
    snprintf(count, sizeof count, "%d", devices);
    snprintf(memory, sizeof memory, "%zu", MACHINE_NBYTES);
    setenv("CUDA_ON_CPU_DEVICES", count, 1);
    setenv("CUDA_ON_CPU_MEMORY", memory, 1);
    setenv("CUDA_ON_CPU_STREAMS", streams, 1);
    unsetenv("CUDA_ON_CPU_DRIVER");
    unsetenv("CUDA_ON_CPU_FAIL");
    unsetenv("CUDA_VISIBLE_DEVICES");
    cuda_on_cpu_restart();
}

static inline void shuffled_machine(int devices, int seed) {
    char streams[32];
    snprintf(streams, sizeof streams, "shuffle:%d", seed);
    machine(devices, streams);
}

/* Whether a child process that calls `deed` dies (by a signal, or because a sanitizer ends it). Its stderr is
 * discarded. */
static inline int dies(void (*deed)(void *), void *argument) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        for (int i = 0; i < 3; i++) signal((int[]){SIGSEGV, SIGBUS, SIGABRT}[i], SIG_DFL); /* reset cmocka's handlers */
        deed(argument);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return status != 0;
}

#endif
