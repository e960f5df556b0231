/* PyTorch's recorded runs of a small GPT: tests/golden/gpt_tiny.json. */
#ifndef TESTS_PARALLEL_GPT_TINY_H
#define TESTS_PARALLEL_GPT_TINY_H

#include "tests/parallel/plan.h"

enum { GPT_TINY_STEPS = 40 };

/* Writes the runs' tokens as a text, a byte each, to a file in the scratch folder, and returns its path: the training
 * set is exactly these tokens. Asserts. */
const char *gpt_tiny_text(void);

/* Run "adamw" on that text, on one device. The caller sets the number of steps. */
struct plan gpt_tiny_plan(const char *text);

/* The losses of a run ("adamw", "sgd", ...). Asserts. */
void gpt_tiny_losses(const char *run, double losses[GPT_TINY_STEPS]);

#endif
