/* calibrate: what it concludes from measurements, the file that it writes, and the program in its shortest form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/calibrate/calibrate.h"
#include "tests/base/scratch.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

static calibrate_spread spread(double us) { return (calibrate_spread){us, us, us, 31}; }

/* Round figures of a machine with two cores. */
static calibrate_figures example(void) {
    calibrate_figures f = {.devices = 2,
                           .cores = 2,
                           .batch_count = CALIBRATE_BATCHES,
                           .width = 512,
                           .node_pass = CALIBRATE_NODE_PASS,
                           .launch_us = spread(0.5),
                           .smallest_us = spread(0.75),
                           .event_us = spread(0.25),
                           .sync_us = spread(1.5),
                           .hand_over_us = spread(0.125),
                           .collective_us = spread(2),
                           .products_crowded = 1.25,
                           .passes_crowded = 1.5,
                           .products_beside_copies = 1.0625,
                           .copy_bytes = 4e6,
                           .copy_us = spread(400),
                           .copy_both_us = spread(500),
                           .copy_smallest_us = spread(3)};
    for (int i = 0; i < CALIBRATE_BATCHES; i++) {
        f.batches[i] = 1 << (2 * i);
        f.gemm_flops[i] = 1e6 * (i + 1);
        f.fp32_us[i] = spread(100);
        f.bf16_us[i] = spread(25);
    }
    for (int i = 0; i < CALIBRATE_PASSES; i++) {
        f.pass_bytes[i] = 1e6 * (i + 1);
        f.pass_us[i] = spread(50);
    }
    f.rows[f.row_count++] = (calibrate_row){2, 1024, spread(4)};
    f.rows[f.row_count++] = (calibrate_row){2, 4000000, spread(2000)};
    return f;
}

static void test_spread(void **state) {
    (void)state;
    double values[] = {9, 1, 5, 3, 7};
    calibrate_spread s = calibrate_spread_of(values, 5);
    expect_near(s.median, 5);
    expect_near(s.low, 3);
    expect_near(s.high, 7);
    assert_int_equal(s.runs, 5);
}

static void test_conclusions(void **state) {
    (void)state;
    calibrate_figures f = example();
    struct calibrate_node node = calibrate_conclude(&f);
    expect_near(node.device.fp32_GFLOPs, 50); /* 5e6 flops, 256 samples, in 100 us */
    expect_near(node.device.fp16_GFLOPs, 200);
    expect_near(node.device.memory_GBps, 40);        /* 2e6 bytes in 50 us */
    expect_near(node.device.operand_GBps, 31.45728); /* 3 x 512 x 512 floats in 100 us, whatever the samples */
    expect_near(node.device.product_crowding, 1.25);
    expect_near(node.device.memory_crowding, 1.5);
    expect_near(node.device.kernel_us, 0.25); /* 0.75 less the launch */
    expect_near(node.host.launch_us, 0.5);
    expect_near(node.host.event_us, 0.25);
    expect_near(node.host.sync_us, 1.5);
    expect_near(node.host.hand_over_us, 0.125);
    expect_near(node.host.collective_us, 2);
    assert_true(node.host.runs_compute);
    expect_near(node.link.GBps, 10);
    expect_near(node.link.latency_us, 1.5);
    expect_near(node.collectives.bus_GBps, 2); /* 2 (2 - 1) / 2 of 4e6 bytes in 2000 us */
    expect_near(node.collectives.base_us, 0);  /* two ranks alone: 2 hops */
    expect_near(node.collectives.hop_us, 2);
    expect_near(node.collectives.slow_down, 1.0625);
}

static void test_limits_of_conclusions(void **state) {
    (void)state;
    calibrate_figures f = example();
    f.smallest_us = spread(0.4);
    f.products_beside_copies = f.products_crowded = f.passes_crowded = 0.9;
    struct calibrate_node node = calibrate_conclude(&f);
    expect_near(node.device.kernel_us, 0.01);
    expect_near(node.collectives.slow_down, 1);
    expect_near(node.device.product_crowding, 1);
    expect_near(node.device.memory_crowding, 1);
    assert_true(node.link.duplex); /* two at once take 1.25 times as long */
    f.copy_both_us = spread(700);
    assert_false(calibrate_conclude(&f).link.duplex);
    f.copy_both_us = spread(400);
    f.cores = 1; /* one after the other */
    assert_false(calibrate_conclude(&f).link.duplex);
}

/* 100 us and half a microsecond a sample: the first is the operands', the second arithmetic. */
static void test_operands_and_arithmetic(void **state) {
    (void)state;
    calibrate_figures f = example();
    for (int i = 0; i < CALIBRATE_BATCHES; i++) {
        f.fp32_us[i] = spread(100 + 0.5 * f.batches[i]);
        f.gemm_flops[i] = 1e5 * f.batches[i];
    }
    struct calibrate_node node = calibrate_conclude(&f);
    expect_near(node.device.fp32_GFLOPs, 200);
    expect_near(node.device.operand_GBps, 31.45728);
    f.fp32_us[2] = spread(0.5 * f.batches[2]); /* nothing on top */
    f.fp32_us[3] = spread(0.5 * f.batches[3]);
    expect_near(calibrate_conclude(&f).device.operand_GBps, 1e4);
    f.node_pass = CALIBRATE_FAR_PASS;
    expect_near(calibrate_conclude(&f).device.memory_GBps, 60); /* 3e6 bytes in 50 us */
}

