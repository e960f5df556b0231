/* The run that fuzz_checkpoint resumes: a network of 43 parameters with Adam and loss scaling, in a mode that keeps
 * numbers. */
#ifndef TESTS_FUZZ_CHECKPOINT_RUN_H
#define TESTS_FUZZ_CHECKPOINT_RUN_H

#include "common/checkpoint/checkpoint.h"

enum { FUZZ_CHECKPOINT_PARAMETERS = 4, FUZZ_CHECKPOINT_STEPS_PER_EPOCH = 7 };

/* Created by the first call; the same run each time. */
struct ls_checkpointed *fuzz_checkpoint_run(void);

#endif
