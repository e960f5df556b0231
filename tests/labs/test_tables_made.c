#define _GNU_SOURCE
/* What tables are made of: counted messages, replayed messages, the course's cells, training runs; and the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/tables/count.h"
#include "labs/replay/tables/course.h"
#include "labs/replay/tables/messages.h"
#include "labs/replay/tables/train.h"
#include "tests/base/scratch.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

static program run;

static const char *line_of(const char *text, int number) {
    for (; number > 0 && text; number--) text = (text = strchr(text, '\n')) ? text + 1 : NULL;
    assert_non_null(text);
    return text;
}

static double number_at(const char *line, int index) {
    char field[CSV_FIELD_CAPACITY];
    csv_field(field, line, index);
    return strtod(field, NULL);
}

/* --- counts ------------------------------------------------------------------------------------------------------- */

/* Of a ring of 4 with 4096 floats: 6 messages of a quarter each, of every rank; of naive rank 0 sends all. */
static void test_counted_messages(void **state) {
    (void)state;
    struct ls_allreduce_cost counted[LS_COMM_MAX_RANKS];
    assert_int_equal(tables_count_allreduce(counted, ls_allreduce_find("ring"), 4, 4096), LS_OK);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(counted[r].sent_messages, 6);
        assert_int_equal(counted[r].sent_bytes, 6 * 4096);
        assert_int_equal(counted[r].received_bytes, 6 * 4096);
    }
    assert_int_equal(tables_count_allreduce(counted, ls_allreduce_find("naive"), 4, 4096), LS_OK);
    assert_int_equal(counted[0].sent_bytes, 3 * 16384);
    assert_int_equal(counted[3].sent_bytes, 16384);
}

/* --- replayed messages -------------------------------------------------------------------------------------------- */

static void expect_us(ls_pattern pattern, int ranks, double expected) {
    const ls_hockney link = {.alpha_us = 2, .GBps = 1, .gamma_GBps = INFINITY};
    double us = NAN;
    assert_int_equal(tables_message_us(&us, pattern, ranks, 8000, &link), LS_OK);
    assert_true(fabs(us - expected) < 1e-6 * expected);
}

/* 8000 bytes take 8 us of a link, and 2 us on the way. */
static void test_replayed_messages(void **state) {
    (void)state;
    expect_us(LS_PATTERN_RING, 2, 2 * (2 + 4));
    expect_us(LS_PATTERN_RING, 8, 14 * (2 + 1));
    expect_us(LS_PATTERN_TREE, 8, 6 * (2 + 8));
    expect_us(LS_PATTERN_HALVING_DOUBLING, 8, 2 * (2 + 4) + 2 * (2 + 2) + 2 * (2 + 1));
    expect_us(LS_PATTERN_SERVER, 3, 2 + 2 * 8 + 2 * (2 + 8)); /* two come together, and go one after another */
}

/* --- the course --------------------------------------------------------------------------------------------------- */

/* The node's file has what the fit finds, to within a standard error, and every cell is within 5 %. */
static void test_course_fit(void **state) {
    (void)state;
    struct course_model model;
    struct tables_fit fit, again;
    double file[COURSE_PARAMETERS];
    assert_int_equal(course_open(&model), LS_OK);
    course_file_values(&model, file);
    assert_int_equal(course_fit(&fit, &model, -1, 0), LS_OK);
    assert_int_equal(fit.degrees_of_freedom, 4);
    for (int i = 0; i < COURSE_CELLS; i++) assert_true(fabs(fit.residual[i]) <= 0.05);
    for (int k = 0; k < COURSE_PARAMETERS; k++) {
        assert_true(fabs(fit.value[k] / file[k] - 1) < fit.error[k]);
        assert_true(fit.error[k] < 0.3);
    }
    assert_int_equal(course_fit(&again, &model, -1, 0), LS_OK);
    assert_memory_equal(fit.value, again.value, sizeof fit.value);
    course_close(&model);
}

