/* cost: rooflines, calibration, collectives and the textbook's patterns, against values computed by hand. */
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/cost.h"
#include "tests/base/test.h"

/* 100 and 400 GFLOP/s, 10 GB/s, 2 us; two devices; an all-reduce costs 5 + 2 (N - 1) 3 us and 4 GB/s, over several
 * nodes 2 (NODES - 1) 10 us more and 2 GB/s. */
static const char node_text[] =
    "{\"description\": \"d\", \"devices\": 2, \"device\": {\"name\": \"G\", \"fp32_GFLOPs\": 100, \"fp16_GFLOPs\": "
    "400, "
    "\"memory_GBps\": 10, \"kernel_us\": 2, \"memory_bytes\": 0}, \"host\": {\"launch_us\": 5, \"event_us\": 1, "
    "\"sync_us\": 6, \"hand_over_us\": 7, \"collective_us\": 8, \"lock_us\": 0, \"runs_compute\": false}, \"links\": "
    "[{\"name\": \"a\", \"from\": \"gpu0\", \"to\": \"host\", \"GBps\": 1, \"latency_us\": 1, \"duplex\": true}, "
    "{\"name\": \"b\", \"from\": \"gpu1\", \"to\": \"host\", \"GBps\": 1, \"latency_us\": 1, \"duplex\": true}], "
    "\"collectives\": {\"base_us\": 5, \"hop_us\": 3, \"bus_GBps\": 4, \"slow_down\": 1, \"network_hop_us\": 10, "
    "\"network_GBps\": 2, \"all_reduce_us\": [[4, 1000, 20], [4, 100000, 80], [4, 1000000, 1280]]}, "
    "\"sources\": {\"device\": \"x\", \"host\": \"x\", \"links\": \"x\", \"collectives\": \"x\"}}";

static ls_node *open_node(void) {
    ls_node *node;
    assert_int_equal(ls_node_parse(&node, "n", node_text, sizeof node_text - 1), LS_OK);
    return node;
}

static void assert_near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected) + 1e-12)) print_error("%.12g, not %.12g\n", value, expected);
    assert_true(fabs(value - expected) <= 1e-9 * fabs(expected) + 1e-12);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

TEST(test_roofline) {
    ls_node *node = open_node();
    assert_near(ls_cost_kernel_us(node, 0, 0, true, LS_FP32), 2);
    assert_near(ls_cost_kernel_us(node, 1e6, 0, true, LS_FP32), 12);   /* 1e6 / 1e11 s */
    assert_near(ls_cost_kernel_us(node, 1e6, 5e4, true, LS_FP32), 12); /* 5 us of memory time are hidden */
    assert_near(ls_cost_kernel_us(node, 1e6, 2e5, true, LS_FP32), 22); /* 20 us are not */
    assert_near(ls_cost_kernel_us(node, 4e6, 0, true, LS_FP16), 12);
    assert_near(ls_cost_kernel_us(node, 4e6, 0, true, LS_BF16), 12);
    assert_near(ls_cost_kernel_us(node, 4e6, 0, true, LS_FP32), 42);
    assert_near(ls_cost_kernel_us(node, 1e12, 1e5, false, LS_FP32), 12); /* not a matrixmultiply: only bytes count */
    ls_node_close(node);
}

/* A matrix multiply of 1e6 flops and 2e5 bytes, half of which are per sample; an update of 1e5 bytes. */
static const struct ls_work works[2] = {
    {.name = "gemm", .phase = "forward", .flops = 4e6, .bytes = 2e5, .fixed_bytes = 1e5, .is_product = true, .us = -1},
    {.name = "sgd", .phase = "optimizer", .flops = 1e4, .bytes = 1e5, .fixed_bytes = 1e5, .us = -1},
};

static ls_workload make_workload(struct ls_work copies[2]) {
    memcpy(copies, works, sizeof works);
    return (ls_workload){.name = "w", .samples = 8, .work = copies, .work_count = 2, .element_bytes = 4};
}

