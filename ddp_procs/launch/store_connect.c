/* store_connect: sockets with deadlines.
 *   fails : a connection that is refused, or reset before it is used, means that the server has not started yet: it is
 *           retried at growing intervals until the deadline. On a free port of the ephemeral range a socket may connect
 *           to itself; such a connection is closed. A Unix socket whose queue is full returns EAGAIN: it is retried. */
#define _GNU_SOURCE
#include "ddp_procs/launch/store_connect.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "ddp_procs/launch/store_address.h"

#define RETRY_FIRST_MS 2.0
#define RETRY_LAST_MS 200.0

static int remaining_ms(double until_us) { return (int)fmin(fmax(ceil((until_us - ls_now_us()) / 1e3), 0), 60e3); }

/* True once the socket is ready; false at the deadline. */
static bool await(int fd, short events, double until_us) {
    struct pollfd wanted = {.fd = fd, .events = events};
    while (poll(&wanted, 1, remaining_ms(until_us)) <= 0)
        if (ls_now_us() >= until_us) return false;
    return true;
}

ls_status ddp_socket_send(int fd, const void *bytes, size_t nbytes, double until_us) {
    const unsigned char *next = bytes;
    while (nbytes > 0) {
        ssize_t sent = send(fd, next, nbytes, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return LS_ERR_PEER;
        if (sent < 0 && !await(fd, POLLOUT, until_us)) return LS_ERR_TIMEOUT;
        if (sent <= 0) continue;
        next += sent;
        nbytes -= (size_t)sent;
    }
    return LS_OK;
}

ls_status ddp_socket_receive(int fd, void *bytes, size_t nbytes, double until_us) {
    unsigned char *next = bytes;
    while (nbytes > 0) {
        ssize_t got = recv(fd, next, nbytes, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return LS_ERR_PEER;
        if (got < 0 && !await(fd, POLLIN, until_us)) return LS_ERR_TIMEOUT;
        if (got < 0) continue;
        next += got;
        nbytes -= (size_t)got;
    }
    return LS_OK;
}

static bool is_connected_to_itself(int fd) {
    struct sockaddr_in here = {0}, there = {0};
    socklen_t here_nbytes = sizeof here, there_nbytes = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &here_nbytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_nbytes) == 0 && here.sin_port == there.sin_port &&
           here.sin_addr.s_addr == there.sin_addr.s_addr;
}

/* One attempt: 0 and *fd, or the errno of the failure (ETIMEDOUT at the deadline). */
static int try_address(int *fd, const struct addrinfo *address, double until_us) {
    int s = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0) return errno;
    int failure = connect(s, address->ai_addr, address->ai_addrlen) < 0 ? errno : 0;
    if (failure == EINPROGRESS) {
        socklen_t nbytes = sizeof failure;
        if (!await(s, POLLOUT, until_us))
            failure = ETIMEDOUT;
        else if (getsockopt(s, SOL_SOCKET, SO_ERROR, &failure, &nbytes) < 0)
            failure = errno;
    }
    if (failure == 0 && address->ai_family == AF_INET && is_connected_to_itself(s)) failure = ECONNREFUSED;
    if (failure) {
        close(s);
        return failure;
    }
    int on = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *fd = s;
    return 0;
}

static int try_addresses(int *fd, const struct addrinfo *addresses, double until_us) {
    int failure = ECONNREFUSED;
    for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
        failure = try_address(fd, a, until_us);
        if (failure == 0) break;
    }
    return failure;
}

static ls_status resolve(struct addrinfo **addresses, const char *host, int port) {
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int failure = getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, service, &hints, addresses);
    if (failure == 0) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "cannot find the host of the store, %s:%d: %s", host, port,
                   failure == EAI_SYSTEM ? strerror(errno) : gai_strerror(failure));
}

static const char *connect_advice(int failure) {
    if (failure == ETIMEDOUT) return "is the address right, and does no firewall drop what goes to that port?";
    if (failure == EHOSTUNREACH || failure == ENETUNREACH) return "is the address right, and the network up?";
    return "is rank 0, or the launcher, running?";
}

static ls_status connect_to(int *fd, const struct addrinfo *addresses, const char *place, bool retry, double until_us) {
    double begin_us = ls_now_us(), pause_ms = RETRY_FIRST_MS;
    int failure = try_addresses(fd, addresses, until_us);
    while ((failure == EAGAIN || (failure && retry)) && ls_now_us() < until_us) {
        poll(NULL, 0, (int)fmin(pause_ms, remaining_ms(until_us)));
        pause_ms = fmin(2 * pause_ms, RETRY_LAST_MS);
        failure = try_addresses(fd, addresses, until_us);
    }
    if (failure == 0) return LS_OK;
    if (!retry)
        return ls_fail(LS_ERR_PEER, "the store at %s is gone (%s): the process that served it has ended", place,
                       strerror(failure));
    return ls_fail(LS_ERR_TIMEOUT, "no store answers at %s after %.3g s (%s): %s", place,
                   (ls_now_us() - begin_us) * 1e-6, strerror(failure), connect_advice(failure));
}

/* Checks the user: after its server has ended, another user may have taken the socket's name. */
static ls_status connect_unix(int *fd, const char *name, const char *place, bool retry, double until_us) {
    struct sockaddr_un address;
    const struct addrinfo one = {
        .ai_family = AF_UNIX, .ai_addrlen = ddp_address_unix(&address, name), .ai_addr = (struct sockaddr *)&address};
    if (one.ai_addrlen == 0) return ls_fail(LS_ERR_INVALID, "the store's name is too long: %s", place);
    ls_status status = connect_to(fd, &one, place, retry, until_us);
    if (status != LS_OK || ls_peer_is_own_user(*fd)) return status;
    close(*fd);
    *fd = -1;
    return ls_fail(LS_ERR_PEER, "the process that serves the store at %s belongs to another user than this one", place);
}

ls_status ddp_socket_connect(int *fd, const char *host, int port, bool retry, double until_us) {
    *fd = -1;
    char place[DDP_PLACE_CAPACITY];
    ddp_address_text(place, host, port);
    const char *name = ddp_address_socket_name(host);
    if (name) return connect_unix(fd, name, place, retry, until_us);
    struct addrinfo *addresses;
    ls_status status = resolve(&addresses, host, port);
    if (status != LS_OK) return status;
    status = connect_to(fd, addresses, place, retry, until_us);
    freeaddrinfo(addresses);
    return status;
}
