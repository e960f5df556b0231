/* store_server: one thread that serves the store to all clients.
 *   idea  : a poll loop over non-blocking sockets; store_session.c advances each client as far as possible without
 *           blocking, so a slow client does not delay others.
 *   doors : a client that has not shown a valid pass is a stranger. There is room for STRANGERS_MAX of them, for
 *           STRANGER_US each, and the oldest is dropped for the next; they do not use the clients' places. A hello that
 *           arrives with its connection is read when the connection is accepted, before another stranger can displace
 *           it.
 *   order : requests take effect one at a time, in the order in which their last byte arrives.
 *   cost  : a few system calls per request; each new value checks all clients for waiters.
 *   fails : a client that sends an invalid request, or does not complete one within the server's timeout, is dropped
 *           with the bytes that it had sent. The others continue. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/launch/store_listen.h"
#include "ddp_procs/launch/store_meeting.h"
#include "ddp_procs/launch/store_pass.h"
#include "ddp_procs/launch/store_session.h"

enum {
    STRANGERS_MAX = LS_COMM_MAX_RANKS, /* all ranks may connect at once */
    SESSIONS_MAX = DDP_CLIENTS_MAX + STRANGERS_MAX,
    BACKLOG = 512
};

#define STRANGER_US 1e6
#define PATIENCE_DEFAULT_US 10e6
#define ACCEPT_PAUSE_US 1e5 /* after accept found no free file descriptor */

struct ddp_store_server {
    /* constant after create */
    ddp_listener listener;
    int wake_fd;
    pthread_t thread;
    /* written by any thread, read by the server thread */
    _Atomic double stop_at_us;
    /* private to the server thread */
    ddp_service service;
    ddp_session *sessions[SESSIONS_MAX];
    int session_count;
    double accept_again_us;
};

/* --- the loop --------------------------------------------------------------------------------------------------------- */

static void drop(ddp_store_server *server, int index) {
    ddp_session_close(&server->service, server->sessions[index]);
    server->sessions[index] = server->sessions[--server->session_count];
}

static void drop_oldest_stranger(ddp_store_server *server) {
    int oldest = -1;
    for (int i = 0; i < server->session_count; i++) {
        const ddp_session *c = server->sessions[i];
        if (!c->admitted && (oldest < 0 || c->deadline_us < server->sessions[oldest]->deadline_us)) oldest = i;
    }
    if (oldest >= 0) drop(server, oldest);
}

static void add_stranger(ddp_store_server *server, int fd) {
    if (server->session_count - server->service.admitted_count >= STRANGERS_MAX) drop_oldest_stranger(server);
    ddp_session *c = ddp_session_open(fd, ls_now_us() + STRANGER_US);
    if (!c) return;
    server->sessions[server->session_count++] = c;
    if (!ddp_session_advance(&server->service, c)) drop(server, server->session_count - 1);
}

static void accept_client(ddp_store_server *server) {
    int fd = ddp_accept(&server->listener);
    if (fd >= 0) {
        add_stranger(server, fd);
    } else if (errno == EMFILE || errno == ENFILE) {
        drop_oldest_stranger(server); /* strangers must not use up the process's files */
        server->accept_again_us = ls_now_us() + ACCEPT_PAUSE_US;
    } else if (errno != EAGAIN && errno != EINTR && errno != EPERM) {
        server->accept_again_us = ls_now_us() + ACCEPT_PAUSE_US;
    }
}

static int poll_timeout_ms(const ddp_store_server *server) {
    double until_us = fmin(server->stop_at_us, ddp_meeting_until_us(server->sessions, server->session_count)),
           now_us = ls_now_us();
    if (server->accept_again_us > now_us) until_us = fmin(until_us, server->accept_again_us);
    for (int i = 0; i < server->session_count; i++) until_us = fmin(until_us, server->sessions[i]->deadline_us);
    if (isinf(until_us)) return -1;
    return (int)fmin(fmax(ceil((until_us - now_us) / 1e3), 0), 60e3);
}

static void serve_meeting(ddp_store_server *server) {
    unsigned char list[DDP_MEETING_NBYTES];
    size_t nbytes = 0;
    double now_us = ls_now_us();
    ddp_verdict_of_meeting verdict =
        ddp_meeting_judge(&server->service, server->sessions, server->session_count, now_us, list, &nbytes);
    for (int i = server->session_count - 1; i >= 0 && verdict != DDP_MEETING_WAITS; i--) {
        ddp_session *c = server->sessions[i];
        bool held = verdict == DDP_MEETING_IS_HELD;
        if (c->phase != DDP_MEETING || (!held && now_us < c->patient_until_us)) continue;
        if (!ddp_session_end_meeting(&server->service, c, held, (ddp_bytes){list, nbytes})) drop(server, i);
    }
}

