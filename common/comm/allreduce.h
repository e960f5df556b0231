/* The all-reduce algorithms: one table that the command line, the tests and the benchmarks walk. A new algorithm is a
 * file with a `run` function and a row here. */
#ifndef LS_COMM_ALLREDUCE_H
#define LS_COMM_ALLREDUCE_H

#include <stddef.h>

#include "common/base/status.h"

struct ls_exchange;

/* What one rank moves in one all_reduce that goes through in one slice (buffers in shared memory, or threads). */
struct ls_allreduce_cost {
    size_t steps; /* of the whole group, one after the other: what latency multiplies */
    size_t sent_messages, sent_bytes, received_messages, received_bytes;
};

typedef struct ls_allreduce_algorithm {
    const char *name, *description;
    /* Reduces one slice (exchange.h says what a slice is and what must hold at the end). */
    ls_status (*run)(struct ls_exchange *exchange);
    /* Messages up to so many bytes are exchanged along with the meeting: `run` then finds exchange->one_round set, only
     * reads the views and writes the result to exchange->buffer. 0: never. */
    size_t one_round_bytes;
    /* The cost formula: exactly what ls_comm_traffic_read counts on `rank` for `count` elements in one slice. */
    void (*cost)(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count, size_t element_nbytes);
} ls_allreduce_algorithm;

/* Ends with a row whose name is NULL. */
extern const ls_allreduce_algorithm ls_allreduce_algorithms[];

/* The row of that name, or NULL if there is none. */
const ls_allreduce_algorithm *ls_allreduce_find(const char *name);

ls_status ls_allreduce_naive(struct ls_exchange *exchange);
ls_status ls_allreduce_direct(struct ls_exchange *exchange);

#endif
