/* One client of a store's server: what it sends, and what it gets. No call blocks. store_server.c uses it, from one
 * thread. */
#ifndef DDP_LAUNCH_STORE_SESSION_H
#define DDP_LAUNCH_STORE_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "ddp_procs/launch/store_admit.h"
#include "ddp_procs/launch/store_protocol.h"
#include "ddp_procs/launch/store_table.h"

enum { DDP_CLIENTS_MAX = 2 * LS_COMM_MAX_RANKS };

/* What all clients share. */
typedef struct ddp_service {
    ddp_store_table *table;
    ddp_admission admission;
    int admitted_count;         /* sessions that have shown a pass, at most DDP_CLIENTS_MAX */
    _Atomic double patience_us; /* for a request and its reply; any thread may change it */
} ddp_service;

typedef enum ddp_session_phase {
    DDP_GREETING, /* its hello arrives */
    DDP_READING_HEADER,
    DDP_READING_BODY,
    DDP_WAITING, /* for a key */
    DDP_WRITING  /* its reply leaves */
} ddp_session_phase;

/* The caller reads fd, phase, admitted and deadline_us. */
typedef struct ddp_session {
    int fd;
    ddp_session_phase phase;
    bool admitted;      /* false: a stranger, or one that is being told why it may not come in */
    int rank;           /* of one that is admitted */
    double deadline_us; /* for this phase; INFINITY while the client owes nothing */
    size_t done;        /* bytes of this phase that have come or gone */
    unsigned char header[DDP_HELLO_NBYTES];
    ddp_request_header request;
    unsigned char *body; /* key and value, one behind the other */
    char key[DDP_STORE_KEY_MAX + 1];
    unsigned char *reply; /* header and value */
    size_t reply_nbytes;
} ddp_session;

/* A session for a client that is not admitted yet: it must show its pass by deadline_us. Takes over the socket, which
 * is non-blocking. NULL: out of memory; the socket is closed. */
ddp_session *ddp_session_open(int fd, double deadline_us);
void ddp_session_close(ddp_service *service, ddp_session *c);

/* The socket is ready for what the phase asks for: goes on with it. False: close the session. */
bool ddp_session_advance(ddp_service *service, ddp_session *c);

/* Starts the reply to one that waits for a key, if that has come to exist. False: close the session. */
bool ddp_session_serve_waiting(ddp_service *service, ddp_session *c);

#endif
