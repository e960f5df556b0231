/* All-reduces message by message: counted against the formulas, timed on links, and checked that every rank's values
 * reach all ranks. */
#include <math.h>
#include <string.h>

#include "labs/replay/engine/cost.h"
#include "tests/base/test.h"
#include "tests/replay/planned.h"

enum { MAX_RANKS = 16 };

/* One all-reduce of several ranks, each after a kernel that takes 1 us. */
struct meeting {
    struct planned b; /* node and trace */
    int begin[MAX_RANKS], end[MAX_RANKS];
};

static void meeting_begin(struct meeting *m, ls_pattern pattern, int ranks, double bytes) {
    int lanes[MAX_RANKS];
    planned_begin(&m->b, LS_PLAN_DDP, ranks, ranks, 1);
    assert_int_equal(ls_trace_create(&m->b.trace), LS_OK);
    for (int r = 0; r < ranks; r++) {
        struct ls_lane comm = {.name = "comm", .kind = LS_LANE_COMM, .rank = r, .device = r};
        struct ls_lane compute = {.name = "compute", .kind = LS_LANE_COMPUTE, .rank = r, .device = r};
        lanes[r] = ls_trace_add_lane(m->b.trace, &comm);
        struct ls_task kernel = ls_task_default(LS_TASK_KERNEL, "gradient", ls_trace_add_lane(m->b.trace, &compute));
        kernel.us = 1;
        m->begin[r] = m->end[r] = ls_trace_add_task(m->b.trace, &kernel);
    }
    ls_plan_messages(m->b.trace, pattern, lanes, m->end, ranks, bytes, 0);
    assert_int_equal(ls_trace_seal(m->b.trace), LS_OK);
}

static bool is_message(const struct ls_task *task) { return task->kind == LS_TASK_COPY && task->from != task->to; }

/* The maximum that one rank sends, and the totals that all send and receive. */
struct counted {
    double messages, bytes, sent, received;
    int all;
};

static struct counted count_messages(const struct meeting *m, int ranks) {
    double messages[MAX_RANKS] = {0}, sent[MAX_RANKS] = {0}, received[MAX_RANKS] = {0};
    struct counted most = {0};
    for (int t = 0; t < ls_trace_task_count(m->b.trace); t++) {
        const struct ls_task *task = ls_trace_task(m->b.trace, t);
        if (!is_message(task)) continue;
        messages[task->from]++;
        most.all++;
        sent[task->from] += (double)task->bytes;
        received[task->to] += (double)task->bytes;
    }
    for (int r = 0; r < ranks; r++) {
        most.messages = fmax(most.messages, messages[r]);
        most.bytes = fmax(most.bytes, sent[r]);
        most.sent += sent[r];
        most.received += received[r];
    }
    return most;
}

/* Messages on the longest path of edges, without the order of streams. */
static int longest_way(const struct meeting *m) {
    static int depth[4096];
    int most = 0;
    assert_true(ls_trace_task_count(m->b.trace) <= (int)(sizeof depth / sizeof *depth));
    for (int t = 0; t < ls_trace_task_count(m->b.trace); t++) {
        int count, deepest = 0;
        const int *before = ls_trace_before(m->b.trace, t, &count);
        for (int i = 0; i < count; i++) {
            assert_true(before[i] < t);
            if (depth[before[i]] > deepest) deepest = depth[before[i]];
        }
        depth[t] = deepest + is_message(ls_trace_task(m->b.trace, t));
        if (depth[t] > most) most = depth[t];
    }
    return most;
}

/* Counts waits for messages: each message has one wait, by the receiver's next task. */
static int count_waits(const struct meeting *m) {
    int waits = 0;
    for (int t = 0; t < ls_trace_task_count(m->b.trace); t++) {
        int count;
        const int *before = ls_trace_before(m->b.trace, t, &count);
        for (int i = 0; i < count; i++) {
            const struct ls_task *message = ls_trace_task(m->b.trace, before[i]);
            if (!is_message(message)) continue;
            assert_int_equal(ls_trace_task(m->b.trace, t)->from, message->to);
            waits++;
        }
    }
    return waits;
}

static bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

TEST(messages_are_as_many_as_the_formulas_say) {
    const ls_hockney link = {1, 1, INFINITY};
    const double bytes = 720720 * 16; /* can be cut for 2 .. 16 ranks without a remainder */
    for (ls_pattern pattern = 0; pattern < LS_PATTERN_COUNT; pattern++) {
        for (int ranks = 2; ranks <= MAX_RANKS; ranks++) {
            struct meeting m;
            meeting_begin(&m, pattern, ranks, bytes);
            struct ls_pattern_cost cost = ls_cost_pattern(pattern, ranks, bytes, &link);
            struct counted counted = count_messages(&m, ranks);
            int steps = longest_way(&m);
            bool good = counted.messages == cost.messages && fabs(counted.bytes - cost.bytes) <= 1e-9 * cost.bytes;
            /* in a tree of other sizes a path may skip a round */
            bool steps_good = steps == cost.steps || (pattern == LS_PATTERN_TREE && !is_power_of_two(ranks));
            if (!good || !steps_good || counted.sent != counted.received || count_waits(&m) != counted.all) {
                fail_msg("%s, %d ranks: %g messages, %g bytes, %d steps; %g, %g, %d by formula",
                         ls_pattern_name(pattern), ranks, counted.messages, counted.bytes, steps, cost.messages,
                         cost.bytes, cost.steps);
            }
            planned_end(&m.b);
        }
    }
}

