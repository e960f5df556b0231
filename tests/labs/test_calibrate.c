/* calibrate: the figures that it derives from measurements, and the file that it writes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "labs/replay/calibrate/calibrate.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

TEST(test_spread) {
    double values[] = {9, 1, 5, 3, 7, 2, 4, 8, 10, 6, 11};
    calibrate_spread s = calibrate_spread_of(values, 11);
    expect_near(s.fast, 2);
    expect_near(s.median, 6);
    expect_near(s.low, 3.5);
    expect_near(s.high, 8.5);
    assert_int_equal(s.runs, 11);
}

/* Up to half of the runs may be disturbed, by any amount. */
TEST(test_disturbed_runs_do_not_count) {
    double values[100];
    for (int i = 0; i < 100; i++) values[i] = i % 5 < 3 ? 100 + 0.01 * i : 100 + 39. * i;
    assert_true(calibrate_spread_of(values, 100).median < 101);
}

/* If the machine becomes five times slower, a run beside others still takes twice as long as one alone; a single
 * disturbed run does not matter. */
TEST(test_factors_are_of_neighbouring_runs) {
    double alone_us[100], beside_us[100];
    for (int r = 0; r < 100; r++) {
        alone_us[r] = r < 30 ? 100 : 500;
        beside_us[r] = 2 * alone_us[r] * (r % 4 == 0 ? 10 : 1);
    }
    expect_near(calibrate_factor(beside_us, alone_us, 100), 2);
}

TEST(test_larger_messages_are_never_faster) {
    calibrate_row rows[] = {{2, 1024, even_spread(1), 0},     {2, 4096, even_spread(2.98), 0},
                            {2, 16384, even_spread(1.88), 0}, {2, 65536, even_spread(1.88), 0},
                            {4, 1024, even_spread(0.5), 0},   {4, 4096, even_spread(3), 0}};
    /* the last two rows have a different number of ranks, and are not compared with the rows before */
    static const double written_us[] = {1, 1.88, 1.88, 1.88, 0.5, 3};
    assert_int_equal(calibrate_straighten(rows, 6), 1);
    for (int i = 0; i < 6; i++) expect_near(rows[i].written_us, written_us[i]);
}

TEST(test_rough) {
    calibrate_figures f = example_figures();
    assert_false(calibrate_is_rough(&f));
    f.fp32_us[CALIBRATE_MAIN_BATCH].high = 150; /* of 100 */
    assert_false(calibrate_is_rough(&f));
    f.fp32_us[CALIBRATE_MAIN_BATCH].high = 151;
    assert_true(calibrate_is_rough(&f));
    f = example_figures();
    f.hand_over_us.high = 3 * f.hand_over_us.fast;
    assert_false(calibrate_is_rough(&f));
    f.hand_over_us.high *= 1.01;
    assert_true(calibrate_is_rough(&f));
    f = example_figures();
    f.copy_us.fast = 200; /* of 400: the quartiles are equal, as under a constant load */
    assert_true(calibrate_is_rough(&f));
    f.copy_us.fast = NAN;
    assert_true(calibrate_is_rough(&f));
}

TEST(test_conclusions) {
    calibrate_figures f = example_figures();
    struct calibrate_node node = calibrate_conclude(&f);
    expect_near(node.device.fp32_GFLOPs, 80); /* 8e6 flops, the most samples, in 100 us */
    expect_near(node.device.fp16_GFLOPs, 320);
    expect_near(node.device.memory_GBps, 40); /* 2e6 bytes in 50 us */
    assert_int_equal(node.device.product_count, CALIBRATE_BATCHES);
    expect_near(node.device.products[3].rows, 64);
    expect_near(node.device.products[CALIBRATE_BATCHES - 1].share, 1);
    expect_near(node.device.product_crowding, 1.25);
    expect_near(node.device.memory_crowding, 1.5);
    expect_near(node.device.kernel_us, 0.25); /* 0.75 less the launch */
    expect_near(node.host.launch_us, 0.5);
    expect_near(node.host.event_us, 0.25);
    expect_near(node.host.sync_us, 1.5);
    expect_near(node.host.hand_over_us, 0.125);
    expect_near(node.host.awake_us, 0.0625);
    expect_near(node.host.spin_us, 50);
    expect_near(node.host.collective_us, 2);
    assert_true(node.host.runs_compute);
    assert_int_equal(node.host.cores, 2);
    expect_near(node.device.reclaim_GBps, 2); /* 1e5 bytes in 60 - 10 us */
    assert_int_equal(node.device.reclaim_bytes, 2 << 20);
    expect_near(node.link.GBps, 10);
    expect_near(node.link.latency_us, 1.5);
    expect_near(node.collectives.bus_GBps, 2);              /* 2 (2 - 1) / 2 of 4e6 bytes in 2000 us */
    expect_near(node.collectives.all_gather_GBps, 2 / 1.5); /* half of the bytes in three quarters of the time */
    expect_near(node.collectives.reduce_scatter_GBps, 1);
    expect_near(node.collectives.base_us, 0); /* two ranks alone: 2 hops */
    expect_near(node.collectives.hop_us, 2);
    expect_near(node.collectives.slow_down, 1.0625);
}

