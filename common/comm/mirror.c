/* mirror — the thread that keeps a host's control area and those of the other hosts alike (mirror.h).
 *   idea  : it sleeps until a rank of this host arrives at a step (an eventfd that all of them have), another host
 *           sends records, a process of this host ends, or a heartbeat is due; then it sends changes and applies the
 *           records that it received. Each pair of hosts has a connection, so no record is forwarded
 *   cost  : for a step of all ranks, two wake-ups and a message over TCP: some tens of microseconds above the network's
 *           latency. A megabyte or so of memory; ten small packets a second to each host
 *   fails : a process of this host that ends is marked as dead in its slot, which is sent to the other hosts. If a
 *           connection ends although its leader has not left, the leader has died; the state of its host's other ranks
 *           is then unknown, so a rank that waits for one of them names the leader (ls_comm_only_lost). A host that
 *           does not acknowledge data for some seconds (TCP_USER_TIMEOUT) is unreachable, and the mirror itself breaks
 *           the group. A host that acknowledges but sends nothing has a stopped leader: at the deadline the leader is
 *           blamed, not its host's ranks, of which no news arrives (ls_comm_find_silent). A host that receives too
 *           slowly gets flight records later */
#define _GNU_SOURCE
#include "common/comm/mirror.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/comm/wait.h"

#define LS_LINGER_US 5e6          /* for the host's other ranks, when the leader leaves */
#define LS_LAST_WORDS_US 2e6      /* for the last data to arrive */
#define LS_SLOW_BYTES (64u << 10) /* waiting to be sent: flight records wait, too */

/* --- the state of a host -------------------------------------------------------------------------------------------- */

static void close_host(ls_mirror_host *host) {
    if (host->fd >= 0) close(host->fd);
    host->fd = -1;
    host->in.used = host->out.used = 0;
}

/* The host's ranks keep their last known state (those that left in good order have left), and no more news of them
 * arrives. `leader` is the new state of its leader, unless it has left. */
static void cut_off(struct ls_mirror *m, ls_mirror_host *host, ls_presence leader) {
    ls_comm *comm = m->comm;
    for (int r = 0; r < comm->world_size; r++) {
        if (!host->ranks[r]) continue;
        int32_t left = r == host->leader ? (int32_t)leader : LS_CUT, log_present = LS_PRESENT, present = LS_PRESENT;
        atomic_compare_exchange_strong(&comm->segment->slot[r].left, &present, left);
        if (r == host->leader && leader == LS_DIED && comm->flight && comm->owns_flight)
            atomic_compare_exchange_strong(&comm->flight[r].left, &log_present, LS_DIED);
    }
    close_host(host);
}

/* The group cannot continue without the host, and only this thread knows why. */
static void give_up(struct ls_mirror *m, ls_mirror_host *host, const char *why) {
    char ranks[LS_RANKS_TEXT_CAPACITY], reason[LS_REASON_CAPACITY];
    snprintf(reason, sizeof reason, "the host with %s (%s) %s", ls_comm_ranks_text(ranks, host->ranks, m->comm),
             host->address, why);
    cut_off(m, host, LS_CUT);
    ls_comm_break_for_mirror(m->comm, reason, host->ranks);
}

static void connection_failed(struct ls_mirror *m, ls_mirror_host *host, int error) {
    char why[96];
    bool died = error == 0 || error == ECONNRESET || error == EPIPE;
    if (died) {
        cut_off(m, host, LS_DIED);
        return;
    }
    int64_t since_ms = ls_coarse_now_ms() - atomic_load(&m->comm->segment->heard_ms[host->leader]);
    snprintf(why, sizeof why, "has been unreachable for %.1f s: %s", (double)since_ms / 1e3, strerror(error));
    give_up(m, host, why);
}

static void record_heartbeat(const ls_comm *comm, int leader) {
    atomic_store(&comm->segment->heard_ms[leader], ls_coarse_now_ms());
}

/* --- sending and receiving ---------------------------------------------------------------------------------------- */

/* Errors are ignored: receiving finds out why a connection has ended. */
static void send_to(ls_mirror_host *host) {
    while (host->fd >= 0 && host->out.used > 0) {
        ssize_t sent = send(host->fd, host->out.at, host->out.used, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) break;
        ls_bytes_drop(&host->out, (size_t)sent);
    }
}

static void receive_from(struct ls_mirror *m, ls_mirror_host *host) {
    unsigned char buffer[16 << 10];
    while (host->fd >= 0) {
        ssize_t got = recv(host->fd, buffer, sizeof buffer, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            connection_failed(m, host, got == 0 ? 0 : errno);
            return;
        }
        record_heartbeat(m->comm, host->leader);
        ls_bytes_add(&host->in, buffer, (size_t)got);
        if (!ls_mirror_apply(m, host)) {
            give_up(m, host, host->in.failed ? "sent more than this rank has memory for" : "sent a malformed record");
            return;
        }
    }
}

