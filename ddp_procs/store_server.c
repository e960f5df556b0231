/* store_server: one thread that serves the store to all clients.
 *   idea  : a poll loop over non-blocking sockets. A client is in one of four phases: its request's header arrives, its body
 *           arrives, it waits for a key, its reply leaves. No phase blocks the thread, so a slow client delays nobody.
 *   order : requests take effect one at a time, in the order in which their last byte arrives.
 *   cost  : a few system calls per request; a new value looks at every client once to see who waits for it.
 *   fails : a client whose bytes are no request, that leaves in the middle of one, or that makes no end of one within the
 *           server's patience, is dropped together with what it had sent so far. The others go on. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/store.h"
#include "ddp_procs/store_protocol.h"
#include "ddp_procs/store_table.h"

enum { CLIENTS_MAX = 4 * LS_COMM_MAX_RANKS };

#define PATIENCE_DEFAULT_US 10e6
#define ACCEPT_PAUSE_US 1e5 /* after accept found no free file descriptor */

typedef enum phase { READING_HEADER, READING_BODY, WAITING, WRITING } phase;

typedef struct client {
    int fd;
    phase phase;
    size_t done;        /* bytes of this phase that have come or gone */
    double deadline_us; /* of the present request; INFINITY while the client owes nothing */
    unsigned char header[DDP_REQUEST_HEADER_NBYTES];
    ddp_request_header request;
    unsigned char *body; /* key, first and second, one after the other */
    char key[DDP_STORE_KEY_MAX + 1];
    unsigned char *reply; /* header and value */
    size_t reply_nbytes;
} client;

struct ddp_store_server {
    /* constant after create */
    int port, listen_fd, wake_fd;
    pthread_t thread;
    /* written by any thread, read by the server's */
    _Atomic double patience_us, stop_at_us;
    /* the server thread's own */
    ddp_store_table *table;
    client *clients[CLIENTS_MAX];
    int client_count;
    double accept_again_us;
};

/* --- requests -------------------------------------------------------------------------------------------------------- */

static void forget_client(client *c) {
    close(c->fd);
    free(c->body);
    free(c->reply);
    free(c);
}

/* False: no memory for the reply, drop the client. */
static bool start_reply(client *c, ddp_store_result result, ddp_bytes value) {
    c->reply_nbytes = DDP_REPLY_HEADER_NBYTES + value.nbytes;
    c->reply = malloc(c->reply_nbytes);
    if (!c->reply) return false;
    ddp_reply_header_write(c->reply, &(ddp_reply_header){result, value.nbytes});
    if (value.nbytes) memcpy(c->reply + DDP_REPLY_HEADER_NBYTES, value.data, value.nbytes);
    free(c->body);
    c->body = NULL;
    c->phase = WRITING;
    c->done = 0;
    return true;
}

static bool start_number_reply(client *c, ddp_store_result result, int64_t number) {
    unsigned char bytes[8];
    ddp_i64_write(bytes, number);
    return start_reply(c, result, result == DDP_RESULT_OK ? (ddp_bytes){bytes, sizeof bytes} : (ddp_bytes){NULL, 0});
}

static bool start_found_reply(client *c, const ddp_bytes *value) {
    return start_reply(c, DDP_RESULT_OK, c->request.operation == DDP_OP_GET ? *value : (ddp_bytes){NULL, 0});
}

/* Answers the request that has come in whole, or lets it wait for its key. */
static bool execute(ddp_store_server *server, client *c) {
    ddp_store_table *table = server->table;
    ddp_bytes first = {c->body + c->request.key_nbytes, c->request.first_nbytes};
    ddp_bytes second = {c->body + c->request.key_nbytes + c->request.first_nbytes, c->request.second_nbytes};
    ddp_bytes value = {NULL, 0};
    int64_t sum = 0;
    ddp_store_result result;
    switch (c->request.operation) {
    case DDP_OP_PING: return start_reply(c, DDP_RESULT_OK, value);
    case DDP_OP_SET: return start_reply(c, ddp_store_table_set(table, c->key, first), value);
    case DDP_OP_ADD:
        result = ddp_store_table_add(table, c->key, ddp_i64_read(first.data), &sum);
        return start_number_reply(c, result, sum);
    case DDP_OP_COMPARE_SET:
        result = ddp_store_table_compare_set(table, c->key, first, second, &value);
        return start_reply(c, result, result == DDP_RESULT_OK ? value : (ddp_bytes){NULL, 0});
    case DDP_OP_GET:
    case DDP_OP_WAIT: {
        const ddp_bytes *found = ddp_store_table_find(table, c->key);
        if (found) return start_found_reply(c, found);
        c->phase = WAITING;
        c->deadline_us = INFINITY;
        return true;
    }
    case DDP_OP_CHECK: return start_number_reply(c, DDP_RESULT_OK, ddp_store_table_find(table, c->key) != NULL);
    case DDP_OP_DELETE_KEY: return start_number_reply(c, DDP_RESULT_OK, ddp_store_table_delete(table, c->key));
    case DDP_OP_NUM_KEYS: return start_number_reply(c, DDP_RESULT_OK, ddp_store_table_count(table));
    }
    return false;
}

