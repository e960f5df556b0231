/* The parts of problems. Private to problems.c and problems_*.c. */
#ifndef TESTS_KERNELS_PROBLEM_PARTS_H
#define TESTS_KERNELS_PROBLEM_PARTS_H

#include "tests/kernels/problems.h"

/* Each fills the arguments of one operation and registers its outputs. */
#define LS_OP(name, flops, bytes, aliasing) void problem_##name(struct problem *p, size_t n);
#include "kernels/ops.def"
#undef LS_OP

/* Registers an output of the operation. */
void problem_output(struct problem *p, void *memory, size_t nbytes);
/* Outputs: random floats, random activations, zeros. Outputs that an operation need not read are random too. */
float *problem_floats(struct problem *p, size_t count, uint64_t seed);
void *problem_results(struct problem *p, size_t count, uint64_t seed);
void *problem_zeros(struct problem *p, size_t nbytes);

/* Inputs: random activations, and numbers from 0.5 to 1.5, for variances and divisors. */
void *problem_values(const struct problem *p, size_t count, uint64_t seed);
float *problem_positive(size_t count, uint64_t seed);

#endif
