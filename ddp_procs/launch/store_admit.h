/* Which clients a store admits: the server's check of a hello; store_server.c uses it. */
#ifndef DDP_LAUNCH_STORE_ADMIT_H
#define DDP_LAUNCH_STORE_ADMIT_H

#include <stdbool.h>

#include "ddp_procs/launch/store_protocol.h"

typedef struct ddp_admission {
    ddp_store_pass pass; /* what a client's must go with; zeros behind its texts */
    /* of each rank: the connections that it has now, and the client whose they are */
    _Atomic int present[LS_COMM_MAX_RANKS]; /* any thread may read it */
    char clients[LS_COMM_MAX_RANKS][DDP_CLIENT_NBYTES + 1];
    _Atomic bool has_joined[LS_COMM_MAX_RANKS]; /* at any time; any thread may read it */
} ddp_admission;

/* DDP_RESULT_OK, and the rank is there until ddp_admission_leave; or why it may not come in. A client whose token is
 * wrong learns nothing but that. */
ddp_store_result ddp_admit(ddp_admission *admission, const ddp_hello *hello);

/* A connection of this rank, which was admitted, has ended. */
void ddp_admission_leave(ddp_admission *admission, int rank);

#endif
