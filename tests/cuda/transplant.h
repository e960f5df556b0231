/* A GPU beside the CPU device of tests/kernels, and problems that are carried over to it. Real GPUs too: nothing here
 * must need tests/cuda_on_cpu. Use with
 *     cmocka_unit_test_setup_teardown(test, transplant_setup, transplant_teardown) */
#ifndef TESTS_CUDA_TRANSPLANT_H
#define TESTS_CUDA_TRANSPLANT_H

#include "kernels/cuda/cuda.h"
#include "tests/kernels/problems.h"

/* kernel_setup, and GPU 0. *state may say how tests/cuda_on_cpu is to run things, as settings of its environment with
 * blanks between: "CUDA_ON_CPU_THREADS=descending CUDA_ON_CPU_ROUNDING=slices:4". The rounding of this process's own
 * environment, if there is one, is kept. */
int transplant_setup(void **state);
int transplant_teardown(void **state);

/* Forgets those of the tests whose state is such a manner, if the GPU is a real one, which does as it likes: they would
 * be other tests once more. */
struct CMUnitTest;
void transplant_leave_out(struct CMUnitTest *tests, size_t count);

ls_stream *transplant_stream(void);

enum { RUNG_NAIVE, RUNG_FAST, RUNG_COUNT };
const struct ls_cuda_rungs *transplant_rungs(void);

/* Where arrays of floats and halves begin: at a multiple of 64 bytes, all one element behind that, or every second of
 * them there, from the second or from the first on. */
typedef enum transplant_alignment {
    TRANSPLANT_ALIGNED,
    TRANSPLANT_SHIFTED,
    TRANSPLANT_SECOND_SHIFTED,
    TRANSPLANT_FIRST_SHIFTED,
    TRANSPLANT_ALIGNMENTS
} transplant_alignment;

/* Copies all that the problem's arguments point to onto the GPU (memory of tests/kernels/fixture.h), has `enqueue` put
 * the operation on the stream, waits, and copies the outputs back to where they were. Asserts that nothing but outputs
 * and workspace was written. Returns what waiting returned. */
ls_status transplant_run(const struct problem *problem, ls_op_launcher enqueue, transplant_alignment alignment);

#endif
