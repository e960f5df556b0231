/* PyTorch's recorded runs of six steps of deep (tests/golden/fsdp2_deep.json, pipeline_deep.json), and jobs that are
 * compared with them. */
#ifndef TESTS_DDP_PROCS_GOLDEN_DEEP_H
#define TESTS_DDP_PROCS_GOLDEN_DEEP_H

#include "tests/base/golden.h"
#include "tests/ddp_procs/job.h"

enum { GOLDEN_DEEP_STEPS = 6 };

struct golden_deep {
    struct plan plan;
    bool scales; /* larger initial weights, and biases of 0, so that losses change; SGD, not Adam */
    double losses[GOLDEN_DEEP_STEPS], norms[GOLDEN_DEEP_STEPS];
};

/* Either kind of run, with a list of losses. */
struct golden_deep golden_deep_make(enum mode mode, int ranks, bool scales, const cJSON *losses);
void golden_deep_read(const cJSON *list, double numbers[GOLDEN_DEEP_STEPS]);

/* As job_open, with the run's initial weights. */
void golden_deep_open(struct rank *rank, struct job *job, const struct golden_deep *run);

/* CHECKs the result of step k against PyTorch's, and prints both if they differ. The loss is that of all ranks
 * together. */
void golden_deep_expect(const struct rank *rank, const char *what, size_t k, double found, double expected,
                        double tolerance);
void golden_deep_expect_loss(const struct rank *rank, struct job *job, const struct golden_deep *run, size_t k);

#endif
