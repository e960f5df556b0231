/* child: fork, exec, and a poll loop over the child's pipes, a pidfd, which reports the child's exit, and a signalfd,
 * which receives the user's signals to stop. SIGCHLD would not suffice: any other thread of this process may receive
 * it, and CUDA starts some. A child that is to end gets SIGTERM, so that a launcher can end its ranks, and SIGKILL a
 * little later; processes that it leaves behind are reparented to this process, which is a subreaper meanwhile, and are
 * killed. The user's signal is blocked until the child has ended, and then acts on this process. */
#define _GNU_SOURCE
#include "labs/bench/shared/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define GRACE_S 5.0
#define STOP_GRACE_S 1.0 /* short, since the user waits */

enum { EXEC_FAILED_STATUS = 127, COMMAND_CAPACITY = 600, LOOK_MS = 100, CHILDREN_CAPACITY = 4096 };

struct child {
    char *const *argv;
    bench_output *output;
    pid_t pid; /* -1: ended */
    int wait_status;
    int pid_fd, signal_fd, out[2], err[2]; /* pipes: [0] to read; -1: closed */
    sigset_t old_mask;
    int was_subreaper;
    char others[CHILDREN_CAPACITY]; /* other children of this process */
    double deadline_us;
    bool timed_out, ended_here, killed;
    int stop_signal; /* the user's first; 0: none */
};

/* --- what the child says ----------------------------------------------------------------------------------------- */

/* Appends, discarding the older half when the text is full. */
static void keep(char *text, size_t capacity, size_t *nbytes, const char *data, size_t count) {
    if (*nbytes + count >= capacity) {
        size_t kept = *nbytes / 2;
        memmove(text, text + *nbytes - kept, kept);
        *nbytes = kept;
    }
    memcpy(text + *nbytes, data, count);
    *nbytes += count;
    text[*nbytes] = '\0';
}

static void read_pipe(int *fd, char *text, size_t capacity, size_t *nbytes) {
    char data[2048];
    ssize_t got = 0;
    while (*fd >= 0 && (got = read(*fd, data, sizeof data)) > 0) keep(text, capacity, nbytes, data, (size_t)got);
    if (got != 0 || *fd < 0) return;
    close(*fd); /* no writer is left */
    *fd = -1;
}

static void read_pipes(struct child *child) {
    bench_output *output = child->output;
    read_pipe(&child->out[0], output->out, sizeof output->out, &output->out_nbytes);
    read_pipe(&child->err[0], output->err, sizeof output->err, &output->err_nbytes);
}

const char *bench_last_line(char *text) {
    size_t nbytes = strlen(text);
    while (nbytes > 0 && text[nbytes - 1] == '\n') text[--nbytes] = '\0';
    const char *newline = strrchr(text, '\n');
    return newline ? newline + 1 : text;
}

/* The last "error: " line's message, else the last line. */
static const char *message_of(bench_output *output) {
    static const char mark[] = "error: ";
    char *last = NULL;
    for (char *at = output->err; (at = strstr(at, mark)); at += sizeof mark - 1) {
        last = at + sizeof mark - 1;
        char *end = strchr(last, '\n');
        if (!end) break;
        at = end - (sizeof mark - 1);
    }
    if (!last) return output->err_nbytes ? bench_last_line(output->err) : "it said nothing";
    last[strcspn(last, "\n")] = '\0';
    return last;
}

/* The kernel's list of this process's children, "" if there is none: each number between blanks. */
static void list_children(char list[CHILDREN_CAPACITY]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    list[0] = ' ';
    if (!file || !fgets(list + 1, CHILDREN_CAPACITY - 1, file)) list[0] = '\0';
    if (file) fclose(file);
}

/* --- start ------------------------------------------------------------------------------------------------------- */

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void close_all(struct child *child) {
    close_fd(&child->pid_fd);
    close_fd(&child->signal_fd);
    for (int i = 0; i < 2; i++) {
        close_fd(&child->out[i]);
        close_fd(&child->err[i]);
    }
}

/* Restores the state before the child; a signal that is still pending is delivered. */
static void leave(struct child *child) {
    prctl(PR_SET_CHILD_SUBREAPER, child->was_subreaper);
    close_all(child);
    sigprocmask(SIG_SETMASK, &child->old_mask, NULL);
}

