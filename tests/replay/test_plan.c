/* Replayed programs whose step time has a closed form, and properties of every such trace. */
#include <math.h>
#include <string.h>

#include "labs/replay/engine/account.h"
#include "labs/replay/record/record.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/planned.h"

enum { LAYERS = 4 };

/* Parameters of 4,000 bytes each, without gaps. */
static const struct planned_layer chain[LAYERS] = {{10, 30, 1008}, {20, 25, 1008}, {15, 60, 1008}, {5, 12, 1008}};
static const double forward_us = 50, loss_us = 7, backward_us = 127, optimizer_us = 9, tensor_bytes = 4032;

/* --- closed forms ------------------------------------------------------------------------------------------------ */

TEST(a_device_alone_takes_the_sum) {
    struct planned b;
    planned_begin(&b, LS_PLAN_SINGLE, 1, 8, 1);
    planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
    double sum = forward_us + loss_us + backward_us + optimizer_us;
    planned_run(&b);
    planned_expect_us(b.timeline->makespan_us, 4 * sum);

    /* the first batch must be loaded, the others are while the device computes: 8 x (100 + 25) bytes at 1 GB/s */
    b.workload.input_bytes = 100;
    b.workload.answer_bytes = 25;
    planned_run(&b);
    planned_expect_us(b.timeline->makespan_us, 1 + 4 * sum);

    /* with one place a batch is copied after the backward that uses the one before, and only the optimizer hides it */
    b.options.batch_places = 1;
    b.workload.input_bytes = 1000 * 11 - 25;
    planned_run(&b);
    planned_expect_us(b.timeline->makespan_us, 4 * (88 + sum) - 3 * optimizer_us);
    planned_end(&b);
}

/* A host that runs its device's work: launches, events, waits and the loader add up. */
TEST(a_cpu_takes_the_sum_of_all_calls) {
    struct planned b;
    planned_begin(&b, LS_PLAN_SINGLE, 1, 8, 1);
    planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
    struct ls_node_host *host = ls_node_change_host(b.node);
    *host = (struct ls_node_host){.launch_us = 2, .event_us = 0.5, .sync_us = 3, .runs_compute = true};
    b.workload.loader_us = 11;
    double operations = 2 * LAYERS + 2;
    double sum = forward_us + loss_us + backward_us + optimizer_us;
    /* events: the place is free, the batch is copied, compute waits for it, the batch is used */
    /* ... and the loss is copied to the host: 4 bytes at 1 GB/s */
    b.workload.input_bytes = 1;
    b.workload.answer_bytes = 8;
    double step = 11 + sum + 2 * (operations + 3) + 4 * 0.5 + 3 + 0.004 + 8 * 9 * 1e-3;
    planned_run(&b);
    planned_expect_us(b.timeline->makespan_us, 4 * step);
    for (int w = 0; w < b.workload.work_count; w++)
        b.work[w].host_us = 1.25; /* measured: used in place of the node's */
    planned_run(&b);
    planned_expect_us(b.timeline->makespan_us, 4 * (step - 0.75 * operations));
    planned_end(&b);
}

/* Nothing to compute: buckets are serial. Limits of one tensor, then of two: 1 + 2 + 1. */
TEST(ddp_without_compute_is_a_chain_of_buckets) {
    static const struct planned_layer empty[LAYERS] = {{0, 0, 1008}, {0, 0, 1008}, {0, 0, 1008}, {0, 0, 1008}};
    for (int ranks = 2; ranks <= 8; ranks++) {
        struct planned b;
        planned_begin(&b, LS_PLAN_DDP, ranks, 64, 1);
        planned_network(&b, empty, LAYERS, 0, 0);
        b.options.first_bucket_bytes = 4000;
        b.options.bucket_bytes = 8000;
        planned_run(&b);
        /* base + 2 (N - 1) hops + 2 (N - 1) / N bytes at 1 GB/s */
        double bytes = 2.0 * (ranks - 1) / ranks * 4 * tensor_bytes * 1e-3;
        planned_expect_us(b.timeline->makespan_us, 4 * (3 * (10 + 2 * (ranks - 1)) + bytes));
        assert_int_equal(planned_count(&b, 0, LS_LANE_COMM, 1, "all-reduce", "all_reduce"), 3);
        planned_end(&b);
    }
}

