/* The cores that this process may use. */
#ifndef LS_BASE_CORES_H
#define LS_BASE_CORES_H

#include <stdbool.h>

/* Cores in the process's affinity mask at the first call, which must come before any thread is pinned; at least 1. */
int ls_usable_cores(void);

/* Bytes of the first core's data or unified cache of a level, 1 to 3; 0: not known. (For a level that cores share,
 * sysconf of some machines returns the sum of all such caches.) */
double ls_cache_bytes(int level);

/* Lets the calling thread run on all usable cores again. A thread inherits the pinning of the thread that starts it, so
 * a loader worker would otherwise compete with its device for one core. */
void ls_run_on_any_core(void);

/* Pins the calling thread to one of the usable cores: thread `place` of 0 .. count - 1, which are spread evenly over
 * the cores in order. */
void ls_run_on_core(int place, int count);

/* Restricts all threads of this process, and the processes that it starts, to the first usable core, so that they take
 * turns; waits neither spin nor yield. Call before any other function of this header and before starting a thread.
 * False: the kernel refuses. */
bool ls_share_one_core(void);

/* How long a thread should spin while it waits for another of `participants` busy threads or processes: 0 if they
 * outnumber the cores, since spinning would keep the awaited one from running. Short if LS_SHARED_CORES is in the
 * environment, which says that other jobs use the same cores. */
double ls_spin_us_for(int participants);

/* How long a thread that does not spin should yield its core before it sleeps: about one time slice of each participant
 * on the core, if participants share cores. */
double ls_yield_us_for(int participants);

#endif