/* In the child: async-signal-safe calls only. */
static void become(const struct child *child, pid_t parent) {
    bool ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
                 sigprocmask(SIG_SETMASK, &child->old_mask, NULL) == 0 && dup2(child->out[1], STDOUT_FILENO) >= 0 &&
                 dup2(child->err[1], STDERR_FILENO) >= 0;
    if (ready) execv(child->argv[0], child->argv);
    _exit(EXEC_FAILED_STATUS);
}

/* The signals by which a user stops programs, except those that this process ignores, for instance under nohup. */
static sigset_t stop_signals(void) {
    const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        struct sigaction action;
        if (sigaction(stops[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&signals, stops[i]);
    }
    return signals;
}

static ls_status start(struct child *child) {
    sigset_t signals = stop_signals();
    if (access(child->argv[0], X_OK) < 0) {
        return ls_fail(LS_ERR_IO, "cannot run %s: %s; build it with `make`", child->argv[0], strerror(errno));
    }
    sigprocmask(SIG_BLOCK, &signals, &child->old_mask);
    child->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    bool ready = child->signal_fd >= 0 && pipe2(child->out, O_CLOEXEC) == 0 && pipe2(child->err, O_CLOEXEC) == 0 &&
                 fcntl(child->out[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(child->err[0], F_SETFL, O_NONBLOCK) == 0;
    pid_t parent = getpid();
    list_children(child->others);
    fflush(NULL);
    prctl(PR_GET_CHILD_SUBREAPER, &child->was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (ready) child->pid = fork();
    if (child->pid == 0) become(child, parent);
    if (child->pid < 0) {
        ls_status status = ls_fail(LS_ERR_SYSTEM, "cannot start %s: %s", child->argv[0], strerror(errno));
        leave(child);
        return status;
    }
    child->pid_fd = (int)syscall(SYS_pidfd_open, child->pid, 0); /* if this fails, the child's exit is polled */
    close_fd(&child->out[1]);
    close_fd(&child->err[1]);
    return LS_OK;
}

/* --- until its end ----------------------------------------------------------------------------------------------- */

static void end_child(struct child *child, int signal) {
    kill(child->pid, signal); /* not reaped yet, so the number is still its own */
    child->ended_here = true;
    child->killed = signal == SIGKILL;
    child->deadline_us = ls_now_us() + (child->stop_signal ? STOP_GRACE_S : GRACE_S) * 1e6;
}

/* Kills the processes that the child left behind, which the kernel lists as this process's children, until there are
 * none. */
static void kill_orphans(const char *others) {
    char list[CHILDREN_CAPACITY], word[32];
    for (bool any = true; any;) {
        any = false;
        list_children(list);
        char *at = list;
        for (long pid; (pid = strtol(at, &at, 10)) > 0 && *at != '\0';) { /* the last number may be truncated */
            snprintf(word, sizeof word, " %ld ", pid);
            if (strstr(others, word)) continue;
            kill((pid_t)pid, SIGKILL);
            waitpid((pid_t)pid, NULL, 0);
            any = true;
        }
    }
}

static void take_signals(struct child *child) {
    struct signalfd_siginfo info;
    while (read(child->signal_fd, &info, sizeof info) == sizeof info) {
        bool again = child->stop_signal != 0;
        if (!again) child->stop_signal = (int)info.ssi_signo;
        end_child(child, again ? SIGKILL : SIGTERM);
    }
}

/* Takes a signal that arrived as the child ended, perhaps by the same signal: a terminal sends it to both. */
static void take_last_signal(struct child *child) {
    struct signalfd_siginfo info;
    while (read(child->signal_fd, &info, sizeof info) == sizeof info)
        if (!child->stop_signal) child->stop_signal = (int)info.ssi_signo;
}

static void watch(struct child *child) {
    bool ending = false;
    while (waitpid(child->pid, &child->wait_status, WNOHANG) == 0) {
        double left_us = child->deadline_us - ls_now_us();
        if (left_us <= 0 && !child->killed) {
            child->timed_out |= !child->stop_signal;
            end_child(child, ending || child->stop_signal ? SIGKILL : SIGTERM);
            ending = true;
            continue;
        }
        struct pollfd fds[] = {{child->pid_fd, POLLIN, 0},
                               {child->signal_fd, POLLIN, 0},
                               {child->out[0], POLLIN, 0},
                               {child->err[0], POLLIN, 0}};
        bool looks = child->killed || child->pid_fd < 0;
        poll(fds, 4, looks ? LOOK_MS : (int)(left_us * 1e-3) + 1);
        read_pipes(child);
        take_signals(child);
    }
    child->pid = -1;
    if (child->ended_here) kill_orphans(child->others);
    read_pipes(child);
    take_last_signal(child);
}

/* The words, quoted where a shell would split them, so that the line can be pasted. */
static void command_text(char text[COMMAND_CAPACITY], char *const *argv) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
    FILE *file = fmemopen(text, COMMAND_CAPACITY, "w");
    text[0] = '\0';
    for (int i = 0; file && argv[i]; i++) {
        bool is_plain = argv[i][0] && argv[i][strspn(argv[i], plain)] == '\0';
        fputs(i ? " " : "", file);
        fputs(is_plain ? "" : "'", file);
        for (const char *at = argv[i]; *at; at++) fputs(*at == '\'' ? "'\\''" : (char[]){*at, '\0'}, file);
        fputs(is_plain ? "" : "'", file);
    }
    if (file) fclose(file);
}

static ls_status judge(const struct child *child, double timeout_s) {
    char command[COMMAND_CAPACITY];
    command_text(command, child->argv);
    int status = child->wait_status;
    if (child->stop_signal) {
        return ls_fail(LS_ERR_STOPPED, "stopped by signal %d (%s); no results were written", child->stop_signal,
                       strsignal(child->stop_signal));
    }
    if (child->timed_out) {
        return ls_fail(LS_ERR_TIMEOUT, "`%s` did not end within %g s and was ended; see --timeout", command, timeout_s);
    }
    if (WIFSIGNALED(status)) {
        return ls_fail(LS_ERR_SYSTEM, "`%s` was killed by signal %d (%s): %s", command, WTERMSIG(status),
                       strsignal(WTERMSIG(status)), message_of(child->output));
    }
    int code = WEXITSTATUS(status);
    if (code == 0) return LS_OK;
    return ls_fail(code == 2 ? LS_ERR_USAGE : LS_ERR_SYSTEM, "`%s` ended with exit status %d: %s", command, code,
                   message_of(child->output));
}

ls_status bench_child_run(char *const *argv, double timeout_s, bench_output *output) {
    output->out_nbytes = output->err_nbytes = 0;
    output->out[0] = output->err[0] = '\0';
    struct child child = {.argv = argv,
                          .output = output,
                          .pid = -1,
                          .pid_fd = -1,
                          .signal_fd = -1,
                          .out = {-1, -1},
                          .err = {-1, -1},
                          .deadline_us = ls_now_us() + timeout_s * 1e6};
    ls_status status = start(&child);
    if (status != LS_OK) return status;
    watch(&child);
    status = judge(&child, timeout_s);
    if (child.stop_signal) raise(child.stop_signal); /* it is still blocked */
    leave(&child);
    return status;
}

ls_status bench_find_program(char path[BENCH_PATH_CAPACITY], const char *name) {
    char folder[PATH_MAX];
    ssize_t nbytes = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (nbytes < 0) return ls_fail(LS_ERR_IO, "cannot find this program's own folder");
    folder[nbytes] = '\0';
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(folder, '/');
        if (slash) *slash = '\0';
        snprintf(path, BENCH_PATH_CAPACITY, "%s/%s", folder, name);
        if (access(path, X_OK) == 0) return LS_OK;
        if (level == 0) continue;
        return ls_fail(LS_ERR_IO, "%s is not beside this program; build it with `make`", name);
    }
    return LS_OK;
}

bool bench_find_tool(char path[BENCH_PATH_CAPACITY], const char *name) {
    const char *folder = strchr(name, '/') ? NULL : getenv("PATH");
    for (size_t nbytes; folder && *folder; folder += nbytes + (folder[nbytes] == ':')) {
        nbytes = strcspn(folder, ":");
        int length = snprintf(path, BENCH_PATH_CAPACITY, "%.*s/%s", (int)nbytes, folder, name);
        if (nbytes > 0 && length < BENCH_PATH_CAPACITY && access(path, X_OK) == 0) return true;
    }
    return strchr(name, '/') && snprintf(path, BENCH_PATH_CAPACITY, "%s", name) < BENCH_PATH_CAPACITY &&
           access(path, X_OK) == 0;
}

double bench_number_of(const cJSON *object, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, name));
}
