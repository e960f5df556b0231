/* Checks lab 16's two formulas: kernels on devices and all-reduces on nodes with random figures. Times are compared
 * with a tolerance, so that the order in which terms are added does not matter. Later checks compare differences, in
 * which the parts of a formula that earlier checks have tested cancel out. So one mistake fails one check. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/course/probe/probe.h"
#include "labs/replay/engine/cost.h"

/* A node; random values replace every figure that the formulas use. A link for each device is inserted at the %s. */
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
    enum { MOST_DEVICES = 16, LINK_CAPACITY = 128 };
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

/* A random number from low to high. */
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

/* Rounding is far below the bound, and a mistake far above. */
static void see_us(probe *p, const char *what, double us) { probe_see_near(p, what, us, 1e-8 * fabs(us)); }

/* How much longer this takes than the other one. */
static void see_more_us(probe *p, const char *what, double us, double than_us) {
    probe_see_near(p, what, us - than_us, 1e-8 * fmax(fabs(us), fabs(than_us)));
}

/* --- kernels ------------------------------------------------------------------------------------------------------- */

static const char *name_rates(char text[128], const ls_node *node) {
    const struct ls_node_device *device = ls_node_device(node);
    snprintf(text, 128, "floor %.4g us, memory %.4g GB/s, fp32 %.5g and fp16 %.5g GFLOP/s", device->kernel_us,
             device->memory_GBps, device->fp32_GFLOPs, device->fp16_GFLOPs);
    return text;
}

static const ls_dtype precisions[] = {LS_FP32, LS_FP16, LS_BF16};

static void begin_kernel(probe *p, const ls_node *node, double flops, double bytes, bool is_product,
                         ls_dtype precision) {
    char rates[128];
    probe_case(p, "%s; %s, %s, %.6g bytes, %.6g flops", name_rates(rates, node),
               is_product ? "a product" : "no product", ls_dtype_name(precision), bytes, flops);
}

/* Operations that are not matrix multiplies: their flops do not count. From 0 bytes to more than 32 bits can count. */
static void floors(probe *p) {
    static const double scales[] = {0, 1e3, 1e5, 1e7, 1e9, 1e11};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        for (int i = 0; i < 3; i++) {
            ls_node *node = open_node(p);
            double flops = scales[s] * draw(p, 0, 50), bytes = scales[s] * draw(p, 1, 2);
            begin_kernel(p, node, flops, bytes, false, precisions[i]);
            see_us(p, "microseconds", ls_cost_kernel_us(node, flops, bytes, false, precisions[i]));
            ls_node_close(node);
        }
    }
}

/* The check before this one tests the floor. That matrix multiplies take it, too, is tested with one that has nothing
 * to compute. */
static void see_product(probe *p, const ls_node *node, double flops, double bytes, ls_dtype precision) {
    double idle_us = ls_cost_kernel_us(node, 0, 0, true, precision);
    begin_kernel(p, node, flops, bytes, true, precision);
    see_more_us(p, "microseconds beyond its floor", ls_cost_kernel_us(node, flops, bytes, true, precision), idle_us);
    see_more_us(p, "microseconds that its floor is above that of what is no product", idle_us,
                ls_cost_kernel_us(node, 0, 0, false, precision));
}

/* Matrix multiplies on both sides of the point where memory and computing take the same time, and far from it. */
static void rooflines(probe *p) {
    static const double sides[] = {0, 0.01, 0.5, 0.9, 1.1, 2, 100, 1e5};
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
        for (int i = 0; i < 3; i++) {
            ls_node *node = open_node(p);
            const struct ls_node_device *device = ls_node_device(node);
            double bytes = draw(p, 1e6, 1e7), rate = i > 0 ? device->fp16_GFLOPs : device->fp32_GFLOPs;
            see_product(p, node, sides[s] * bytes / device->memory_GBps * rate, bytes, precisions[i]);
            ls_node_close(node);
        }
    }
    for (int i = 0; i < 3; i++) {
        ls_node *node = open_node(p);
        see_product(p, node, draw(p, 1e8, 1e9), 0, precisions[i]);
        ls_node_close(node);
    }
}

/* --- operations of a workload -------------------------------------------------------------------------------------- */

/* A layer of 64 samples, each weight of which is used by `rows` rows: measured, or not. */
static void see_work(probe *p, const ls_node *node, double rows, double weights, ls_dtype precision, bool is_measured) {
    ls_workload workload = {.name = "drawn", .samples = 64, .element_bytes = 4};
    struct ls_work work = {.name = "layer", .phase = "forward", .is_product = true, .us = -1};
    work.fixed_bytes = 4 * weights;
    work.bytes = work.fixed_bytes + draw(p, 1e3, 1e6);
    work.flops = 2 * weights * rows;
    if (is_measured) work.us = draw(p, 100, 1000);
    probe_case(p, "a product of %.0f rows and %.0f weights in %s, %s", rows, weights, ls_dtype_name(precision),
               is_measured ? "measured with 64 samples" : "not measured");
    static const double samples[] = {64, 16, 4, 256};
    for (size_t s = 0; s < sizeof samples / sizeof *samples; s++)
        see_us(p, probe_name(p, "microseconds for %.0f samples", samples[s]),
               ls_cost_work_us(node, &work, &workload, samples[s], precision, 1));
}

