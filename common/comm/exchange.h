/* One collective operation's data movement, common to all of them.
 *
 * Each rank publishes a buffer (or nothing): a matrix of `parts` rows of `count` elements (parts = world size where
 * each rank gets a row of its own, else 1). After a barrier every rank sees every published buffer through views, and
 * `run` reads them (and, for reductions in place, writes them).
 *   one round  small messages are copied into the control area before the barrier; run reads them there. One barrier
 *              suffices, since the next operations use other buffers.
 *   in place   if all ranks can access all published buffers (memory of ls_comm_alloc_shared; any memory if ranks are
 *              threads), run accesses them directly, whole.
 *   in slices  otherwise the operation proceeds in slices of columns. A rank whose buffer is not shared copies slice j
 *              + 1 into one staging buffer while slice j is processed in the other. Shared buffers are accessed
 *              directly.
 *
 * Rules for `run`: on entry all views are readable. A rank may access other ranks' views until it returns; then comes a
 * second barrier, after which each rank owns its view again (not in one round, where no rank may write to a view).
 * Steps inside of run (ls_comm_step_done) end with ls_comm_steps_end on all ranks. */
#ifndef LS_COMM_EXCHANGE_H
#define LS_COMM_EXCHANGE_H

#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

typedef struct ls_exchange {
    /* filled by the caller */
    const ls_operation *operation;
    void *buffer; /* the buffer that this rank publishes; NULL: none */
    size_t parts, count;
    bool write_back; /* run leaves this rank's result in its view: copy it back to buffer */
    size_t one_round_bytes;
    const char *algorithm; /* for the probes; NULL: the operation has a single one */
    ls_status (*run)(struct ls_exchange *exchange);
    /* the current slice, for run */
    ls_comm *comm;
    size_t element_nbytes;
    bool one_round;
    size_t first, slice_count; /* columns first .. first + slice_count */
    /* by rank: the slice's first element of part 0 (NULL: publishes nothing), and bytes from one part to the next */
    char **view;
    size_t *stride_bytes;
} ls_exchange;

/* Runs it; on failure the group is broken and the contents of the buffers are undefined. */
ls_status ls_exchange_run(ls_exchange *exchange);

#endif
