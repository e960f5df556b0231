/* Parameters that a backward leaves out, for tests of find_unused: no built-in model can leave out chosen
 * parameters. */
#ifndef TESTS_DDP_PROCS_UNUSED_H
#define TESTS_DDP_PROCS_UNUSED_H

#include "common/nn/model.h"
#include "tests/comm/ranks.h"

/* From now on (until a call with `unused` false) the backward leaves the parameter out, as if the loss did not depend
 * on it (a branch that was not taken): its gradient counts as zero (it is set to zero, or with `accumulate` unchanged),
 * and the hook is not called for it. For ranks that are processes, on a CPU device: a parameter of a linear layer, of a
 * model that was made from a text and whose network is not lent to other models. */
void set_unused(const struct rank *rank, ls_model *model, size_t parameter, bool unused);

#endif
