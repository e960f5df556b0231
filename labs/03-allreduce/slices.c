/* slices — messages that do not fit into one slice, among threads.
 *   idea  : the probe is linked with --wrap, so that the exchange calls these functions first. They pass the student's
 *           functions one half of the columns, and then the other, as exchange.c does between processes
 *   why   : ranks that are threads see each other's whole buffers, so that x->count and x->slice_count would be
 *           equal */
#include "labs/03-allreduce/slices.h"

#include "common/comm/exchange.h"

static bool two_slices;

ls_status __real_ls_allreduce_ring(ls_exchange *x);
ls_status __real_ls_allreduce_direct(ls_exchange *x);
ls_status __wrap_ls_allreduce_ring(ls_exchange *x);
ls_status __wrap_ls_allreduce_direct(ls_exchange *x);

void slices_use(bool two) { two_slices = two; }

/* Moves the slice forward by `columns`. */
static void move_on(ls_exchange *x, size_t columns) {
    x->first += columns;
    for (int r = 0; r < x->comm->world_size; r++) x->view[r] += columns * x->element_nbytes;
}

static ls_status run(ls_exchange *x, ls_status (*body)(ls_exchange *x)) {
    if (!two_slices || x->one_round) return body(x);
    size_t line = LS_CACHE_LINE_BYTES / x->element_nbytes, first = x->count / 2 / line * line;
    x->slice_count = first;
    ls_status status = body(x);
    if (status == LS_OK) status = ls_comm_gate(x->comm, LS_CHANNEL_STREAM, &x->operation->what);
    if (status != LS_OK) return status;
    move_on(x, first);
    x->slice_count = x->count - first;
    return body(x);
}

ls_status __wrap_ls_allreduce_ring(ls_exchange *x) { return run(x, __real_ls_allreduce_ring); }
ls_status __wrap_ls_allreduce_direct(ls_exchange *x) { return run(x, __real_ls_allreduce_direct); }
