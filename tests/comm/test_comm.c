/* Results and traffic of the collective operations, on every back-end: exact against a serial loop over the ranks, and
 * against the formulas of collectives.c. */
#include <string.h>

#include "common/comm/comm_internal.h"
#include "tests/base/test.h"
#include "tests/comm/operations.h"
#include "tests/comm/values.h"

#define TIMEOUT_S 60.0

static void operations_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, (size_t)rank->world_size * (2 * LS_STAGE_BYTES + 1024));
    run_operations(rank, &b);
    buffers_close(rank, &b);
    rank_close(rank);
}

TEST(test_operations) {
    for (int n = 1; n <= 8; n++) run_good_ranks_on_all(n, operations_body, NULL);
}

/* --- special values ----------------------------------------------------------------------------------------------- */

/* A NaN of any rank must appear in the result of every reduction. */
static void check_nan(struct rank *rank, struct buffers *b, ls_dtype dtype, ls_reduce_op op) {
    for (size_t count = 100; count <= 100000; count *= 1000) {
        char *buffer = guarded(rank, b, PRIVATE, count * ls_dtype_nbytes(dtype));
        fill_some_nans(buffer, dtype, rank->rank, count);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, dtype, op) == LS_OK);
        CHECK(has_all_nans(buffer, dtype, rank->world_size, count));
    }
}

static void nan_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, 400000);
    for (ls_reduce_op op = LS_REDUCE_SUM; op < LS_REDUCE_OP_COUNT; op++)
        for (ls_dtype dtype = LS_FP32; dtype <= LS_BF16; dtype++) check_nan(rank, &b, dtype, op);
    buffers_close(rank, &b);
    rank_close(rank);
}

TEST(test_nan) {
    for (int n = 1; n <= 3; n++) run_good_ranks_on_all(n, nan_body, NULL);
}
