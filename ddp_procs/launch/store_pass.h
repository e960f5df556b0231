/* The pass of a rank, and where a store needs a secret; the files of the store and the launcher use it. */
#ifndef DDP_LAUNCH_STORE_PASS_H
#define DDP_LAUNCH_STORE_PASS_H

#include "ddp_procs/launch/store.h"

/* The pass of this rank (ddp_store_open). LS_ERR_INVALID: the environment's LS_JOB_TOKEN is too long. */
ls_status ddp_store_pass_of_rank(ddp_store_pass *pass, const ddp_rank *self);

/* A new job's: a token that nobody can foresee. */
ls_status ddp_store_pass_make(ddp_store_pass *pass, const char *job, int world_size);

/* LS_ERR_USAGE, reported, where the store can be reached from other machines and the pass has no token. */
ls_status ddp_store_pass_check(const ddp_store_pass *pass, const char *host, int port);

#endif
