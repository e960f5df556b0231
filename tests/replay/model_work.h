/* The workload of one of the project's own models as far as it follows from the model itself: parameters, the order
 * in which their gradients are ready in a real backward, and the bytes that layers keep. */
#ifndef TESTS_REPLAY_MODEL_WORK_H
#define TESTS_REPLAY_MODEL_WORK_H

#include "labs/replay/engine/workload.h"

enum { MODEL_WORK_MAX = 64 };

struct model_work {
    ls_workload workload; /* an operation forward, one for the loss, one backward for each parameter, an update */
    struct ls_work work[MODEL_WORK_MAX + 3];
    uint64_t counts[MODEL_WORK_MAX];
    char texts[MODEL_WORK_MAX][64];
    const char *names[MODEL_WORK_MAX];
    int ready[MODEL_WORK_MAX];
};

/* `states`: floats of the optimizer per parameter. Asserts success. */
void model_work_make(struct model_work *m, const char *model, int states);

#endif