/* A cell that is left out has no say: the others come out better than with it. */
static void test_course_fit_without_a_cell(void **state) {
    (void)state;
    struct course_model model;
    struct tables_fit all, others;
    struct tables_replayed single = {0}, replayed = {0};
    const int left_out = COURSE_CELLS - 1;
    assert_int_equal(course_open(&model), LS_OK);
    assert_int_equal(course_fit(&all, &model, -1, 0), LS_OK);
    assert_int_equal(course_fit(&others, &model, left_out, 0), LS_OK);
    assert_int_equal(others.points, COURSE_CELLS - 1);
    assert_int_equal(others.degrees_of_freedom, 3);
    double without = 0;
    for (int i = 0; i < left_out; i++) without += all.residual[i] * all.residual[i];
    assert_true(others.sum < without);
    assert_int_equal(course_replay(&single, &model, LS_PLAN_SINGLE, 1, false, others.value), LS_OK);
    assert_true(fabs(single.step_ms / course_cells[0].ms - 1 - others.residual[0]) < 1e-12);
    assert_int_equal(course_replay(&replayed, &model, LS_PLAN_DDP, 8, false, others.value), LS_OK);
    assert_true(fabs(replayed.step_ms / course_cells[left_out].ms - 1) < 0.1);
    assert_true(replayed.collectives > 0 && replayed.collectives < 1);
    assert_true(replayed.mean.exposed < replayed.mean.communication);
    course_close(&model);
}

/* --- training runs ------------------------------------------------------------------------------------------------ */

