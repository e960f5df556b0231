/* Table 6: predictions come from the trace of one device and the node; the program's rows exist and add up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cores.h"
#include "labs/replay/tables/machine.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

static program run;

static const struct machine_plan plan = {"resnet50", "", 64, 0};

/* The same figures for each prediction: half the batch, one device or two, with and without overlap. */
TEST_IN(scratch, test_predictions) {
    ls_workload *workload;
    ls_node *node;
    tables_replayed step[MACHINE_RUNS];
    assert_int_equal(ls_workload_open(&workload, "resnet50"), LS_OK);
    assert_int_equal(ls_node_open(&node, "dgx1-v100"), LS_OK);
    for (int kind = 0; kind < MACHINE_RUNS; kind++) {
        const double *s = step[kind];
        assert_int_equal(machine_predict(step[kind], workload, node, &plan, (enum machine_run)kind), LS_OK);
        assert_true(s[TABLES_STEP] > 0 && s[TABLES_MEDIAN] > 0 && s[TABLES_BUSY] > 0);
        assert_true(fabs(s[TABLES_BUSY] + s[TABLES_EXPOSED] + s[TABLES_HOST] + s[TABLES_IDLE] - 1) < 1e-9);
    }
    assert_true(step[MACHINE_HALF][TABLES_STEP] < 0.6 * step[MACHINE_SINGLE][TABLES_STEP]);
    assert_true(step[MACHINE_DDP2][TABLES_STEP] > step[MACHINE_HALF][TABLES_STEP]);
    assert_true(step[MACHINE_DDP2][TABLES_STEP] < step[MACHINE_APART][TABLES_STEP]);
    assert_true(step[MACHINE_DDP2][TABLES_EXPOSED] < step[MACHINE_APART][TABLES_EXPOSED]);
    assert_true(step[MACHINE_DP2][TABLES_STEP] > step[MACHINE_DDP2][TABLES_STEP]);
    assert_true(step[MACHINE_DDP1][TABLES_STEP] < 1.01 * step[MACHINE_SINGLE][TABLES_STEP]);
    ls_node_close(node);
    ls_workload_close(workload);
}

/* If matrix multiplies of few rows take as long as those of more, half a batch saves little. */
TEST_IN(scratch, test_half_a_batch_is_more_than_half_a_step) {
    ls_workload *workload;
    ls_node *node;
    tables_replayed whole, half;
    assert_int_equal(ls_workload_open(&workload, "vgg16"), LS_OK);
    assert_int_equal(ls_node_open(&node, "dgx1-v100"), LS_OK);
    const struct machine_plan few = {"vgg16", "", 4, 0};
    assert_int_equal(ls_node_device(node)->product_count, 0); /* left out */
    for (int k = 0; k < 2; k++) {
        if (k == 1) {
            struct ls_node_device *device = ls_node_change_device(node);
            device->product_count = 2;
            device->products[0] = (struct ls_node_product){1, 1e-6};
            device->products[1] = (struct ls_node_product){1e6, 1};
        }
        assert_int_equal(machine_predict(whole, workload, node, &few, MACHINE_SINGLE), LS_OK);
        assert_int_equal(machine_predict(half, workload, node, &few, MACHINE_HALF), LS_OK);
        if (k == 0) assert_true(half[TABLES_STEP] < 0.75 * whole[TABLES_STEP]);
        if (k == 1) assert_true(half[TABLES_STEP] > 0.9 * whole[TABLES_STEP]);
    }
    assert_false(machine_fits_cache(workload)); /* 1 GB and more */
    ls_node_close(node);
    ls_workload_close(workload);
}

static ls_trace *trace_of(double median_step_ms) {
    ls_trace *trace;
    assert_int_equal(ls_trace_create(&trace), LS_OK);
    ls_trace_about(trace)->median_step_ms = median_step_ms;
    return trace;
}

TEST(test_the_nearest_trace_counts) {
    ls_trace *traces[] = {trace_of(3), trace_of(5), trace_of(4), NULL, trace_of(4.4)};
    assert_int_equal(machine_nearest(traces, 3, 4.4), 2);
    assert_int_equal(machine_nearest(traces, 3, 9), 1);
    assert_int_equal(machine_nearest(traces, 2, 4.4), 1);
    assert_int_equal(machine_nearest(traces, 5, 4.4), 2); /* up to the first that is missing */
    assert_int_equal(machine_nearest(traces, 3, NAN), 0);
    for (int i = 0; i < 5; i++) ls_trace_destroy(traces[i]);
}

/* Recorded steps of one, two and nine times the median: for two devices that wait for each other, the later one decides
 * each step. */
TEST(test_steps_are_predicted_one_by_one) {
    ls_workload *workload;
    ls_node *node;
    tables_replayed once, varied;
    assert_int_equal(ls_workload_open(&workload, "resnet50"), LS_OK);
    assert_int_equal(ls_node_open(&node, "dgx1-v100"), LS_OK);
    for (int w = 0; w < workload->work_count; w++) workload->work[w].us = 1000;
    assert_int_equal(machine_predict(once, workload, node, &plan, MACHINE_SINGLE), LS_OK);
    workload->step_count = 3;
    workload->step_us = calloc(3 * (size_t)workload->work_count, sizeof *workload->step_us); /* freed with it */
    assert_non_null(workload->step_us);
    for (int i = 0; i < 3 * workload->work_count; i++)
        workload->step_us[i] = i < workload->work_count ? 1000 : i < 2 * workload->work_count ? 2000 : 9000;
    assert_int_equal(machine_predict(varied, workload, node, &plan, MACHINE_SINGLE), LS_OK);
    assert_true(fabs(varied[TABLES_MEDIAN] / once[TABLES_MEDIAN] - 2) < 0.05);
    assert_true(fabs(varied[TABLES_STEP] / once[TABLES_STEP] - 4) < 0.05);
    assert_int_equal(machine_predict(varied, workload, node, &plan, MACHINE_DDP2), LS_OK);
    assert_true(varied[TABLES_MEDIAN] >
                3 * once[TABLES_MEDIAN] / 2); /* half of the batch, and one of the two is slow in most steps */
    ls_node_close(node);
    ls_workload_close(workload);
}

/* Runs the program, with training runs and calibration. Its times are not checked. oneDNN's code for AVX2 is generated
 * soon, and calibrate multiplies for a second. */
TEST_IN(programs, test_rows) {
    int checked = 0;
    if (program_run(&run, "ONEDNN_MAX_CPU_ISA=AVX2 %s/tables --tables=6 --quick --out=%s", build_folder(),
                    scratch_folder()) != 0)
        fail_msg("%s", run.err_text);
    assert_non_null(strstr(run.out_text, "bounds of ours are missed"));
    char *csv = scratch_read_text("tables.csv");
    assert_non_null(strstr(csv, "\"6 a trace replayed as it was recorded"));
    assert_non_null(strstr(csv, "\"6 half the batch from T1's trace"));
    assert_int_equal(strstr(csv, "\"6 T2 from T1's trace") != NULL, ls_usable_cores() > 1);
    for (char *line = strchr(csv, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
        char fields[3][CSV_FIELD_CAPACITY];
        for (int i = 0; i < 3; i++) csv_field(fields[i], line, 3 + i); /* reference, ours, deviation */
        double reference = strtod(fields[0], NULL), expected = strtod(fields[1], NULL) / reference - 1;
        if (!*fields[2] || !(reference > 0)) continue;
        assert_true(fabs(strtod(fields[2], NULL) - expected) < 1e-4 * (1 + fabs(expected)));
        checked++;
    }
    assert_true(checked >= 4);
    free(csv);
}
