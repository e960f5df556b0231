/* The cores that this process may use. */
#ifndef LS_BASE_CORES_H
#define LS_BASE_CORES_H

#include <stdbool.h>

/* Cores in the process's affinity mask at the first call, which must come before any thread is pinned; at least 1. */
int ls_usable_cores(void);

/* Bytes of the first core's data or unified cache of a level, 1 to 3; 0: not known. (For a level that cores share, some
 * machines' sysconf tells the sum of all such caches.) */
double ls_cache_bytes(int level);

/* Lets the calling thread run on all of them again. A thread inherits the pinning of the thread that starts it: a
 * loader that stayed on its device's core would take its time from the device. */
void ls_run_on_any_core(void);

/* Pins the calling thread to one of them; places 0 to count - 1 are spread evenly over them, in the order of their
 * numbers. */
void ls_run_on_core(int place, int count);

/* From here on all threads of this process, and the processes that it starts, run on one core, the first that it may
 * use, so that they take turns; waits neither spin nor yield. Called before any other function of this header and
 * before there are other threads. False: the kernel does not let us. */
bool ls_share_one_core(void);

/* How long a thread should spin for something that another one of `participants` busy threads or processes does: 0 if
 * they outnumber the cores, since spinning would keep that other one from running. Little where the environment has
 * LS_SHARED_CORES: other jobs use the same cores. */
double ls_spin_us_for(int participants);

/* How long a thread that does not spin should yield its core before it sleeps: where participants share cores, about
 * one turn of each on a core. */
double ls_yield_us_for(int participants);

#endif