TEST(test_work_grows_with_samples_and_precision) {
    struct ls_work work[2];
    ls_workload workload = make_workload(work);
    ls_node *node = open_node();
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_FP32, 1), 42);
    assert_near(ls_cost_work_us(node, &work[0], &workload, 16, LS_FP32, 1), 82);   /* 8e6 flops; 3e5 bytes */
    assert_near(ls_cost_work_us(node, &work[0], &workload, 1, LS_FP32, 1), 13.25); /* 5 us of flops, 1.125e5 bytes */
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_FP16, 1),
                12); /* flops and half of the bytes: 10 us each */
    assert_near(ls_cost_work_us(node, &work[0], &workload, 1, LS_FP16, 1), 7.625);
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP32, 1), 12);
    assert_near(ls_cost_work_us(node, &work[1], &workload, 1, LS_FP32, 1), 12); /* of the parameters, not of samples */
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP16, 1), 12); /* it updates them in fp32 */
    ls_node_close(node);
}

/* 4e6 flops by 2.5e4 weights are 80 rows. At the full rate they take 40 us, and 2 for the floor. */
TEST(test_products_of_few_rows) {
    struct ls_work work[2];
    ls_workload workload = make_workload(work);
    ls_node *node = open_node();
    struct ls_node_device *device = ls_node_change_device(node);
    device->product_count = 2;
    device->products[0] = (struct ls_node_product){20, 0.5};  /* as long as 40 */
    device->products[1] = (struct ls_node_product){60, 0.75}; /* as long as 80, and 20 more rows as 40 more */
    assert_near(ls_cost_work_us(node, &work[0], &workload, 4, LS_FP32, 1), 2 + 30);
    assert_near(ls_cost_work_us(node, &work[0], &workload, 6, LS_FP32, 1), 2 + 40);
    assert_near(ls_cost_work_us(node, &work[0], &workload, 2, LS_FP32, 1), 2 + 20);
    work[0].bytes = work[0].fixed_bytes;
    assert_near(ls_cost_work_us(node, &work[0], &workload, 1, LS_FP32, 1), 2 + 20);        /* the first point */
    assert_near(ls_cost_work_us(node, &work[0], &workload, 12, LS_FP32, 1), 2 + 60 / .75); /* beyond the last one */
    assert_near(ls_cost_work_us(node, &work[0], &workload, 12, LS_FP16, 1), 2 + 20);
    assert_near(ls_cost_kernel_us(node, 4e6, 0, true, LS_FP32), 42); /* the number of weights is unknown */
    work[0].us = 64;
    assert_near(ls_cost_work_us(node, &work[0], &workload, 4, LS_FP32, 1), 64 * 32 / (2 + 40 / .75));
    work[0].us = -1;
    workload.element_bytes = 2; /* fp16 weights: 5e4 of them, and so 20 rows of 4 samples */
    device->memory_GBps = 1000;
    assert_near(ls_cost_work_us(node, &work[0], &workload, 4, LS_FP16, 1), 2 + 5 / 0.5);
    ls_node_close(node);
}

TEST(test_measured_work_is_scaled) {
    struct ls_work work[2];
    ls_workload workload = make_workload(work);
    ls_node *node = open_node();
    work[0].us = 84; /* twice the roofline's time */
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_FP32, 1), 84);
    assert_near(ls_cost_work_us(node, &work[0], &workload, 16, LS_FP32, 1), 164);
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_FP16, 1), 24);
    work[1].us = 6;
    assert_near(ls_cost_work_us(node, &work[1], &workload, 1, LS_FP32, 1), 6);
    workload.element_bytes = 2; /* measured in 16 bits; bytes are those of 16 bits: 10 us of flops, 20 of bytes */
    work[0].us = 44;
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_BF16, 1), 44);
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_FP32, 1), 84); /* 42 by 22 */
    work[0].us = 0;
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_BF16, 1), 0);
    ls_node_close(node);
}

/* Launches end at 5 and 10; the matrix multiply runs from 5 to 47, the update to 59. With a host that runs them, 5 + 42
 * + 5 + 12. */