static void shares(probe *p) {
    static const double rows[] = {1, 2, 16, 32, 100, 128, 1000, 1e5, 32};
    for (int measured = 0; measured < 2; measured++) {
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            ls_node *node = open_node(p);
            ls_node_change_device(node)->product_count = 3;
            ls_node_change_device(node)->memory_GBps = draw(p, 500, 5000);
            double weights = floor(r < 8 ? draw(p, 1e3, 1e5)
                                         : draw(p, 5e9, 9e9)); /* the last ones are more than 32 bits can count */
            see_work(p, node, rows[r], weights, precisions[r % 3], measured);
            ls_node_close(node);
        }
    }
}

/* --- collectives --------------------------------------------------------------------------------------------------- */

static void begin_collective(probe *p, const ls_node *node, ls_collective what, int ranks, double bytes) {
    static const char *const names[] = {"all-reduce", "broadcast", "reduce"};
    const struct ls_node_collectives *c = ls_node_collectives(node);
    char network[96] = "";
    if (c->network_GBps > 0)
        snprintf(network, sizeof network, ", network hop %.4g us and %.4g GB/s", c->network_hop_us, c->network_GBps);
    probe_case(p, "%s of %.0f bytes, %d ranks, %d to a node: base %.4g us, hop %.4g us, bus %.4g GB/s%s", names[what],
               bytes, ranks, ls_node_device_count(node), c->base_us, c->hop_us, c->bus_GBps, network);
}

enum { SIZES = 4 };

/* 0 bytes, few, many, and more than 32 bits can count. */
static double draw_bytes(probe *p, int size) {
    static const double scales[SIZES] = {0, 1e3, 1e7, 1e10};
    return scales[size] + floor(draw(p, 0, scales[size]));
}

/* Without a network's figures all ranks count as ranks of one node. */
static void rings(probe *p) {
    static const int ranks[] = {1, 2, 3, 4, 8, 17, 65, 300, 70000};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        ls_node *node = open_node(p);
        for (int size = 0; size < SIZES; size++) {
            double bytes = draw_bytes(p, size);
            begin_collective(p, node, LS_COLLECTIVE_ALL_REDUCE, ranks[r], bytes);
            see_us(p, "microseconds", ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, ranks[r], bytes));
        }
        ls_node_close(node);
    }
}

/* Compared with the all-reduce whose links carry as many bytes, which differs by one more turn only. */
static void see_turn(probe *p, const ls_node *node, ls_collective what, int ranks, double bytes) {
    double as_many = bytes * ranks / (2 * (ranks - 1.0));
    begin_collective(p, node, what, ranks, bytes);
    see_more_us(p, "microseconds that an all-reduce takes longer whose links carry as much",
                ls_cost_collective_us(node, LS_COLLECTIVE_ALL_REDUCE, ranks, as_many),
                ls_cost_collective_us(node, what, ranks, bytes));
}

static void one_turn(probe *p) {
    static const int ranks[] = {2, 3, 8, 17, 300};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        ls_node *node = open_node(p);
        for (int size = 0; size < SIZES; size++) {
            see_turn(p, node, LS_COLLECTIVE_BROADCAST, ranks[r], draw_bytes(p, size));
            see_turn(p, node, LS_COLLECTIVE_REDUCE, ranks[r], draw_bytes(p, size));
        }
        ls_node_close(node);
    }
}

struct network {
    double hop_us, GBps;
};

/* The time that the network adds for the same ranks. */
static void see_network(probe *p, ls_node *node, const struct network *network, ls_collective what, int ranks) {
    struct ls_node_collectives *collectives = ls_node_change_collectives(node);
    for (int size = 0; size < SIZES; size++) {
        double bytes = draw_bytes(p, size);
        collectives->network_hop_us = collectives->network_GBps = 0;
        double alone_us = ls_cost_collective_us(node, what, ranks, bytes);
        collectives->network_hop_us = network->hop_us;
        collectives->network_GBps = network->GBps;
        begin_collective(p, node, what, ranks, bytes);
        see_more_us(p, "microseconds that the network adds", ls_cost_collective_us(node, what, ranks, bytes), alone_us);
    }
}

/* A network that is slower or faster than the links within a node; one whose hops cost nothing; and one of which only
 * the hops are known, which adds no time for bytes. */
static void networks(probe *p) {
    static const int devices[] = {2, 1, 3, 8, 16}, ranks[] = {2, 3, 4, 5, 8, 9, 17, 64, 300, 70000};
    enum { SLOWER, FASTER, NO_HOPS, NO_RATE, KINDS };
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
            for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
                ls_node *node = open_node_of(p, devices[d]);
                double bus = ls_node_collectives(node)->bus_GBps;
                struct network network = {draw(p, 10, 30), bus * (kind == SLOWER ? draw(p, 0.1, 0.9) : draw(p, 2, 9))};
                if (kind == NO_HOPS) network.hop_us = 0;
                if (kind == NO_RATE) network.GBps = 0;
                for (int what = LS_COLLECTIVE_ALL_REDUCE; what <= LS_COLLECTIVE_REDUCE; what++)
                    see_network(p, node, &network, (ls_collective)what, ranks[r]);
                ls_node_close(node);
            }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"floor", floors}, {"roofline", rooflines}, {"shares", shares},
                                         {"ring", rings},   {"one-turn", one_turn},  {"network", networks},
                                         {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
