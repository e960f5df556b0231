/* Virtual time: --virtual-time. On a machine with fewer cores than a job has devices, the devices are time-sliced on
 * one core, and a trace has each thread's own CPU time (base/probe.h): what each device would have needed with a core
 * to itself, if the others did not disturb its caches. The results of the run are the same bits. The step times that
 * the run itself prints are those of devices that take turns. Streams run inline; with LS_CPU_STREAMS=threads a trace has what a
 * core for each stream would give, so that communication overlaps with computation. */
#ifndef LS_SEAM_VIRTUAL_TIME_H
#define LS_SEAM_VIRTUAL_TIME_H

#include "common/seam/options.h"

/* Prepares the process, and those that it starts: one core for all threads, streams that run inline unless they are given
 * threads; and takes CPU devices where the options leave the kind open. Nothing without --virtual-time. Called after the options are read,
 * before there are threads or devices. LS_ERR_USAGE: what cannot be combined with it; LS_ERR_SYSTEM: the kernel does not bind
 * threads. */
ls_status ls_virtual_time_begin(ls_train_options *options);

#endif
