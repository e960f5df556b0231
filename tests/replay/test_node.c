/* node: reading files, routes compared with routes found by hand, and the nodes of the tree. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/trace/trace.h"
#include "labs/replay/engine/node.h"
#include "tests/base/test.h"
#include "tests/replay/node_text.h"

/* --- reading ------------------------------------------------------------------------------------------------- */

TEST_CASE(test_figures_are_read) {
    ls_node *node;
    assert_int_equal(node_parse(&node, NODE), LS_OK);
    assert_string_equal(ls_node_name(node), "n");
    assert_string_equal(ls_node_description(node), "three");
    assert_int_equal(ls_node_device_count(node), 3);
    const struct ls_node_device *device = ls_node_device(node);
    assert_string_equal(device->name, "G");
    assert_true(device->fp32_GFLOPs == 100 && device->fp16_GFLOPs == 200 && device->memory_GBps == 10);
    assert_true(device->kernel_us == 2 && device->memory_bytes == 1024);
    assert_true(device->product_crowding == 1 && device->memory_crowding == 1); /* left out */
    const struct ls_node_host *host = ls_node_host(node);
    assert_true(host->launch_us == 5 && host->event_us == 1 && host->sync_us == 6 && host->hand_over_us == 7);
    assert_true(host->spin_us == 0 && host->awake_us == 0);
    assert_true(host->collective_us == 8 && host->lock_us == 3 && !host->runs_compute && host->cores == 0);
    assert_int_equal(device->product_count, 0);
    assert_true(isinf(device->reclaim_GBps) && device->reclaim_bytes == 0);
    const struct ls_node_collectives *collectives = ls_node_collectives(node);
    assert_true(collectives->base_us == 1 && collectives->hop_us == 2 && collectives->bus_GBps == 3);
    assert_true(collectives->slow_down == 1.5 && collectives->network_GBps == 0 && collectives->network_hop_us == 0);
    assert_int_equal(collectives->tables[LS_NODE_ALL_REDUCE].count, 3);
    assert_true(collectives->tables[LS_NODE_ALL_REDUCE].rows[1].ranks == 2 &&
                collectives->tables[LS_NODE_ALL_REDUCE].rows[1].bytes == 4096 &&
                collectives->tables[LS_NODE_ALL_REDUCE].rows[1].us == 9.5);
    assert_int_equal(ls_node_link_count(node), 4);
    const struct ls_node_link *link = ls_node_link(node, 1);
    assert_string_equal(link->name, "b");
    assert_true(link->from > ls_node_device_count(node)); /* "s", which comes after the devices and the host */
    assert_int_equal(link->to, 1);
    assert_true(link->GBps == 20 && link->latency_us == 2 && link->duplex);
    assert_null(ls_node_link(node, 4));
    assert_null(ls_node_link(node, -1));
    ls_node_close(node);
}

/* All-gather and reduce-scatter use figures of their own if the file has them. */
TEST_CASE(test_figures_of_halves) {
    ls_node *node;
    assert_int_equal(node_parse(&node, NODE), LS_OK);
    const struct ls_node_collectives *c = ls_node_collectives(node);
    assert_true(c->all_gather_GBps == 0 && c->reduce_scatter_GBps == 0);
    assert_null(c->tables[LS_NODE_ALL_GATHER].rows);
    assert_null(c->tables[LS_NODE_REDUCE_SCATTER].rows);
    ls_node_close(node);
    const char *more = "\"all_gather_GBps\": 2.5, \"reduce_scatter_GBps\": 2, \"all_gather_us\": [[2, 1024, 3]], "
                       "\"reduce_scatter_us\": [[2, 1024, 4], [3, 64, 5]], \"slow_down\"";
    assert_int_equal(node_parse_replaced(&node, "\"slow_down\"", more), LS_OK);
    c = ls_node_collectives(node);
    assert_true(c->all_gather_GBps == 2.5 && c->reduce_scatter_GBps == 2);
    assert_int_equal(c->tables[LS_NODE_ALL_GATHER].count, 1);
    assert_true(c->tables[LS_NODE_ALL_GATHER].rows[0].us == 3);
    assert_int_equal(c->tables[LS_NODE_REDUCE_SCATTER].count, 2);
    assert_true(c->tables[LS_NODE_REDUCE_SCATTER].rows[1].us == 5);
    assert_int_equal(c->tables[LS_NODE_ALL_REDUCE].count, 3);
    ls_node_close(node);
}

