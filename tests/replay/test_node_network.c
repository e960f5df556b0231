/* The second level: groups of ranks on several nodes and their network, and messages from node to node. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/cost.h"
#include "labs/replay/record/record.h"
#include "tests/base/test.h"
#include "tests/replay/node_text.h"
#include "tests/replay/planned.h"

enum { DEVICES = 8 };

/* A star of `devices` devices: an all-reduce costs 10 + 2 (N - 1) us and 4 GB/s, between nodes 10 us per hop and 2
 * GB/s. */
static void begin(struct planned *b, int devices) {
    planned_begin(b, LS_PLAN_DDP, devices, devices, 10);
    struct ls_node_collectives *figures = ls_node_change_collectives(b->node);
    figures->bus_GBps = 4;
    figures->network_hop_us = 10;
    figures->network_GBps = 2;
}

/* --- groups of ranks ---------------------------------------------------------------------------------------------- */

static const double bytes = 16e6;

static double seen_us(const ls_node *node, int ranks, int stride, int nodes) {
    ls_node *view;
    assert_int_equal(ls_node_view(&view, node, ranks, stride, nodes), LS_OK);
    double us = ls_cost_collective_us(view, LS_COLLECTIVE_ALL_REDUCE, ranks, bytes);
    ls_node_close(view);
    return us;
}

TEST(groups_share_a_nodes_network) {
    struct planned b;
    begin(&b, DEVICES);
    for (int ranks = 2; ranks <= 64; ranks *= 2)
        planned_expect_us(seen_us(b.node, ranks, 1, 8),
                          ls_cost_collective_us(b.node, LS_COLLECTIVE_ALL_REDUCE, ranks, bytes));
    planned_expect_us(seen_us(b.node, 4, 2, 1), 10 + 6 + 1.5 * 16e6 / 4e3);                 /* within the node */
    planned_expect_us(seen_us(b.node, 16, 2, 4), 10 + 30 + 60 + 2 * 15. / 16 * 16e6 / 1e3); /* two groups */
    planned_expect_us(seen_us(b.node, 4, 8, 4), 10 + 6 + 60 + 1.5 * 16e6 / 250);            /* eight, a rank each */
    planned_expect_us(seen_us(b.node, 4, 16, 8), 10 + 6 + 60 + 1.5 * 16e6 / 250);           /* on every other node */
    ls_node_change_collectives(b.node)->network_switch_GBps = 4;                            /* 1 GB/s for each */
    planned_expect_us(seen_us(b.node, 32, 1, 4), 10 + 62 + 60 + 2 * 31. / 32 * 16e6 / 1e3);
    planned_expect_us(seen_us(b.node, 16, 1, 2), 10 + 30 + 20 + 2 * 15. / 16 * 16e6 / 2e3); /* enough for two groups */
    planned_expect_us(seen_us(b.node, 8, 1, 4), 10 + 14 + 1.75 * 16e6 / 4e3);               /* which need no network */
    planned_end(&b);
}

/* Tables are of one node; a table with more ranks than a node is of several. */
TEST(measured_times_are_of_neighbours) {
    ls_node *node, *view;
    assert_int_equal(
        node_parse_replaced(&node, "\"hop_us\": 2", "\"hop_us\": 2, \"network_hop_us\": 9, \"network_GBps\": 3"),
        LS_OK);
    planned_expect_us(seen_us(node, 2, 1, 2), 9.5 * 16e6 / 4096);
    assert_int_equal(ls_node_view(&view, node, 2, 3, 2), LS_OK);
    planned_expect_us(ls_cost_collective_us(view, LS_COLLECTIVE_ALL_REDUCE, 2, 3e6), 1 + 4 + 18 + 3e6 / 1e3);
    ls_node_close(view);
    ls_node_close(node);
    assert_int_equal(node_parse_replaced(&node, "\"hop_us\": 2",
                                         "\"hop_us\": 2, \"network_hop_us\": 9, \"network_GBps\": 3, "
                                         "\"network_all_reduce_us\": [[2, 1000, 7], [4, 1000, 50], [4, 4000, 90]]"),
                     LS_OK);
    planned_expect_us(seen_us(node, 4, 1, 2), 90 * 16e6 / 4000); /* beyond the node, without rows of 4 ranks */
    planned_expect_us(seen_us(node, 2, 1, 1), 9.5 * 16e6 / 4096);
    assert_int_equal(ls_node_view(&view, node, 4, 3, 4), LS_OK);
    planned_expect_us(ls_cost_collective_us(view, LS_COLLECTIVE_ALL_REDUCE, 4, 3e6), 1 + 12 + 54 + 1.5 * 3e6 / 1e3);
    ls_node_close(view);
    assert_int_equal(ls_node_keep(node, 1), LS_OK);
    planned_expect_us(seen_us(node, 2, 1, 2), 7 * 16e6 / 1000);
    ls_node_close(node);
}

