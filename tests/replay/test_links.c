/* links: the definition of max-min fairness, on random flows over a node with various links: no link exceeds its
 *        capacity, and every flow crosses a full link on which no flow is faster. */
#include "common/base/random.h"
#include "labs/replay/engine/links.h"
#include "tests/base/test.h"
#include "tests/replay/scene.h"

enum { DEVICES = 8, FLOWS = 40, RESOURCES = 64 };

static const struct scene_link some_links[] = {
    {"host", "root", 40, 0, false}, {"root", "left", 13, 0, false}, {"root", "right", 9, 0, true},
    {"gpu0", "left", 11, 0, false}, {"gpu1", "left", 11, 0, false}, {"gpu2", "left", 7, 0, true},
    {"gpu3", "left", 12, 0, false}, {"gpu4", "right", 8, 0, false}, {"gpu5", "right", 8, 0, false},
    {"gpu6", "right", 5, 0, false}, {"gpu7", "right", 8, 0, false}, {"gpu0", "gpu1", 25, 0, false},
    {"gpu4", "gpu5", 3, 0, false},  {"gpu2", "gpu6", 20, 0, false}, {0}};

struct transfer {
    const struct ls_route *route; /* NULL: not in flight */
    double left_bytes, rate;
};

static int resource_of(const ls_node *node, const struct ls_route *route, int hop) {
    return 2 * route->link[hop] + (ls_node_link(node, route->link[hop])->duplex && !route->forwards[hop]);
}

static void expect_fair(const ls_node *node, const struct transfer *transfers) {
    double load[RESOURCES] = {0}, fastest[RESOURCES] = {0};
    for (int f = 0; f < FLOWS; f++) {
        const struct transfer *t = &transfers[f];
        for (int h = 0; t->route && h < t->route->count; h++) {
            int r = resource_of(node, t->route, h);
            load[r] += t->rate;
            if (t->rate > fastest[r]) fastest[r] = t->rate;
        }
    }
    for (int r = 0; r < 2 * ls_node_link_count(node); r++)
        assert_true(load[r] <= 1e3 * ls_node_link(node, r / 2)->GBps * (1 + 1e-9));
    for (int f = 0; f < FLOWS; f++) {
        const struct transfer *t = &transfers[f];
        bool is_held = t->route == NULL;
        for (int h = 0; !is_held && h < t->route->count; h++) {
            int r = resource_of(node, t->route, h);
            bool is_full = load[r] >= 1e3 * ls_node_link(node, r / 2)->GBps * (1 - 1e-9);
            is_held = is_full && t->rate >= fastest[r] * (1 - 1e-9);
        }
        assert_true(is_held);
    }
}

/* Shares the links at now_us, and stores the rates that follow from the new ends of flows. */
static void share(ls_links *links, struct transfer *transfers, double now_us) {
    int count;
    const int *moved = ls_links_share(links, now_us, &count);
    for (int i = 0; i < count; i++)
        transfers[moved[i]].rate = transfers[moved[i]].left_bytes / (ls_links_end_us(links, moved[i]) - now_us);
    assert_false(ls_links_changed(links));
}

static void pass(struct transfer *transfers, double us) {
    for (int f = 0; f < FLOWS; f++)
        if (transfers[f].route) transfers[f].left_bytes -= transfers[f].rate * us;
}

/* The flow that ends first; -1 if none is in flight. */
static int first_end(const ls_links *links, const struct transfer *transfers) {
    int first = -1;
    for (int f = 0; f < FLOWS; f++)
        if (transfers[f].route && (first < 0 || ls_links_end_us(links, f) < ls_links_end_us(links, first))) first = f;
    return first;
}

TEST(rates_are_max_min_fair) {
    struct scene s;
    scene_begin(&s);
    scene_node(&s, DEVICES, 1, some_links);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ls_generator random;
        ls_generator_seed(&random, seed);
        struct transfer transfers[FLOWS] = {{0}};
        ls_links *links;
        double now_us = 0;
        assert_int_equal(ls_links_create(&links, s.node, FLOWS), LS_OK);
        for (int f = 0; f < FLOWS; f++) {
            int from = (int)(ls_random32(&random) % (DEVICES + 1)) - 1;
            int to = (from + 2 + (int)(ls_random32(&random) % DEVICES)) % (DEVICES + 1) - 1; /* a different device */
            uint64_t bytes = 1000000 + ls_random32(&random) % 9000000;
            transfers[f] = (struct transfer){ls_node_route(s.node, from, to), (double)bytes, 0};
            ls_links_begin(links, f, transfers[f].route, bytes, now_us);
            if (f % 2) continue; /* two at a time */
            share(links, transfers, now_us);
            expect_fair(s.node, transfers);
            pass(transfers, 0.5);
            now_us += 0.5;
        }
        share(links, transfers, now_us); /* at the end of the last flow */
        for (int f; (f = first_end(links, transfers)) >= 0;) {
            pass(transfers, ls_links_end_us(links, f) - now_us);
            now_us = ls_links_end_us(links, f);
            assert_true(transfers[f].left_bytes < 1e-3 && transfers[f].left_bytes > -1e-3);
            transfers[f].route = NULL;
            ls_links_end(links, f, now_us);
            share(links, transfers, now_us);
            expect_fair(s.node, transfers);
        }
        ls_links_destroy(links);
    }
    scene_end(&s);
}
