/* Before the first step the ranks of a job compare facts about themselves through the store, so that none trains with
 * settings that differ from rank 0's. The caller chooses the facts (compared.h). */
#ifndef DDP_AGREE_H
#define DDP_AGREE_H

#include "common/base/status.h"
#include "ddp_procs/facts.h"
#include "ddp_procs/launch/store.h"

/* The ranks of one job. */
typedef struct ddp_agreement {
    ddp_store *store;
    int rank, world_size;
    double timeout_s; /* the store's, for messages */
    int64_t run;      /* 1, 2, ...: of this rank, over this store */
    bool late;        /* the other ranks have compared already */
} ddp_agreement;

/* Begins a run over a store that may still have the keys of an earlier run, as when a launched script starts several
 * programs in sequence. Every rank calls this once per run, so that all count runs alike. */
ls_status ddp_agree_begin(ddp_agreement *agreement, ddp_store *store, const ddp_rank *self, double timeout_s);

/* Call after begin on a rank that an elastic job has restarted: it compares its facts with those that rank 0 published
 * in the job's first run, and no rank waits for it. */
void ddp_agree_late(ddp_agreement *agreement);

/* Collective, unless late: every rank publishes `mine`, rank 0 compares, and every rank gets the result. `about` ("settings") must
 * be unique within a run: it is part of the keys, and messages use it as the name of the facts. LS_ERR_USAGE on every
 * rank if a fact of one differs from rank 0's: a line for each fact and value (bounded, but naming every rank that
 * differs), on rank 0 all of them, on the others those that are about them. LS_ERR_PEER: a rank has aborted;
 * LS_ERR_TIMEOUT: the message names the missing ranks. Cost: each rank sets one value and gets one, rank 0 gets one
 * from each other rank; the same for any number of facts, if they agree. */
ls_status ddp_agree(const ddp_agreement *agreement, const char *about, const ddp_facts *mine);

/* Call instead of ddp_agree on a rank that has failed: the other ranks end at once. Reports nothing. */
void ddp_agree_give_up(const ddp_agreement *agreement, const char *about);

#endif