TEST(groups_that_lie_differently_are_refused) {
    struct planned b;
    char line[300] = "";
    ls_node *view;
    begin(&b, DEVICES);
    ls_log_sink sink = ls_log_capture(line, sizeof line);
    assert_int_equal(ls_node_view(&view, b.node, 3, 3, 2), LS_ERR_INVALID);
    assert_int_equal(ls_node_view(&view, b.node, 2, 12, 3), LS_ERR_INVALID);
    ls_log_restore(sink);
    assert_non_null(strstr(line, "3 apart differ between nodes of 8 devices"));
    assert_int_equal(ls_node_view(&view, b.node, 2, 3, 1), LS_OK);
    ls_node_close(view);
    planned_end(&b);
}

/* The formula of cost.h, by hand, and as a plan computes it. */
TEST(hierarchical_all_reduces) {
    static const struct planned_layer layer = {10, 20, 4000000};
    const double within_us = 10 + 14 + 1.75 * 16e6 / 4e3, across_us = 10 + 6 + 60 + 2 * 3. / 4 * 16e6 / 2e3;
    struct planned b;
    ls_node *across;
    begin(&b, DEVICES);
    assert_int_equal(ls_node_view(&across, b.node, 4, DEVICES, 4), LS_OK);
    planned_expect_us(ls_cost_hierarchical_us(b.node, across, 32, bytes), within_us + across_us);
    ls_node_close(across);
    planned_network(&b, &layer, 1, 5, 8);
    b.options.devices = 32;
    b.options.batch = 32;
    for (int hierarchical = 0; hierarchical < 2; hierarchical++) {
        b.options.hierarchical = hierarchical;
        planned_make(&b);
        int reduced = planned_find(&b, 31, LS_LANE_COMM, 1, "all-reduce", "all_reduce", 0);
        double ring_us = 10 + 62 + 60 + 2 * 31. / 32 * 16e6 / 2e3;
        planned_expect_us(ls_trace_task(b.trace, reduced)->us, hierarchical ? within_us + across_us : ring_us);
    }
    planned_end(&b);
}

/* Eight neighbours share layers on a node: their sums stay within it, and eight groups of two span two nodes. */
TEST(a_grid_lies_on_nodes) {
    ls_workload *wide;
    ls_node *node, *beyond;
    ls_trace *trace;
    struct ls_plan plan = ls_plan_defaults(LS_PLAN_DDP, 2 * DEVICES, 16);
    int within = 0, gradients = 0;
    plan.tensor = DEVICES;
    assert_int_equal(ls_workload_open(&wide, "wide"), LS_OK);
    assert_int_equal(ls_node_open(&node, "dgx-a100"), LS_OK);
    assert_int_equal(record_steps(&trace, wide, node, &plan), LS_OK);
    assert_int_equal(ls_node_view(&beyond, node, 2, DEVICES, 2), LS_OK);
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->kind != LS_TASK_COLLECTIVE) continue;
        const struct ls_meeting *meeting = ls_trace_meeting(trace, task->meeting);
        bool in_node = meeting->ranks == DEVICES;
        double n = (double)meeting->bytes * (in_node ? 8 : 1), own = in_node ? 8 : 2;
        assert_int_equal(meeting->ranks, own);
        if (strcmp(meeting->operation, "all_reduce") != 0) continue;
        double us = ls_cost_collective_us(in_node ? node : beyond, LS_COLLECTIVE_ALL_REDUCE, (int)own, n);
        planned_expect_us(task->us, us);
        within += in_node;
        gradients += !in_node;
    }
    assert_true(within > 0 && gradients > 0);
    ls_trace_destroy(trace);
    ls_node_close(beyond);
    ls_node_close(node);
    ls_workload_close(wide);
}

