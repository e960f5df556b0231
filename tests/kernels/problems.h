/* One small problem per operation, of any size, so that tests can walk the list of ops.def. */
#ifndef TESTS_KERNELS_PROBLEMS_H
#define TESTS_KERNELS_PROBLEMS_H

#include "tests/kernels/fixture.h"

#define PROBLEM_MAX_OUTPUTS 32

struct problem {
    struct ls_op op;
    struct {
        void *memory;
        size_t nbytes;
    } outputs[PROBLEM_MAX_OUTPUTS]; /* all that the operation writes, scratch memory excepted */
    int output_count;
};

/* Operation `id` on about `size` elements (0: none where the operation allows that); finite values, equal at every
 * call. Its memory is the fixture's, so it lives until the end of the test. */
struct problem make_problem(ls_op_id id, int size);

/* A hash of the outputs' bits. */
uint64_t hash_of_outputs(const struct problem *problem);

#endif