/* Members that may be left out. */
TEST_CASE(test_figures_of_cpu_devices) {
    ls_node *node;
    const char *more = SHARES("[[1, 0.25], [4, 1]]") " \"reclaim_GBps\": 8, \"reclaim_bytes\": 4096,";
    assert_int_equal(node_parse_replaced(&node, "\"kernel_us\": 2,", more), LS_OK);
    const struct ls_node_device *device = ls_node_device(node);
    assert_int_equal(device->product_count, 2);
    assert_true(device->products[0].rows == 1 && device->products[0].share == 0.25);
    assert_true(device->products[1].rows == 4 && device->products[1].share == 1);
    assert_true(device->reclaim_GBps == 8 && device->reclaim_bytes == 4096);
    ls_node_close(node);
}

/* --- routes ------------------------------------------------------------------------------------------------------- */

/* A route as text: "a+ b- 3": links, directions, latency. */
static const char *route_text(const ls_node *node, int from, int to) {
    static char text[200];
    const struct ls_route *route = ls_node_route(node, from, to);
    if (!route) return "none";
    text[0] = '\0';
    for (int i = 0; i < route->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%c ", ls_node_link(node, route->link[i])->name,
                 route->forwards[i] ? '+' : '-');
    snprintf(text + strlen(text), sizeof text - strlen(text), "%g", route->latency_us);
    return text;
}

TEST_CASE(test_routes_of_the_tree) {
    ls_node *node;
    assert_int_equal(node_parse(&node, NODE), LS_OK);
    assert_string_equal(route_text(node, 0, 1), "a+ b+ 3");
    assert_string_equal(route_text(node, 1, 0), "b- a- 3");
    assert_string_equal(route_text(node, 0, 2), "a+ up+ c+ 8");
    assert_string_equal(route_text(node, 2, 1), "c- up- b+ 9");
    assert_string_equal(route_text(node, LS_HOST_MEMORY, 1), "up- b+ 5");
    assert_string_equal(route_text(node, 2, LS_HOST_MEMORY), "c- 4");
    assert_string_equal(route_text(node, 1, 1), "0");
    assert_string_equal(route_text(node, LS_HOST_MEMORY, LS_HOST_MEMORY), "0");
    assert_string_equal(route_text(node, 0, 3), "none");
    assert_string_equal(route_text(node, -2, 0), "none");
    ls_node_change_links(node, 0.5, 2);
    assert_string_equal(route_text(node, 0, 2), "a+ up+ c+ 16");
    assert_true(ls_node_link(node, 0)->GBps == 5 && ls_node_link(node, 0)->latency_us == 2);
    ls_node_close(node);
}