TEST(test_limits_of_conclusions) {
    calibrate_figures f = example_figures();
    f.smallest_us = even_spread(0.4);
    f.products_beside_copies = f.products_crowded = f.passes_crowded = 0.9;
    struct calibrate_node node = calibrate_conclude(&f);
    expect_near(node.device.kernel_us, 0.01);
    expect_near(node.collectives.slow_down, 1);
    expect_near(node.device.product_crowding, 1);
    expect_near(node.device.memory_crowding, 1);
    assert_true(node.link.duplex); /* two at once take 1.25 times as long */
    f.cache_bytes = 0;
    assert_int_equal(calibrate_conclude(&f).device.reclaim_bytes, 1 << 20);
    f.taken_us = f.kept_us; /* no difference, or a negative one */
    assert_true(isinf(calibrate_conclude(&f).device.reclaim_GBps));
    assert_int_equal(calibrate_conclude(&f).device.reclaim_bytes, 0);
    f.taken_us = even_spread(5);
    assert_true(isinf(calibrate_conclude(&f).device.reclaim_GBps));
    f.copies_both = 1.75;
    assert_false(calibrate_conclude(&f).link.duplex);
    f.copies_both = 1;
    f.cores = 1; /* serially */
    assert_false(calibrate_conclude(&f).link.duplex);
}

/* 100 us that do not depend on the batch, and half a microsecond of arithmetic per sample. */
static calibrate_figures layers(void) {
    calibrate_figures f = example_figures();
    for (int i = 0; i < CALIBRATE_BATCHES; i++) {
        f.fp32_us[i] = even_spread(100 + 0.5 * f.batches[i]);
        f.gemm_flops[i] = 1e5 * f.batches[i];
    }
    return f;
}

TEST(test_few_samples_reach_a_share) {
    calibrate_figures f = layers();
    int last = CALIBRATE_BATCHES - 1;
    double rate = 1e2 * f.batches[last] / (100 + 0.5 * f.batches[last]);
    struct calibrate_node node = calibrate_conclude(&f);
    expect_near(node.device.fp32_GFLOPs, rate);
    expect_near(node.device.products[0].rows, 1);
    expect_near(node.device.products[0].share, 1e2 / 100.5 / rate);
    expect_near(node.device.products[2].share, 16e2 / 108 / rate);
    expect_near(node.device.products[last].share, 1);
    f.node_pass = CALIBRATE_FAR_PASS;
    expect_near(calibrate_conclude(&f).device.memory_GBps, 60); /* 3e6 bytes in 50 us */
}

/* No matter which runs were disturbed, no rate is below a measured one, and the curve is valid for a node. */
TEST(test_disturbed_products) {
    for (int disturbed = 0; disturbed < 1 << CALIBRATE_BATCHES; disturbed++) {
        calibrate_figures f = layers();
        double best = 0;
        for (int i = 0; i < CALIBRATE_BATCHES; i++) {
            double us = f.fp32_us[i].median * (disturbed >> i & 1 ? 20 + i : 1);
            f.fp32_us[i] = (calibrate_spread){us, us / 9, 30 * us, us / 10, 31}; /* the median counts */
            best = fmax(best, calibrate_rate(f.gemm_flops[i], us));
        }
        struct calibrate_node node = calibrate_conclude(&f);
        expect_near(node.device.fp32_GFLOPs, best);
        double took = 0;
        for (int i = 0; i < CALIBRATE_BATCHES; i++) {
            const struct ls_node_product *product = &node.device.products[i];
            assert_true(product->share > 0 && product->share <= 1);
            assert_true(product->rows / product->share > took);
            took = product->rows / product->share;
        }
    }
}

/* 2, 4 and 8 ranks have 2, 6 and 14 hops. */
TEST(test_latency_over_ranks) {
    static const struct {
        double us[3], base_us, hop_us;
    } cases[] = {{{5, 11, 23}, 2, 1.5},       /* on a line */
                 {{2, 9, 23}, 0, 380. / 236}, /* the fitted line begins below 0: use one through 0 */
                 {{9, 9, 9}, 9, 0},
                 {{9, 6, 3}, 6, 0}}; /* never a falling line */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        calibrate_figures f = example_figures();
        calibrate_table *table = &f.tables[LS_NODE_ALL_REDUCE];
        table->row_count = 0;
        for (int i = 0; i < 3; i++) {
            table->rows[table->row_count++] = (calibrate_row){2 << i, 1024, even_spread(99), cases[c].us[i]};
            table->rows[table->row_count++] = (calibrate_row){2 << i, 1 << 20, even_spread(1000), 1000};
        }
        struct calibrate_node node = calibrate_conclude(&f);
        expect_near(node.collectives.base_us, cases[c].base_us);
        expect_near(node.collectives.hop_us, cases[c].hop_us);
    }
}