static void test_training_runs(void **state) {
    (void)state;
    struct tables_run wanted = {TABLES_DP, 2, "mlp:784,256,10", "adam", "fp32", 64, 2, NULL};
    cJSON *summary;
    assert_int_equal(tables_train(&summary, &wanted, PROGRAM_DEADLINE_S), LS_OK);
    double parameter_bytes = tables_phase_bytes(summary, 1, "reduce");
    assert_true(parameter_bytes >= 4 * (784 * 256 + 256 + 256 * 10 + 10) && parameter_bytes < 4 * 204000);
    assert_true(tables_peak_bytes(summary, 0, "optimizer") >= 2 * parameter_bytes);
    assert_true(tables_peak_bytes(summary, 1, "optimizer") == 0);
    assert_true(tables_device_share(summary, 0, "busy_share") > 0);
    assert_true(isnan(tables_peak_bytes(summary, 2, "total")));
    cJSON_Delete(summary);
    wanted.model = "nonsense";
    assert_int_equal(tables_train(&summary, &wanted, PROGRAM_DEADLINE_S), LS_ERR_USAGE);
    assert_null(summary);
    scratch_expect_error("nonsense", "--model");
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static void test_table_3(void **state) {
    (void)state;
    size_t nbytes;
    if (program_run(&run, "%s/tables --tables=3 --strict --quick --out=%s", build_folder(), scratch_folder()) != 0)
        fail_msg("%s", run.err_text);
    assert_non_null(strstr(run.out_text, "Table 3: all-reduce"));
    assert_null(strstr(run.out_text, "MISSED"));
    assert_null(strstr(run.out_text, "Table 4"));
    char *csv = scratch_read(scratch_path("tables.csv"), &nbytes);
    int lines = count_lines(csv), whole_ring = 0;
    for (int i = 0; i < lines; i++) {
        const char *line = line_of(csv, i);
        assert_int_equal(csv_fields(line), 7);
        whole_ring += strncmp(line, "\"3 bytes sent of 1 MiB, busiest rank\",\"ring\",4,1572864,1572864,0,", 62) == 0;
    }
    assert_int_equal(whole_ring, 1); /* 2 x 3/4 of 1 MiB */
    free(csv);
}

/* The line of the CSV that has this quantity and mode and N, or a failure. */
static const char *cell_of(const char *csv, const char *quantity, const char *mode, int n) {
    char begin[200];
    snprintf(begin, sizeof begin, "\n\"%s\",\"%s\",%d,", quantity, mode, n);
    const char *at = strstr(csv, begin);
    if (!at) fail_msg("there is no %s of %s on %d", quantity, mode, n);
    return at + 1;
}

/* The course's eight cells, as it has them, each within 5 % of a DP by collectives and of DDP; DP by copies beside
 * them; and the third column. */
static void test_table_1(void **state) {
    (void)state;
    static const int n[] = {1, 2, 4, 8};
    static const double dp[] = {100, 60, 40, 30}, ddp[] = {100, 52, 28, 15}, copies[] = {0, 68.1, 63.3, 84.1},
                        ratio[] = {1, 1.15, 1.43, 2.0};
    size_t nbytes;
    if (program_run(&run, "%s/tables --tables=1 --strict --quick --out=%s", build_folder(), scratch_folder()) != 0)
        fail_msg("%s", run.err_text);
    assert_non_null(strstr(run.out_text, "4 degrees of freedom"));
    assert_non_null(strstr(run.out_text, "What follows."));
    char *csv = scratch_read(scratch_path("tables.csv"), &nbytes);
    for (int i = 0; i < 4; i++) {
        const char *lines[] = {cell_of(csv, "1 step time, ms", "DP by collectives", n[i]),
                               cell_of(csv, "1 step time, ms", "DDP", n[i])};
        for (int m = 0; m < 2; m++) {
            double reference = number_at(lines[m], 3), ours = number_at(lines[m], 4);
            assert_true(reference == (m == 0 ? dp : ddp)[i]);
            assert_true(fabs(ours / reference - 1) <= 0.05);
            assert_true(fabs(ours / reference - 1 - number_at(lines[m], 5)) < 1e-7);
        }
        if (i == 0) continue;
        const char *line = cell_of(csv, "1 step time, ms", "DP by copies", n[i]);
        assert_true(number_at(line, 3) == dp[i]);
        assert_true(fabs(number_at(line, 4) - copies[i]) <= 0.05);
        line = cell_of(csv, "1 DP / DDP", "DP by collectives", n[i]);
        assert_true(fabs(number_at(line, 3) - ratio[i]) < 0.005);
        assert_true(fabs(number_at(line, 4) / ratio[i] - 1) <= 0.03);
        line = cell_of(csv, "1 DP / DDP", "DP by copies", n[i]);
        assert_true(number_at(line, 4) > 1.1 * ratio[i]);
    }
    free(csv);
}

/* All that device 0 has more adds up, and each item has its formula. */
static void test_table_4(void **state) {
    (void)state;
    if (program_run(&run, "%s/tables --tables=4 --strict --quick --out=%s", build_folder(), scratch_folder()) != 0)
        fail_msg("%s", run.err_text);
    assert_null(strstr(run.out_text, "MISSED"));
    assert_non_null(strstr(run.out_text, "gradients received"));
    assert_non_null(strstr(run.out_text, "DDP, last rank"));
}

/* The files say how far a table came. */
static void test_a_table_that_cannot_be_made(void **state) {
    (void)state;
    size_t nbytes;
    int status = program_run(&run, "%s/tables --tables=4 --timeout=0.001 --out=%s", build_folder(), scratch_folder());
    assert_int_equal(status, 3);
    assert_non_null(strstr(run.err_text, "did not end within 0.001 s"));
    char *text = scratch_read(scratch_path("tables.md"), &nbytes);
    assert_non_null(strstr(text, "\n## 4. memory per device, DP against DDP\n\nThis table could not be made"));
    free(text);
    text = scratch_read(scratch_path("tables.csv"), &nbytes);
    assert_int_equal(count_lines(text), 1);
    free(text);
}

static void test_wrong_usage(void **state) {
    (void)state;
    assert_int_equal(program_run(&run, "%s/tables --tables=99 --out=%s", build_folder(), scratch_folder()), 2);
    assert_non_null(strstr(run.err_text, "there is no table 99; there are 1 to"));
    assert_int_equal(scratch_file_count(), 0);
    assert_int_equal(program_run(&run, "%s/tables --table-cloth", build_folder()), 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
#define PROGRAM_TEST(name) cmocka_unit_test_setup_teardown(name, programs_setup, programs_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_counted_messages),
        TEST(test_replayed_messages),
        TEST(test_course_fit),
        TEST(test_course_fit_without_a_cell),
        PROGRAM_TEST(test_training_runs),
        PROGRAM_TEST(test_table_1),
        PROGRAM_TEST(test_table_3),
        PROGRAM_TEST(test_table_4),
        PROGRAM_TEST(test_a_table_that_cannot_be_made),
        PROGRAM_TEST(test_wrong_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