static void serve_once(ddp_store_server *server) {
    static const short wanted[] = {[DDP_GREETING] = POLLIN,
                                   [DDP_READING_HEADER] = POLLIN,
                                   [DDP_READING_BODY] = POLLIN,
                                   [DDP_WAITING] = POLLIN | POLLRDHUP,
                                   [DDP_MEETING] = POLLIN | POLLRDHUP,
                                   [DDP_WRITING] = POLLOUT};
    struct pollfd fds[2 + SESSIONS_MAX];
    int count = server->session_count;
    bool may_accept = ls_now_us() >= server->accept_again_us;
    fds[0] = (struct pollfd){.fd = server->wake_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = may_accept ? server->listener.fd : -1, .events = POLLIN};
    for (int i = 0; i < count; i++)
        fds[2 + i] = (struct pollfd){.fd = server->sessions[i]->fd, .events = wanted[server->sessions[i]->phase]};
    if (poll(fds, 2 + (nfds_t)count, poll_timeout_ms(server)) < 0) return; /* EINTR; all signals are blocked */
    uint64_t wakes;
    if (fds[0].revents && read(server->wake_fd, &wakes, sizeof wakes) < 0) return;
    for (int i = count - 1; i >= 0; i--) { /* downwards: drop moves the last client, already handled, into the gap */
        ddp_session *c = server->sessions[i];
        bool alive = !fds[2 + i].revents || ddp_session_advance(&server->service, c);
        if (!alive || ls_now_us() >= c->deadline_us) drop(server, i);
    }
    for (int i = server->session_count - 1; i >= 0; i--)
        if (!ddp_session_serve_waiting(&server->service, server->sessions[i])) drop(server, i);
    serve_meeting(server);
    if (fds[1].revents) accept_client(server);
}

static void *serve(void *argument) {
    ddp_store_server *server = argument;
    while (isinf(server->stop_at_us) || (server->service.admitted_count > 0 && ls_now_us() < server->stop_at_us))
        serve_once(server);
    return NULL;
}

/* --- create and destroy ----------------------------------------------------------------------------------------------- */

static void free_server(ddp_store_server *server) {
    while (server->session_count > 0) drop(server, 0);
    ddp_store_table_destroy(server->service.table);
    if (server->listener.fd >= 0) close(server->listener.fd);
    if (server->wake_fd >= 0) close(server->wake_fd);
    free(server);
}

/* The thread blocks all signals: they are for the process's other threads. */
static int start_thread(ddp_store_server *server) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

/* Fills the texts up with zeros, since whole arrays are compared. */
static ddp_store_pass copy_pass(const ddp_store_pass *pass) {
    ddp_store_pass copy = {.world_size = pass->world_size};
    memcpy(copy.token, pass->token, strlen(pass->token));
    memcpy(copy.job, pass->job, strlen(pass->job));
    return copy;
}

static ls_status begin(ddp_store_server *server) {
    server->service.table = ddp_store_table_create();
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failure = server->service.table && server->wake_fd >= 0 ? start_thread(server) : errno;
    if (failure) return ls_fail(LS_ERR_SYSTEM, "cannot start the store's thread: %s", strerror(failure));
    return LS_OK;
}

ls_status ddp_store_serve_job(ddp_store_server **out, const char *host, int port, const ddp_store_pass *pass) {
    *out = NULL;
    ls_status status = ddp_store_pass_check(pass, host, port);
    if (status != LS_OK) return status;
    ddp_store_server *server = calloc(1, sizeof *server);
    if (!server) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the store");
    server->wake_fd = -1;
    server->service.patience_us = PATIENCE_DEFAULT_US;
    server->stop_at_us = INFINITY;
    server->service.admission.pass = copy_pass(pass);
    status = ddp_listen(&server->listener, host, port, BACKLOG);
    if (status == LS_OK) status = begin(server);
    if (status != LS_OK) {
        free_server(server);
        return status;
    }
    *out = server;
    return LS_OK;
}

ls_status ddp_store_serve(ddp_store_server **out, const char *host, int port) {
    return ddp_store_serve_job(out, host, port, &(ddp_store_pass){.world_size = 0});
}

const char *ddp_store_server_host(const ddp_store_server *server) { return server->listener.host; }

int ddp_store_server_port(const ddp_store_server *server) { return server->listener.port; }

bool ddp_store_server_has_joined(const ddp_store_server *server, int rank) {
    return server->service.admission.has_joined[rank];
}

bool ddp_store_server_is_present(const ddp_store_server *server, int rank) {
    return server->service.admission.present[rank] > 0;
}

bool ddp_store_server_has_met(const ddp_store_server *server) { return server->service.meetings.held > 0; }

static void wake(ddp_store_server *server) {
    uint64_t one = 1;
    if (write(server->wake_fd, &one, sizeof one) < 0) return; /* the counter is full: it is awake */
}

void ddp_store_server_set_patience(ddp_store_server *server, double patience_s) {
    server->service.patience_us = patience_s * 1e6;
    wake(server);
}

void ddp_store_server_stop(ddp_store_server *server, double linger_s) {
    if (!server) return;
    server->stop_at_us = ls_now_us() + linger_s * 1e6;
    wake(server);
    pthread_join(server->thread, NULL);
    free_server(server);
}
