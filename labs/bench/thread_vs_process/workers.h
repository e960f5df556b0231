/* A thread and a process as two kinds of worker: the cost of creating one, of a switch to it, and of its crash. */
#ifndef LABS_BENCH_THREAD_VS_PROCESS_WORKERS_H
#define LABS_BENCH_THREAD_VS_PROCESS_WORKERS_H

#include <stdbool.h>

#include "common/base/status.h"

typedef enum worker_kind { WORKER_THREAD, WORKER_PROCESS, WORKER_KINDS } worker_kind;

/* Starts a worker that does nothing, and waits for its end. */
ls_status worker_create(double *us, worker_kind kind);

/* Sends a byte to a worker and back, `trips` times, by two pipes; both run on one core, so that each direction is a
 * context switch. `us`: the time of one direction. */
ls_status worker_switch(double *us, worker_kind kind, int trips);

/* Whether the starter sees a worker's change of a variable. */
ls_status worker_shares(bool *seen, worker_kind kind);

/* The outcome of an invalid write: a separate process starts a worker, which crashes. */
typedef struct worker_crash {
    bool survived;     /* the starter continued, and knows how the worker ended */
    int worker_signal; /* that ended the worker, as its starter saw it; 0: the starter did not survive */
    int signal;        /* that ended the starter's process; 0: none */
} worker_crash;
ls_status worker_let_crash(worker_crash *crash, worker_kind kind);

#endif