/* --- fewer devices ------------------------------------------------------------------------------------------------ */

/* "a+ b- 4": links and latency; "-" marks a link that is crossed in reverse. */
static void expect_route(const ls_node *node, int from, int to, const char *wanted) {
    char text[300] = "";
    const struct ls_route *route = ls_node_route(node, from, to);
    assert_non_null(route);
    for (int i = 0; i < route->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%c ", ls_node_link(node, route->link[i])->name,
                 route->forwards[i] ? '+' : '-');
    snprintf(text + strlen(text), sizeof text - strlen(text), "%g", route->latency_us);
    assert_string_equal(text, wanted);
}

TEST(a_job_may_use_some_devices_of_each_node) {
    ls_node *node;
    char line[300] = "";
    assert_int_equal(node_parse(&node, NODE), LS_OK);
    ls_log_sink sink = ls_log_capture(line, sizeof line);
    assert_int_equal(ls_node_keep(node, 4), LS_ERR_INVALID);
    ls_log_restore(sink);
    assert_non_null(strstr(line, "n has 3 devices in each node, not 4"));
    assert_int_equal(ls_node_keep(node, 2), LS_OK);
    assert_int_equal(ls_node_device_count(node), 2);
    expect_route(node, 0, 1, "a+ b+ 3");
    expect_route(node, -1, 1, "up- b+ 5");
    expect_route(node, 0, -1, "a+ up+ 4");
    assert_null(ls_node_route(node, 0, 2));
    assert_int_equal(ls_node_collectives(node)->tables[LS_NODE_ALL_REDUCE].count, 2); /* the rows of two ranks */
    assert_int_equal(ls_node_keep(node, 1), LS_OK);
    expect_route(node, -1, 0, "up- a- 4");
    assert_int_equal(ls_node_collectives(node)->tables[LS_NODE_ALL_REDUCE].count, 0);
    ls_node_close(node);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

#define NETWORK "\"hop_us\": 2, \"network_hop_us\": 10, \"network_GBps\": 2"

TEST(messages_go_over_both_nodes_networks) {
    ls_node *node;
    assert_int_equal(node_parse_replaced(&node, "\"hop_us\": 2", NETWORK), LS_OK);
    assert_int_equal(ls_node_repeat(node, 2), LS_OK);
    assert_int_equal(ls_node_device_count(node), 3);
    assert_int_equal(ls_node_link_count(node), 2 * 4 + 2);
    expect_route(node, 0, 1, "a+ b+ 3");
    expect_route(node, 3, 4, "1:a+ 1:b+ 3");
    expect_route(node, 5, -1, "1:c- 4");
    expect_route(node, -1, 3, "1:up- 1:a- 4");
    expect_route(node, -1, -1, "0");
    expect_route(node, 0, 4, "a+ up+ network 0+ network 1- 1:up- 1:b+ 12");
    expect_route(node, 5, 2, "1:c- network 1+ network 0- c+ 12");
    assert_null(ls_node_route(node, 0, 6));
    assert_true(ls_node_link(node, 8)->GBps == 2 && ls_node_link(node, 8)->duplex);
    ls_node_close(node);
    assert_int_equal(node_parse_replaced(&node, "\"hop_us\": 2", NETWORK ", \"network_switch_GBps\": 3"), LS_OK);
    assert_int_equal(ls_node_repeat(node, 3), LS_OK);
    expect_route(node, 8, 2, "2:c- network 2+ switch+ network 0- c+ 12");
    assert_true(ls_node_link(node, 3 * 5)->GBps == 3);
    ls_node_close(node);
}

TEST(too_many_nodes_are_refused) {
    ls_node *node;
    char line[400] = "";
    assert_int_equal(node_parse_replaced(&node, "\"hop_us\": 2", NETWORK), LS_OK);
    ls_log_sink sink = ls_log_capture(line, sizeof line);
    assert_int_equal(ls_node_repeat(node, 22), LS_ERR_INVALID);
    assert_non_null(strstr(line, "messages between 22 nodes of n are too many to model: at most 64 devices"));
    ls_node_change_collectives(node)->network_GBps = 0;
    assert_int_equal(ls_node_repeat(node, 2), LS_ERR_INVALID);
    ls_log_restore(sink);
    ls_node_close(node);
}

/* Two messages of 1e6 bytes at the same time, from both devices of a node to both of another. */
static double two_messages_us(double switch_GBps, int to_first, int to_second) {
    struct planned b;
    begin(&b, 2);
    struct ls_node_collectives *figures = ls_node_change_collectives(b.node);
    figures->network_GBps = 1;
    figures->network_switch_GBps = switch_GBps;
    assert_int_equal(ls_node_repeat(b.node, 4), LS_OK);
    assert_int_equal(ls_trace_create(&b.trace), LS_OK);
    for (int r = 0; r < 2; r++) {
        struct ls_lane comm = {.name = "comm", .kind = LS_LANE_COMM, .rank = r, .device = r};
        struct ls_task message = ls_task_default(LS_TASK_COPY, "message", ls_trace_add_lane(b.trace, &comm));
        message.from = r;
        message.to = r == 0 ? to_first : to_second;
        message.bytes = 1000000;
        (void)ls_trace_add_task(b.trace, &message);
    }
    assert_int_equal(ls_trace_seal(b.trace), LS_OK);
    assert_int_equal(ls_engine_run(&b.timeline, b.trace, b.node), LS_OK);
    double us = b.timeline->makespan_us;
    planned_end(&b);
    return us;
}

TEST(devices_share_their_nodes_network_link) {
    planned_expect_us(two_messages_us(INFINITY, 2, 0), 11 + 1000); /* the second stays in the node */
    planned_expect_us(two_messages_us(INFINITY, 2, 3), 11 + 2000);
    planned_expect_us(two_messages_us(INFINITY, 2, 4), 11 + 2000); /* to different nodes, from the same one */
    planned_expect_us(two_messages_us(0.5, 2, 4), 11 + 4000);
}

/* A ring enters each node once in each of its rounds, so its messages and the formula agree. */
TEST(a_ring_by_messages_takes_what_the_formula_says) {
    static const struct planned_layer layer = {10, 20, 4000000};
    struct planned b;
    double us[2];
    begin(&b, 2);
    struct ls_node_collectives *figures = ls_node_change_collectives(b.node);
    figures->network_GBps = 1;
    figures->base_us = figures->hop_us = figures->network_hop_us = 0;
    assert_int_equal(ls_node_repeat(b.node, 3), LS_OK);
    planned_network(&b, &layer, 1, 5, 8);
    b.options.devices = 6;
    b.options.batch = 6;
    for (int messages = 0; messages < 2; messages++) {
        b.options.collectives = messages ? LS_PLAN_BY_MESSAGES : LS_PLAN_BY_COST;
        planned_run(&b);
        us[messages] = b.timeline->makespan_us;
    }
    assert_true(us[0] > b.options.steps * 2 * 5. / 6 * 16e3);
    assert_true(fabs(us[1] / us[0] - 1) < 0.01);
    planned_end(&b);
}
