/* The mirror: keeps the control areas of a group's hosts equal. Private to common/comm.
 *
 * Each host has a control area with slots for all ranks of the group. A thread in the process of the host's lowest rank
 * (its leader) is joined by TCP to the leaders of the other hosts. It sends the writes of its own host's ranks, and
 * copies received data into the slots of the other hosts' ranks, so that waits, the detection of missing, dead and late
 * ranks (wait.c), comparisons (flight_ring.c) and flight records work across hosts. Tensors are never sent by the
 * mirror.
 *   mirror_connect.c  how leaders find each other
 *   mirror.c          the thread: connections, heartbeats, failures
 *   mirror_words.c    the records, their order, and how they are applied */
#ifndef LS_COMM_MIRROR_H
#define LS_COMM_MIRROR_H

#include <pthread.h>

#include "common/comm/comm_internal.h"

#define LS_MIRROR_BEAT_US 1e5 /* between two heartbeats, which also carry flight records and presence */

/* Bytes that wait to be sent or parsed. */
typedef struct ls_bytes {
    unsigned char *at;
    size_t used, capacity;
    bool failed; /* no memory */
} ls_bytes;

/* Another host of the group. */
typedef struct ls_mirror_host {
    int leader;
    bool ranks[LS_COMM_MAX_RANKS];
    char address[16];
    int fd;           /* -1: the connection has ended */
    int64_t clock_ms; /* to be added to that host's times */
    ls_bytes in, out;
} ls_mirror_host;

struct ls_mirror_shadow; /* mirror_words.c: the last state sent of a rank */

struct ls_mirror {
    ls_comm *comm;
    pthread_t thread;
    bool is_running;
    atomic_bool stops;   /* the leader leaves */
    atomic_bool watches; /* comm->pidfd is complete */
    /* the thread */
    int host_count;
    ls_mirror_host *hosts;
    struct ls_mirror_shadow *shadow; /* by rank; of this host's ranks */
    bool has_told_broken;
    ls_bytes batch; /* records for all hosts */
};

/* --- mirror_connect.c --------------------------------------------------------------------------------------------- */

/* Called by the leader once it has the control area: connects to the other hosts' leaders and fills comm->mirror. Ends
 * at `until_us`; a failure is reported and breaks the group on this host. Call ls_mirror_stop in either case. */
ls_status ls_mirror_connect(ls_comm *comm, const ls_comm_options *options, double until_us);

/* --- mirror.c ----------------------------------------------------------------------------------------------------- */

ls_status ls_mirror_start(ls_comm *comm);

/* Call before the control area is freed. Unless the group is broken, waits until the host's other ranks leave, for some
 * seconds at most. */
void ls_mirror_stop(ls_comm *comm);

/* --- mirror_words.c ----------------------------------------------------------------------------------------------- */

ls_status ls_mirror_make_shadow(struct ls_mirror *mirror);

/* Appends to mirror->batch the changes by this host's ranks since the last call: arrivals and the reason why the group
 * is broken, and if `all`, everything else. */
void ls_mirror_collect(struct ls_mirror *mirror, bool all);
void ls_mirror_add_beat(struct ls_mirror *mirror);

/* Applies the complete records received from a host. False: a record is malformed, or there is no memory. */
bool ls_mirror_apply(struct ls_mirror *mirror, ls_mirror_host *host);

void ls_bytes_add(ls_bytes *bytes, const void *data, size_t nbytes);
void ls_bytes_drop(ls_bytes *bytes, size_t nbytes); /* the first ones */

#endif