/* Each tensor is a bucket: the last one ends after backward and its predecessors. */
TEST(overlap_hides_what_backward_allows) {
    struct planned b;
    planned_begin(&b, LS_PLAN_DDP, 4, 64, 1);
    planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
    ls_node_change_collectives(b.node)->bus_GBps = 0.25;
    b.options.first_bucket_bytes = b.options.bucket_bytes = 1;
    double each = 10 + 2 * 3 + 1.5 * tensor_bytes * 1e-3 / 0.25, ready = 0, done = 0;
    for (int l = LAYERS - 1; l >= 0; l--) {
        ready += chain[l].backward_us;
        done = fmax(done, ready) + each;
    }
    assert_true(done < backward_us + LAYERS * each);
    planned_run(&b);
    planned_expect_us(b.timeline->makespan_us, 4 * (forward_us + loss_us + done + optimizer_us));
    /* gradients are reduced with the last of three micro-batches (operations take the same time with any number of
     * samples) */
    b.options.micro_batches = 3;
    planned_run(&b);
    planned_expect_us(b.timeline->makespan_us,
                      4 * (3 * (forward_us + loss_us) + 2 * backward_us + done + optimizer_us));
    b.options.micro_batches = 1;
    b.options.overlap = false;
    planned_run(&b);
    planned_expect_us(b.timeline->makespan_us, 4 * (forward_us + loss_us + backward_us + LAYERS * each + optimizer_us));
    planned_end(&b);
}

/* Each gradient's hook delays the device: its own bucket, and all later work, even on one device. */
TEST(hooks_hold_up_backward) {
    enum { HOOK_US = 17 };
    for (int ranks = 1; ranks <= 4; ranks += 3) {
        struct planned b;
        planned_begin(&b, LS_PLAN_DDP, ranks, 64, 1);
        planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
        b.options.first_bucket_bytes = b.options.bucket_bytes = 1;
        b.options.tensor_us = HOOK_US;
        double each = ranks == 1 ? 0 : 10 + 2.0 * (ranks - 1) + 2 * (ranks - 1.0) / ranks * tensor_bytes * 1e-3;
        double ready = 0, done = 0;
        for (int l = LAYERS - 1; l >= 0; l--) {
            ready += chain[l].backward_us + HOOK_US;
            done = fmax(done, ready) + each;
        }
        planned_run(&b);
        planned_expect_us(b.timeline->makespan_us, 4 * (forward_us + loss_us + done + optimizer_us));
        assert_int_equal(planned_count(&b, ranks - 1, LS_LANE_COMPUTE, 1, "backward", "hook"), LAYERS);
        double ratio = ls_plan_estimate(&b.workload, &b.options) / ls_trace_task_count(b.trace);
        assert_true(ratio > 0.5 && ratio < 2);
        b.options.mode = LS_PLAN_SINGLE; /* which has no hooks */
        if (ranks == 1) planned_run(&b);
        if (ranks == 1) assert_int_equal(planned_count(&b, 0, LS_LANE_COMPUTE, 1, NULL, "hook"), 0);
        planned_end(&b);
    }
}

/* Five transfers through device 0's link, whose rate the parts of the others share. */
TEST(dp_takes_its_phases_one_after_another) {
    for (int devices = 1; devices <= 8; devices *= 2) {
        struct planned b;
        planned_begin(&b, LS_PLAN_DP, devices, 64, 2);
        planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
        b.workload.input_bytes = 500;
        b.workload.output_bytes = 124;
        b.options.steps = 1;
        planned_run(&b);
        double others = (devices - 1.0) / devices * 64, per_us = 2e3, parameters = LAYERS * tensor_bytes;
        double input = 64 * 500 / per_us, scatter = others * 500 / per_us, outputs = others * 124 / per_us;
        double replicate = (devices - 1) * parameters / per_us;
        planned_expect_us(b.timeline->makespan_us, input + scatter + replicate + forward_us + outputs + loss_us +
                                                       outputs + backward_us + replicate + optimizer_us);
        assert_int_equal(planned_count(&b, 0, LS_LANE_COMPUTE, 0, "reduce", "reduce_add"), devices > 1);
        planned_end(&b);
    }
}

