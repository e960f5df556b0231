/* ls_node: a machine as described by labs/replay/nodes/NAME.json, for which replay computes times.
 *
 * labs/replay/nodes/README.md specifies such files; every figure in them has a source. Rates are those that programs
 * reach, not those of data sheets, and units are in the names. A file with a missing, unknown, negative, non-finite or
 * absurd member is refused with file and line. */
#ifndef LABS_REPLAY_ENGINE_NODE_H
#define LABS_REPLAY_ENGINE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/status.h"

#define LS_NODE_MAX_DEVICES 64
#define LS_NODE_MAX_LINKS 256
#define LS_NODE_MAX_ROUTE 8
#define LS_NODE_MAX_PRODUCTS 16

/* A point of the curve of matrix multiplies. Multiplies of few rows do not reach the full rate, since much of their
 * work does not grow with the rows: packing weights, writing gradients of weights. */
struct ls_node_product {
    double rows;  /* of the matrix of samples: each row uses every weight once */
    double share; /* of the rate */
};

/* The rates of a device. A kernel of F flops and B bytes takes floor + max(F / rate, B / memory). */
struct ls_node_device {
    const char *name;
    double fp32_GFLOPs, fp16_GFLOPs; /* multiplies and convolutions, 1e9 flops per second; fp16 is for bf16, too */
    double memory_GBps;              /* all other kernels, and the bytes of multiplies */
    /* By rows, ascending; between two points the time, rows / share, is interpolated linearly. None (or left out): all
     * multiplies reach the rate */
    struct ls_node_product products[LS_NODE_MAX_PRODUCTS];
    int product_count;
    double kernel_us;      /* the floor, which is added to each kernel */
    uint64_t memory_bytes; /* 0: unknown */
    /* the slow-down of multiplies, and of the memory traffic of other kernels, while all devices of the node work: more
     * than 1 if they share cores, caches or memory, as CPU devices do; 1 (or left out): none */
    double product_crowding, memory_crowding;
    /* CPU devices: data that another device has just read is in its cache, up to reclaim_bytes. Writing it takes it
     * back, at reclaim_GBps, in addition to the kernel's own time. INFINITY, 0 (or left out): no cost */
    double reclaim_GBps;
    uint64_t reclaim_bytes;
};

/* The costs of a host thread. */
struct ls_node_host {
    double launch_us;    /* per operation that it enqueues */
    double event_us;     /* per event that it records, or lets a stream wait for */
    double sync_us;      /* from the end of the awaited work until the thread continues */
    double hand_over_us; /* from one thread's raising of a flag until another, sleeping thread continues */
    /* A thread that has waited for less than spin_us is not asleep yet, and continues after awake_us, if that is less;
     * 0 (or both left out): all sleep at once */
    double spin_us, awake_us;
    double collective_us; /* per collective operation, instead of launch_us */
    bool runs_compute;    /* the launching thread itself runs the work of the compute stream: CPU devices */
    /* of all CPU devices together. If devices leave no core free, launching threads run copies and DDP's collectives,
     * too (device_cpu.c); 0 (or left out): some are always free */
    uint64_t cores;
    double lock_us; /* the emulated GIL: a launch's time while it holds its process's one lock; 0: no GIL */
};

/* A link joins two vertices: "host", "gpu0", "gpu1", ..., or a switch of any other name. As numbers: the devices by
 * theirs, then the host, then the switches. Host and switches forward transfers; devices do not. */
struct ls_node_link {
    const char *name;
    int from, to;      /* vertices */
    double GBps;       /* in each direction; of a link that is not duplex, in both together */
    double latency_us; /* of a transfer that crosses it */
    bool duplex;
};

struct ls_node_measured { /* one line of a measured table */
    int ranks;
    uint64_t bytes;
    double us;
};

struct ls_node_table {
    const struct ls_node_measured *rows; /* sorted by ranks, then bytes; NULL: none */
    int count;
};

/* The tables that a node may have: collective operations within the node, and all-reduces of ranks on several such
 * nodes. */
enum ls_node_operation {
    LS_NODE_ALL_REDUCE,
    LS_NODE_ALL_GATHER,
    LS_NODE_REDUCE_SCATTER,
    LS_NODE_OPERATIONS,
    LS_NODE_BETWEEN = LS_NODE_OPERATIONS,
    LS_NODE_TABLES
};

