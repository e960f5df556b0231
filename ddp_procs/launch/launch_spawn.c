/* launch_spawn: fork and exec of a rank.
 *   idea  : everything that may fail or allocate (finding the program, writing the environment, the pipes) happens before
 *           the fork; the child only makes calls that are safe after one, for the process may have threads.
 *   fails : when exec fails, the child sends its errno through a pipe that a successful exec closes. */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"

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
        if (why == EACCES) failure = EACCES; /* as exec does: worth telling, if there is no other */
        folder = folder[length] ? folder + length + 1 : NULL;
    }
    return failure;
}

ls_status ddp_find_program(char path[PATH_MAX], const char *name) {
    int failure = 0;
    if (!name) {
        ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
        if (length < 0) return ls_fail(LS_ERR_IO, "cannot find this program's own file: %s", strerror(errno));
        path[length] = '\0';
        return LS_OK;
    }
    if (strchr(name, '/'))
        failure = snprintf(path, PATH_MAX, "%s", name) < PATH_MAX ? why_not_runnable(path) : ENAMETOOLONG;
    else
        failure = search_path(path, name);
    if (failure == 0) return LS_OK;
    return ls_fail(LS_ERR_IO, "cannot run '%s': %s", name, strerror(failure));
}

/* --- the environment -------------------------------------------------------------------------------------------------- */

enum { OWN_COUNT = 14, OWN_CAPACITY = LS_JOB_CAPACITY + 8 };

typedef struct environment {
    char own[OWN_COUNT][OWN_CAPACITY]; /* NAME=value */
    char **all;                        /* for exec: the inherited ones that `own` does not replace, then own; owned */
} environment;

static bool is_replaced(const environment *e, int own_count, const char *inherited) {
    for (int i = 0; i < own_count; i++) {
        size_t name_length = strcspn(e->own[i], "=") + 1;
        if (strncmp(e->own[i], inherited, name_length) == 0) return true;
    }
    return false;
}

/* Which file it is, so that a rank can tell it from another of that number; 0: none. */
static unsigned long long inode_of(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 ? (unsigned long long)info.st_ino : 0;
}

static bool make_environment(environment *e, const ddp_spawn_plan *plan, int rank, int cause_fd) {
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"RANK", rank},
                   {"LOCAL_RANK", rank},
                   {"WORLD_SIZE", plan->nproc},
                   {"LOCAL_WORLD_SIZE", plan->nproc},
                   {"MASTER_PORT", plan->master_port},
                   {"LS_CAUSE_FD", cause_fd},
                   {"LS_SAID_FD", plan->said_fd},
                   {"OMP_NUM_THREADS", 1}}; /* last: left out where the user has chosen */
    int own_count = 0;
    snprintf(e->own[own_count++], OWN_CAPACITY, "MASTER_ADDR=127.0.0.1");
    snprintf(e->own[own_count++], OWN_CAPACITY, "LS_STORE=%s", plan->store);
    snprintf(e->own[own_count++], OWN_CAPACITY, "LS_JOB=%s", plan->job);
    snprintf(e->own[own_count++], OWN_CAPACITY, "LS_JOB_TOKEN=%s", plan->token);
    int number_count = (int)(sizeof numbers / sizeof numbers[0]) - (getenv("OMP_NUM_THREADS") ? 1 : 0);
    for (int i = 0; i < number_count; i++)
        snprintf(e->own[own_count++], OWN_CAPACITY, "%s=%d", numbers[i].name, numbers[i].value);
    snprintf(e->own[own_count++], OWN_CAPACITY, "LS_CAUSE_INODE=%llu", inode_of(cause_fd));
    snprintf(e->own[own_count++], OWN_CAPACITY, "LS_SAID_INODE=%llu", inode_of(plan->said_fd));

    size_t inherited = 0, count = 0;
    while (environ[inherited]) inherited++;
    e->all = malloc((inherited + OWN_COUNT + 1) * sizeof *e->all);
    if (!e->all) return false;
    for (size_t i = 0; i < inherited; i++)
        if (!is_replaced(e, own_count, environ[i])) e->all[count++] = environ[i];
    for (int i = 0; i < own_count; i++) e->all[count++] = e->own[i];
    e->all[count] = NULL;
    return true;
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

/* In the child. The ranks are a process group of their own, so that all that they start can be ended with them. The
 * terminal then gives them nothing to read; that is to be an error, not a stop for ever. */
static int join_group(const ddp_spawn_plan *plan) {
    if (setpgid(0, plan->group) < 0) return errno;
    if (plan->group == 0) ddp_guard_name(&plan->guard, getpid());
    return signal(SIGTTIN, SIG_IGN) == SIG_ERR || signal(SIGTTOU, SIG_IGN) == SIG_ERR ? errno : 0;
}

/* In the child: async-signal-safe calls only. Returns only if exec failed. */
static int become_rank(const ddp_spawn_plan *plan, const environment *e, const pipes *p, pid_t launcher) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) return errno;
    if (getppid() != launcher) _exit(1); /* it died before the line above took effect */
    int failure = join_group(plan);
    if (failure) return failure;
    if (fcntl(p->cause[1], F_SETFD, 0) < 0) return errno;
    if (plan->said_fd >= 0 && fcntl(plan->said_fd, F_SETFD, 0) < 0) return errno;
    if (sigprocmask(SIG_SETMASK, plan->signal_mask, NULL) < 0) return errno;
    /* A shell's background job ignores these; the launcher takes them nevertheless, and so must the ranks that it
     * passes them on to. */
    if (signal(SIGINT, SIG_DFL) == SIG_ERR || signal(SIGQUIT, SIG_DFL) == SIG_ERR) return errno;
    execve(plan->program, plan->argv, e->all);
    return errno;
}

static pid_t fork_rank(const ddp_spawn_plan *plan, const environment *e, const pipes *p) {
    pid_t launcher = getpid(), pid = fork();
    if (pid != 0) return pid;
    int failure = become_rank(plan, e, p, launcher);
    ssize_t written = write(p->failure[1], &failure, sizeof failure);
    _exit(written == sizeof failure ? 127 : 126);
}

/* What went wrong between fork and exec: 0 (nothing) or an errno. Ends as soon as the child has done exec or died. */
static int read_exec_failure(pipes *p) {
    int failure = 0;
    ssize_t got;
    close(p->failure[1]);
    p->failure[1] = -1;
    do got = read(p->failure[0], &failure, sizeof failure);
    while (got < 0 && errno == EINTR);
    return got == sizeof failure ? failure : 0;
}

ls_status ddp_spawn_rank(pid_t *pid, int *cause_fd, ddp_spawn_plan *plan, int rank) {
    *pid = *cause_fd = -1;
    pipes p;
    environment e;
    ls_status status = open_pipes(&p, rank);
    if (status != LS_OK) return status;
    if (!make_environment(&e, plan, rank, p.cause[1])) {
        close_pipes(&p);
        return ls_fail(LS_ERR_NO_MEMORY, "no memory for the environment of rank %d", rank);
    }
    pid_t child = fork_rank(plan, &e, &p);
    int failure = child < 0 ? errno : read_exec_failure(&p);
    free(e.all);
    if (failure == 0) {
        *pid = child;
        if (plan->group == 0) plan->group = child;
        *cause_fd = p.cause[0];
        p.cause[0] = -1;
    } else {
        if (child > 0) waitpid(child, NULL, 0);
        status = ls_fail(LS_ERR_IO, "cannot start rank %d, '%s': %s", rank, plan->program, strerror(failure));
    }
    close_pipes(&p);
    return status;
}
