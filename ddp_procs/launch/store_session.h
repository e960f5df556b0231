/* One client of a store's server: what it sends, and what it gets. No call blocks. store_server.c uses it, from one
 * thread. */
#ifndef DDP_LAUNCH_STORE_SESSION_H
#define DDP_LAUNCH_STORE_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "ddp_procs/launch/store_service.h"

/* A session for a client that is not admitted yet: it must show its pass by deadline_us. Takes over the socket, which
 * is non-blocking. NULL: out of memory; the socket is closed. */
ddp_session *ddp_session_open(int fd, double deadline_us);
void ddp_session_close(ddp_service *service, ddp_session *c);

/* The socket is ready for what the phase asks for: goes on with it. False: close the session. */
bool ddp_session_advance(ddp_service *service, ddp_session *c);

/* Replies to one that waits for a key, if that has come to exist. False: close the session. */
bool ddp_session_serve_waiting(ddp_service *service, ddp_session *c);

/* Replies to one that waits in a meeting. False: close the session. */
bool ddp_session_end_meeting(ddp_service *service, ddp_session *c, bool held, ddp_bytes list);

#endif