/* The times of collective operations, without the wait for the last rank. */
struct ls_node_collectives {
    /* formula, for an all-reduce of S bytes by N ranks: base_us + 2 (N - 1) hop_us + 2 (N - 1) / N S / bus_GBps */
    double base_us, hop_us, bus_GBps;
    /* bus bandwidths of all-gather and reduce-scatter, which reducing switches do not speed up; 0: as an
     * all-reduce's */
    double all_gather_GBps, reduce_scatter_GBps;
    /* more ranks than this node's devices: NODES such nodes add 2 (NODES - 1) network_hop_us, and the slower of the two
     * rates counts. 0: one node only */
    double network_hop_us, network_GBps;
    /* the rate of the switch between nodes, for all nodes together, if it is oversubscribed. INFINITY (or left out):
     * enough */
    double network_switch_GBps;
    /* Measured; for all-gather and reduce-scatter by the bytes of all parts. A table is used instead of the formula if
     * it has the number of ranks (cost.h) */
    struct ls_node_table tables[LS_NODE_TABLES];
    /* the slow-down of kernels while their device takes part in a collective; 1: none */
    double slow_down;
};

typedef struct ls_node ls_node;

/* LS_ERR_IO, LS_ERR_INVALID; on failure *out is NULL. `name` may be a path, or the name of a file of labs/replay/nodes
 * (search: library.h). */
ls_status ls_node_open(ls_node **out, const char *name);
ls_status ls_node_parse(ls_node **out, const char *name, const char *text, size_t nbytes); /* the same from memory */
void ls_node_close(ls_node *node);                                                         /* NULL is a no-op */

/* Keeps only the first `devices` of each node: further ranks of a job are on further nodes. Measured tables lose the
 * rows of more ranks within a node. LS_ERR_INVALID: the node has fewer. Call it before the node is used. */
ls_status ls_node_keep(ls_node *node, int devices);

/* The node as seen by a group of `ranks` whose members are `stride` devices apart, in a job of `nodes` such nodes. The
 * view has devices / stride devices. `stride` groups use the network at the same time, so each gets that part of
 * network_GBps, or of the switch's rate per node: network_switch_GBps / nodes. Beyond a node, neighbours have the table
 * LS_NODE_BETWEEN for their all-reduces, if it has their number, and others no table. For costs of collectives only (a
 * view has neither routes nor a name); close it before `node`. LS_ERR_INVALID: stride and devices do not divide each
 * other, and the group goes beyond a node. */
ls_status ls_node_view(ls_node **out, const ls_node *node, int ranks, int stride, int nodes);

const char *ls_node_name(const ls_node *node);        /* its file's name, without folder and ".json" */
const char *ls_node_description(const ls_node *node); /* one line */
int ls_node_device_count(const ls_node *node);
const struct ls_node_device *ls_node_device(const ls_node *node);
const struct ls_node_host *ls_node_host(const ls_node *node);
const struct ls_node_collectives *ls_node_collectives(const ls_node *node);
int ls_node_link_count(const ls_node *node);
const struct ls_node_link *ls_node_link(const ls_node *node, int link);

/* A link in one direction: a transfer uses bandwidth of each that it crosses. The two directions of a link that is not
 * duplex are one resource. */
struct ls_route {
    int count;
    int link[LS_NODE_MAX_ROUTE];
    bool forwards[LS_NODE_MAX_ROUTE]; /* from `from` to `to` */
    double latency_us;                /* of all links together */
};

/* Adds routes between the devices of `nodes` nodes like this one, numbered node by node. ls_node_device_count still
 * counts one node. Each node has its links (those of the second are called "1:NAME"), and a link "network K" for all
 * that its devices send or receive at the same time, network_GBps in each direction; a message goes from device to
 * host, over both nodes' network links and from host to device. If the switch is oversubscribed, all messages share a
 * link "switch". A message's latency is hop_us + network_hop_us, like a ring's step (cost.h). LS_ERR_INVALID: the node
 * has no network, there would be more than LS_NODE_MAX_DEVICES or LS_NODE_MAX_LINKS, or a route too long;
 * LS_ERR_NO_MEMORY. Call it once, before the node is used. */
ls_status ls_node_repeat(ls_node *node, int nodes);

/* The route with the fewest links (ties: least latency, then widest) from a device to another; LS_HOST_MEMORY (-1) is
 * the host; with several nodes, that of the other end's node. Chosen when the node is opened. NULL: the node has no
 * such device (a node whose devices are not joined is refused). A device's route to itself crosses nothing. */
const struct ls_route *ls_node_route(const ls_node *node, int from, int to);

/* For experiments and fits: the figures of the node may be changed through these pointers until it is used; they are
 * not checked again. */
struct ls_node_device *ls_node_change_device(ls_node *node);
struct ls_node_host *ls_node_change_host(ls_node *node);
struct ls_node_collectives *ls_node_change_collectives(ls_node *node);
void ls_node_change_links(ls_node *node, double GBps_factor, double latency_factor);

#endif