TEST(test_a_step) {
    struct ls_work work[2];
    ls_workload workload = make_workload(work);
    ls_node *node = open_node();
    assert_near(ls_cost_step_us(node, &workload, 8, LS_FP32), 59);
    workload.loader_us = 100;
    assert_near(ls_cost_step_us(node, &workload, 8, LS_FP32), 159);
    ls_node_change_host(node)->runs_compute = true;
    assert_near(ls_cost_step_us(node, &workload, 8, LS_FP32), 164);
    ls_node_change_host(node)->launch_us = 1000; /* launches hide all kernels except the last */
    ls_node_change_host(node)->runs_compute = false;
    assert_near(ls_cost_step_us(node, &workload, 8, LS_FP32), 2112);
    ls_node_close(node);
}

/* The update's bytes take 10 of its 12 us. */
TEST(test_crowding) {
    struct ls_work work[2];
    ls_workload workload = make_workload(work);
    ls_node *node = open_node();
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_FP32, 2), 42); /* not in the file */
    ls_node_change_device(node)->product_crowding = 1.5;
    ls_node_change_device(node)->memory_crowding = 3;
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_FP32, 1), 42);
    assert_near(ls_cost_work_us(node, &work[0], &workload, 8, LS_FP32, 2), 63);
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP32, 2), 32);
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP32, 8), 32);
    ls_node_close(node);
    assert_int_equal(ls_node_open(&node, "pcie3-4gpu"), LS_OK);
    ls_node_change_device(node)->memory_GBps = 10;
    ls_node_change_device(node)->kernel_us = 2;
    ls_node_change_device(node)->memory_crowding = 4;
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP32, 1), 12);
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP32, 2), 22);
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP32, 3), 32);
    ls_node_close(node);
}

TEST(test_reclaiming) {
    ls_node *node = open_node();
    assert_near(ls_cost_reclaim_us(node, 1e6), 0); /* not in the file */
    ls_node_change_device(node)->reclaim_bytes = 4000;
    assert_near(ls_cost_reclaim_us(node, 1e6), 0);
    ls_node_change_device(node)->reclaim_GBps = 2;
    assert_near(ls_cost_reclaim_us(node, 1e6), 2);
    assert_near(ls_cost_reclaim_us(node, 1000), 0.5);
    ls_node_close(node);
}

/* The measured time limits the share of an operation that its bytes can take. */
TEST(test_only_bytes_are_crowded) {
    struct ls_work work[2];
    ls_workload workload = make_workload(work);
    ls_node *node = open_node();
    ls_node_change_device(node)->memory_crowding = 3;
    work[1].us = 50; /* 10 of them for bytes */
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP32, 2), 70);
    work[1].us = 6; /* less than at the node's rate: all of it counts as bytes */
    assert_near(ls_cost_work_us(node, &work[1], &workload, 8, LS_FP32, 2), 18);
    work[0] = work[1];
    work[0].phase = "forward"; /* so half of the samples have half the bytes and time */
    work[0].fixed_bytes = 0;
    work[0].us = 48;
    assert_near(ls_cost_work_us(node, &work[0], &workload, 4, LS_FP32, 2), 28 + 10);
    ls_node_close(node);
}

TEST(test_calibration) {
    struct ls_work work[2];
    ls_workload workload = make_workload(work);
    ls_node *node = open_node();
    double factor;
    assert_int_equal(ls_cost_calibrate(&factor, node, &workload, 8, LS_FP32, 59), LS_OK);
    assert_near(factor, 1);
    assert_int_equal(ls_cost_calibrate(&factor, node, &workload, 8, LS_FP32, 109), LS_OK); /* 50 us of work in 100 */
    assert_near(factor, 0.5);
    assert_int_equal(ls_cost_calibrate(&factor, node, &workload, 8, LS_FP32, 24), LS_OK);
    ls_node_change_device(node)->fp32_GFLOPs *= factor;
    ls_node_change_device(node)->memory_GBps *= factor;
    assert_near(ls_cost_step_us(node, &workload, 8, LS_FP32), 24);
    ls_node_close(node);
}

