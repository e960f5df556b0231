/* What the parts of `backends` share: the back-ends, and the trial of one operation on one of them. */
#ifndef LABS_BENCH_BACKENDS_BACKENDS_H
#define LABS_BENCH_BACKENDS_BACKENDS_H

#include <stdbool.h>

#include "labs/bench/comm/bench_comm.h"

enum { BACKENDS_RANKS = 2, BACKENDS_TEXT = 256 };

/* How two ranks run (threads or processes), and how data is transferred between them. */
typedef struct backends_backend {
    const char *name, *ranks;
    ls_device_kind kind;
    bool processes; /* else threads */
    bool attaches;  /* ranks attach a GPU, by this path */
    ls_comm_path path;
} backends_backend;

/* Ends with a row whose name is NULL. */
extern const backends_backend backends_all[];

typedef struct backends_answer {
    enum { BACKENDS_YES, BACKENDS_NO, BACKENDS_ABSENT, BACKENDS_WRONG } kind;
    char why[BACKENDS_TEXT]; /* the back-end's message, unless the answer is YES */
} backends_answer;

/* Runs the operation on two ranks, in separate processes: YES if it ran and every element of the results is right, NO
 * if the back-end reports that it lacks the operation, ABSENT if the back-end is not available on this machine, WRONG
 * if the operation failed otherwise. LS_ERR_SYSTEM: the ranks could not be started. */
ls_status backends_try(backends_answer *answer, const backends_backend *backend, const comm_operation *operation);

#endif
