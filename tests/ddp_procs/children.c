#define _GNU_SOURCE
#include "tests/ddp_procs/children.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/base/test.h"

pid_t start_child(int (*body)(void *argument), void *argument) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    _exit(body(argument));
}

int finish_child(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* As in /proc/PID/stat; X if there is no such process. */
static char state_of(pid_t pid) {
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return 'X';
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
    fclose(file);
    return state;
}

/* Z: it has ended, and only waits until its new parent, init, asks for its status, which may take seconds. */
void await_gone(pid_t pid) {
    for (double until_us = ls_now_us() + 20e6; ls_now_us() < until_us; usleep(5000))
        if (strchr("XZ", state_of(pid))) return;
    fail_msg("process %d is left", (int)pid);
}

void await_state(pid_t pid, char state) {
    char found = state_of(pid);
    for (double until_us = ls_now_us() + 20e6; found != state && found != 'X' && ls_now_us() < until_us; usleep(2000))
        found = state_of(pid);
    if (found != state) fail_msg("process %d is in state %c, not %c", (int)pid, found, state);
}
