/* lost — which ranks have died, left, or fallen silent.
 *   idea  : the kernel reports which processes of this host have ended (pidfds), this host's mirror receives the same
 *           from the other hosts (mirror.h); a rank that leaves marks its slot. News of another host's ranks is passed
 *           on by its leader and this host's
 *   cost  : a system call for all ranks, made only by ranks that have waited for a patrol interval
 *   fails : where the kernel has no pidfds, a death shows as a missed deadline */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

#define LS_SILENT_MS 1000 /* a host whose heartbeat is later is silent */

void ls_comm_watch_peers(ls_comm *comm) {
    for (int r = 0; r < comm->world_size; r++) {
        pid_t pid = (pid_t)atomic_load(&comm->segment->slot[r].pid);
        if (r == comm->rank || pid == 0 || comm->pidfd[r] >= 0 || !ls_is_on_this_host(comm, r)) continue;
        /* Without pidfds in the kernel, deaths show as missed deadlines. */
        comm->pidfd[r] = (int)syscall(SYS_pidfd_open, pid, 0);
        if (comm->pidfd[r] < 0 && errno == ESRCH) atomic_store(&comm->segment->slot[r].left, LS_DIED);
    }
}

/* Queries the kernel once for all missing ranks. */
static void find_dead(const ls_comm *comm, const bool *missing, bool *dead) {
    struct pollfd processes[LS_COMM_MAX_RANKS];
    for (int r = 0; r < comm->world_size; r++)
        processes[r] = (struct pollfd){.fd = missing[r] ? comm->pidfd[r] : -1, .events = POLLIN}; /* -1: not queried */
    (void)poll(processes, (nfds_t)comm->world_size, 0);
    for (int r = 0; r < comm->world_size; r++)
        dead[r] = processes[r].revents != 0 || atomic_load(&comm->segment->slot[r].left) == LS_DIED;
}

/* A rank that is cut off is missing because of its host's leader; and if this host's leader is gone, no news arrives
 * from other hosts. */
static void replace_by_leaders(const ls_comm *comm, bool *missing) {
    for (int r = 0; r < comm->world_size; r++) {
        if (!missing[r] || ls_is_on_this_host(comm, r)) continue;
        missing[comm->leader] = true;
        if (atomic_load(&comm->segment->slot[r].left) != LS_CUT) continue;
        missing[r] = false;
        missing[ls_leader_of(comm, r)] = true;
    }
}

/* Reduces `missing` to the ranks that will never arrive; returns whether there are any. If some died, they are the
 * reason, and ranks that left in good order are not named. */
bool ls_comm_only_lost(const ls_comm *comm, bool *missing, bool *died) {
    bool any = false, dead[LS_COMM_MAX_RANKS];
    if (comm->transport->over_hosts) replace_by_leaders(comm, missing);
    find_dead(comm, missing, dead);
    *died = false;
    for (int r = 0; r < comm->world_size; r++) {
        if (!missing[r]) continue;
        int32_t left = atomic_load(&comm->segment->slot[r].left);
        if (left == LS_LEFT) dead[r] = false; /* it left in good order, and then its process ended */
        missing[r] = dead[r] || left != LS_PRESENT;
        any = any || missing[r];
        *died = *died || dead[r];
    }
    for (int r = 0; *died && r < comm->world_size; r++) missing[r] = missing[r] && dead[r];
    return any;
}

static bool is_silent(const ls_comm *comm, int leader) {
    return ls_coarse_now_ms() - atomic_load(&comm->segment->heard_ms[leader]) > LS_SILENT_MS;
}

int ls_comm_find_silent(const ls_comm *comm, int rank) {
    if (ls_is_on_this_host(comm, rank)) return rank;
    if (is_silent(comm, comm->leader)) return comm->leader;
    int leader = ls_leader_of(comm, rank);
    return is_silent(comm, leader) ? leader : rank;
}
