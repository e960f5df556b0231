/* What lab 16's two formulas give: kernels on devices and all-reduces on nodes, whose figures are drawn. Times have
 * seven digits, so that it does not matter in which order the terms are added. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/course/probe/probe.h"
#include "labs/replay/engine/cost.h"

/* A node; every figure that counts is drawn over it. A link for each device is put in at the %s. */
static const char node_format[] =
    "{\"description\": \"drawn\", \"devices\": %d,"
    "\"device\": {\"name\": \"d\", \"fp32_GFLOPs\": 1000, \"fp16_GFLOPs\": 4000, \"memory_GBps\": 100,"
    " \"kernel_us\": 1, \"memory_bytes\": 0, \"product_shares\": [[2, 0.1], [32, 0.5], [128, 1]]},"
    "\"host\": {\"launch_us\": 1, \"event_us\": 1, \"sync_us\": 1, \"hand_over_us\": 1, \"collective_us\": 1,"
    " \"lock_us\": 0, \"runs_compute\": true},"
    "\"links\": [%s],"
    "\"collectives\": {\"base_us\": 5, \"hop_us\": 3, \"bus_GBps\": 4, \"slow_down\": 1, \"network_hop_us\": 10,"
    " \"network_GBps\": 2},"
    "\"sources\": {\"device\": \"drawn\", \"host\": \"drawn\", \"links\": \"drawn\", \"collectives\": \"drawn\"}}";

static ls_node *parse_node(probe *p, int devices) {
    enum { MOST_DEVICES = 8, LINK_CAPACITY = 128 };
    char text[sizeof node_format + MOST_DEVICES * LINK_CAPACITY], links[MOST_DEVICES * LINK_CAPACITY] = "";
    for (int d = 0, at = 0; d < devices; d++)
        at +=
            snprintf(links + at, sizeof links - (size_t)at,
                     "%s{\"name\": \"link%d\", \"from\": \"gpu%d\", \"to\": \"host\", \"GBps\": 10, \"latency_us\": 1, "
                     "\"duplex\": true}",
                     d ? ", " : "", d, d);
    int nbytes = snprintf(text, sizeof text, node_format, devices, links);
    ls_node *node;
    probe_must(p, "a node", ls_node_parse(&node, "drawn", text, (size_t)nbytes));
    return node;
}

/* A number of low .. high. */
static double draw(probe *p, double low, double high) {
    return low + (high - low) * (double)probe_draw(p, 1000000) / 1e6;
}

static ls_node *open_node_of(probe *p, int devices) {
    ls_node *node = parse_node(p, devices);
    struct ls_node_device *device = ls_node_change_device(node);
    device->fp32_GFLOPs = draw(p, 500, 5000);
    device->fp16_GFLOPs = device->fp32_GFLOPs * draw(p, 2, 8);
    device->memory_GBps = draw(p, 50, 500);
    device->kernel_us = draw(p, 1, 9);
    device->product_count = 0;
    struct ls_node_collectives *collectives = ls_node_change_collectives(node);
    collectives->base_us = draw(p, 5, 20);
    collectives->hop_us = draw(p, 1, 9);
    collectives->bus_GBps = draw(p, 5, 50);
    collectives->network_hop_us = collectives->network_GBps = 0;
    return node;
}

static ls_node *open_node(probe *p) { return open_node_of(p, 2); }

static void see_us(probe *p, const char *what, double us) { probe_see(p, what, "%.7g us", us); }

/* --- kernels ------------------------------------------------------------------------------------------------------- */

static const char *name_rates(char text[128], const ls_node *node) {
    const struct ls_node_device *device = ls_node_device(node);
    snprintf(text, 128, "floor %.4g us, memory %.4g GB/s, fp32 %.5g and fp16 %.5g GFLOP/s", device->kernel_us,
             device->memory_GBps, device->fp32_GFLOPs, device->fp16_GFLOPs);
    return text;
}

static const ls_dtype precisions[] = {LS_FP32, LS_FP16, LS_BF16};

static void see_kernel(probe *p, const ls_node *node, double flops, double bytes, bool is_product, ls_dtype precision) {
    char rates[128];
    probe_case(p, "%s; %s, %s, %.6g bytes, %.6g flops", name_rates(rates, node),
               is_product ? "a product" : "no product", ls_dtype_name(precision), bytes, flops);
    see_us(p, "it takes", ls_cost_kernel_us(node, flops, bytes, is_product, precision));
}

/* Operations that are no products: their flops do not count. From none of bytes to many. */
static void floors(probe *p) {
    static const double scales[] = {0, 1e3, 1e5, 1e7, 1e9};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        for (int i = 0; i < 3; i++) {
            ls_node *node = open_node(p);
            double flops = scales[s] * draw(p, 0, 50), bytes = scales[s] * draw(p, 1, 2);
            see_kernel(p, node, flops, bytes, false, precisions[i]);
            ls_node_close(node);
        }
    }
}

