/* Which clients a store admits: the server's check of a hello; store_server.c uses it. */
#ifndef DDP_LAUNCH_STORE_ADMIT_H
#define DDP_LAUNCH_STORE_ADMIT_H

#include <stdbool.h>

#include "ddp_procs/launch/store_protocol.h"

typedef struct ddp_admission {
    ddp_store_pass pass; /* that clients must match; zeros after its texts */
    /* of each rank: the number of its connections, and its client */
    _Atomic int present[LS_COMM_MAX_RANKS]; /* any thread may read it */
    char clients[LS_COMM_MAX_RANKS][DDP_CLIENT_NBYTES + 1];
    _Atomic bool has_joined[LS_COMM_MAX_RANKS]; /* at any time; any thread may read it */
} ddp_admission;

/* DDP_RESULT_OK, and the rank counts as present until ddp_admission_leave; or the reason of the refusal. A client with
 * a wrong token learns nothing else. */
ddp_store_result ddp_admit(ddp_admission *admission, const ddp_hello *hello);

/* A connection of this rank, which was admitted, has ended. */
void ddp_admission_leave(ddp_admission *admission, int rank);

#endif
