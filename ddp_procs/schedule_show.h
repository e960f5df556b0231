/* Prints a schedule: what --show-schedule of ddp_train answers. */
#ifndef DDP_SCHEDULE_SHOW_H
#define DDP_SCHEDULE_SHOW_H

#include <stdio.h>

#include "common/base/status.h"
#include "ddp_procs/schedule.h"

/* Idle share, micro-batches in flight, and whether sends that block end; each stage's list; and a picture of the first moments of
 * a step whose backward passes take twice as long as its forward passes. All is simulated, and the lists may be wrong. */
ls_status ddp_schedule_show(const ddp_schedule *schedule, FILE *file);

#endif
