/* launch_spawn: fork and exec of a rank.
 *   idea  : everything that may fail or allocate (finding the program, writing the environment, the pipes) happens
 *           before the fork; the child only makes async-signal-safe calls, since the process may have threads.
 *   fails : when exec fails, the child sends its errno through a pipe that a successful exec closes. */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch_spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "ddp_procs/launch/launch_environment.h"

/* --- the program ------------------------------------------------------------------------------------------------------ */

/* 0, or the errno that exec would give. */
static int why_not_runnable(const char *path) {
    struct stat info;
    if (stat(path, &info) < 0) return errno;
    if (S_ISDIR(info.st_mode)) return EISDIR;
    return access(path, X_OK) < 0 ? errno : 0;
}

static int search_path(char path[PATH_MAX], const char *name) {
    const char *folders = getenv("PATH");
    int failure = ENOENT;
    for (const char *folder = folders ? folders : "/usr/bin:/bin"; folder;) {
        int length = (int)strcspn(folder, ":");
        int needed = snprintf(path, PATH_MAX, "%.*s%s%s", length, folder, length ? "/" : "", name);
        int why = needed < PATH_MAX ? why_not_runnable(path) : ENAMETOOLONG;
        if (why == 0) return 0;
        if (why == EACCES) failure = EACCES; /* as in exec: returned if no other entry works */
        folder = folder[length] ? folder + length + 1 : NULL;
    }
    return failure;
}

ls_status ddp_find_program(char path[PATH_MAX], const char *name) {
    int failure = 0;
    if (!name) {
        ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
        const char *started_as = (const char *)getauxval(AT_EXECFN); /* if there is no /proc */
        if (length < 0) snprintf(path, PATH_MAX, "%s", started_as ? started_as : "");
        if (length >= 0) path[length] = '\0';
        if (length >= 0 || why_not_runnable(path) == 0) return LS_OK;
        return ls_fail(LS_ERR_IO, "cannot find this program's own file: mount /proc, or start the ranks with ddprun");
    }
    if (strchr(name, '/'))
        failure = snprintf(path, PATH_MAX, "%s", name) < PATH_MAX ? why_not_runnable(path) : ENAMETOOLONG;
    else
        failure = search_path(path, name);
    if (failure == 0) return LS_OK;
    return ls_fail(LS_ERR_IO, "cannot run '%s': %s", name, strerror(failure));
}

/* --- fork and exec ---------------------------------------------------------------------------------------------------- */

typedef struct pipes {
    int cause[2], failure[2]; /* [0] to read, [1] to write */
} pipes;

static void close_pipes(pipes *p) {
    for (int i = 0; i < 2; i++) {
        if (p->cause[i] >= 0) close(p->cause[i]);
        if (p->failure[i] >= 0) close(p->failure[i]);
        p->cause[i] = p->failure[i] = -1;
    }
}

static ls_status open_pipes(pipes *p, int rank) {
    *p = (pipes){{-1, -1}, {-1, -1}};
    if (pipe2(p->cause, O_CLOEXEC) == 0 && pipe2(p->failure, O_CLOEXEC) == 0 &&
        fcntl(p->cause[0], F_SETFL, O_NONBLOCK) == 0)
        return LS_OK;
    ls_status status = ls_fail(LS_ERR_SYSTEM, "cannot make the pipes of rank %d: %s", rank, strerror(errno));
    close_pipes(p);
    return status;
}

/* In the child. The ranks are a process group of their own, so that all processes that they start can be ended with
 * them. They cannot read from the terminal then; a read must fail, not stop them for ever. */
static int join_group(const ddp_spawn_plan *plan) {
    if (setpgid(0, plan->group) < 0) return errno;
    if (plan->group == 0) ddp_guard_name(&plan->guard, getpid());
    return signal(SIGTTIN, SIG_IGN) == SIG_ERR || signal(SIGTTOU, SIG_IGN) == SIG_ERR ? errno : 0;
}

/* In the child: closes files as exec would, then calls the entry instead of exec. */
static int run_entry(const ddp_launch_options *options, char **environment) {
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        int fd = atoi(entry->d_name), flags = fcntl(fd, F_GETFD);
        if (entry->d_name[0] != '.' && fd != dirfd(folder) && flags >= 0 && (flags & FD_CLOEXEC)) close(fd);
    }
    if (folder) closedir(folder);
    environ = environment;
    int status = options->entry(options->context);
    fflush(NULL);
    return status;
}

/* In the child: async-signal-safe calls only, except with an entry. Returns only if exec failed. */
static int become_rank(const ddp_spawn_plan *plan, const ddp_rank_files *files, char **environment, pid_t launcher) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) return errno;
    if (getppid() != launcher) _exit(1); /* the launcher died before prctl took effect */
    int failure = join_group(plan);
    if (failure) return failure;
    if (fcntl(files->cause, F_SETFD, 0) < 0) return errno;
    if (plan->log_once_fd >= 0 && fcntl(plan->log_once_fd, F_SETFD, 0) < 0) return errno;
    if (files->out >= 0 && dup2(files->out, STDOUT_FILENO) < 0) return errno;
    if (files->err >= 0 && dup2(files->err, STDERR_FILENO) < 0) return errno;
    if (sigprocmask(SIG_SETMASK, plan->signal_mask, NULL) < 0) return errno;
    /* A shell's background job ignores these signals; the launcher handles them nevertheless and forwards them, so the
     * ranks must not ignore them. */
    if (signal(SIGINT, SIG_DFL) == SIG_ERR || signal(SIGQUIT, SIG_DFL) == SIG_ERR) return errno;
    if (plan->options->entry) _exit(run_entry(plan->options, environment));
    execve(plan->program, plan->argv, environment);
    return errno;
}

static pid_t fork_rank(const ddp_spawn_plan *plan, const ddp_rank_files *files, char **environment, int failure_fd) {
    pid_t launcher = getpid(), pid = fork();
    if (pid != 0) return pid;
    int failure = become_rank(plan, files, environment, launcher);
    ssize_t written = write(failure_fd, &failure, sizeof failure);
    _exit(written == sizeof failure ? 127 : 126);
}

/* The errno of a failure between fork and exec, or 0. Returns as soon as the child has called exec or died. */
static int read_exec_failure(pipes *p) {
    int failure = 0;
    ssize_t got;
    close(p->failure[1]);
    p->failure[1] = -1;
    do got = read(p->failure[0], &failure, sizeof failure);
    while (got < 0 && errno == EINTR);
    return got == sizeof failure ? failure : 0;
}

ls_status ddp_spawn_rank(pid_t *pid, int *cause_fd, ddp_spawn_plan *plan, int rank, ddp_rank_files *files) {
    *pid = *cause_fd = -1;
    pipes p;
    ls_status status = open_pipes(&p, rank);
    if (status != LS_OK) return status;
    files->cause = p.cause[1];
    char **environment = ddp_environment_make(plan, rank, files);
    if (!environment) {
        close_pipes(&p);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the environment of rank %d", rank);
    }
    pid_t child = fork_rank(plan, files, environment, p.failure[1]);
    int failure = child < 0 ? errno : read_exec_failure(&p);
    free(environment);
    if (failure == 0) {
        *pid = child;
        if (plan->group == 0) plan->group = child;
        *cause_fd = p.cause[0];
        p.cause[0] = -1;
    } else {
        if (child > 0) waitpid(child, NULL, 0);
        status = ls_fail(LS_ERR_IO, "cannot start rank %d, '%s': %s", plan->first_rank + rank, plan->program,
                         strerror(failure));
    }
    close_pipes(&p);
    return status;
}