/* One lock for all launches of the process: if nothing else takes time, it is always held. */
TEST(a_lock_makes_launches_follow_one_another) {
    static const struct planned_layer empty[LAYERS] = {{0, 0, 16}, {0, 0, 16}, {0, 0, 16}, {0, 0, 16}};
    struct planned b;
    planned_begin(&b, LS_PLAN_DP, 4, 64, 1e9); /* copies take almost no time */
    planned_network(&b, empty, LAYERS, 0, 0);
    b.workload.input_bytes = b.workload.output_bytes = b.workload.answer_bytes = 8;
    b.options.gil = true;
    ls_node_change_host(b.node)->lock_us = 3;
    planned_run(&b);
    int locked = 0;
    for (int t = 0; t < ls_trace_task_count(b.trace); t++) locked += ls_trace_task(b.trace, t)->lock == 0;
    /* a step: 2 for the batch, loss, reduce_add, optimizer; for each replica 8 layers and the copy of its outputs; for
     *         three of them inputs, parameters, the loss's gradient and their own gradients */
    assert_int_equal(locked, 4 * (5 + 4 * 9 + 3 * 4));
    planned_expect_us(b.timeline->makespan_us, 3.0 * locked);
    b.options.gil = false;
    planned_run(&b);
    assert_true(b.timeline->makespan_us < 1e-6);
    planned_end(&b);
}

/* --- properties of every trace ----------------------------------------------------------------------------------- */

/* The bytes that DP sends through device 0 in a step; all bytes that are sent are received. */
TEST(what_is_sent_is_received) {
    struct planned b;
    struct ls_account *account;
    planned_begin(&b, LS_PLAN_DP, 4, 62, 2); /* pieces of 16, 16, 16 and 14 */
    planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
    b.workload.input_bytes = 500;
    b.workload.output_bytes = 120;
    planned_run(&b);
    assert_int_equal(ls_account_make(&account, b.trace, b.timeline, b.node), LS_OK);
    double sent = 0, received = 0, parameters = LAYERS * tensor_bytes;
    for (int d = 0; d < 4; d++) {
        sent += account->devices[d].sent_bytes;
        received += account->devices[d].received_bytes;
    }
    double from_0 = 46 * 500 + 3 * parameters + 46 * 120, to_0 = 46 * 120 + 3 * parameters;
    planned_expect_us(account->devices[0].sent_bytes, from_0); /* its own outputs are not sent */
    planned_expect_us(account->devices[3].received_bytes, 14 * 500 + parameters + 14 * 120);
    planned_expect_us(sent, from_0 + to_0);
    planned_expect_us(received - sent, 62 * 500); /* the batch, from the host */
    ls_account_free(account);
    planned_end(&b);
}

/* A device has as many batches in memory as the trace has batch places. */
TEST(memory_counts_the_places_that_times_count) {
    for (int on_host = 0; on_host < 2; on_host++) {
        for (ls_plan_mode mode = LS_PLAN_DP; mode <= LS_PLAN_DDP; mode++) {
            struct record_memory memory;
            struct planned b;
            planned_begin(&b, mode, 4, 64, 1);
            planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
            b.workload.input_bytes = 512;
            b.workload.answer_bytes = 128;
            ls_node_change_host(b.node)->runs_compute = on_host;
            for (int places = 0; places <= 2; places += 2) {
                b.options.batch_places = places;
                assert_int_equal(record_memory(&memory, &b.workload, b.node, &b.options), LS_OK);
                int room = places > 0 ? places : on_host ? 1 : 2;
                planned_expect_us((double)memory.first.peak_bytes[LS_MEMORY_INPUT],
                                  room * (mode == LS_PLAN_DP ? 64 : 16) * 640.0);
            }
            planned_end(&b);
        }
    }
}

/* For all modes, and every pattern of messages. */
TEST(the_estimate_is_near_the_count) {
    for (int kind = 0; kind < 3 + LS_PATTERN_COUNT; kind++) {
        for (int devices = 1; devices <= (kind == 0 ? 1 : 16); devices *= 4) {
            struct planned b;
            planned_begin(&b, kind < 3 ? (ls_plan_mode)kind : LS_PLAN_DDP, devices, 64, 1);
            planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
            b.options.bucket_bytes = 8000;
            if (kind >= 3) b.options.collectives = LS_PLAN_BY_MESSAGES;
            if (kind >= 3) b.options.pattern = (ls_pattern)(kind - 3);
            planned_make(&b);
            double ratio = ls_plan_estimate(&b.workload, &b.options) / ls_trace_task_count(b.trace);
            if (!(ratio > 0.5 && ratio < 2)) fail_msg("kind %d on %d: %g times the count", kind, devices, ratio);
            planned_end(&b);
        }
    }
}

