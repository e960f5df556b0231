/* bench_comm's figures: its arithmetic and the files, on times made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/bench/comm/bench_comm.h"
#include "tests/base/scratch.h"
#include "tests/labs/figures.h"

/* --- bandwidths -------------------------------------------------------------------------------------------------- */

static void test_bandwidths(void **state) {
    (void)state;
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

/* --- files ------------------------------------------------------------------------------------------------------- */

static comm_settings settings;

static comm_results *make_results(void) {
    comm_results *results;
    char *argv[] = {"bench_comm", "--op=all_reduce,barrier", "--allreduce=ring,direct", "--n=2,4", "--sizes=8,64",
                    NULL};
    bool help;
    assert_int_equal(comm_parse(&settings, 5, argv, &help), LS_OK);
    settings.cores = 2;
    settings.folder = scratch_folder();
    assert_int_equal(comm_results_create(&results, &settings, &example_machine), LS_OK);
    assert_int_equal(results->group_count, 2);
    assert_int_equal(results->row_count, 2 * (2 * 2 + 1)); /* a barrier has no sizes */
    for (int i = 0; i < results->row_count; i++) {
        comm_row *row = &results->rows[i];
        row->run_count = 1;
        row->run_us[0] = 2 + i;
        row->agreement = COMM_EQUAL;
        comm_assemble(row);
    }
    results->others[0] = (comm_row){
        .library = "Other, 1.0", .operation = &comm_operations[0], .n = 2, .nbytes = 8, .run_count = 1, .run_us = {9}};
    comm_assemble(&results->others[0]);
    results->other_count = 1;
    return results;
}

static void test_files(void **state) {
    (void)state;
    comm_results *results = make_results();
    settings.json = scratch_path("other.json");
    assert_int_equal(comm_prepare_files(&settings), LS_OK);
    assert_int_equal(comm_write_files(results), LS_OK);
    assert_int_equal(scratch_file_count(), 3);
    size_t nbytes;
    char *csv = scratch_read(scratch_path("comm.csv"), &nbytes);
    int fields = csv_fields(csv), lines = 0;
    assert_true(strncmp(csv, "library,backend,buffers,op,algorithm,n,bytes,", 45) == 0);
    for (char *line = csv; *line; line = strchr(line, '\n') + 1, lines++)
        if (csv_fields(line) != fields) fail_msg("line %d has %d fields, not %d", lines, csv_fields(line), fields);
    assert_int_equal(lines, 1 + results->row_count + 1);
    assert_non_null(strstr(csv, "\n\"lockstep\",shm,shared,all_reduce,direct,4,64,16,fp32,sum,1,0,measured,"));
    assert_non_null(strstr(csv, "\n\"Other, 1.0\",,private,all_reduce,,2,8,"));
    free(csv);
    char *json = scratch_read(scratch_path("comm.json"), &nbytes), *copy = scratch_read(settings.json, &nbytes);
    assert_string_equal(json, copy);
    cJSON *all = cJSON_Parse(json);
    const cJSON *rows = cJSON_GetObjectItem(all, "rows");
    assert_int_equal(cJSON_GetArraySize(rows), results->row_count + 1);
    const cJSON *third = cJSON_GetArrayItem(rows, 2); /* the barrier */
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(third, "op")), "barrier");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(third, "busbw_GBps")));
    expect_near(cJSON_GetNumberValue(cJSON_GetObjectItem(third, "time_us")), 4);
    cJSON_Delete(all);
    free(json);
    free(copy);
    comm_results_destroy(results);
}

static void test_counts_that_differ(void **state) {
    (void)state;
    comm_results *results = make_results();
    assert_int_equal(comm_check_counts(results), LS_OK);
    comm_row *row = &results->rows[3];
    row->agreement = COMM_DIFFERS;
    row->busiest_rank = 1;
    row->counted = (struct ls_allreduce_cost){.sent_messages = 2, .sent_bytes = 64};
    row->formula = (struct ls_allreduce_cost){.sent_messages = 3, .sent_bytes = 64};
    assert_int_equal(comm_check_counts(results), LS_ERR_INVALID);
    scratch_expect_error("N 2, 64 bytes: rank 1 sent 2 messages, 64 bytes", "the formula says sent 3, 64");
    comm_results_destroy(results);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_bandwidths),
        TEST(test_files),
        TEST(test_counts_that_differ),
    };
    return cmocka_run_group_tests_name("bench_comm", tests, NULL, NULL);
}
