/* Prints a schedule (--show-schedule of ddp_train). */
#ifndef DDP_SCHEDULE_SHOW_H
#define DDP_SCHEDULE_SHOW_H

#include <stdio.h>

#include "common/base/status.h"
#include "ddp_procs/schedule.h"

/* Prints the idle share, the micro-batches in flight, and whether blocking sends terminate; each stage's list; and a
 * timeline of the beginning of a step whose backward passes take twice as long as its forward passes. Everything is
 * simulated; the lists may be wrong (lab 21). */
ls_status ddp_schedule_show(const ddp_schedule *schedule, FILE *file);

#endif
