/* How an operation gets to a back-end's memory and back. Private to backends.c and transplant.c. */
#ifndef TESTS_KERNELS_TRANSPLANT_H
#define TESTS_KERNELS_TRANSPLANT_H

#include "tests/kernels/backends.h"

struct backend {
    const char *name;
    unsigned kind;
    const struct ls_kernels *build; /* NULL: a GPU's rung */
    int rung;
    const char *manner; /* settings of tests/cuda_on_cpu, with blanks between */
};

/* Where operations on that back-end run: memory and a stream; enqueues the operation and waits for it. */
ls_stream *backend_stream(const struct backend *backend);
ls_status backend_run(const struct backend *backend, const struct ls_op *op);

/* Asserts what backends.h says. Returns what the back-end returned. */
ls_status transplant(const struct backend *backend, const struct backend *best, const struct ls_op *op,
                     kernel_alignment alignment);

#endif