TEST(test_what_no_factor_reaches_is_refused) {
    struct ls_work work[2];
    ls_workload workload = make_workload(work);
    ls_node *node = open_node();
    static const double impossible[] = {0, 11.9, 1e12, -1, NAN, INFINITY}; /* launches and a floor take 12 */
    char message[512] = "";
    double factor;
    ls_log_sink sink = ls_log_capture(message, sizeof message);
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++)
        assert_int_equal(ls_cost_calibrate(&factor, node, &workload, 8, LS_FP32, impossible[i]), LS_ERR_INVALID);
    work[0].us = work[1].us = 30; /* measured: rates do not matter */
    assert_int_equal(ls_cost_calibrate(&factor, node, &workload, 8, LS_FP32, 65), LS_ERR_INVALID);
    ls_log_restore(sink);
    assert_non_null(strstr(message, "no rates of the node n make a step of w take 0 us"));
    ls_node_close(node);
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

TEST(test_collectives_by_formula) {
    ls_node *node = open_node();
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 1, 1e6), 0);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 2, 0), 11);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 2, 4e6), 1011);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_BROADCAST, 2, 4e6), 1008);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE, 2, 4e6), 1008);
    /* 8 ranks are 4 nodes of 2: 5 + 14 * 3 + 6 * 10, and 1.75 n at 2 GB/s */
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 8, 4e6), 107 + 3500);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_BROADCAST, 8, 4e6), 5 + 21 + 30 + 2000);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 3, 3e6), 5 + 12 + 20 + 2000); /* 2 nodes */
    ls_node_change_collectives(node)->network_GBps = 100; /* not the bottleneck */
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 8, 4e6), 107 + 1750);
    ls_node_change_collectives(node)->network_GBps = 0; /* a single node, whatever the ranks */
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 8, 4e6), 47 + 1750);
    ls_node_close(node);
}

/* Each takes half of an all-reduce: one turn of a ring. Bandwidths of their own change only the time of the bytes, and
 * only within the node. */
TEST(test_halves_of_an_all_reduce) {
    ls_node *node = open_node();
    static const int ranks[] = {2, 3, 8, 4}; /* one node, two, four; and a table's */
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        double half_us = ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, ranks[i], 4e6) / 2;
        assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, ranks[i], 4e6), half_us);
        assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE_SCATTER, ranks[i], 4e6), half_us);
    }
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 1, 4e6), 0);
    ls_node_change_collectives(node)->all_gather_GBps = 2;
    ls_node_change_collectives(node)->reduce_scatter_GBps = 8; /* bus_GBps: 4 */
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 2, 4e6), 5.5 + 1000);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE_SCATTER, 2, 4e6), 5.5 + 250);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 2, 4e6), 11 + 1000);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_BROADCAST, 2, 4e6), 8 + 1000);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 8, 4e6),
                (107 + 3500) / 2.); /* over the network */
    ls_node_close(node);
}

/* As measured: reduce-scatter and all-gather compared with an all-reduce of the same number of bytes. */
TEST(test_h200_adds_up_in_its_switch) {
    ls_node *node;
    assert_int_equal(ls_node_open(&node, "hgx-h200"), LS_OK);
    for (double bytes = 1e3; bytes < 1e11; bytes *= 10) {
        double us = ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE_SCATTER, 8, bytes) +
                    ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 8, bytes);
        double last_GBps = 1.75 * 17179869184. / 62500 * 1e-3; /* 481 */
        assert_near(us / ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 8, bytes),
                    (last_GBps / 361.4 + last_GBps / 362.9) / 2);
        us = ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE_SCATTER, 4, bytes) +
             ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 4, bytes);
        double ratio = us / ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 4, bytes);
        assert_true(ratio >= 1 && ratio < 1.004); /* all three are rings */
    }
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 16, 1e9), /* no own figures beyond the node */
                ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 16, 1e9) / 2);
    ls_node_close(node);
}

/* Rows of their own take precedence. */
TEST(test_halves_by_table) {
    static const struct ls_node_measured gathers[] = {{2, 1000, 7}, {2, 1000000, 70}}, scatters[] = {{2, 1000, 9}};
    ls_node *node = open_node();
    struct ls_node_collectives *figures = ls_node_change_collectives(node);
    figures->all_gather_GBps = 1;
    figures->tables[LS_NODE_ALL_GATHER] = (struct ls_node_table){gathers, 2};
    figures->tables[LS_NODE_REDUCE_SCATTER] = (struct ls_node_table){scatters, 1};
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 2, 500), 7);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 2, 2e6), 140);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE_SCATTER, 2, 500), 9);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, 4, 1e5), 40); /* half of the all-reduce's row */
    ls_node_close(node);
}

