/* engine: copies that share links, against figures computed by hand, and all-reduces built from copies, against their
 *         textbook formulas. */
#include "tests/base/test.h"
#include "tests/replay/scene.h"

#define MAX_COPIES 64

/* --- one link ----------------------------------------------------------------------------------------------------- */

/* Link 0 joins two devices; the others exist because every device must reach the host. */
static const struct scene_link duplex[] = {
    {"gpu0", "gpu1", 10, 3, false}, {"host", "gpu0", 10, 4, false}, {"host", "gpu1", 10, 4, false}, {0}};
static const struct scene_link not_duplex[] = {
    {"gpu0", "gpu1", 10, 3, true}, {"host", "gpu0", 10, 4, true}, {"host", "gpu1", 10, 4, true}, {0}};

struct wish { /* a copy on a lane of its own, after a host's delay */
    int from, to;
    double bytes, begin_us, end_us;
};

/* Checks that copies over these links end as expected; the last wish has no bytes and no route. */
static void expect_copies(int devices, const struct scene_link *links, const struct wish *wishes) {
    struct scene s;
    int tasks[MAX_COPIES], count = 0;
    scene_begin(&s);
    for (const struct wish *w = wishes; w->from != w->to || w->bytes > 0; w++, count++) {
        int host = scene_lane(&s, LS_LANE_HOST, 0, 0), lane = scene_lane(&s, LS_LANE_COPY, 0, w->from);
        tasks[count] = scene_copy(&s, lane, w->from, w->to, (uint64_t)w->bytes);
        scene_after(&s, scene_host(&s, host, w->begin_us), tasks[count]);
    }
    scene_node(&s, devices, 1, links);
    scene_run(&s);
    for (int i = 0; i < count; i++) scene_expect(&s, tasks[i], wishes[i].begin_us, wishes[i].end_us);
    scene_check(&s);
    scene_end(&s);
}

TEST(a_copy_takes_latency_and_bytes_over_rate) {
    expect_copies(2, duplex, (struct wish[]){{0, 1, 50000, 2, 2 + 3 + 5}, {0}});
    expect_copies(2, duplex, (struct wish[]){{LS_HOST_MEMORY, 1, 50000, 0, 4 + 5}, {0}});
    expect_copies(2, duplex, (struct wish[]){{0, 1, 1, 0, 3 + 1e-4}, {0}});
}

TEST(copies_of_nothing_or_within_a_device) {
    expect_copies(2, duplex, (struct wish[]){{0, 1, 0, 2, 5}, {1, 1, 50000, 4, 4}, {0}});
}

TEST(equal_copies_get_half_of_a_link) {
    expect_copies(2, duplex, (struct wish[]){{0, 1, 50000, 0, 13}, {0, 1, 50000, 0, 13}, {0}});
}

/* s1 = 20000, s2 = 50000: the first ends at 2 s1 / B, the second at (s1 + s2) / B. */
TEST(unequal_copies_share_until_the_first_ends) {
    expect_copies(2, duplex, (struct wish[]){{0, 1, 20000, 0, 3 + 4}, {0, 1, 50000, 0, 3 + 7}, {0}});
}

/* Alone for 2 us (20000 bytes), then half of the rate each; the later one has 30000 of its 40000 left when the first
 * has ended. */
TEST(a_copy_that_comes_later_takes_its_half) {
    expect_copies(2, duplex, (struct wish[]){{0, 1, 30000, 0, 3 + 4}, {0, 1, 40000, 2, 3 + 7}, {0}});
}

/* Latency uses no bandwidth: the other copy has the link for itself until the transfer begins. */
TEST(latency_loads_no_link) {
    expect_copies(2, duplex, (struct wish[]){{0, 1, 30000, 0, 6}, {0, 1, 10000, 3, 7}, {0}});
}

TEST(directions_share_where_a_link_is_not_duplex) {
    expect_copies(2, duplex, (struct wish[]){{0, 1, 50000, 0, 8}, {1, 0, 50000, 0, 8}, {0}});
    expect_copies(2, not_duplex, (struct wish[]){{0, 1, 50000, 0, 13}, {1, 0, 50000, 0, 13}, {0}});
}