/* test_results.c tests the contents of the file and of the output. */
TEST_IN(scratch, test_the_file_is_a_node) {
    calibrate_figures f = example_figures();
    ls_node *node;
    const char *path = scratch_path("this_machine.json");
    scratch_write("this_machine.json", "old", 3);
    for (int one_core = 0; one_core < 2; one_core++) {
        f.taken_bytes = one_core ? 0 : 1e5;
        const struct calibrate_node wanted = calibrate_conclude(&f);
        assert_int_equal(calibrate_write(&f, &example_machine, path), LS_OK);
        assert_int_equal(ls_node_open(&node, path), LS_OK);
        const struct ls_node_device *device = ls_node_device(node);
        const struct ls_node_host *host = ls_node_host(node);
        assert_string_equal(ls_node_name(node), "this_machine");
        assert_int_equal(ls_node_device_count(node), 2);
        expect_near(device->fp32_GFLOPs, wanted.device.fp32_GFLOPs);
        expect_near(device->memory_crowding, wanted.device.memory_crowding);
        assert_int_equal(device->product_count, CALIBRATE_BATCHES);
        assert_int_equal(device->reclaim_bytes, wanted.device.reclaim_bytes);
        if (one_core) assert_true(isinf(device->reclaim_GBps));
        if (!one_core) expect_near(device->reclaim_GBps, wanted.device.reclaim_GBps);
        expect_near(host->hand_over_us, wanted.host.hand_over_us);
        expect_near(host->awake_us, wanted.host.awake_us);
        expect_near(host->spin_us, wanted.host.spin_us);
        assert_true(host->runs_compute && host->lock_us == 0 && host->cores == 2);
        expect_near(ls_node_route(node, 0, 1)->latency_us, 2 * wanted.link.latency_us);
        expect_near(ls_node_link(node, 0)->GBps, wanted.link.GBps);
        for (int o = 0; o < LS_NODE_OPERATIONS; o++) {
            const struct ls_node_table *table = &ls_node_collectives(node)->tables[o];
            assert_int_equal(table->count, 2);
            assert_int_equal(table->rows[1].bytes, 4000000);
            expect_near(table->rows[1].us, f.tables[o].rows[1].written_us);
        }
        expect_near(ls_node_collectives(node)->reduce_scatter_GBps, wanted.collectives.reduce_scatter_GBps);
        assert_true(ls_node_collectives(node)->all_gather_GBps > ls_node_collectives(node)->reduce_scatter_GBps);
        ls_node_close(node);
    }
}

/* A figure that is not a number leaves the old file unchanged. */
TEST_IN(scratch, test_what_is_no_node_is_not_written) {
    calibrate_figures f = example_figures();
    size_t nbytes;
    f.hand_over_us.median = NAN;
    scratch_write("node.json", "old", 3);
    assert_int_equal(calibrate_write(&f, &example_machine, scratch_path("node.json")), LS_ERR_INVALID);
    scratch_expect_error("hand_over_us must be a number", NULL);
    char *text = scratch_read(scratch_path("node.json"), &nbytes);
    assert_string_equal(text, "old");
    free(text);
}

/* --- between hosts ------------------------------------------------------------------------------------------------ */

/* Four ranks on two hosts: 5 + 6 * 3 us within them, 2 hops of 100 us, and 1.5 bytes per byte at 0.125 GB/s. */
TEST(test_the_network_is_a_line) {
    calibrate_row rows[] = {
        {4, 65536, even_spread(0), 0}, {4, 262144, even_spread(0), 0}, {4, 1048576, even_spread(0), 0}};
    for (int i = 0; i < 3; i++) rows[i].written_us = 223 + 1.5 * (double)rows[i].bytes / 125;
    struct ls_node_collectives network = {.base_us = 5, .hop_us = 3};
    assert_int_equal(calibrate_network(&network, rows, 3, 2), LS_OK);
    expect_near(network.network_GBps, 0.125);
    expect_near(network.network_hop_us, 100);
    rows[1].written_us *= 2; /* the line passes through the end points */
    network.base_us = 1000;  /* more than the whole time */
    assert_int_equal(calibrate_network(&network, rows, 3, 2), LS_OK);
    expect_near(network.network_GBps, 0.125);
    assert_true(network.network_hop_us == 0);
    rows[2].written_us = rows[0].written_us;
    assert_int_equal(calibrate_network(&network, rows, 3, 2), LS_ERR_INVALID);
    assert_int_equal(calibrate_network(&network, rows, 1, 2), LS_ERR_INVALID);
}