/* Fewest links, then least latency, then the greatest bandwidth, then the order in the file. */
TEST_CASE(test_ties_between_routes) {
    static const struct {
        const char *links, *expected; /* from gpu0 to gpu1 */
    } cases[] = {
        {LINK("slow", "gpu0", "gpu1", "1", "99") ",\n" LINK("x", "gpu0", "s", "9", "1") ",\n" LINK("y", "gpu1", "s",
                                                                                                   "9", "1"),
         "slow+ 99"},
        {LINK("x", "gpu0", "s", "9", "2") ",\n" LINK("y", "s", "gpu1", "9", "2") ",\n" LINK(
             "x2", "gpu0", "t", "1", "1") ",\n" LINK("y2", "t", "gpu1", "1", "2"),
         "x2+ y2+ 3"},
        {LINK("x", "gpu0", "s", "9", "1") ",\n" LINK("y", "s", "gpu1", "2", "2") ",\n" LINK(
             "x2", "gpu0", "t", "3", "2") ",\n" LINK("y2", "t", "gpu1", "4", "1"),
         "x2+ y2+ 3"}, /* 3 GB/s are preferred to 2 */
        {LINK("x", "gpu0", "s", "2", "1") ",\n" LINK("y", "s", "gpu1", "9", "2") ",\n" LINK(
             "x2", "gpu0", "t", "3", "2") ",\n" LINK("y2", "t", "gpu1", "4", "1"),
         "x2+ y2+ 3"}, /* wherever the slow link is */
        {LINK("x", "gpu0", "s", "2", "1") ",\n" LINK("y", "s", "gpu1", "2", "2") ",\n" LINK(
             "x2", "gpu0", "t", "2", "2") ",\n" LINK("y2", "t", "gpu1", "2", "1"),
         "x+ y+ 3"},
        {LINK("n", "gpu0", "gpu1", "1", "1") ",\n" LINK("n2", "gpu1", "gpu0", "2", "1"), "n2- 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096];
        ls_node *node;
        snprintf(text, sizeof text,
                 HEAD
                 "%s,\n" LINK("h", "host", "gpu0", "1", "50") ",\n" LINK("h1", "host", "gpu1", "1", "50") ",\n" LINK(
                     "h2", "host", "gpu2", "1", "50") "],\n" COLLECTIVES SOURCES,
                 cases[i].links);
        assert_int_equal(node_parse(&node, text), LS_OK);
        assert_string_equal(route_text(node, 0, 1), cases[i].expected);
        ls_node_close(node);
    }
}

/* A device never forwards data, however short the route through it. */
TEST_CASE(test_devices_pass_nothing_on) {
    ls_node *node;
    assert_int_equal(
        node_parse(&node,
                   HEAD LINK("n01", "gpu0", "gpu1", "9", "1") ",\n" LINK("n12", "gpu1", "gpu2", "9", "1") ",\n" LINK(
                       "h0", "host", "gpu0", "1", "50") ",\n" LINK("h1", "host", "gpu1", "1",
                                                                   "50") ",\n" LINK("h2", "host", "gpu2", "1",
                                                                                    "50") "],\n" COLLECTIVES SOURCES),
        LS_OK);
    assert_string_equal(route_text(node, 0, 1), "n01+ 1");
    assert_string_equal(route_text(node, 0, 2), "h0- h2+ 100");
    ls_node_close(node);
}

/* --- the nodes of the tree ------------------------------------------------------------------------------------- */

static void check_joined(const ls_node *node) {
    for (int from = LS_HOST_MEMORY; from < ls_node_device_count(node); from++) {
        for (int to = LS_HOST_MEMORY; to < ls_node_device_count(node); to++) {
            const struct ls_route *there = ls_node_route(node, from, to), *back = ls_node_route(node, to, from);
            assert_int_equal(there->count, back->count);
            assert_true((there->count == 0) == (from == to));
            int at = from == LS_HOST_MEMORY ? ls_node_device_count(node) : from;
            double latency_us = 0;
            for (int i = 0; i < there->count; i++) { /* each link begins where the last one ended */
                const struct ls_node_link *link = ls_node_link(node, there->link[i]);
                assert_int_equal(there->forwards[i] ? link->from : link->to, at);
                at = there->forwards[i] ? link->to : link->from;
                latency_us += link->latency_us;
            }
            assert_int_equal(at, to == LS_HOST_MEMORY ? ls_node_device_count(node) : to);
            assert_true(there->latency_us == latency_us);
        }
    }
}

TEST_CASE(test_all_nodes_open_by_name_and_are_joined) {
    DIR *folder = opendir("labs/replay/nodes");
    int seen = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[256];
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)length - 5, entry->d_name);
        ls_node *node;
        if (ls_node_open(&node, name) != LS_OK) fail_msg("%s does not open", name);
        assert_string_equal(ls_node_name(node), name);
        check_joined(node);
        ls_node_close(node);
        seen++;
    }
    closedir(folder);
    assert_true(seen >= 7);
}

