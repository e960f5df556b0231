/* spawned — DDP with ranks that the library starts.
 *   idea  : a child of this process is the launcher, so that its signals, its children and its threads are separate
 *           from the caller's; the ranks are forks of it (ddp_launch), which use the samples in place, without a copy.
 *           Results: lines through a pipe, the result through shared memory, the weights through the run's unlinked
 *           file
 *   fails : if this process dies, so do the launcher and with it the ranks */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "ddp_procs/ddp_run.h"
#include "library/run.h"

/* Shared by the processes. */
struct shared {
    ls_run *run;
    ls_train_result *result; /* in shared memory */
    int lines_fd;            /* the pipe's write end */
};

static void send_line(void *context, const char *line) {
    const struct shared *shared = context;
    char text[2100];
    int length = snprintf(text, sizeof text, "%s\n", line);
    if (length > 0 && write(shared->lines_fd, text, (size_t)length) < 0) return; /* no reader is left */
}

/* Runs in a rank. */
static int be_rank(void *context) {
    struct shared *shared = context;
    ddp_settings settings = shared->run->settings.ddp;
    ls_train_result result;
    settings.spawn = 0;
    ls_status status = ddp_run_rank(&settings, "lockstep", &result);
    const char *rank = getenv("RANK");
    if (status == LS_OK && rank && strcmp(rank, "0") == 0) *shared->result = result;
    return ls_status_exit_code(status);
}

/* Runs in the launcher. */
static int be_launcher(struct shared *shared, pid_t parent) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 1;
    const int handed_down[] = {shared->lines_fd, shared->run->embedding.weights_fd};
    for (size_t i = 0; i < sizeof handed_down / sizeof *handed_down; i++)
        if (handed_down[i] >= 0) (void)fcntl(handed_down[i], F_SETFD, 0);
    ls_log_redirect(send_line, shared);
    ddp_settings settings = shared->run->settings.ddp;
    return ls_status_exit_code(ddp_spawn_ranks(&settings, NULL, be_rank, shared));
}

/* Reads lines until the launcher and all ranks have closed the pipe. */
static void take_lines(ls_run *run, int fd) {
    char line[2100];
    FILE *lines = fdopen(fd, "r");
    while (lines && fgets(line, sizeof line, lines)) {
        line[strcspn(line, "\n")] = '\0';
        ls_run_take_line(run, line);
    }
    if (lines) fclose(lines);
}

static ls_status await_launcher(pid_t launcher) {
    int status = 0;
    while (waitpid(launcher, &status, 0) < 0 && errno == EINTR) continue;
    if (!WIFEXITED(status))
        return ls_fail(LS_ERR_SYSTEM, "the ranks' launcher was killed by signal %d", WTERMSIG(status));
    static const ls_status statuses[] = {LS_OK, LS_ERR_SYSTEM, LS_ERR_USAGE, LS_ERR_PEER};
    return WEXITSTATUS(status) < 4 ? statuses[WEXITSTATUS(status)] : LS_ERR_SYSTEM;
}

ls_status ls_run_train_spawned(ls_run *run, ls_train_result *result) {
    int ends[2];
    struct shared shared = {.run = run};
    shared.result = mmap(NULL, sizeof *shared.result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared.result == MAP_FAILED || pipe2(ends, O_CLOEXEC) < 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot start ranks: %s", strerror(errno));
    *shared.result = *result;
    shared.lines_fd = ends[1];
    fflush(NULL); /* otherwise each fork would print buffered output */
    pid_t parent = getpid(), launcher = fork();
    if (launcher == 0) {
        close(ends[0]);
        int code = be_launcher(&shared, parent);
        fflush(NULL);
        _exit(code);
    }
    close(ends[1]);
    take_lines(run, ends[0]);
    ls_status status =
        launcher < 0 ? ls_fail(LS_ERR_SYSTEM, "cannot start ranks: %s", strerror(errno)) : await_launcher(launcher);
    if (status == LS_OK) *result = *shared.result;
    munmap(shared.result, sizeof *shared.result);
    return status;
}
