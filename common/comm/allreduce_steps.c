#include "common/comm/allreduce_steps.h"

#include <string.h>

#include "common/comm/reduce_kernels.h"

static size_t nbytes_of(const ls_exchange *x, ls_range range) { return ls_range_count(range) * x->element_nbytes; }

static char *view_of(const ls_exchange *x, ls_range range, int rank) {
    return x->view[rank] + range.begin * x->element_nbytes;
}

void ls_steps_reduce(ls_exchange *x, ls_range range, const int *ranks, int nranks) {
    const ls_announcement *what = &x->operation->what;
    size_t others = (size_t)nranks - 1;
    if (ls_range_count(range) == 0) return;
    const void *inputs[LS_COMM_MAX_RANKS];
    for (int i = 0; i < nranks; i++) inputs[i] = view_of(x, range, ranks[i]);
    void *output = view_of(x, range, x->comm->rank);
    ls_reduce_inputs(&output, 1, inputs, nranks, ls_range_count(range), (ls_dtype)what->dtype, (ls_reduce_op)what->op);
    ls_comm_count_received(x->comm, others, others * nbytes_of(x, range));
}

void ls_steps_copy(ls_exchange *x, ls_range range, int peer) {
    if (ls_range_count(range) == 0) return;
    memcpy(view_of(x, range, x->comm->rank), view_of(x, range, peer), nbytes_of(x, range));
    ls_comm_count_received(x->comm, 1, nbytes_of(x, range));
}

void ls_steps_sent(ls_exchange *x, ls_range range, int messages) {
    if (ls_range_count(range) == 0) return;
    ls_comm_count_sent(x->comm, (size_t)messages, (size_t)messages * nbytes_of(x, range));
}
