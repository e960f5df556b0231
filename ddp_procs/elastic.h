/* --elastic: training that continues when ranks are lost or join. Plain DDP on CPU devices, under a launcher that
 * outlives its ranks (launch.h).
 *
 *     ddp_elastic_begin(&e, &setup, &settings)
 *     do status = ls_train_kept(..., &e.kept); while (ddp_elastic_goes_on(&e, &status));
 *     ddp_elastic_end(&e) */
#ifndef DDP_ELASTIC_H
#define DDP_ELASTIC_H

#include "common/train/kept.h"
#include "ddp_procs/setup.h"

typedef struct ddp_elastic {
    ls_kept kept;
    /* private */
    ddp_setup *setup;
    ddp_settings *settings;
    ddp_meeting met;    /* the last one */
    ddp_meeting formed; /* the last meeting after which a group was formed; number 0: none */
    int slot;           /* this rank's number in the launcher */
    ddp_hosts slots;    /* the host of each such number */
    int model_ranks;    /* the number of ranks that the model's state assumes */
    ddp_meeting tried;  /* the last meeting after which forming a group was attempted */
    int idle;           /* groups formed since the last step */
    int32_t end;        /* not 0: the job has ended */
    int64_t step;       /* at which the group began */
    uint64_t kept_nbytes, kept_hash;
    double looked_us; /* when rank 0 last checked for waiting ranks */
} ddp_elastic;

/* LS_ERR_USAGE unless a launcher outlives this rank. */
ls_status ddp_elastic_check(const ddp_rank *self);

/* After ddp_setup_begin: joins the rendezvous and forms the first group, which trains in setup->parallel; NULL: all
 * other ranks are done. Errors are held back (log.h) from here to the end. */
ls_status ddp_elastic_begin(ddp_elastic *elastic, ddp_setup *setup, ddp_settings *settings);

/* After the training has ended with *status. True: ranks were lost or have joined; a new group is formed, whose ranks
 * all have the same state, and training continues. False: the job is done, or over for this rank; *status has the
 * result. */
bool ddp_elastic_goes_on(ddp_elastic *elastic, ls_status *status);

/* Reports the failure that was held back, if any. */
void ddp_elastic_end(ddp_elastic *elastic, ls_status status);

#endif