TEST(links_tell_what_they_carried) {
    struct scene s;
    scene_begin(&s);
    int lane = scene_lane(&s, LS_LANE_COPY, 0, 0), back = scene_lane(&s, LS_LANE_COPY, 0, 1);
    scene_copy(&s, lane, 0, 1, 50000);
    scene_copy(&s, lane, 0, LS_HOST_MEMORY, 20000);
    scene_copy(&s, back, 1, 0, 30000);
    scene_node(&s, 2, 1, not_duplex);
    scene_run(&s);
    const ls_timeline *t = s.timeline; /* 0 -> 1 from 3 to 11 (half of the time shared), 1 -> 0 from 3 to 9 */
    expect_us(t->link_bytes[0][0], 50000);
    expect_us(t->link_bytes[1][0], 30000);
    expect_us(t->link_busy_us[0][0], 8);
    expect_us(t->link_busy_us[1][0], 6);
    expect_us(t->link_bytes[0][1], 0);
    expect_us(t->link_bytes[1][1], 20000);
    expect_us(t->link_busy_us[1][1], 2);
    scene_check(&s);
    scene_end(&s);
}

/* A recorded copy keeps its duration, and uses no bandwidth. */
TEST(copies_with_a_duration_take_it) {
    struct scene s;
    scene_begin(&s);
    int lane = scene_lane(&s, LS_LANE_COPY, 0, 0), other = scene_lane(&s, LS_LANE_COPY, 0, 0);
    struct ls_task task = ls_task_default(LS_TASK_COPY, "copy", lane);
    task.from = 0;
    task.to = 1;
    task.bytes = 1000000;
    task.us = 4.5;
    int recorded = ls_trace_add_task(s.trace, &task), modelled = scene_copy(&s, other, 0, 1, 50000);
    scene_node(&s, 2, 1, duplex);
    scene_run(&s);
    scene_expect(&s, recorded, 0, 4.5);
    scene_expect(&s, modelled, 0, 8);
    scene_check(&s);
    scene_end(&s);
}

/* --- several links ------------------------------------------------------------------------------------------------ */

/* Link A (10 GB/s, left - middle) carries flows 1 and 2, link B (4 GB/s, middle - right) flows 1 and 3. B is full
 * first: 1 and 3 get 2 each, 2 gets the remaining 8 of A. At 10 us flow 1 has its 20000 bytes: 2 continues at 10 for
 *        its last 20000 of 100000, 3 at 4 for its last 20000 of 40000. */
static const struct scene_link two_links[] = {{"left", "middle", 10, 0, false},  {"middle", "right", 4, 0, false},
                                              {"gpu0", "left", 100, 0, false},   {"gpu1", "middle", 100, 0, false},
                                              {"gpu2", "right", 100, 0, false},  {"gpu3", "left", 100, 0, false},
                                              {"gpu4", "middle", 100, 0, false}, {"gpu5", "right", 100, 0, false},
                                              {"host", "left", 100, 0, false},   {0}};

TEST(three_flows_over_two_links) {
    expect_copies(6, two_links,
                  (struct wish[]){{0, 2, 20000, 0, 10}, {3, 1, 100000, 0, 12}, {4, 5, 40000, 0, 15}, {0}});
}

/* Five flows over A, one of them also over B, which three others use: B gives 1 each, A then (10 - 1) / 4 each. */
TEST(what_one_link_denies_others_get) {
    expect_copies(6, two_links,
                  (struct wish[]){{0, 2, 10000, 0, 10},
                                  {3, 1, 22500, 0, 10},
                                  {0, 4, 22500, 0, 10},
                                  {3, 4, 22500, 0, 10},
                                  {0, 1, 22500, 0, 10},
                                  {1, 5, 10000, 0, 10},
                                  {4, 2, 10000, 0, 10},
                                  {4, 5, 10000, 0, 10},
                                  {0}});
}

/* A flow in the other direction over the same links, and a pair of devices that shares no link with them, are not
 * slowed down. */
TEST(flows_that_share_nothing_are_left_alone) {
    expect_copies(
        6, two_links,
        (struct wish[]){{0, 2, 20000, 0, 10}, {4, 5, 20000, 0, 10}, {2, 0, 40000, 1, 11}, {1, 4, 500000, 0, 5}, {0}});
}

/* --- all-reduces -------------------------------------------------------------------------------------------------- */