/* Sends all changes to all hosts; with `beat`, also a heartbeat and all else that is mirrored. */
static void send_new_records(struct ls_mirror *m, bool beat) {
    size_t most = 0;
    for (int h = 0; h < m->host_count; h++) most = m->hosts[h].out.used > most ? m->hosts[h].out.used : most;
    ls_mirror_collect(m, (beat || m->comm->debug) && most < LS_SLOW_BYTES);
    if (beat) ls_mirror_add_beat(m);
    for (int h = 0; h < m->host_count; h++) {
        ls_mirror_host *host = &m->hosts[h];
        if (host->fd >= 0) ls_bytes_add(&host->out, m->batch.at, m->batch.used);
        if (host->fd >= 0 && (host->out.failed || m->batch.failed))
            give_up(m, host, "cannot get more records: this rank is out of memory");
        send_to(host);
    }
    m->batch.used = 0;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* Marks those of this host's ranks whose processes have ended. `processes` are their pidfds, by rank. */
static void find_ended(struct ls_mirror *m, const struct pollfd *processes) {
    ls_comm *comm = m->comm;
    for (int r = 0; r < comm->world_size; r++) {
        int32_t present = LS_PRESENT, log_present = LS_PRESENT;
        if (processes[r].revents == 0) continue;
        atomic_compare_exchange_strong(&comm->segment->slot[r].left, &present, LS_DIED);
        if (comm->flight && comm->owns_flight)
            atomic_compare_exchange_strong(&comm->flight[r].left, &log_present, LS_DIED);
    }
}

/* Sleeps until something happens, and applies the records that arrive. */
static void sleep_until(struct ls_mirror *m, double until_us) {
    ls_comm *comm = m->comm;
    struct pollfd files[1 + 2 * LS_COMM_MAX_RANKS], *hosts = files + 1, *processes = hosts + m->host_count;
    bool watches = atomic_load(&m->watches);
    files[0] = (struct pollfd){.fd = comm->kick_fd, .events = POLLIN};
    for (int h = 0; h < m->host_count; h++)
        hosts[h] =
            (struct pollfd){.fd = m->hosts[h].fd, .events = (short)(POLLIN | (m->hosts[h].out.used ? POLLOUT : 0))};
    for (int r = 0; r < comm->world_size; r++) {
        bool asked = watches && comm->pidfd[r] >= 0 && atomic_load(&comm->segment->slot[r].left) == LS_PRESENT;
        processes[r] = (struct pollfd){.fd = asked ? comm->pidfd[r] : -1, .events = POLLIN};
    }
    double left_us = until_us - ls_now_us();
    (void)poll(files, (nfds_t)(1 + m->host_count + comm->world_size), left_us > 0 ? (int)(left_us / 1e3) + 1 : 0);
    eventfd_t kicks;
    if (files[0].revents) (void)eventfd_read(comm->kick_fd, &kicks);
    atomic_store(&comm->segment->kicked, 0); /* from now on ranks kick again; their earlier writes are visible */
    find_ended(m, processes);
    for (int h = 0; h < m->host_count; h++) {
        receive_from(m, &m->hosts[h]);
        send_to(&m->hosts[h]);
    }
}

/* Whether other ranks of this host still need the mirror. */
static bool is_needed(const struct ls_mirror *m) {
    const ls_comm *comm = m->comm;
    bool needed = false;
    for (int r = 0; r < comm->world_size; r++)
        needed = needed || (ls_is_on_this_host(comm, r) && atomic_load(&comm->segment->slot[r].left) == LS_PRESENT);
    return needed && !ls_comm_is_broken(comm) && atomic_load(&comm->failure) == LS_OK;
}

/* Waits until all hosts have received all data: closing a socket earlier might discard some. */
static void flush_connections(struct ls_mirror *m) {
    double until_us = ls_now_us() + LS_LAST_WORDS_US;
    ls_mirror_collect(m, true);
    for (int h = 0; h < m->host_count; h++)
        if (m->hosts[h].fd >= 0) ls_bytes_add(&m->hosts[h].out, m->batch.at, m->batch.used);
    for (bool waits = true; waits && ls_now_us() < until_us;) {
        waits = false;
        for (int h = 0; h < m->host_count; h++) {
            ls_mirror_host *host = &m->hosts[h];
            int unsent = 0;
            send_to(host);
            if (host->fd >= 0 && ioctl(host->fd, SIOCOUTQ, &unsent) == 0)
                waits = waits || host->out.used + (size_t)unsent > 0;
        }
        if (waits) sleep_until(m, ls_now_us() + 1e3);
    }
}

static void *run(void *context) {
    struct ls_mirror *m = context;
    double beat_us = 0, leave_us = 0;
    for (;;) {
        double now_us = ls_now_us();
        bool beat = now_us >= beat_us;
        if (beat) beat_us = now_us + LS_MIRROR_BEAT_US;
        send_new_records(m, beat);
        record_heartbeat(m->comm, m->comm->rank);
        bool stops = atomic_load(&m->stops);
        if (stops && leave_us <= 0) leave_us = now_us + LS_LINGER_US;
        if (stops && (now_us >= leave_us || !is_needed(m))) break;
        sleep_until(m, stops ? now_us + 1e4 : beat_us);
    }
    flush_connections(m);
    return NULL;
}

ls_status ls_mirror_start(ls_comm *comm) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&comm->mirror->thread, NULL, run, comm->mirror);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    comm->mirror->is_running = failed == 0;
    if (!failed) return LS_OK;
    return ls_comm_break(comm, LS_ERR_SYSTEM, NULL, "cannot start the thread that joins this host to the others: %s",
                         strerror(failed));
}

void ls_mirror_stop(ls_comm *comm) {
    struct ls_mirror *m = comm->mirror;
    if (!m) return;
    atomic_store(&m->stops, true);
    ls_mirror_kick(comm);
    if (m->is_running) pthread_join(m->thread, NULL);
    for (int h = 0; h < m->host_count; h++) {
        close_host(&m->hosts[h]);
        free(m->hosts[h].in.at);
        free(m->hosts[h].out.at);
    }
    free(m->hosts);
    free(m->shadow);
    free(m->batch.at);
    free(m);
    comm->mirror = NULL;
}
