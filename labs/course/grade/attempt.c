/* attempt — a probe as a guest.
 *   idea  : the probe gets a process group and a clean environment of its own, a folder where nobody can write, and
 *           limits: memory, size of files, open files. It confines itself before it calls what a student wrote
 *           (probe/confine.h). What it saw is in a file that is read when it has ended; what it printed proves nothing
 *   ends  : by itself, or by SIGKILL at the deadline. What it has started and left behind comes to this process, its
 *           reaper, and is killed. The file has no name, so nothing is left if this process is killed itself
 *   memory: 1 GiB of address space, which a body that allocates without end has filled in a second or two. Under
 *           AddressSanitizer, which maps terabytes, its own limit takes that place */
#define _GNU_SOURCE
#include "labs/course/grade/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"

enum { MOST_SEEN_BYTES = 8 << 20 };

static void limit(int what, rlim_t most) { (void)!setrlimit(what, &(struct rlimit){most, most}); }

/* The file of what is seen, in this process and in its children. */
static void name_seen(char name[32], int seen) { snprintf(name, 32, "/proc/self/fd/%d", seen); }

/* In the child; never returns. */
static void become(const attempt_request *request, int seen, int output) {
    char program[PATH_MAX], check[128], seed[32], out[64], name[32];
    name_seen(name, seen);
    snprintf(out, sizeof out, "--out=%s", name);
    snprintf(check, sizeof check, "--check=%s", request->check);
    snprintf(seed, sizeof seed, "--seed=%lld", (long long)request->seed);
    if (!realpath(request->program, program)) _exit(126);
    char *const argv[] = {program, check, seed, out, NULL};
    char *const plain[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    char *const asan[] = {(char *)"PATH=/usr/bin:/bin",
                          (char *)"ASAN_OPTIONS=detect_leaks=0:hard_rss_limit_mb=3000:abort_on_error=0",
                          (char *)"UBSAN_OPTIONS=halt_on_error=1", NULL};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    if (chdir("/proc") != 0 || fcntl(seen, F_SETFD, 0) != 0) _exit(126);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, MOST_SEEN_BYTES);
    limit(RLIMIT_NOFILE, 256);
    if (!request->asan) limit(RLIMIT_AS, (rlim_t)1 << 30);
    execve(program, argv, request->asan ? asan : plain);
    _exit(126);
}

/* Keeps the end of what comes. False: that was all. */
static bool read_said(attempt *a, size_t *length, int fd) {
    char part[1024];
    ssize_t got = read(fd, part, sizeof part);
    if (got <= 0) return got < 0 && (errno == EINTR || errno == EAGAIN);
    size_t room = sizeof a->said - 1, keep = (size_t)got;
    if (*length + keep > room) {
        size_t drop = *length + keep - room;
        memmove(a->said, a->said + drop, *length - drop);
        *length -= drop;
    }
    memcpy(a->said + *length, part, keep);
    *length += keep;
    a->said[*length] = '\0';
    return true;
}

/* Waits for the process, reading what it prints; at the deadline it is killed. */
static void watch(attempt *a, pid_t pid, int fd, double deadline_s) {
    double until_us = ls_now_us() + deadline_s * 1e6;
    size_t length = 0;
    bool open = true;
    for (int status;;) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            a->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            a->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
            break;
        }
        if (!a->timed_out && ls_now_us() >= until_us) {
            a->timed_out = true;
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
        }
        struct pollfd output = {.fd = open ? fd : -1, .events = POLLIN};
        if (poll(&output, 1, 5) > 0) open = read_said(a, &length, fd);
    }
    while (open && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0) open = read_said(a, &length, fd);
}

/* Orphans of the probe are children of this process now (PR_SET_CHILD_SUBREAPER). */
static bool kill_orphans(void) {
    char path[64];
    bool any = false;
    for (int tries = 0; tries < 100; tries++) {
        while (waitpid(-1, NULL, WNOHANG) > 0) any = true;
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
        FILE *file = fopen(path, "re");
        int pid = 0, found = 0;
        while (file && fscanf(file, "%d", &pid) == 1) {
            found++;
            kill(pid, SIGKILL);
        }
        if (file) fclose(file);
        if (!found) break;
        any = true;
        usleep(1000);
    }
    return any;
}

static ls_status start(pid_t *pid, int *fd, const attempt_request *request, int seen) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ls_fail(LS_ERR_SYSTEM, "no pipe: %s", strerror(errno));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    *pid = fork();
    if (*pid == 0) become(request, seen, ends[1]);
    close(ends[1]);
    *fd = ends[0];
    fcntl(*fd, F_SETFL, O_NONBLOCK);
    if (*pid > 0) return LS_OK;
    close(*fd);
    return ls_fail(LS_ERR_SYSTEM, "cannot start %s: %s", request->program, strerror(errno));
}

ls_status attempt_run(attempt *out, const attempt_request *request) {
    *out = (attempt){0};
    char name[32];
    pid_t pid;
    int fd, seen = memfd_create("seen", MFD_CLOEXEC);
    if (seen < 0) return ls_fail(LS_ERR_SYSTEM, "no file for what %s sees: %s", request->check, strerror(errno));
    ls_status status = start(&pid, &fd, request, seen);
    if (status == LS_OK) {
        size_t nbytes;
        watch(out, pid, fd, request->deadline_s);
        kill(-pid, SIGKILL);
        out->left_processes = kill_orphans();
        close(fd);
        name_seen(name, seen);
        status = ls_file_read(name, MOST_SEEN_BYTES, &out->seen, &nbytes);
    }
    if (status == LS_OK && out->exit_status == 126) status = ls_fail(LS_ERR_IO, "cannot run %s", request->program);
    close(seen);
    return status;
}

void attempt_close(attempt *a) {
    free(a->seen);
    *a = (attempt){0};
}