/* The pieces of a message that cannot be cut evenly still add up to it. */
TEST(no_byte_is_lost_in_uneven_pieces) {
    static const ls_pattern cut[] = {LS_PATTERN_RING, LS_PATTERN_DIRECT};
    for (size_t p = 0; p < 2; p++) {
        for (int ranks = 2; ranks <= MAX_RANKS; ranks++) {
            struct meeting m;
            meeting_begin(&m, cut[p], ranks, 1000003);
            assert_true(count_messages(&m, ranks).sent == 2.0 * (ranks - 1) * 1000003);
            planned_end(&m.b);
        }
    }
}

TEST(everybody_hears_of_everybody) {
    for (ls_pattern pattern = 0; pattern < LS_PATTERN_COUNT; pattern++) {
        for (int ranks = 2; ranks <= MAX_RANKS; ranks++) {
            struct meeting m;
            meeting_begin(&m, pattern, ranks, 4096);
            for (int from = 0; from < ranks; from++) {
                for (int to = 0; to < ranks; to++) {
                    if (planned_before(&m.b, m.begin[from], m.end[to])) continue;
                    fail_msg("%s, %d ranks: nothing of rank %d comes to rank %d", ls_pattern_name(pattern), ranks, from,
                             to);
                }
                assert_int_equal(ls_trace_task(m.b.trace, m.end[from])->lane, 2 * from); /* on its own stream */
            }
            planned_end(&m.b);
        }
    }
}

/* A star of links of 1 GB/s in each direction without latency: the times of the formulas with alpha = 0. */
TEST(messages_take_the_time_of_the_formulas) {
    const ls_hockney link = {0, 1, INFINITY};
    const double bytes = 720720 * 16;
    for (ls_pattern pattern = 0; pattern < LS_PATTERN_COUNT; pattern++) {
        for (int ranks = 2; ranks <= MAX_RANKS; ranks *= 2) {
            struct meeting m;
            meeting_begin(&m, pattern, ranks, bytes);
            assert_int_equal(ls_engine_run(&m.b.timeline, m.b.trace, m.b.node), LS_OK);
            planned_expect_us(m.b.timeline->makespan_us, 1 + ls_cost_pattern(pattern, ranks, bytes, &link).us);
            planned_end(&m.b);
        }
    }
}

/* In a program: a bucket's messages come after its gradients and after the bucket before, and before the optimizer. */
TEST(buckets_travel_as_messages) {
    static const struct planned_layer layers[] = {{10, 30, 1008}, {10, 30, 1008}};
    struct planned b;
    planned_begin(&b, LS_PLAN_DDP, 3, 9, 1);
    planned_network(&b, layers, 2, 5, 5);
    b.options.collectives = LS_PLAN_BY_MESSAGES;
    b.options.first_bucket_bytes = b.options.bucket_bytes = 1;
    for (ls_pattern pattern = 0; pattern < LS_PATTERN_COUNT; pattern++) {
        b.options.pattern = pattern;
        planned_run(&b);
        const char *name = ls_pattern_name(pattern);
        int messages = planned_count(&b, 1, LS_LANE_COMM, 1, "all-reduce", name) / 2;
        int first = planned_find(&b, 1, LS_LANE_COMM, 1, NULL, name, 0);
        int second = planned_find(&b, 1, LS_LANE_COMM, 1, NULL, name, messages);
        int early = planned_find(&b, 1, LS_LANE_COMPUTE, 1, "backward", "layer", 0);
        int late = planned_find(&b, 1, LS_LANE_COMPUTE, 1, "backward", "layer", 1);
        assert_true(planned_before(&b, early, first) && !planned_before(&b, late, first));
        assert_true(planned_before(&b, late, second));
        for (int r = 0; r < 3; r++) {
            int update = planned_find(&b, r, LS_LANE_COMPUTE, 1, "optimizer", "update", 0);
            assert_true(
                planned_before(&b, planned_find(&b, (r + 1) % 3, LS_LANE_COMPUTE, 1, "backward", "layer", 1), update));
        }
        assert_string_equal(ls_trace_what(b.trace)->algorithm, name);
    }
    planned_end(&b);
}