/* Products on both sides of where memory and computing take as long, and far from it. */
static void rooflines(probe *p) {
    static const double sides[] = {0, 0.01, 0.5, 0.9, 1.1, 2, 100};
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
        for (int i = 0; i < 3; i++) {
            ls_node *node = open_node(p);
            const struct ls_node_device *device = ls_node_device(node);
            double bytes = draw(p, 1e6, 1e7), rate = i > 0 ? device->fp16_GFLOPs : device->fp32_GFLOPs;
            see_kernel(p, node, sides[s] * bytes / device->memory_GBps * rate, bytes, true, precisions[i]);
            ls_node_close(node);
        }
    }
    for (int i = 0; i < 3; i++) {
        ls_node *node = open_node(p);
        see_kernel(p, node, draw(p, 1e8, 1e9), 0, true, precisions[i]);
        ls_node_close(node);
    }
}

/* --- operations of a workload -------------------------------------------------------------------------------------- */

/* A layer of 64 samples, whose weights have `rows` rows to meet: measured, or not. */
static void see_work(probe *p, const ls_node *node, double rows, ls_dtype precision, bool is_measured) {
    ls_workload workload = {.name = "drawn", .samples = 64, .element_bytes = 4};
    double weights = floor(draw(p, 1e3, 1e5));
    struct ls_work work = {.name = "layer", .phase = "forward", .is_product = true, .us = -1};
    work.fixed_bytes = 4 * weights;
    work.bytes = work.fixed_bytes + draw(p, 1e3, 1e6);
    work.flops = 2 * weights * rows;
    if (is_measured) work.us = draw(p, 100, 1000);
    probe_case(p, "a product of %.0f rows and %.0f weights in %s, %s", rows, weights, ls_dtype_name(precision),
               is_measured ? "measured with 64 samples" : "not measured");
    static const double samples[] = {64, 16, 4, 256};
    for (size_t s = 0; s < sizeof samples / sizeof *samples; s++)
        see_us(p, probe_name(p, "%.0f samples take", samples[s]),
               ls_cost_work_us(node, &work, &workload, samples[s], precision, 1));
}

static void shares(probe *p) {
    static const double rows[] = {1, 2, 16, 32, 100, 128, 1000};
    for (int measured = 0; measured < 2; measured++) {
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            ls_node *node = open_node(p);
            ls_node_change_device(node)->product_count = 3;
            ls_node_change_device(node)->memory_GBps = draw(p, 500, 5000);
            see_work(p, node, rows[r], precisions[r % 3], measured);
            ls_node_close(node);
        }
    }
}

/* --- collectives --------------------------------------------------------------------------------------------------- */

static void see_collective(probe *p, const ls_node *node, ls_collective what, int ranks, double bytes) {
    static const char *const names[] = {"all-reduce", "broadcast", "reduce"};
    const struct ls_node_collectives *c = ls_node_collectives(node);
    char network[96] = "";
    if (c->network_GBps > 0)
        snprintf(network, sizeof network, ", network hop %.4g us and %.4g GB/s", c->network_hop_us, c->network_GBps);
    probe_case(p, "%s of %.0f bytes, %d ranks, %d to a node: base %.4g us, hop %.4g us, bus %.4g GB/s%s", names[what],
               bytes, ranks, ls_node_device_count(node), c->base_us, c->hop_us, c->bus_GBps, network);
    see_us(p, "it takes", ls_cost_collective_us(node, what, ranks, bytes));
}

static void see_sizes(probe *p, const ls_node *node, ls_collective what, int ranks) {
    see_collective(p, node, what, ranks, 0);
    see_collective(p, node, what, ranks, 1e3 + floor(draw(p, 0, 1e3)));
    see_collective(p, node, what, ranks, 1e7 + floor(draw(p, 0, 1e7)));
}

/* Without a figure of a network all ranks count as of one node. */
static void rings(probe *p) {
    static const int ranks[] = {1, 2, 3, 4, 8, 17};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        ls_node *node = open_node(p);
        see_sizes(p, node, LS_COLLECTIVE_ALL_REDUCE, ranks[r]);
        ls_node_close(node);
    }
}

static void one_turn(probe *p) {
    static const int ranks[] = {1, 2, 3, 8, 17};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        ls_node *node = open_node(p);
        see_sizes(p, node, LS_COLLECTIVE_BROADCAST, ranks[r]);
        see_sizes(p, node, LS_COLLECTIVE_REDUCE, ranks[r]);
        ls_node_close(node);
    }
}

/* A network that is slower than what joins the devices of a node, or faster. */
static void see_network(probe *p, int devices, int ranks, bool is_faster) {
    ls_node *node = open_node_of(p, devices);
    struct ls_node_collectives *collectives = ls_node_change_collectives(node);
    collectives->network_hop_us = draw(p, 10, 30);
    collectives->network_GBps = collectives->bus_GBps * (is_faster ? draw(p, 2, 9) : draw(p, 0.1, 0.9));
    for (int what = LS_COLLECTIVE_ALL_REDUCE; what <= LS_COLLECTIVE_REDUCE; what++)
        see_sizes(p, node, (ls_collective)what, ranks);
    ls_node_close(node);
}

static void networks(probe *p) {
    static const int devices[] = {2, 1, 3, 8}, ranks[] = {2, 3, 4, 5, 8, 9, 17, 64};
    for (int faster = 0; faster < 2; faster++)
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
            for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) see_network(p, devices[d], ranks[r], faster);
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"floor", floors}, {"roofline", rooflines}, {"shares", shares},
                                         {"ring", rings},   {"one-turn", one_turn},  {"network", networks},
                                         {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
