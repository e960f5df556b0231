/* The socket under a client of the store: connecting, sending and receiving until a point in time. */
#ifndef DDP_LAUNCH_STORE_CONNECT_H
#define DDP_LAUNCH_STORE_CONNECT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

/* Times are those of ls_now_us(). Sockets are non-blocking and close on exec. */

/* Connects to a store's host and port (store.h); *fd is -1 unless the result is LS_OK. `retry`: while nothing listens
 * there, tries again until until_us and then reports LS_ERR_TIMEOUT; without it, LS_ERR_PEER at once. LS_ERR_PEER also
 * if another user listens on the Unix socket. Reports its failures. */
ls_status ddp_socket_connect(int *fd, const char *host, int port, bool retry, double until_us);

/* All `nbytes` or LS_ERR_TIMEOUT, LS_ERR_PEER (closed or reset by the other side). Failures are not reported: the
 * caller knows the context. */
ls_status ddp_socket_send(int fd, const void *bytes, size_t nbytes, double until_us);
ls_status ddp_socket_receive(int fd, void *bytes, size_t nbytes, double until_us);

#endif
