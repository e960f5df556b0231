/* node: every kind of damage in a file is refused with file and line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/replay/node_text.h"

static void assert_damage(const char *what, const char *by, const char *expected) {
    ls_node *node;
    ls_status status = node_parse_replaced(&node, what, by);
    if (status != LS_ERR_INVALID || !strstr(node_message, expected))
        print_error("'%s' instead of '%s': %s\nrather than\n%s\n", by, what, node_message, expected);
    assert_int_equal(status, LS_ERR_INVALID);
    assert_non_null(strstr(node_message, expected));
}

TEST(test_damaged_figures_are_refused) {
    static const char *const bad[][3] = {
        {"\"description\": \"three\",\n", "\n", "dir/n.json:1: description is missing"},
        {"\"three\"", "3", ":2: description must be a string"},
        {"\"devices\": 3", "\"devices\": 0", ":3: devices must lie between 1 and 64; found 0"},
        {"\"devices\": 3", "\"devices\": 65", ":3: devices must lie between 1 and 64; found 65"},
        {"\"devices\": 3", "\"devices\": 2.5", ":3: devices must be a whole number"},
        {"\"fp32_GFLOPs\": 100", "\"fp32_GFLOPs\": 0", ":4: fp32_GFLOPs must lie between"},
        {"\"fp32_GFLOPs\": 100", "\"fp32_GFLOPs\": -1", ":4: fp32_GFLOPs must lie between"},
        {"\"fp32_GFLOPs\": 100", "\"fp32_GFLOPs\": 1e300", ":4: fp32_GFLOPs must lie between"},
        {"\"fp32_GFLOPs\": 100", "\"fp32_GFLOPs\": 1e999", ":4: fp32_GFLOPs must lie between"},
        {"\"fp32_GFLOPs\": 100", "\"fp32_GFLOPs\": NaN", ":4: cannot parse JSON"},
        {"\"fp32_GFLOPs\": 100", "\"fp32_GFLOPs\": null", ":4: fp32_GFLOPs must be a number"},
        {"\"fp32_GFLOPs\": 100", "\"fp32_GFLOPs\": \"100\"", ":4: fp32_GFLOPs must be a number"},
        {"\"fp32_GFLOPs\": 100", "\"fp32_TFLOPs\": 100", ":4: fp32_GFLOPs is missing"},
        {"\"kernel_us\": 2,", "\"kernel_us\": 2, \"kernel_ms\": 2,", ":5: kernel_ms is not a known key"},
        {"\"kernel_us\": 2,", "\"kernel_us\": 2, \"kernel_us\": 2,", ":5: kernel_us occurs twice"},
        {"\"memory_bytes\": 1024", "\"memory_bytes\": 1.5", ":5: memory_bytes must be a whole number"},
        {"\"memory_bytes\": 1024", "\"memory_bytes\": -1", ":5: memory_bytes must lie between"},
        {"\"kernel_us\": 2,", "\"kernel_us\": 2, \"memory_crowding\": 0.9,",
         ":5: memory_crowding must lie between 1 and 100"},
        {"\"kernel_us\": 2,", "\"kernel_us\": 2, \"product_crowding\": 101,", ":5: product_crowding must lie between"},
        {"\"kernel_us\": 2,", "\"kernel_us\": 2, \"reclaim_GBps\": 0,", ":5: reclaim_GBps must lie between"},
        {"\"kernel_us\": 2,", "\"kernel_us\": 2, \"reclaim_bytes\": 0.5,", ":5: reclaim_bytes must be a whole number"},
        {"\"kernel_us\": 2,", SHARES("1"), ":5: product_shares must be an array"},
        {"\"kernel_us\": 2,", SHARES("[]"), ":5: product_shares must have 1 to 16 rows; found 0"},
        {"\"kernel_us\": 2,", SHARES("[1, 0.5]"), ":5: a row of product_shares is [rows, share]"},
        {"\"kernel_us\": 2,", SHARES("[[1]]"), ":5: a row of product_shares is [rows, share]"},
        {"\"kernel_us\": 2,", SHARES("[[1, \"x\"]]"), ":5: a row of product_shares is [rows, share]"},
        {"\"kernel_us\": 2,", SHARES("[[0.5, 1]]"), ":5: rows must lie between 1 and"},
        {"\"kernel_us\": 2,", SHARES("[[1, 0]]"), ":5: rows must lie between 1 and"},
        {"\"kernel_us\": 2,", SHARES("[[2, 1e-308], [3, 1e-308]]"), ":5: rows must lie between 1 and"},
        {"\"kernel_us\": 2,", SHARES("[[1, 1.1]]"), ":5: rows must lie between 1 and"},
        {"\"kernel_us\": 2,", SHARES("[[4, 0.5], [4, 0.6]]"), ":5: product_shares must ascend"},
        {"\"kernel_us\": 2,", SHARES("[[4, 0.1], [8, 0.3]]"), ":5: product_shares must ascend"},
        {"\"runs_compute\": false", "\"runs_compute\": false, \"cores\": 0.5", ":7: cores must be a whole number"},
        {"\"runs_compute\": false", "\"runs_compute\": false, \"cores\": -1", ":7: cores must lie between"},
        {"\"launch_us\": 5", "\"launch_us\": -0.1", ":6: launch_us must lie between"},
        {"\"launch_us\": 5", "\"launch_us\": 5, \"spin_us\": 50", ":6: a thread that spins needs spin_us and awake_us"},
        {"\"launch_us\": 5", "\"launch_us\": 5, \"awake_us\": 1", ":6: a thread that spins needs spin_us and awake_us"},
        {"\"kernel_us\": 2,", "\"kernel_us\": 2, \"reclaim_GBps\": 1,",
         ":4: taking lines back needs reclaim_GBps and reclaim_bytes"},
        {"\"kernel_us\": 2,", "\"kernel_us\": 2, \"reclaim_bytes\": 1,", ":4: taking lines back needs"},
        {"\"launch_us\": 5", "\"launch_us\": 5, \"spin_us\": -1", ":6: spin_us must lie between"},
        {"\"launch_us\": 5", "\"launch_us\": 5, \"awake_us\": 1e300", ":6: awake_us must lie between"},
        {", \"runs_compute\": false", ", \"runs_compute\": 0", ":7: runs_compute must be true or false"},
        {"\"host\": {", "\"hosts\": 1, \"host\": {", ":6: hosts is not a known key"},
        {"\"slow_down\": 1.5", "\"slow_down\": 0.5", ":15: slow_down must lie between 1 and 100"},
        {"\"hop_us\": 2", "\"hop_us\": 2, \"network_GBps\": 1", ":15: a network needs network_hop_us and network_GBps"},
        {"\"hop_us\": 2", "\"hop_us\": 2, \"network_switch_GBps\": 1", ":15: network_switch_GBps needs network_hop_us"},
        {"\"bus_GBps\": 3, ", "", ":15: bus_GBps is missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_damage(bad[i][0], bad[i][1], bad[i][2]);
}

TEST(test_damaged_links_are_refused) {
    static const char *const bad[][3] = {
        {"\"from\": \"gpu0\"", "\"from\": \"gpu3\"", "dir/n.json:10: from: unknown device gpu3; expected gpu0 to gpu2"},
        {"\"from\": \"gpu0\"", "\"from\": \"gpu00\"", ":10: from: unknown device gpu00"},
        {"\"from\": \"gpu0\"", "\"from\": \"gpu\"", ":10: from: unknown device gpu;"},
        {"\"from\": \"gpu0\"", "\"from\": \"\"", ":10: from: the name must have 1 to"},
        {"\"from\": \"gpu0\"", "\"from\": 0", ":10: from must be a string"},
        {"\"from\": \"gpu0\"", "\"from\": \"s\"", ":10: the link a joins s to itself"},
        {"\"name\": \"b\"", "\"name\": \"a\"", ":11: the link a occurs twice"},
        {"\"GBps\": 20", "\"GBps\": 0", ":11: GBps must lie between"},
        {"\"GBps\": 20", "\"GBps\": 20, \"gbps\": 1", ":11: gbps is not a known key"},
        {"\"latency_us\": 2,", "", ":11: latency_us is missing"},
        {", \"duplex\": true},\n{\"name\": \"up\"", "},\n{\"name\": \"up\"", ":11: duplex is missing"},
        {"\"to\": \"host\"", "\"to\": \"hots\"", ":9: only one link leads to hots"},
        {LINK("c", "host", "gpu2", "8", "4"), "7", ":13: expected an object, { ... }"},
        {",\n" LINK("c", "host", "gpu2", "8", "4"), "", ":9: gpu0 and gpu2 are not joined by links"},
        {"\"links\": [\n" LINKS, "\"links\": {},\n", ":9: links must be an array"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_damage(bad[i][0], bad[i][1], bad[i][2]);
}

TEST(test_damaged_tables_and_sources_are_refused) {
    static const char *const bad[][3] = {
        {"[2, 4096, 9.5]", "[2, 512, 9.5]", "dir/n.json:17: rows of all_reduce_us must ascend"},
        {"[2, 4096, 9.5]", "[2, 1024, 9.5]", ":17: rows of all_reduce_us must ascend"},
        {"[3, 1024, 6]", "[1, 1024, 6]", ":18: ranks must be a whole number between 2"},
        {"[3, 1024, 6]", "[2.5, 1024, 6]", ":18: ranks must be a whole number"},
        {"[3, 1024, 6]", "[1e300, 1024, 6]", ":18: ranks must be a whole number"},
        {"[3, 1024, 6]", "[3, 0, 6]", ":18: bytes must be a whole number between 1"},
        {"[3, 1024, 6]", "[3, 1e300, 6]", ":18: bytes must be a whole number"},
        {"[3, 1024, 6]", "[3, 1024, 0]", ":18: us must lie between"},
        {"[3, 1024, 6]", "[3, 1024, -6]", ":18: us must lie between"},
        {"[3, 1024, 6]", "[3, 1024, 1e999]", ":18: us must lie between"},
        {"[3, 1024, 6]", "[3, 1024]", ":18: a row of all_reduce_us is [ranks, bytes, us]"},
        {"[3, 1024, 6]", "[3, 1024, \"6\"]", ":18: a row of all_reduce_us is [ranks, bytes, us]"},
        {"[3, 1024, 6]", "6", ":18: a row of all_reduce_us is [ranks, bytes, us]"},
        {"\n[2, 1024, 5],\n[2, 4096, 9.5],\n[3, 1024, 6]]", "\n]",
         ":15: all_reduce_us must have 1 to 4096 rows; found 0"},
        {"\"slow_down\"", "\"all_gather_us\": [[2, 1024]], \"slow_down\"",
         ":15: a row of all_gather_us is [ranks, bytes, us]"},
        {"\"slow_down\"", "\"reduce_scatter_us\": [[2, 1, 1], [2, 1, 2]], \"slow_down\"",
         ":15: rows of reduce_scatter_us must ascend"},
        {"\"slow_down\"", "\"all_gather_GBps\": 0, \"slow_down\"", ":15: all_gather_GBps must lie between"},
        {"\"slow_down\"", "\"reduce_scatter_GBps\": -1, \"slow_down\"", ":15: reduce_scatter_GBps must lie between"},
        {"\"device\": \"D\", ", "", ":19: device.fp32_GFLOPs has no source"},
        {"\"device\": \"D\"", "\"device\": \"\"", ":19: the source of device must be a string"},
        {"\"device\": \"D\"", "\"device\": 1", ":19: the source of device must be a string"},
        {"\"links\": \"L\", ", "", ":19: links.latency_us has no source"},
        {"\"collectives\": \"C\"", "\"collectives.hop_us\": \"C\"", ":19: collectives.base_us has no source"},
        {"\"host\": \"H\"", "\"host\": \"H\", \"host.nonsense_us\": \"x\"", ":19: host.nonsense_us names no figure"},
        {"\"host\": \"H\"", "\"host\": \"H\", \"hostess\": \"x\"", ":19: hostess names no figure"},
        {"\"host\": \"H\"", "\"host\": \"H\", \"collectives.network_GBps\": \"x\"",
         ":19: collectives.network_GBps names no"},
        {"\"collectives\": \"C\", \"collectives.all_reduce_us\"",
         "\"collectives.base_us\": \"x\", \"collectives.hop_us\": \"x\", \"collectives.bus_GBps\": \"x\", "
         "\"collectives.slow_down\"",
         ":19: collectives.all_reduce_us has no source"},
        {"\"host\": \"H\"", "\"host\": \"H\", \"collectives.all_gather_us\": \"x\"",
         ":19: collectives.all_gather_us names no"},
        {"\"host\": \"H\"", "\"host\": \"H\", \"device.all_reduce_us\": \"x\"", ":19: device.all_reduce_us names no"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_damage(bad[i][0], bad[i][1], bad[i][2]);
}

/* Adds `count` links to a valid head, each to a device over a switch of its own or in a chain. */
static char *many_links(int count, bool chain) {
    size_t capacity = (size_t)count * 120 + 4096;
    char *text = malloc(capacity);
    assert_non_null(text);
    int length = snprintf(text, capacity, "%s", HEAD);
    for (int i = 0; i < count; i++) {
        char from[16] = "gpu0", to[16] = "host";
        if (chain && i > 0) snprintf(from, sizeof from, "s%d", i);
        if (chain && i < count - 1) snprintf(to, sizeof to, "s%d", i + 1);
        length += snprintf(text + length, capacity - (size_t)length,
                           "{\"name\": \"l%d\", \"from\": \"%s\", \"to\": \"%s\", \"GBps\": 1, \"latency_us\": 1, "
                           "\"duplex\": true},\n",
                           i, from, to);
    }
    snprintf(
        text + length, capacity - (size_t)length, "%s",
        LINK("h1", "host", "gpu1", "1", "1") ",\n" LINK("h2", "host", "gpu2", "1", "1") "],\n" COLLECTIVES SOURCES);
    return text;
}

TEST(test_too_much_is_refused) {
    static const struct {
        int links;
        bool chain;
        const char *expected; /* NULL: valid */
    } cases[] = {{254, false, NULL},
                 {255, false, "dir/n.json:266: a node has too many links; expected at most 256"},
                 {7, true, NULL},
                 {8, true, ":9: there are more than 8 links from gpu0 to gpu1"},
                 {400, true, ": a node has too many links; expected at most 256"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = many_links(cases[i].links, cases[i].chain);
        ls_node *node;
        ls_status status = node_parse(&node, text);
        if (!cases[i].expected) assert_int_equal(status, LS_OK);
        if (cases[i].expected && !strstr(node_message, cases[i].expected)) print_error("%s\n", node_message);
        if (cases[i].expected) assert_non_null(strstr(node_message, cases[i].expected));
        ls_node_close(node);
        free(text);
    }
}
