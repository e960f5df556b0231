/* How an operation's arrays are copied to a back-end's memory and back. Private to backends.c and transplant.c. */
#ifndef TESTS_KERNELS_TRANSPLANT_H
#define TESTS_KERNELS_TRANSPLANT_H

#include "tests/kernels/backends.h"

struct backend {
    const char *name;
    unsigned kind;
    const struct ls_kernels *build; /* NULL: a GPU's rung */
    int rung;
    const char *manner; /* settings of tests/cuda_on_cpu, separated by blanks */
};

/* The memory and the stream of that back-end; enqueues the operation and waits for it. */
ls_stream *backend_stream(const struct backend *backend);
ls_status backend_run(const struct backend *backend, const struct ls_op *op);

/* Asserts the rules of backends.h. Returns the back-end's status. */
ls_status transplant(const struct backend *backend, const struct backend *best, const struct ls_op *op,
                     kernel_alignment alignment);

#endif