/* 2, 4 and 8 ranks have 2, 6 and 14 hops. */
static void test_latency_over_ranks(void **state) {
    (void)state;
    static const struct {
        double us[3], base_us, hop_us;
    } cases[] = {{{5, 11, 23}, 2, 1.5},       /* on a line */
                 {{2, 9, 23}, 0, 380. / 236}, /* the line begins below 0: one through 0 */
                 {{9, 9, 9}, 9, 0},
                 {{9, 6, 3}, 6, 0}}; /* none that falls */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        calibrate_figures f = example();
        f.row_count = 0;
        for (int i = 0; i < 3; i++) {
            f.rows[f.row_count++] = (calibrate_row){2 << i, 1024, spread(cases[c].us[i])};
            f.rows[f.row_count++] = (calibrate_row){2 << i, 1 << 20, spread(1000)};
        }
        struct calibrate_node node = calibrate_conclude(&f);
        expect_near(node.collectives.base_us, cases[c].base_us);
        expect_near(node.collectives.hop_us, cases[c].hop_us);
    }
}

static void test_the_file_is_a_node(void **state) {
    (void)state;
    calibrate_figures f = example();
    ls_node *node;
    const char *path = scratch_path("this_machine.json");
    scratch_write("this_machine.json", "old", 3);
    assert_int_equal(calibrate_write(&f, &example_machine, path), LS_OK);
    assert_int_equal(ls_node_open(&node, path), LS_OK);
    assert_string_equal(ls_node_name(node), "this_machine");
    assert_int_equal(ls_node_device_count(node), 2);
    expect_near(ls_node_device(node)->fp32_GFLOPs, 50);
    expect_near(ls_node_device(node)->memory_crowding, 1.5);
    expect_near(ls_node_host(node)->hand_over_us, 0.125);
    assert_true(ls_node_host(node)->runs_compute);
    expect_near(ls_node_host(node)->lock_us, 0);
    expect_near(ls_node_route(node, 0, 1)->latency_us, 3);
    expect_near(ls_node_link(node, 0)->GBps, 10);
    assert_int_equal(ls_node_collectives(node)->table_count, 2);
    assert_int_equal(ls_node_collectives(node)->table[1].bytes, 4000000);
    expect_near(ls_node_collectives(node)->table[1].us, 2000);
    const char *source = ls_node_source(node, "device.fp32_GFLOPs");
    assert_non_null(strstr(source, "measured "));
    assert_non_null(strstr(source, example_machine.date));
    assert_non_null(strstr(source, "on CPU"));
    assert_non_null(strstr(source, "median of 31 runs"));
    ls_node_close(node);
}

/* A figure that is none leaves the old file as it was. */
static void test_what_is_no_node_is_not_written(void **state) {
    (void)state;
    calibrate_figures f = example();
    size_t nbytes;
    f.hand_over_us.median = NAN;
    scratch_write("node.json", "old", 3);
    assert_int_equal(calibrate_write(&f, &example_machine, scratch_path("node.json")), LS_ERR_INVALID);
    scratch_expect_error("hand_over_us must be a number", NULL);
    char *text = scratch_read(scratch_path("node.json"), &nbytes);
    assert_string_equal(text, "old");
    free(text);
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static void test_the_program_writes_a_node(void **state) {
    (void)state;
    static program p;
    ls_node *node;
    const char *path = scratch_path("node.json");
    assert_int_equal(program_run(&p, "%s/calibrate --quick --quiet --out=%s", build_folder(), path), 0);
    assert_non_null(strstr(p.out_text, "measured on "));
    assert_non_null(strstr(p.out_text, "all-reduce of 1.0 MiB, 2 ranks"));
    assert_non_null(strstr(p.out_text, path));
    assert_string_equal(p.err_text, "");
    assert_int_equal(ls_node_open(&node, path), LS_OK);
    assert_true(ls_node_device_count(node) >= 2);
    const struct ls_node_collectives *collectives = ls_node_collectives(node);
    assert_int_equal(collectives->table[0].ranks, 2);
    assert_int_equal(collectives->table[0].bytes, 1024);
    assert_true(collectives->table_count >= 6);
    ls_node_close(node);
}

static void test_wrong_usage(void **state) {
    (void)state;
    static program p;
    assert_int_equal(program_run(&p, "%s/calibrate --slow", build_folder()), 2);
    assert_int_equal(
        program_run(&p, "%s/calibrate --quick --quiet --out=%s/absent/node.json", build_folder(), scratch_folder()), 1);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "absent"));
    assert_int_equal(scratch_file_count(), 0);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
#define PROGRAM_ROW(test) cmocka_unit_test_setup_teardown(test, programs_setup, programs_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_conclusions),
        cmocka_unit_test(test_limits_of_conclusions),
        cmocka_unit_test(test_operands_and_arithmetic),
        cmocka_unit_test(test_latency_over_ranks),
        ROW(test_the_file_is_a_node),
        ROW(test_what_is_no_node_is_not_written),
        PROGRAM_ROW(test_the_program_writes_a_node),
        PROGRAM_ROW(test_wrong_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
