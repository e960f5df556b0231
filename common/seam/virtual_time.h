/* Virtual time: --virtual-time. On a machine with fewer cores than a job has devices, the devices are time-sliced on
 * one core, and a trace has each thread's own CPU time (base/probe.h): the time that each device would need with a core
 * to itself, if the others did not disturb its caches. The results of the run are the same bits. The step times that
 * the run itself prints are those of time-sliced devices. Streams run inline; with LS_CPU_STREAMS=threads a trace has
 * the times of one core for each stream, so that communication overlaps with computation. */
#ifndef LS_SEAM_VIRTUAL_TIME_H
#define LS_SEAM_VIRTUAL_TIME_H

#include "common/seam/options.h"

/* Prepares this process and its children: one core for all threads, inline streams unless LS_CPU_STREAMS says threads,
 * and CPU devices if the options leave the kind open. A no-op without --virtual-time. Call after the options are read,
 * before there are threads or devices. LS_ERR_USAGE: an option that contradicts it; LS_ERR_SYSTEM: the kernel does not
 * bind threads. */
ls_status ls_virtual_time_begin(ls_train_options *options);

#endif
