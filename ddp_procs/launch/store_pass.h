/* The pass of a rank, and where a store needs a secret; the files of the store and the launcher use it. */
#ifndef DDP_LAUNCH_STORE_PASS_H
#define DDP_LAUNCH_STORE_PASS_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/comm/comm.h"
#include "ddp_procs/launch/rank.h"

enum { DDP_TOKEN_CAPACITY = 128 };

/* What a client shows, and what the server compares it with. Text is terminated. */
typedef struct ddp_store_pass {
    char token[DDP_TOKEN_CAPACITY]; /* the job's secret; empty: none */
    char job[LS_JOB_CAPACITY];      /* the job's name; empty: it has none */
    int world_size; /* the job's ranks, each of which may be there once; 0 at the server: any client may */
    int rank;       /* of the client */
    bool
        of_agent; /* of the client, for messages: it is a launcher of several (launch_agents.h), `rank` its host's number */
} ddp_store_pass;

/* The pass of this rank (ddp_store_open). LS_ERR_INVALID: the environment's LS_JOB_TOKEN is too long. */
ls_status ddp_store_pass_of_rank(ddp_store_pass *pass, const ddp_rank *self);

/* Makes the pass of a new job, with an unpredictable token. */
ls_status ddp_store_pass_make(ddp_store_pass *pass, const char *job, int world_size);

/* LS_ERR_USAGE, reported, where the store can be reached from other machines and the pass has no token. */
ls_status ddp_store_pass_check(const ddp_store_pass *pass, const char *host, int port);

#endif
