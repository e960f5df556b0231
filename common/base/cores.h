/* The cores that this process may use. */
#ifndef LS_BASE_CORES_H
#define LS_BASE_CORES_H

/* Cores in the process's affinity mask at the first call, which must come before any thread is pinned; at least 1. */
int ls_usable_cores(void);

/* Lets the calling thread run on all of them again. A thread inherits the pinning of the thread that starts it: a
 * loader that stayed on its device's core would take its time from the device. */
void ls_run_on_any_core(void);

/* How long a thread should spin for something that another one of `participants` busy threads or processes does: 0 if
 * they outnumber the cores, since spinning would keep that other one from running. */
double ls_spin_us_for(int participants);

#endif
