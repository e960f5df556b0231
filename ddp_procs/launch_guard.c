/* launch_guard: what remains to be done when the launcher can do nothing any more.
 *   idea  : the kernel kills a killed launcher's children, the ranks (PR_SET_PDEATHSIG), but not their children. The guard
 *           reads from a socket whose other end only the launcher holds; its end means that the launcher is gone, however
 *           that came, and the guard kills the ranks' process group
 *   fails : it is in a session of its own and blocks all signals, so that what is sent to the launcher's group or to its
 *           terminal does not reach it. Who kills the guard as well is left with what ranks have started */
#define _GNU_SOURCE
#include "ddp_procs/launch_guard.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"

/* In the child: async-signal-safe calls only. */
static _Noreturn void watch_over(int fd) {
    pid_t group = 0, named;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "ls-guard"); /* so that `killall ddprun` leaves it its work */
    while (recv(fd, &named, sizeof named, 0) == (ssize_t)sizeof named) group = named;
    if (group > 0) kill(-group, SIGKILL);
    _exit(0);
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
    if (guard->pid > 0) return LS_OK;
    close(guard->fd);
    guard->fd = -1;
    return ls_fail(LS_ERR_SYSTEM, "cannot start the launcher's guard: %s", strerror(failure));
}

void ddp_guard_name(const ddp_guard *guard, pid_t group) {
    (void)!send(guard->fd, &group, sizeof group, MSG_NOSIGNAL); /* fails if somebody has killed it */
}

void ddp_guard_stop(ddp_guard *guard) {
    if (guard->pid <= 0) return;
    kill(guard->pid, SIGKILL); /* first, for the socket's end would tell it that the launcher is gone */
    close(guard->fd);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) continue;
    *guard = (ddp_guard){-1, -1};
}