/* --- the program, in its shortest form -------------------------------------------------------------------------- */

TEST_WITH(programs_setup_to_compute, programs_teardown, test_the_program_writes_a_node) {
    static program p;
    ls_node *node;
    const char *path = scratch_path("node.json");
    assert_int_equal(program_run(&p, "%s/calibrate --quick --quiet --out=%s", build_folder(), path), 0);
    assert_non_null(strstr(p.out_text, "measured on "));
    assert_non_null(strstr(p.out_text, "all-reduce of 1.0 MiB, 2 ranks"));
    assert_non_null(strstr(p.out_text, "all-gather of 1.0 MiB, 2 ranks"));
    assert_non_null(strstr(p.out_text, "reduce-scatter of 1.0 MiB, 2 ranks"));
    assert_non_null(strstr(p.out_text, path));
    assert_string_equal(p.err_text, "");
    assert_int_equal(ls_node_open(&node, path), LS_OK);
    assert_true(ls_node_device_count(node) >= 2);
    for (int o = 0; o < LS_NODE_OPERATIONS; o++) {
        const struct ls_node_table *table = &ls_node_collectives(node)->tables[o];
        assert_int_equal(table->rows[0].ranks, 2);
        assert_int_equal(table->rows[0].bytes, 1024);
        assert_true(table->count >= 6);
        for (const struct ls_node_measured *row = table->rows + 1; row < table->rows + table->count; row++)
            assert_true(row->ranks > row[-1].ranks || row->us >= row[-1].us);
    }
    assert_true(ls_node_collectives(node)->all_gather_GBps > 0 && ls_node_collectives(node)->reduce_scatter_GBps > 0);
    ls_node_close(node);
}

/* Simulates two hosts: each rank's environment says that it is the only rank on its host. The other figures of the file
 * stay unchanged. */
TEST_WITH(programs_setup_to_compute, programs_teardown, test_the_network_goes_into_a_node_file) {
    static program ranks[2];
    ls_node *node;
    const char *path = scratch_path("node.json");
    calibrate_figures f = example_figures();
    int port = free_port();
    assert_int_equal(calibrate_write(&f, &example_machine, path), LS_OK);
    for (int r = 0; r < 2; r++)
        program_start(&ranks[r],
                      "LS_HOST_IDENTITY=host%d RANK=%d WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 "
                      "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                      "LS_JOB_TOKEN=0123456789abcdef0123456789abcdef calibrate --hosts --quick --quiet --out=%s",
                      r, r, port, path);
    int failed = 0;
    for (int r = 0; r < 2; r++) failed += program_finish(&ranks[r]) != 0;
    if (failed == 2 && strstr(ranks[0].err_text, "which cannot be used")) skip(); /* this build has no MPI */
    if (failed > 0) fail_msg("%s%s", ranks[0].err_text, ranks[1].err_text);
    assert_string_equal(ranks[0].err_text, "");
    assert_string_equal(ranks[1].out_text, "");
    assert_non_null(strstr(ranks[0].out_text, "measured: 2 ranks on 2 hosts, by "));
    assert_non_null(strstr(ranks[0].out_text, "64.0 KiB"));
    assert_non_null(strstr(ranks[0].out_text, "written: network_hop_us "));
    assert_int_equal(ls_node_open(&node, path), LS_OK);
    const struct ls_node_collectives *c = ls_node_collectives(node);
    assert_true(c->network_GBps > 0 && c->network_hop_us >= 0);
    assert_true(c->tables[LS_NODE_ALL_REDUCE].count > 0);
    assert_int_equal(c->tables[LS_NODE_BETWEEN].rows[0].bytes, 1024);
    assert_int_equal(c->tables[LS_NODE_BETWEEN].count, 7);
    ls_node_close(node);
}

TEST_WITH(programs_setup_to_compute, programs_teardown, test_one_host_has_no_network) {
    static program p;
    assert_int_equal(program_run(&p, "calibrate --hosts --out=%s/node.json", scratch_folder()), 2);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(
        strstr(p.err_text, "but this job has 1 rank on one host: start calibrate with ddprun --nnodes M on each"));
    assert_int_equal(scratch_file_count(), 0);
}

TEST_WITH(programs_setup_to_compute, programs_teardown, test_wrong_usage) {
    static program p;
    assert_int_equal(program_run(&p, "%s/calibrate --slow", build_folder()), 2);
    assert_int_equal(
        program_run(&p, "%s/calibrate --quick --quiet --out=%s/absent/node.json", build_folder(), scratch_folder()), 1);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "absent"));
    assert_int_equal(scratch_file_count(), 0);
}
