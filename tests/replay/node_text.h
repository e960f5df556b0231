/* The text of a valid node, its pieces, and the results of parsing it. */
#ifndef TESTS_REPLAY_NODE_TEXT_H
#define TESTS_REPLAY_NODE_TEXT_H

#include "labs/replay/engine/node.h"

/* Three devices: two behind a switch, one at the host. One link per line, from line 10 on. */
#define HEAD                                                                                                           \
    "{\n\"description\": \"three\",\n\"devices\": 3,\n"                                                                \
    "\"device\": {\"name\": \"G\", \"fp32_GFLOPs\": 100, \"fp16_GFLOPs\": 200,\n"                                      \
    "\"memory_GBps\": 10, \"kernel_us\": 2, \"memory_bytes\": 1024},\n"                                                \
    "\"host\": {\"launch_us\": 5, \"event_us\": 1, \"sync_us\": 6, \"hand_over_us\": 7, \"collective_us\": 8,\n"       \
    "\"lock_us\": 3, \"runs_compute\": false},\n\n\"links\": [\n"
#define LINK(name, from, to, GBps, us)                                                                                 \
    "{\"name\": \"" name "\", \"from\": \"" from "\", \"to\": \"" to "\", \"GBps\": " GBps ", \"latency_us\": " us     \
    ", \"duplex\": true}"
#define LINKS                                                                                                          \
    LINK("a", "gpu0", "s", "10", "1")                                                                                  \
    ",\n" LINK("b", "s", "gpu1", "20", "2") ",\n" LINK("up", "s", "host", "5", "3") ",\n" LINK("c", "host", "gpu2",    \
                                                                                               "8", "4") "\n],\n"
#define COLLECTIVES                                                                                                    \
    "\"collectives\": {\"base_us\": 1, \"hop_us\": 2, \"bus_GBps\": 3, \"slow_down\": 1.5, \"all_reduce_us\": [\n"     \
    "[2, 1024, 5],\n[2, 4096, 9.5],\n[3, 1024, 6]]},\n"
#define SOURCES                                                                                                        \
    "\"sources\": {\"device\": \"D\", \"host\": \"H\", \"links\": \"L\", \"links.GBps\": \"LG\",\n"                    \
    "\"collectives\": \"C\", \"collectives.all_reduce_us\": \"CA\"}}\n"
#define NODE HEAD LINKS COLLECTIVES SOURCES

/* Replaces the kernels' floor by the floor and this curve. */
#define SHARES(rows) "\"kernel_us\": 2, \"product_shares\": " rows ","

/* Parses the text as file "dir/n.json"; a failure leaves *node NULL. The message is in node_message until the next
 * call. */
extern char node_message[2048];
ls_status node_parse(ls_node **node, const char *text);

/* Parses the valid file with its first `what` replaced. */
ls_status node_parse_replaced(ls_node **node, const char *what, const char *by);

#endif
