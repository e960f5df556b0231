/* Opens a client's connection to a store: connects, and sends the hello with its pass; store.c uses it. */
#ifndef DDP_LAUNCH_STORE_ENTER_H
#define DDP_LAUNCH_STORE_ENTER_H

#include <stdbool.h>

#include "ddp_procs/launch/store_address.h"
#include "ddp_procs/launch/store_protocol.h"

/* The address of a client's store, and the hello that it sends. */
typedef struct ddp_store_door {
    char host[DDP_HOST_CAPACITY], place[DDP_PLACE_CAPACITY]; /* place: host and port, for messages */
    int port;
    ddp_hello hello;
} ddp_store_door;

/* *fd is a connection that the store has admitted, -1 on failure (reported). `retry` is that of ddp_socket_connect. */
ls_status ddp_store_enter(int *fd, const ddp_store_door *door, bool retry, double until_us);

#endif
