/* What a store's server knows of its clients. store_server.c, store_session.c and store_meeting.c use it, from one thread. */
#ifndef DDP_LAUNCH_STORE_SERVICE_H
#define DDP_LAUNCH_STORE_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "ddp_procs/launch/store_admit.h"
#include "ddp_procs/launch/store_protocol.h"
#include "ddp_procs/launch/store_table.h"

enum { DDP_CLIENTS_MAX = 2 * LS_COMM_MAX_RANKS };

/* Of a store's meetings (store_meeting.h). */
typedef struct ddp_meetings {
    _Atomic int64_t held; /* so far; any thread may read it */
    int met, present;     /* who came to the last one; members that are there now */
    int waiting;          /* for the next */
} ddp_meetings;

/* What all clients share. */
typedef struct ddp_service {
    ddp_store_table *table;
    ddp_admission admission;
    int admitted_count; /* sessions that have shown a pass, at most DDP_CLIENTS_MAX */
    ddp_meetings meetings;
    _Atomic double patience_us; /* for a request and its reply; any thread may change it */
} ddp_service;

typedef enum ddp_session_phase {
    DDP_GREETING, /* its hello arrives */
    DDP_READING_HEADER,
    DDP_READING_BODY,
    DDP_WAITING, /* for a key */
    DDP_MEETING, /* waits for the others */
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
    unsigned char *body; /* key and value, concatenated */
    char key[DDP_STORE_KEY_MAX + 1];
    unsigned char *reply; /* header and value */
    size_t reply_nbytes;
    bool is_member; /* it has been at a meeting */
    int least;      /* in DDP_MEETING: how many are to come, how long it waits for them, and what it says */
    double patient_until_us;
    unsigned char said[DDP_SAID_NBYTES];
} ddp_session;

#endif