#define ALPHA_US 7.0
#define BYTES 720720.0 /* divisible by every number up to 16 */
#define RATE 12000.0   /* bytes per us */

/* Duplex links around the devices. With two there is one link, whose directions are the two halves of the ring. */
static double ring(int n) {
    struct scene s;
    struct scene_link links[33] = {{0}};
    static const char *const names[] = {"gpu0", "gpu1", "gpu2",  "gpu3",  "gpu4",  "gpu5",  "gpu6",  "gpu7",
                                        "gpu8", "gpu9", "gpu10", "gpu11", "gpu12", "gpu13", "gpu14", "gpu15"};
    for (int i = 0; i < n; i++) links[i] = (struct scene_link){names[i], "host", RATE / 1e3, ALPHA_US, false};
    for (int i = 0; i < (n > 2 ? n : 1); i++)
        links[n + i] = (struct scene_link){names[i], names[(i + 1) % n], RATE / 1e3, ALPHA_US, false};
    int last[16];
    scene_begin(&s);
    for (int r = 0; r < n; r++) scene_lane(&s, LS_LANE_COMM, r, r);
    for (int step = 0; step < 2 * (n - 1); step++) {
        int sent[16];
        for (int r = 0; r < n; r++) {
            sent[r] = scene_copy(&s, r, r, (r + 1) % n, (uint64_t)(BYTES / n));
            if (step > 0) scene_after(&s, last[(r + n - 1) % n], sent[r]); /* passes on the received chunk */
        }
        for (int r = 0; r < n; r++) last[r] = sent[r];
    }
    scene_node(&s, n, 1, links);
    scene_run(&s);
    scene_check(&s);
    double us = s.timeline->makespan_us;
    scene_end(&s);
    return us;
}

/* All send to device 0 and receive the sum: its link carries n - 1 messages at once. */
static double flat(int n) {
    struct scene s;
    int up[16], down[16];
    scene_begin(&s);
    for (int r = 0; r < 2 * n; r++) scene_lane(&s, LS_LANE_COMM, r % n, r % n);
    for (int r = 1; r < n; r++) up[r] = scene_copy(&s, r, r, 0, (uint64_t)BYTES);
    for (int r = 1; r < n; r++) {
        down[r] = scene_copy(&s, n + r, 0, r, (uint64_t)BYTES);
        for (int other = 1; other < n; other++) scene_after(&s, up[other], down[r]);
    }
    scene_star(&s, n, RATE / 1e3, ALPHA_US);
    scene_run(&s);
    scene_check(&s);
    double us = s.timeline->makespan_us;
    scene_end(&s);
    return us;
}

/* A binomial tree: with distance 1, 2, 4, ... ranks send to those below them, then back in the opposite order. */
static double tree(int n) {
    struct scene s;
    int last[16]; /* the last message that each rank sent or received */
    scene_begin(&s);
    for (int r = 0; r < n; r++) last[r] = scene_host(&s, scene_lane(&s, LS_LANE_COMM, r, r), 0);
    int top = 1;
    while (top < n) top *= 2;
    for (int pass = 0; pass < 2; pass++) {
        for (int k = pass == 0 ? 1 : top / 2; k >= 1 && k < top; k = pass == 0 ? 2 * k : k / 2) {
            for (int r = k; r < n; r += 2 * k) {
                int from = pass == 0 ? r : r - k, to = pass == 0 ? r - k : r;
                int task = scene_copy(&s, from, from, to, (uint64_t)BYTES);
                scene_after(&s, last[from], task);
                scene_after(&s, last[to], task);
                last[from] = last[to] = task;
            }
        }
    }
    scene_star(&s, n, RATE / 1e3, ALPHA_US);
    scene_run(&s);
    scene_check(&s);
    double us = s.timeline->makespan_us;
    scene_end(&s);
    return us;
}

TEST(all_reduces_take_what_their_formulas_say) {
    for (int n = 2, rounds = 1; n <= 16; n++) {
        if (1 << rounds < n) rounds++; /* ceil(log2 n) */
        expect_us(ring(n), 2 * (n - 1) * (ALPHA_US + BYTES / n / RATE));
        expect_us(flat(n), 2 * (ALPHA_US + (n - 1) * BYTES / RATE));
        expect_us(tree(n), 2 * rounds * (ALPHA_US + BYTES / RATE));
    }
}