/* Figures that the files must have, from the sources. */
TEST_CASE(test_some_published_figures) {
    ls_node *node;
    assert_int_equal(ls_node_open(&node, "dgx1-v100"), LS_OK);
    assert_int_equal(ls_node_device_count(node), 8);
    double GBps[8] = {0}; /* six NVLinks of 20 GB/s for each device */
    for (int i = 0; i < ls_node_link_count(node); i++) {
        const struct ls_node_link *link = ls_node_link(node, i);
        if (strncmp(link->name, "nvlink", 6) != 0) continue;
        GBps[link->from] += link->GBps;
        GBps[link->to] += link->GBps;
    }
    for (int d = 0; d < 8; d++) assert_true(GBps[d] == 120);
    assert_int_equal(ls_node_route(node, 0, 3)->count, 1);
    assert_int_equal(ls_node_route(node, 0, 6)->count, 4); /* no NVLink: over PCIe and the host */
    ls_node_close(node);
    assert_int_equal(ls_node_open(&node, "labs/replay/nodes/hgx-h200.json"), LS_OK);
    const struct ls_node_collectives *collectives = ls_node_collectives(node);
    assert_int_equal(collectives->tables[LS_NODE_ALL_REDUCE].count, 14);
    const double busbw[14] = {3.2, 24.6, 48.3, 72.5, 91.5, 140, 182, 242, 298, 370, 411, 442, 464, 481};
    for (int i = 0; i < 14; i++) { /* both published, each rounded to three digits */
        double us = (double)collectives->tables[LS_NODE_ALL_REDUCE].rows[i].bytes * 1.75 / busbw[i] * 1e-3;
        assert_true(us / collectives->tables[LS_NODE_ALL_REDUCE].rows[i].us > 0.99 &&
                    us / collectives->tables[LS_NODE_ALL_REDUCE].rows[i].us < 1.01);
    }
    ls_node_close(node);
}

TEST_CASE(test_a_name_that_is_not_there_says_where_it_was_looked_for) {
    ls_node *node;
    ls_log_sink sink = ls_log_capture(node_message, sizeof node_message);
    node_message[0] = '\0';
    assert_int_equal(ls_node_open(&node, "no-such-node"), LS_ERR_IO);
    assert_null(node);
    assert_non_null(
        strstr(node_message, "cannot find no-such-node: looked for labs/replay/nodes/no-such-node.json, /"));
    node_message[0] = '\0';
    assert_int_equal(ls_node_open(&node, "./no-such-node"), LS_ERR_IO);
    assert_non_null(strstr(node_message, "looked for ./no-such-node"));
    assert_null(strstr(node_message, "labs/replay/nodes"));
    ls_log_restore(sink);
}

/* A copy of this program, at T/build/p or T/build/tests/p, finds T/labs/replay/nodes from any folder. */
TEST_CASE(test_nodes_are_found_above_the_program) {
    static const char *const places[] = {"build/p", "build/tests/p"};
    char folder[] = "/tmp/ls_test_node_XXXXXX", command[512];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "mkdir -p %s/build/tests %s/labs/replay/nodes && cp labs/replay/nodes/titan-pair.json "
             "%s/labs/replay/nodes/only-there.json",
             folder, folder, folder);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(command, sizeof command, "cp /proc/%ld/exe %s/%s && cd / && %s/%s only-there", (long)getpid(), folder,
                 places[i], folder, places[i]);
        assert_int_equal(system(command), 0);
    }
    snprintf(command, sizeof command, "%s/build/p absent 2>/dev/null", folder);
    assert_int_not_equal(system(command), 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* The main function of that copy: opens the node. */
static int open_node(const char *name) {
    ls_node *node;
    ls_status status = ls_node_open(&node, name);
    ls_node_close(node);
    return ls_status_exit_code(status);
}

int main(int argc, char **argv) {
    if (argc == 2) return open_node(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_are_read),
        cmocka_unit_test(test_figures_of_cpu_devices),
        cmocka_unit_test(test_figures_of_halves),
        cmocka_unit_test(test_routes_of_the_tree),
        cmocka_unit_test(test_ties_between_routes),
        cmocka_unit_test(test_devices_pass_nothing_on),
        cmocka_unit_test(test_all_nodes_open_by_name_and_are_joined),
        cmocka_unit_test(test_some_published_figures),
        cmocka_unit_test(test_a_name_that_is_not_there_says_where_it_was_looked_for),
        cmocka_unit_test(test_nodes_are_found_above_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
