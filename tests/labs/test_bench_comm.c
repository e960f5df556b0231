/* bench_comm's figures: its arithmetic on synthetic times. */
#include <math.h>

#include "labs/bench/comm/bench_comm.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"

/* --- bandwidths -------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, test_bandwidths) {
    static const struct {
        const char *name;
        double factor; /* for N = 4 */
    } factors[] = {{"all_reduce", 1.5},      {"broadcast", 1}, {"reduce", 1},     {"all_gather", 0.75},
                   {"reduce_scatter", 0.75}, {"gather", 0.75}, {"scatter", 0.75}, {"send_recv", 1}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        comm_row row = {.operation = comm_operation_find(factors[i].name),
                        .n = 4,
                        .nbytes = 6000000,
                        .run_count = 3,
                        .run_us = {4000, 2000, 3000}};
        assert_non_null(row.operation);
        comm_assemble(&row);
        expect_near(row.time_us, 3000);
        expect_near(row.least_us, 2000);
        expect_near(row.p10_us, 2200);
        expect_near(row.p90_us, 3800);
        expect_near(row.algbw_GBps, 2);
        expect_near(row.busbw_GBps, 2 * factors[i].factor);
    }
    comm_row barrier = {.operation = comm_operation_find("barrier"), .n = 4, .run_count = 1, .run_us = {5}};
    comm_assemble(&barrier);
    expect_near(barrier.time_us, 5);
    assert_true(isnan(barrier.algbw_GBps) && isnan(barrier.busbw_GBps));
    barrier.run_count = 0;
    comm_assemble(&barrier);
    assert_true(isnan(barrier.time_us));
}

TEST_IN(scratch, test_counts_that_differ) {
    comm_row row = {.operation = &comm_operations[0], .n = 2, .nbytes = 64, .busiest_rank = 1};
    const comm_results results = {.rows = &row, .row_count = 1};
    row.agreement = COMM_EQUAL;
    assert_int_equal(comm_check_counts(&results), LS_OK);
    row.agreement = COMM_DIFFERS;
    row.counted = (struct ls_allreduce_cost){.sent_messages = 2, .sent_bytes = 64};
    row.formula = (struct ls_allreduce_cost){.sent_messages = 3, .sent_bytes = 64};
    assert_int_equal(comm_check_counts(&results), LS_ERR_INVALID);
    scratch_expect_error("N 2, 64 bytes: rank 1 sent 2 messages, 64 bytes", "expected sent 3, 64");
}
