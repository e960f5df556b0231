/* One small problem per operation, of any size and type, so that tests can walk the list of ops.def. */
#ifndef TESTS_KERNELS_PROBLEMS_H
#define TESTS_KERNELS_PROBLEMS_H

#include "tests/kernels/fixture.h"

#define PROBLEM_MAX_OUTPUTS 32

struct problem {
    struct ls_op op;
    ls_dtype dtype;
    struct {
        void *memory;
        size_t nbytes;
    } outputs[PROBLEM_MAX_OUTPUTS]; /* all memory that the operation writes, except scratch memory */
    int output_count;
};

/* The types that activations may have. */
#define PROBLEM_DTYPES 3
extern const ls_dtype problem_dtypes[PROBLEM_DTYPES];

/* Operation `id` on about `size` elements (0: none, if the operation allows that); finite values, the same at every
 * call. Activations are of `dtype`: the same random floats, rounded. (cast is to `dtype` at even sizes and from it at
 * odd ones; cast_divide of LS_FP32 is to LS_FP16.) Its memory is the fixture's, so it lives until the end of the
 * test. */
struct problem make_problem(ls_op_id id, int size, ls_dtype dtype);

/* True if the operation has activations; the others ignore `dtype`. */
bool op_has_dtype(ls_op_id id);

#endif
