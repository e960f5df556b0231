/* context — a process that holds a context on the GPU open and does nothing. Without one the driver may power the GPU
 * down between two processes, and each process then waits 1 to 3 s for the GPU's initialization. The holder is a child
 * that the kernel kills when this process ends, in whatever way; it also polls its parent. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "labs/bench/gpu_check/gpu_check.h"

enum { OPEN_MS = 30000 };

static pid_t holder = -1;

ls_status gpu_check_part_hold(gpu_check *check) {
    pid_t parent = getppid();
    ls_device *device;
    ls_status status = gpu_check_open(check, false, &device);
    if (status != LS_OK) return status;
    printf("held\n");
    fflush(stdout);
    while (getppid() == parent) sleep(1);
    ls_device_close(device);
    return LS_OK;
}

static void become(const gpu_check *check, const char *path, pid_t parent, int out) {
    char gpu[16];
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    snprintf(gpu, sizeof gpu, "%d", check->gpu);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(nothing, STDERR_FILENO) >= 0)
        execl(path, path, "--part", "hold", "--gpu", gpu, (char *)NULL);
    _exit(127);
}

void gpu_check_hold(gpu_check *check) {
    static char path[BENCH_PATH_CAPACITY];
    int ends[2];
    char word;
    double begin_us = ls_now_us();
    if (bench_find_program(path, "gpu_check") != LS_OK || pipe2(ends, O_CLOEXEC) < 0) return;
    pid_t parent = getpid();
    fflush(NULL);
    holder = fork();
    if (holder == 0) become(check, path, parent, ends[1]);
    close(ends[1]);
    struct pollfd ready = {.fd = ends[0], .events = POLLIN};
    bool held = holder > 0 && poll(&ready, 1, OPEN_MS) == 1 && read(ends[0], &word, 1) == 1;
    close(ends[0]);
    gpu_check_say(check, "an idle context", held ? GPU_CHECK_HELD : GPU_CHECK_NOT_RUN, (ls_now_us() - begin_us) * 1e-6,
                  NULL, held ? "" : "it cannot be held open; each process starts as the first one");
}

void gpu_check_let_go(void) {
    if (holder <= 0) return;
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    holder = -1;
}
