/* attempt — runs a probe, confined.
 *   idea  : the probe gets a process group and a clean environment of its own, a read-only folder, and limits: memory,
 *           size of files, open files. It confines itself before it calls a student's code (probe/confine.h). Its
 *           observations are in a file that is read when it has ended; its output does not count
 *   ends  : by itself, or by SIGKILL once it hangs. Processor time used by other programs does not count against it. A
 *           run that hung only by the clock is repeated once. Processes that it leaves behind are reparented to this
 *           process, its subreaper, and killed. The file is unlinked, so nothing is left if this process is killed
 *   memory: 1 GiB of address space, which a body that allocates without end fills in a second or two. AddressSanitizer
 *           maps terabytes, so its own limit is used instead */
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"

enum { MOST_SEEN_BYTES = 8 << 20, MOST_DEADLINES = 10, STANDSTILL_PART = 1000 };

static void limit(int what, rlim_t most) { (void)!setrlimit(what, &(struct rlimit){most, most}); }

/* The name of the file of observations, in this process and in its children. */
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

/* Keeps the end of the output. False: end of file. */
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

/* --- whether it hangs --------------------------------------------------------------------------------------------- */

struct patience {
    pid_t pid;
    int seen;
    double deadline_us, begin_us;
    double progress_us;  /* when it last made progress: wrote a line, or computed for a while */
    double processor_us; /* the processor time used by then */
    off_t seen_bytes;
};

/* Processor time of all its threads; 0 if unknown. */
static double processor_us(pid_t pid) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
    return (double)used.tv_sec * 1e6 + (double)used.tv_nsec * 1e-3;
}

typedef enum patience_end { PATIENCE_LASTS, PATIENCE_USED_UP, PATIENCE_CLOCK } patience_end;

/* PATIENCE_USED_UP: it computed for the whole deadline. PATIENCE_CLOCK: it made no progress for as long, or many
 * deadlines have passed. A wait that wakes up now and then is no progress. Parallel threads use more than one
 * processor, so the deadline must have passed by the clock, too. */
static patience_end look_for_progress(struct patience *p) {
    struct stat seen;
    double now_us = ls_now_us(), used_us = processor_us(p->pid);
    if (fstat(p->seen, &seen) != 0) seen.st_size = 0;
    if (used_us - p->processor_us > p->deadline_us / STANDSTILL_PART || seen.st_size > p->seen_bytes) {
        p->progress_us = now_us;
        p->processor_us = used_us;
        p->seen_bytes = seen.st_size;
    }
    if (now_us - p->begin_us < p->deadline_us) return PATIENCE_LASTS;
    if (used_us >= p->deadline_us) return PATIENCE_USED_UP;
    bool stands_still = now_us - p->progress_us >= p->deadline_us;
    return stands_still || now_us - p->begin_us >= MOST_DEADLINES * p->deadline_us ? PATIENCE_CLOCK : PATIENCE_LASTS;
}

/* Waits for the process and reads its output; kills it once it hangs. */
static patience_end watch(attempt *a, struct patience p, int fd) {
    size_t length = 0;
    bool open = true;
    patience_end end = PATIENCE_LASTS;
    for (int status;;) {
        if (waitpid(p.pid, &status, WNOHANG) == p.pid) {
            a->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            a->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
            break;
        }
        if (end == PATIENCE_LASTS) end = look_for_progress(&p);
        if (end != PATIENCE_LASTS && !a->timed_out) {
            a->timed_out = true;
            kill(-p.pid, SIGKILL);
            kill(p.pid, SIGKILL);
        }
        struct pollfd output = {.fd = open ? fd : -1, .events = POLLIN};
        if (poll(&output, 1, 5) > 0) open = read_said(a, &length, fd);
    }
    while (open && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0) open = read_said(a, &length, fd);
    return end;
}

/* --- a run --------------------------------------------------------------------------------------------------------- */

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
    if (pipe2(ends, O_CLOEXEC) != 0) return ls_fail(LS_ERR_SYSTEM, "cannot make a pipe: %s", strerror(errno));
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

static ls_status run_once(attempt *out, const attempt_request *request, patience_end *end) {
    *out = (attempt){0};
    *end = PATIENCE_LASTS;
    char name[32];
    pid_t pid;
    int fd, seen = memfd_create("seen", MFD_CLOEXEC);
    if (seen < 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot make a file for the output of %s: %s", request->check, strerror(errno));
    ls_status status = start(&pid, &fd, request, seen);
    if (status == LS_OK) {
        size_t nbytes;
        double now_us = ls_now_us();
        struct patience patience = {.pid = pid,
                                    .seen = seen,
                                    .deadline_us = request->deadline_s * 1e6,
                                    .begin_us = now_us,
                                    .progress_us = now_us};
        *end = watch(out, patience, fd);
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

ls_status attempt_run(attempt *out, const attempt_request *request) {
    patience_end end;
    ls_status status = run_once(out, request, &end);
    if (status != LS_OK || end != PATIENCE_CLOCK) return status;
    attempt_close(out);
    return run_once(out, request, &end);
}

void attempt_close(attempt *a) {
    free(a->seen);
    *a = (attempt){0};
}
