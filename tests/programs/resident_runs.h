/* Runs with --resident-batches and the runs that they must repeat: the same program on data that contains only the
 * batches that are kept, in the same order. Call between programs_setup and its teardown; all functions assert. */
#ifndef TESTS_PROGRAMS_RESIDENT_RUNS_H
#define TESTS_PROGRAMS_RESIDENT_RUNS_H

/* Samples per step in these runs. */
#define RESIDENT_BATCH 16

/* Runs `line` (words in front of a program's name, the program, its options) with --resident-batches `kept` on data of
 * six batches, and without it on data of the first `kept` of them: every loss and the weights must be the same. */
void resident_expect_same(const char *line, int kept);

#endif