static bool same_task(const struct ls_task *a, const struct ls_task *b) {
    return strcmp(a->name, b->name) == 0 && strcmp(a->phase, b->phase) == 0 && a->kind == b->kind &&
           a->lane == b->lane && a->step == b->step && a->us == b->us && a->bytes == b->bytes && a->flops == b->flops &&
           a->from == b->from && a->to == b->to && a->meeting == b->meeting && a->lock == b->lock;
}

TEST(the_same_input_gives_the_same_trace) {
    for (ls_plan_mode mode = LS_PLAN_DP; mode <= LS_PLAN_DDP; mode++) {
        struct planned one, other;
        planned_begin(&one, mode, 5, 64, 1);
        planned_network(&one, chain, LAYERS, loss_us, optimizer_us);
        planned_begin(&other, mode, 5, 64, 1);
        planned_network(&other, chain, LAYERS, loss_us, optimizer_us);
        planned_make(&one);
        planned_make(&other);
        assert_int_equal(ls_trace_task_count(one.trace), ls_trace_task_count(other.trace));
        for (int t = 0; t < ls_trace_task_count(one.trace); t++) {
            int edges, other_edges;
            const int *before = ls_trace_before(one.trace, t, &edges);
            const int *other_before = ls_trace_before(other.trace, t, &other_edges);
            assert_true(same_task(ls_trace_task(one.trace, t), ls_trace_task(other.trace, t)));
            assert_int_equal(edges, other_edges);
            if (edges > 0) assert_memory_equal(before, other_before, (size_t)edges * sizeof *before);
        }
        planned_end(&one);
        planned_end(&other);
    }
}

/* torch.chunk's pieces, and equal ones if a batch is not an integer. */
TEST(batches_are_cut_as_the_programs_cut_them) {
    static const struct {
        ls_plan_mode mode;
        double batch, rows[4];
    } cases[] = {{LS_PLAN_DP, 9, {3, 3, 3, 0}},
                 {LS_PLAN_DP, 10, {3, 3, 3, 1}},
                 {LS_PLAN_DDP, 10, {3, 3, 3, 1}},
                 {LS_PLAN_DDP, 8, {2, 2, 2, 2}},
                 {LS_PLAN_DDP, 2.5, {0.625, 0.625, 0.625, 0.625}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_plan o = ls_plan_defaults(cases[i].mode, 4, cases[i].batch);
        for (int d = 0; d < 4; d++) assert_true(ls_plan_rows(&o, d) == cases[i].rows[d]);
    }
}

static void expect_refusal(struct planned *b, const char *why) {
    ls_trace *trace = (ls_trace *)b;
    assert_int_equal(record_steps(&trace, &b->workload, b->node, &b->options), LS_ERR_INVALID);
    assert_null(trace);
    scratch_expect_error(why, NULL);
}

TEST_IN(scratch, what_cannot_be_replayed_is_refused) {
    struct planned b;
    planned_begin(&b, LS_PLAN_DP, 4, 64, 1);
    expect_refusal(&b, "has no operations");
    planned_network(&b, chain, LAYERS, loss_us, optimizer_us);
    b.options.batch = 3;
    expect_refusal(&b, "cannot be cut for 4 devices");
    b.options.batch = NAN;
    expect_refusal(&b, "a batch of nan samples");
    b.options.batch = -8;
    expect_refusal(&b, "a batch of -8 samples");
    b.options.batch = 64;
    b.options.steps = 0;
    expect_refusal(&b, "0 steps");
    b.options.steps = 1;
    b.options.devices = 5;
    expect_refusal(&b, "has 4 devices, not 5");
    b.options.mode = LS_PLAN_DDP;
    expect_refusal(&b, "has 4 devices, not 5"); /* the node has no network */
    ls_node_change_collectives(b.node)->network_GBps = 1;
    planned_make(&b);
    b.options.collectives = LS_PLAN_BY_MESSAGES;
    expect_refusal(&b, "4 devices, between which messages have routes, not 5");
    b.options.collectives = LS_PLAN_BY_COST;
    b.options.devices = 4;
    b.options.batch = 9; /* pieces of 3 */
    expect_refusal(&b, "leaves 1 of 4 ranks without any");
    b.options.batch = 65536;
    b.options.devices = 65536;
    b.options.steps = 1000;
    expect_refusal(&b, "tasks; at most 3e+07 can be replayed");
    b.options.mode = LS_PLAN_SINGLE;
    b.options.devices = 2;
    expect_refusal(&b, "a program for one device");
    planned_end(&b);
}
