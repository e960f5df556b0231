/* How a job has ended, in one line. */
#ifndef DDP_LAUNCH_LAUNCH_REPORT_H
#define DDP_LAUNCH_LAUNCH_REPORT_H

#include "ddp_procs/launch/launch_job.h"

/* Reports a failure; returns what ddp_launch does. */
ls_status ddp_report_job(const ddp_job *job);

#endif
