/* Starting the process of a rank, for the first time or once more. launch.c and launch_watch.c use it. */
#ifndef DDP_LAUNCH_LAUNCH_START_H
#define DDP_LAUNCH_LAUNCH_START_H

#include "ddp_procs/launch/launch_job.h"

/* Nobody of that number runs. */
ls_status ddp_start_rank(ddp_job *job, int rank);

/* Nobody is started any more: what the ranks have printed to comes to its end. */
void ddp_forget_outputs(ddp_job *job);

#endif
