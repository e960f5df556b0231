/* The socket that a store's server listens on. Sockets are non-blocking and close on exec. */
#ifndef DDP_LAUNCH_STORE_LISTEN_H
#define DDP_LAUNCH_STORE_LISTEN_H

#include <stdbool.h>

#include "common/base/status.h"
#include "ddp_procs/launch/rank.h"

typedef struct ddp_listener {
    int fd;                       /* -1: none */
    char host[DDP_HOST_CAPACITY]; /* where clients find it; "unix:NAME" or a host */
    int port;                     /* 0 for a Unix socket */
} ddp_listener;

/* Listens at the host that ddp_store_serve_job describes. The caller closes fd, which is -1 on failure (reported). */
ls_status ddp_listen(ddp_listener *listener, const char *host, int port, int backlog);

/* Accepts a client; -1: none (errno has the reason). A client of another user, on a Unix socket, is refused (EPERM). */
int ddp_accept(const ddp_listener *listener);

/* Takes a port of 127.0.0.1 (0: one that is free) without listening on it. While *fd is open, the system gives the port
 * to no process that asks for any free port; a process that asks for this one gets it. */
ls_status ddp_reserve_port(int *fd, int port, int *reserved);

#endif
