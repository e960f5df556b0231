#define _GNU_SOURCE
/* The inputs of tables: counted messages, replayed messages, the course's cells, training runs; and the program. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/tables/count.h"
#include "labs/replay/tables/course.h"
#include "labs/replay/tables/messages.h"
#include "labs/replay/tables/train.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

static program run;

/* --- counts ------------------------------------------------------------------------------------------------------- */

/* A ring of 4 ranks with 4096 floats: each rank sends 6 messages of a quarter; naive: rank 0 sends everything. */
TEST_IN(scratch, test_counted_messages) {
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

/* 8000 bytes occupy a link for 8 us, and have a latency of 2 us. */
TEST_IN(scratch, test_replayed_messages) {
    expect_us(LS_PATTERN_RING, 2, 2 * (2 + 4));
    expect_us(LS_PATTERN_RING, 8, 14 * (2 + 1));
    expect_us(LS_PATTERN_TREE, 8, 6 * (2 + 8));
    expect_us(LS_PATTERN_HALVING_DOUBLING, 8, 2 * (2 + 4) + 2 * (2 + 2) + 2 * (2 + 1));
    expect_us(LS_PATTERN_SERVER, 3, 2 + 2 * 8 + 2 * (2 + 8)); /* two arrive together, and are sent serially */
}

/* --- the course --------------------------------------------------------------------------------------------------- */

static struct tables_fit whole; /* the fit to all cells, with which further tests compare */

/* The node's file agrees with the fit to within a standard error, and every cell is within 5 %. */
TEST_IN(scratch, test_course_fit) {
    struct course_model model;
    assert_int_equal(course_open(&model), LS_OK);
    assert_int_equal(course_fit(&whole, &model, -1, 0), LS_OK);
    assert_int_equal(whole.degrees_of_freedom, 4);
    for (int i = 0; i < COURSE_CELLS; i++) assert_true(fabs(whole.residual[i]) <= 0.05);
    for (int k = 0; k < COURSE_PARAMETERS; k++) {
        assert_true(fabs(whole.value[k] / model.file_value[k] - 1) < whole.error[k]);
        assert_true(whole.error[k] < 0.3);
    }
    course_close(&model);
}

/* A cell that is left out has no influence: the others fit better than with it. */
TEST_IN(scratch, test_course_fit_without_a_cell) {
    struct course_model model;
    struct tables_fit others;
    tables_replayed single = {0}, replayed = {0};
    const int left_out = COURSE_CELLS - 1; /* DDP on 8 */
    assert_int_equal(course_open(&model), LS_OK);
    assert_int_equal(course_fit(&others, &model, left_out, 0), LS_OK);
    assert_int_equal(others.points, COURSE_CELLS - 1);
    assert_int_equal(others.degrees_of_freedom, 3);
    double without = 0;
    for (int i = 0; i < left_out; i++) without += whole.residual[i] * whole.residual[i];
    assert_true(others.sum < without);
    assert_int_equal(course_replay(single, &model, &course_cells[0], others.value), LS_OK);
    assert_true(fabs(single[TABLES_STEP] / course_cells[0].ms - 1 - others.residual[0]) < 1e-12);
    assert_int_equal(course_replay(replayed, &model, &course_cells[left_out], others.value), LS_OK);
    assert_true(fabs(replayed[TABLES_STEP] / course_cells[left_out].ms - 1) < 0.1);
    assert_true(replayed[TABLES_COLLECTIVES] > 0 && replayed[TABLES_COLLECTIVES] < 1);
    assert_true(replayed[TABLES_EXPOSED] < replayed[TABLES_COMMUNICATION]);
    course_close(&model);
}

/* --- training runs ------------------------------------------------------------------------------------------------ */

TEST_IN(programs, test_training_runs) {
    struct tables_training wanted = {.mode = LS_PLAN_DP,
                                     .devices = 2,
                                     .arguments = "--data=random:0 --model=mlp:784,256,10 --optimizer=adam --steps=2"};
    cJSON *summary;
    assert_int_equal(tables_train(&summary, &wanted, PROGRAM_DEADLINE_S), LS_OK);
    double parameter_bytes = tables_device_number(summary, 1, "bytes_per_step_by_phase", "reduce");
    assert_true(parameter_bytes >= 4 * (784 * 256 + 256 + 256 * 10 + 10) && parameter_bytes < 4 * 204000);
    assert_true(tables_device_number(summary, 0, "peak_bytes", "optimizer") >= 2 * parameter_bytes);
    assert_true(tables_device_number(summary, 1, "peak_bytes", "optimizer") == 0);
    assert_true(tables_device_number(summary, 0, NULL, "busy_share") > 0);
    assert_true(isnan(tables_device_number(summary, 2, "peak_bytes", "total")));
    cJSON_Delete(summary);
    wanted.arguments = "--data=random:0 --model=nonsense";
    assert_int_equal(tables_train(&summary, &wanted, PROGRAM_DEADLINE_S), LS_ERR_USAGE);
    assert_null(summary);
    scratch_expect_error("nonsense", "--model");
}

/* --- the program -------------------------------------------------------------------------------------------------- */

/* The program fits the same rates. */
static void expect_fit(const char *csv) {
    char row[160];
    for (int k = 0; k < COURSE_PARAMETERS; k++) {
        snprintf(row, sizeof row, "\"%s\",,%.9g,%.9g,", course_parameters[k].name, course_parameters[k].published,
                 whole.value[k]);
        if (!strstr(csv, row)) fail_msg("no row %s", row);
    }
}

/* These tables miss no bound. tests/golden/replay_tables.csv has each cell of table 1. */
TEST_IN(programs, test_tables_that_hold) {
    static const struct {
        int number;
        const char *texts[3], *row;
    } cases[] = {
        {1, {"4 degrees of freedom", "What follows.", "DP by copies"}, "\"1 DP / DDP\",\"DP by copies\",8,2,"},
        {3, /* 2 x 3/4 of 1 MiB */
         {"Table 3: all-reduce", "Who is fastest", "ranks that count otherwise"},
         "\"3 bytes sent of 1 MiB, busiest rank\",\"ring\",4,1572864,1572864,0,"},
        {4,
         {"gradients received", "DDP, last rank", "device 0 : another"},
         "\"4 device 0 : another\",\"published: Balanced-DataParallel#8\",2,"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (program_run(&run, "%s/tables --tables=%d --strict --quick --out=%s", build_folder(), cases[i].number,
                        scratch_folder()) != 0)
            fail_msg("%s", run.err_text);
        assert_null(strstr(run.out_text, "MISSED"));
        assert_null(strstr(run.out_text, "Table 6"));
        for (int t = 0; t < 3; t++) assert_non_null(strstr(run.out_text, cases[i].texts[t]));
        char *csv = scratch_read_text("tables.csv");
        for (const char *line = csv; *line; line = strchr(line, '\n') + 1) assert_int_equal(csv_fields(line), 7);
        assert_non_null(strstr(csv, cases[i].row));
        if (cases[i].number == 1) expect_fit(csv);
        free(csv);
    }
}

/* The files show how much of a table was made. */
TEST_IN(programs, test_a_table_that_cannot_be_made) {
    int status = program_run(&run, "%s/tables --tables=4 --timeout=0.001 --out=%s", build_folder(), scratch_folder());
    assert_int_equal(status, 3);
    assert_non_null(strstr(run.err_text, "did not end within 0.001 s"));
    char *text = scratch_read_text("tables.md");
    assert_non_null(strstr(text, "\n## 4. memory per device, DP against DDP\n\nThis table could not be made"));
    free(text);
    text = scratch_read_text("tables.csv");
    assert_int_equal(count_lines(text), 1);
    free(text);
}

TEST_IN(programs, test_wrong_usage) {
    assert_int_equal(program_run(&run, "%s/tables --tables=99 --out=%s", build_folder(), scratch_folder()), 2);
    assert_non_null(strstr(run.err_text, "table 99 does not exist; expected 1 to"));
    assert_int_equal(scratch_file_count(), 0);
    assert_int_equal(program_run(&run, "%s/tables --table-cloth", build_folder()), 2);
}
