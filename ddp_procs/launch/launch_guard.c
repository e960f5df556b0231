/* launch_guard: ends the job when the launcher no longer can.
 *   idea  : when the launcher is killed, the kernel kills its children, the ranks (PR_SET_PDEATHSIG), but not their
 *           children. The guard reads from a socket whose other end only the launcher holds. When that end closes, the
 *           launcher has ended, for any reason, and the guard kills the ranks' process group
 *   fails : it is in a session of its own and blocks all signals, so that signals to the launcher's group or its
 *           terminal do not reach it. If the guard is killed as well, processes that ranks have started continue to
 *           run */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch_guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"

enum { READY_MS = 60000 };

/* In the child: async-signal-safe calls only. */
static _Noreturn void watch_over(int fd) {
    pid_t group = 0, named;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "ls-guard"); /* so that `killall ddprun` does not kill it */
    (void)!send(fd, "", 1, MSG_NOSIGNAL);
    while (recv(fd, &named, sizeof named, 0) == (ssize_t)sizeof named) group = named;
    if (group > 0) kill(-group, SIGKILL);
    _exit(0);
}

/* LS_OK once the guard is in its own session: until then a kill of the launcher's group would also kill the guard. */
static ls_status await_ready(const ddp_guard *guard) {
    struct pollfd wait = {guard->fd, POLLIN, 0};
    char byte;
    int answers;
    while ((answers = poll(&wait, 1, READY_MS)) < 0 && errno == EINTR) continue;
    if (answers == 1 && recv(guard->fd, &byte, 1, 0) == 1) return LS_OK;
    if (answers == 1) return ls_fail(LS_ERR_SYSTEM, "the launcher's guard was killed before it was ready");
    return ls_fail(LS_ERR_TIMEOUT, "the launcher's guard was not ready after %d s", READY_MS / 1000);
}

ls_status ddp_guard_start(ddp_guard *guard) {
    int ends[2];
    *guard = (ddp_guard){-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot make the socket of the launcher's guard: %s", strerror(errno));
    guard->pid = fork();
    if (guard->pid == 0) {
        close(ends[0]);
        watch_over(ends[1]);
    }
    int failure = errno;
    close(ends[1]);
    guard->fd = ends[0];
    ls_status status = guard->pid > 0
                           ? await_ready(guard)
                           : ls_fail(LS_ERR_SYSTEM, "cannot start the launcher's guard: %s", strerror(failure));
    if (status != LS_OK) ddp_guard_stop(guard);
    return status;
}

void ddp_guard_name(const ddp_guard *guard, pid_t group) {
    (void)!send(guard->fd, &group, sizeof group, MSG_NOSIGNAL); /* fails if the guard was killed */
}

void ddp_guard_stop(ddp_guard *guard) {
    if (guard->pid > 0)
        kill(guard->pid, SIGKILL); /* first: if its socket closed, the guard would kill the ranks' process group */
    if (guard->fd >= 0) close(guard->fd);
    while (guard->pid > 0 && waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) continue;
    *guard = (ddp_guard){-1, -1};
}