/* --- phases: each does what it can without blocking; false: drop the client -------------------------------------------- */

/* One recv towards `nbytes` in total; *complete says whether they are there. */
static bool receive(client *c, unsigned char *bytes, size_t nbytes, bool *complete) {
    *complete = c->done == nbytes;
    if (*complete) return true;
    ssize_t got = recv(c->fd, bytes + c->done, nbytes - c->done, 0);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    c->done += (size_t)got;
    *complete = c->done == nbytes;
    return true;
}

static bool read_body(ddp_store_server *server, client *c) {
    bool complete;
    size_t key_nbytes = c->request.key_nbytes;
    if (!receive(c, c->body, key_nbytes + c->request.first_nbytes + c->request.second_nbytes, &complete)) return false;
    if (!complete) return true;
    if (memchr(c->body, '\0', key_nbytes)) return false;
    memcpy(c->key, c->body, key_nbytes);
    c->key[key_nbytes] = '\0';
    return execute(server, c);
}

static bool read_header(ddp_store_server *server, client *c) {
    bool complete;
    if (!receive(c, c->header, sizeof c->header, &complete)) return false;
    if (c->done > 0 && isinf(c->deadline_us)) c->deadline_us = ls_now_us() + server->patience_us;
    if (!complete) return true;
    if (!ddp_request_header_read(&c->request, c->header)) return false;
    c->body = malloc(c->request.key_nbytes + c->request.first_nbytes + c->request.second_nbytes + 1);
    if (!c->body) return false;
    c->phase = READING_BODY;
    c->done = 0;
    return read_body(server, c);
}

static bool write_reply(client *c) {
    ssize_t sent = send(c->fd, c->reply + c->done, c->reply_nbytes - c->done, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    c->done += (size_t)sent;
    if (c->done < c->reply_nbytes) return true;
    free(c->reply);
    c->reply = NULL;
    c->phase = READING_HEADER;
    c->done = 0;
    c->deadline_us = INFINITY;
    return true;
}

static bool advance(ddp_store_server *server, client *c) {
    bool alive = true;
    if (c->phase == WAITING) return false; /* its socket has something to say: it left, or talks out of turn */
    if (c->phase == READING_HEADER)
        alive = read_header(server, c);
    else if (c->phase == READING_BODY)
        alive = read_body(server, c);
    if (alive && c->phase == WRITING) alive = write_reply(c);
    return alive;
}

/* --- the loop --------------------------------------------------------------------------------------------------------- */

static void drop(ddp_store_server *server, int index) {
    forget_client(server->clients[index]);
    server->clients[index] = server->clients[--server->client_count];
}

/* Starts the replies to those whose key has come to exist. */
static void serve_waiters(ddp_store_server *server) {
    for (int i = server->client_count - 1; i >= 0; i--) {
        client *c = server->clients[i];
        if (c->phase != WAITING) continue;
        const ddp_bytes *found = ddp_store_table_find(server->table, c->key);
        if (!found) continue;
        c->deadline_us = ls_now_us() + server->patience_us;
        if (!start_found_reply(c, found) || !write_reply(c)) drop(server, i);
    }
}

static void accept_client(ddp_store_server *server) {
    int fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR) server->accept_again_us = ls_now_us() + ACCEPT_PAUSE_US;
        return;
    }
    client *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->fd = fd;
    c->deadline_us = INFINITY;
    server->clients[server->client_count++] = c;
}

static bool may_accept(const ddp_store_server *server) {
    return server->client_count < CLIENTS_MAX && ls_now_us() >= server->accept_again_us;
}

static int poll_timeout_ms(const ddp_store_server *server) {
    double until_us = server->stop_at_us, now_us = ls_now_us();
    if (server->accept_again_us > now_us) until_us = fmin(until_us, server->accept_again_us);
    for (int i = 0; i < server->client_count; i++) until_us = fmin(until_us, server->clients[i]->deadline_us);
    if (isinf(until_us)) return -1;
    return (int)fmin(fmax(ceil((until_us - now_us) / 1e3), 0), 60e3);
}

