/* --elastic: ranks that go on with fewer, and with more. Plain DDP on CPU devices, under a launcher that outlives its ranks
 * (launch.h).
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
    ddp_meeting formed; /* the last one behind which a group stood; number 0: there was none */
    int slot;           /* this rank's number at the launcher */
    ddp_hosts slots;    /* on which host each of these numbers is */
    int model_ranks;    /* how many share a batch, as far as the model knows */
    ddp_meeting tried;  /* the last one behind which it was to form a group */
    int idle;           /* groups of these ranks since the last step */
    int32_t end;        /* not 0: the job has ended */
    int64_t step;       /* that the group began with */
    uint64_t kept_nbytes, kept_hash;
    double looked_us; /* when rank 0 last asked whether somebody waits */
} ddp_elastic;

/* LS_ERR_USAGE where no launcher outlives this rank. */
ls_status ddp_elastic_check(const ddp_rank *self);

/* After ddp_setup_begin: meets the others and forms the first group with them, which trains in setup->parallel; NULL: all are
 * done. Errors are held back (log.h) from here to the end. */
ls_status ddp_elastic_begin(ddp_elastic *elastic, ddp_setup *setup, ddp_settings *settings);

/* After the training has ended with *status. True: this rank has lost others, or others have come; it has formed a new group
 * with those that are there, all of whom have the same state, and is to train on. False: the job is done, or over for
 * this rank; *status says how. */
bool ddp_elastic_goes_on(ddp_elastic *elastic, ls_status *status);

/* What was held back of a failure is reported. */
void ddp_elastic_end(ddp_elastic *elastic, ls_status status);

#endif
