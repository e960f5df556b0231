#define _GNU_SOURCE
#include "ddp_procs/launch/store_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/secret.h"
#include "ddp_procs/launch/store_address.h"

enum { NAME_DIGITS = 32 };

static ls_status fail_to_bind(const char *host, int port) {
    if (errno == EADDRINUSE)
        return ls_fail(LS_ERR_SYSTEM,
                       "cannot serve the store at %s:%d: the port is in use; end the program that uses it, or choose "
                       "another port (--master-port, MASTER_PORT)",
                       host, port);
    return ls_fail(LS_ERR_SYSTEM, "cannot serve the store at %s:%d: %s", host, port, strerror(errno));
}

/* A TCP socket bound to `port` of the address; *fd is -1 on failure, with errno set. */
static bool bind_tcp(int *fd, in_addr_t to, int port) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = to};
    int on = 1;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* SO_REUSEADDR: allows a port whose last user has ended; Linux still refuses one with a listener */
    if (*fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(*fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return true;
    int failure = errno;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    errno = failure;
    return false;
}

static int port_of(int fd) {
    struct sockaddr_in address = {0};
    socklen_t nbytes = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &nbytes) == 0 ? ntohs(address.sin_port) : 0;
}

static ls_status listen_tcp(ddp_listener *listener, const char *host, int port, int backlog) {
    struct in_addr to = {htonl(INADDR_ANY)};
    if (ddp_address_is_loopback(host) && inet_pton(AF_INET, host, &to) != 1) to.s_addr = htonl(INADDR_LOOPBACK);
    if (port < 0 || port > UINT16_MAX)
        return ls_fail(LS_ERR_INVALID, "cannot serve the store at %s:%d: a port is 0 to %d", host, port, UINT16_MAX);
    if (!bind_tcp(&listener->fd, to.s_addr, port) || listen(listener->fd, backlog) < 0) return fail_to_bind(host, port);
    snprintf(listener->host, sizeof listener->host, "%s", host);
    listener->port = port_of(listener->fd);
    return LS_OK;
}

static ls_status listen_unix(ddp_listener *listener, const char *name, int backlog) {
    char fresh[NAME_DIGITS + 1];
    if (name[0] == '\0') {
        ls_status status = ls_secret_make(fresh, NAME_DIGITS);
        if (status != LS_OK) return status;
        name = fresh;
    }
    struct sockaddr_un address;
    socklen_t nbytes = ddp_address_unix(&address, name);
    listener->fd = nbytes > 0 ? socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    if (nbytes == 0) errno = ENAMETOOLONG;
    if (listener->fd < 0 || bind(listener->fd, (struct sockaddr *)&address, nbytes) < 0 ||
        listen(listener->fd, backlog) < 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot serve the store at unix:%s: %s", name, strerror(errno));
    snprintf(listener->host, sizeof listener->host, "unix:%s", name);
    return LS_OK;
}

ls_status ddp_listen(ddp_listener *listener, const char *host, int port, int backlog) {
    *listener = (ddp_listener){.fd = -1};
    const char *name = ddp_address_socket_name(host);
    ls_status status = name ? listen_unix(listener, name, backlog) : listen_tcp(listener, host, port, backlog);
    if (status == LS_OK) return LS_OK;
    if (listener->fd >= 0) close(listener->fd);
    listener->fd = -1;
    return status;
}

/* The connection ends some ten seconds after the peer's host has died or been cut off, even without traffic. */
static void notice_lost_hosts(int fd) {
    int on = 1, idle_s = 4, interval_s = 2, probes = 3, unanswered_ms = 10000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

int ddp_accept(const ddp_listener *listener) {
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    if (fd < 0) return -1;
    if (!ddp_address_socket_name(listener->host)) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        notice_lost_hosts(fd);
    } else if (!ls_peer_is_own_user(fd)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

ls_status ddp_reserve_port(int *fd, int port, int *reserved) {
    if (!bind_tcp(fd, htonl(INADDR_LOOPBACK), port))
        return ls_fail(
            LS_ERR_SYSTEM,
            "cannot keep port %d of 127.0.0.1 for the ranks (MASTER_PORT): %s; --master-port 0 takes a free port", port,
            strerror(errno));
    *reserved = port_of(*fd);
    return LS_OK;
}