static void serve_once(ddp_store_server *server) {
    static const short wanted[] = {
        [READING_HEADER] = POLLIN, [READING_BODY] = POLLIN, [WAITING] = POLLIN | POLLRDHUP, [WRITING] = POLLOUT};
    struct pollfd fds[2 + CLIENTS_MAX];
    int count = server->client_count;
    fds[0] = (struct pollfd){.fd = server->wake_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = may_accept(server) ? server->listen_fd : -1, .events = POLLIN};
    for (int i = 0; i < count; i++)
        fds[2 + i] = (struct pollfd){.fd = server->clients[i]->fd, .events = wanted[server->clients[i]->phase]};
    if (poll(fds, 2 + (nfds_t)count, poll_timeout_ms(server)) < 0) return; /* EINTR; all signals are blocked */
    uint64_t wakes;
    if (fds[0].revents && read(server->wake_fd, &wakes, sizeof wakes) < 0) return;
    for (int i = count - 1; i >= 0; i--) { /* downwards: dropping moves a client that is done into the gap */
        client *c = server->clients[i];
        bool alive = !fds[2 + i].revents || advance(server, c);
        if (!alive || ls_now_us() >= c->deadline_us) drop(server, i);
    }
    serve_waiters(server);
    if (fds[1].revents) accept_client(server);
}

static void *serve(void *argument) {
    ddp_store_server *server = argument;
    while (isinf(server->stop_at_us) || (server->client_count > 0 && ls_now_us() < server->stop_at_us))
        serve_once(server);
    return NULL;
}

/* --- create and destroy ----------------------------------------------------------------------------------------------- */

static bool is_loopback(const char *host) { return strcmp(host, "127.0.0.1") == 0 || strcmp(host, "localhost") == 0; }

static ls_status open_listener(ddp_store_server *server, const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(is_loopback(host) ? INADDR_LOOPBACK : INADDR_ANY);
    socklen_t nbytes = sizeof address;
    int on = 1;
    server->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* SO_REUSEADDR: take a port whose last user has ended; Linux still refuses one that somebody listens on */
    if (server->listen_fd < 0 || setsockopt(server->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot make a socket for the store: %s", strerror(errno));
    if (bind(server->listen_fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(server->listen_fd, CLIENTS_MAX) < 0) {
        if (errno == EADDRINUSE)
            return ls_fail(
                LS_ERR_SYSTEM,
                "cannot serve the store at %s:%d: the port is in use; end the program that uses it, or choose "
                "another port (MASTER_PORT, or ddprun's --master-port; 0 takes a free one)",
                host, port);
        return ls_fail(LS_ERR_SYSTEM, "cannot serve the store at %s:%d: %s", host, port, strerror(errno));
    }
    if (getsockname(server->listen_fd, (struct sockaddr *)&address, &nbytes) < 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot learn the store's port: %s", strerror(errno));
    server->port = ntohs(address.sin_port);
    return LS_OK;
}

static void free_server(ddp_store_server *server) {
    while (server->client_count > 0) drop(server, 0);
    ddp_store_table_destroy(server->table);
    if (server->listen_fd >= 0) close(server->listen_fd);
    if (server->wake_fd >= 0) close(server->wake_fd);
    free(server);
}

/* The thread takes no signals: they are the business of the threads that were there before. */
static int start_thread(ddp_store_server *server) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

ls_status ddp_store_serve(ddp_store_server **out, const char *host, int port) {
    *out = NULL;
    if (port < 0 || port > UINT16_MAX)
        return ls_fail(LS_ERR_INVALID, "cannot serve the store at %s:%d: a port is 0 to %d", host, port, UINT16_MAX);
    ddp_store_server *server = calloc(1, sizeof *server);
    if (!server) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the store");
    server->listen_fd = server->wake_fd = -1;
    server->patience_us = PATIENCE_DEFAULT_US;
    server->stop_at_us = INFINITY;
    ls_status status = open_listener(server, host, port);
    if (status == LS_OK) {
        server->table = ddp_store_table_create();
        server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int failure = server->table && server->wake_fd >= 0 ? start_thread(server) : errno;
        if (failure) status = ls_fail(LS_ERR_SYSTEM, "cannot start the store's thread: %s", strerror(failure));
    }
    if (status != LS_OK) {
        free_server(server);
        return status;
    }
    *out = server;
    return LS_OK;
}

int ddp_store_server_port(const ddp_store_server *server) { return server->port; }

static void wake(ddp_store_server *server) {
    uint64_t one = 1;
    if (write(server->wake_fd, &one, sizeof one) < 0) return; /* the counter is full: it is awake */
}

void ddp_store_server_set_patience(ddp_store_server *server, double patience_s) {
    server->patience_us = patience_s * 1e6;
    wake(server);
}

void ddp_store_server_stop(ddp_store_server *server, double linger_s) {
    if (!server) return;
    server->stop_at_us = ls_now_us() + linger_s * 1e6;
    wake(server);
    pthread_join(server->thread, NULL);
    free_server(server);
}
