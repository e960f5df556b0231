/* Virtual time: --virtual-time. On a machine with fewer cores than a job has devices, the devices are time-sliced on one
 * core, and a trace bears each thread's own CPU time (base/probe.h): what each device would have needed with a core to
 * itself, but for what the others leave in the caches. The results of the run are the same bits; the times that it
 * prints itself are those of devices in turn. */
#ifndef LS_SEAM_VIRTUAL_TIME_H
#define LS_SEAM_VIRTUAL_TIME_H

#include "common/seam/options.h"

/* Prepares the process, and those that it starts: one core for all threads, streams that run inline; and takes CPU
 * devices where the options leave the kind open. Nothing without --virtual-time. Called after the options are read,
 * before there are threads or devices. LS_ERR_USAGE: what does not go with it; LS_ERR_SYSTEM: the kernel does not bind
 * threads. */
ls_status ls_virtual_time_begin(ls_train_options *options);

#endif