/* Rows of 4 ranks: 20, 80 and 1280 us at 1e3, 1e5 and 1e6 bytes. */
TEST(test_collectives_by_table) {
    ls_node *node = open_node();
    const struct {
        double bytes, us;
    } points[] = {{0, 20},   {1, 20},     {1e3, 20},   {1e4, 40}, /* half-way in the logarithm: sqrt(20 * 80) */
                  {1e5, 80}, {1e6, 1280}, {2e6, 2560}, {1e9, 1.28e6}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 4, points[i].bytes), points[i].us);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, 4, 316227.76601683796), 320);
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_BROADCAST, 4, 1.5e6), 1280); /* an all-reduce of 1e6 */
    assert_near(ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE, 4, 1.5e4), 40);
    ls_node_close(node);
}

/* --- patterns ----------------------------------------------------------------------------------------------------- */

/* alpha 10 us, 1 GB/s, summing at 2 GB/s; 1.2e4 bytes: 12 us to send, 6 to sum. */
TEST(test_patterns) {
    const ls_hockney link = {10, 1, 2};
    const double n = 1.2e4;
    const struct {
        ls_pattern pattern;
        int ranks, steps;
        double messages, bytes, us;
    } cases[] = {
        {LS_PATTERN_RING, 2, 2, 2, n, 20 + 12 + 3},
        {LS_PATTERN_RING, 4, 6, 6, 1.5 * n, 60 + 18 + 4.5},
        {LS_PATTERN_RING, 6, 10, 10, 2e4, 100 + 20 + 5},
        {LS_PATTERN_SERVER, 2, 2, 1, n, 2 * 22 + 6},
        {LS_PATTERN_SERVER, 4, 2, 3, 3 * n, 6 * 22 + 18},
        {LS_PATTERN_TREE, 2, 2, 1, n, 44 + 6},
        {LS_PATTERN_TREE, 4, 4, 2, 2 * n, 2 * (44 + 6)},
        {LS_PATTERN_TREE, 5, 6, 3, 3 * n, 3 * (44 + 6)},
        {LS_PATTERN_TREE, 8, 6, 3, 3 * n, 3 * (44 + 6)},
        {LS_PATTERN_HALVING_DOUBLING, 2, 2, 2, n, 20 + 12 + 3},
        {LS_PATTERN_HALVING_DOUBLING, 4, 4, 4, 1.5 * n, 40 + 18 + 4.5},
        {LS_PATTERN_HALVING_DOUBLING, 6, 6, 5, 2.5 * n, 40 + 18 + 4.5 + 20 + 24 + 6},
        {LS_PATTERN_HALVING_DOUBLING, 16, 8, 8, 2 * 15. / 16 * n, 80 + 22.5 + 5.625},
        {LS_PATTERN_DIRECT, 4, 2, 6, 1.5 * n, 60 + 18 + 4.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_pattern_cost cost = ls_cost_pattern(cases[i].pattern, cases[i].ranks, n, &link);
        assert_int_equal(cost.steps, cases[i].steps);
        assert_near(cost.messages, cases[i].messages);
        assert_near(cost.bytes, cases[i].bytes);
        assert_near(cost.us, cases[i].us);
    }
    const ls_hockney free_sums = {10, 1, INFINITY};
    assert_near(ls_cost_pattern(LS_PATTERN_RING, 4, n, &free_sums).us, 78);
    for (int pattern = 0; pattern < LS_PATTERN_COUNT; pattern++)
        assert_true(ls_cost_pattern((ls_pattern)pattern, 1, n, &link).us == 0);
    assert_string_equal(ls_pattern_name(LS_PATTERN_SERVER), "parameter server");
    assert_string_equal(ls_pattern_name(LS_PATTERN_COUNT), "unknown");
}
