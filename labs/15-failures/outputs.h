/* Outputs of failing jobs, generated from the messages of the programs: part of lab 15's probe. */
#ifndef LABS_FAILURES_OUTPUTS_H
#define LABS_FAILURES_OUTPUTS_H

#include "labs/course/probe/probe.h"

enum { OUTPUT_KINDS = 10, OUTPUT_CAPACITY = 1 << 15 };

/* An output of that kind, 0 <= kind < OUTPUT_KINDS, of a job of `ranks` ranks (at least 2): the rank that fails, the
 * rank that reports it first, the order of the lines and all numbers are random. */
void output_make(probe *p, char text[OUTPUT_CAPACITY], int kind, int ranks);

#endif
