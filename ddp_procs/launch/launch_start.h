/* Starting the process of a rank, for the first time or once more. launch.c and launch_watch.c use it. */
#ifndef DDP_LAUNCH_LAUNCH_START_H
#define DDP_LAUNCH_LAUNCH_START_H

#include "ddp_procs/launch/launch_job.h"

/* Starts the process of a rank, of which none runs. */
ls_status ddp_start_rank(ddp_job *job, int rank);

/* Call when no rank will be started any more: closes the ranks' output, so that it reaches its end. */
void ddp_forget_outputs(ddp_job *job);

#endif
