/* A thread and a process as two kinds of worker: what it takes to have one, to hand over to it, and to lose it. */
#ifndef LABS_BENCH_THREAD_VS_PROCESS_WORKERS_H
#define LABS_BENCH_THREAD_VS_PROCESS_WORKERS_H

#include <stdbool.h>

#include "common/base/status.h"

typedef enum worker_kind { WORKER_THREAD, WORKER_PROCESS, WORKER_KINDS } worker_kind;

/* Starts a worker that does nothing, and waits for its end. */
ls_status worker_create(double *us, worker_kind kind);

/* Hands a byte to a worker and gets it back, `trips` times, by two pipes; both run on one core, so that each way is a
 * switch from one to the other. `us`: of one way. */
ls_status worker_switch(double *us, worker_kind kind, int trips);

/* Whether a worker's change of a variable is seen by who started it. */
ls_status worker_shares(bool *seen, worker_kind kind);

/* What is left when a worker writes where it may not: in a process of its own one starts a worker, which crashes. */
typedef struct worker_crash {
    bool survived;     /* who started it went on, and knows how it ended */
    int worker_signal; /* that ended the worker, as its survivor was told; 0: there was none to be told */
    int signal;        /* that ended the process of who started it; 0: none */
} worker_crash;
ls_status worker_let_crash(worker_crash *crash, worker_kind kind);

#endif
