/* The records of training steps: which gradient precedes which bucket, copies between devices, and the hand-offs of the
 * replicas' threads. Runs are resolved in the process that recorded them; tests/programs tests whole programs and their
 * files. */
#include <string.h>

#include "common/base/probe.h"
#include "common/trace/resolve.h"
#include "tests/base/test.h"
#include "tests/parallel/plan.h"
#include "tests/trace/happens_before.h"

/* --- recording some steps ----------------------------------------------------------------------------------------- */

enum { UNSEEN_STEPS = 2, SEEN_STEPS = 2 }; /* DDP cuts its buckets in its second step */

struct recorded {
    ls_trace *trace;
    uint64_t bytes[LS_PHASE_COUNT];     /* as the phases' clocks count them, over all devices of the process */
    int64_t sent_bytes, received_bytes; /* DDP: sent by all ranks, in the whole run */
};

static void clear_clocks(struct session *s) {
    for (int d = 0; d < s->device_count; d++) ls_phase_reset(&s->parallel->clocks[d]);
}

static void record_steps(const struct rank *rank, struct session *s, const struct samples *samples) {
    for (size_t k = 0; k < UNSEEN_STEPS + SEEN_STEPS; k++) {
        if (k == UNSEEN_STEPS) {
            CHECK(session_synchronize(s) == LS_OK);
            clear_clocks(s);
            ls_probe_start(false);
        }
        if (k >= UNSEEN_STEPS) ls_probe_step((int32_t)k);
        CHECK(session_step(s, &samples->batches[k]) == LS_OK);
        CHECK(session_synchronize(s) == LS_OK);
    }
    ls_probe_stop();
}

static void resolve_records(const struct rank *rank, struct session *s, struct recorded *r) {
    const struct ls_probe_thread *threads;
    size_t count;
    CHECK(ls_probe_lost() == 0);
    CHECK(ls_probe_read(&threads, &count) == LS_OK);
    CHECK(ls_trace_create(&r->trace) == LS_OK);
    int first_device = rank->rank - ls_device_place(s->devices[0]);
    CHECK(ls_trace_resolve(r->trace, threads, count, rank->rank, first_device, false) == LS_OK);
    CHECK(ls_trace_seal(r->trace) == LS_OK);
    for (int d = 0; d < s->device_count; d++)
        for (int p = 0; p < LS_PHASE_COUNT; p++) r->bytes[p] += s->parallel->clocks[d].bytes[p];
}

static void add_traffic(const struct rank *rank, ls_comm *comm, ls_device *device, struct recorded *r) {
    ls_comm_traffic traffic;
    int64_t all[2 * LS_COMM_MAX_RANKS];
    ls_stream *stream = ls_device_stream(device, LS_STREAM_COMM);
    ls_comm_traffic_read(comm, &traffic);
    int64_t mine[] = {(int64_t)traffic.sent_bytes, (int64_t)traffic.received_bytes};
    CHECK(ls_comm_all_gather(comm, stream, mine, all, 2, LS_INT64) == LS_OK);
    CHECK(ls_stream_synchronize(stream) == LS_OK);
    for (int i = 0; i < rank->world_size; i++) {
        r->sent_bytes += all[2 * i];
        r->received_bytes += all[2 * i + 1];
    }
}

/* A rank's test: trains by the plan, and checks the records. */
struct assignment {
    struct plan plan;
    void (*look)(const struct rank *rank, const struct plan *plan, const struct recorded *r);
};

static void record_run(struct rank *rank) {
    const struct assignment *a = rank->argument;
    struct session s;
    struct samples samples;
    struct recorded r = {0};
    ls_comm *comm = NULL;
    if (a->plan.mode == MODE_DDP) CHECK(group_open(&comm, rank, a->plan.allreduce) == LS_OK);
    CHECK(session_open(&s, &a->plan, comm) == LS_OK);
    CHECK(samples_make(&samples, &a->plan, s.model, rank->rank, rank->world_size));
    record_steps(rank, &s, &samples);
    resolve_records(rank, &s, &r);
    if (comm) add_traffic(rank, comm, s.devices[0], &r);
    a->look(rank, &a->plan, &r);
    ls_trace_destroy(r.trace);
    ls_probe_drop();
    samples_free(&samples);
    session_close(&s);
    ls_comm_destroy(comm);
}

static void run(struct plan plan, void (*look)(const struct rank *, const struct plan *, const struct recorded *)) {
    plan.steps = UNSEEN_STEPS + SEEN_STEPS;
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    struct assignment a = {.plan = plan, .look = look};
    run_training_ranks(plan_ranks(&plan), record_run, &a);
}

/* --- gradients and buckets ---------------------------------------------------------------------------------------- */

static bool is_all_reduce(const ls_trace *trace, int task, int step) {
    const struct ls_task *t = ls_trace_task(trace, task);
    return t->step == step && t->kind == LS_TASK_COLLECTIVE &&
           strcmp(ls_trace_meeting(trace, t->meeting)->operation, "all_reduce") == 0;
}

/* The mark "gradient ready" of a parameter in a step. */
static const struct ls_mark *ready_mark(const struct rank *rank, const ls_trace *trace, size_t parameter, int step) {
    const struct ls_mark *found = NULL;
    for (int m = 0; m < ls_trace_mark_count(trace); m++) {
        const struct ls_mark *mark = ls_trace_mark(trace, m);
        if (strcmp(mark->name, "gradient ready") != 0 || mark->step != step || mark->number != (int64_t)parameter)
            continue;
        CHECK(!found);
        found = mark;
    }
    CHECK(found && found->after != LS_NONE && ls_trace_lane(trace, found->lane)->kind == LS_LANE_COMPUTE);
    return found;
}

struct order {
    int all_reduces;
    int free;      /* those that need not wait for the first layer */
    int after_all; /* those that need every gradient */
};

/* The order of a step's buckets and gradients; the model has `parameters` tensors. */
static struct order order_of(const struct rank *rank, const ls_trace *trace, size_t parameters, int step) {
    struct order order = {0};
    for (int t = 0; t < ls_trace_task_count(trace); t++) {
        if (!is_all_reduce(trace, t, step)) continue;
        bool after_all = true;
        for (size_t p = 0; p < parameters; p++) {
            const struct ls_mark *ready = ready_mark(rank, trace, p, step);
            bool after = happens_before(trace, ready->after, t);
            after_all = after_all && after;
            if (p == 0) order.free += !after;
        }
        order.all_reduces++;
        order.after_all += after_all;
    }
    return order;
}

enum { DEEP_PARAMETERS = 34 };

/* 64 MiB of gradients in buckets of 8 (under a sanitizer, 4 of 0.5): the first is full long before backward reaches the
 * first layer. */
static void expect_overlap(const struct rank *rank, const struct plan *plan, const struct recorded *r) {
    for (int step = UNSEEN_STEPS; step < UNSEEN_STEPS + SEEN_STEPS; step++) {
        struct order order = order_of(rank, r->trace, DEEP_PARAMETERS, step);
        CHECK(order.all_reduces >= 5);
        if (!plan->no_overlap) CHECK(order.free >= 3 && order.after_all < order.all_reduces);
        if (plan->no_overlap) CHECK(order.free == 0 && order.after_all == order.all_reduces);
    }
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define DEEP                                                                                                           \
    "mlp:784,256,256,256,256,256,256,256,256,256,256,256,256,256,256,256,256,10" /* as deep, a sixteenth of the size */
#define DEEP_BUCKET_MB 0.5
#else
#define DEEP "deep"
#define DEEP_BUCKET_MB 8
#endif

static const struct plan deep = {
    .mode = MODE_DDP, .devices = 2, .model = DEEP, .batch = 4, .samples = 16, .bucket_cap_mb = DEEP_BUCKET_MB};

TEST(test_buckets_start_before_the_first_layer) {
    struct plan plan = deep;
    plan.streams = "threads";
    run(plan, expect_overlap);
    plan.streams = "inline";
    run(plan, expect_overlap);
}

TEST(test_without_overlap_no_bucket_does) {
    static const char *const streams[] = {"threads", "inline",
                                          "shuffle:1"}; /* shuffled, the host is ahead, as with a GPU */
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        struct plan plan = deep;
        plan.no_overlap = true;
        plan.streams = streams[i];
        run(plan, expect_overlap);
    }
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

/* Bytes of a phase's copies from and to a device (LS_NONE: any). */
static uint64_t copied(const ls_trace *trace, const char *phase, int from, int to) {
    uint64_t bytes = 0;
    for (int t = 0; t < ls_trace_task_count(trace); t++) {
        const struct ls_task *task = ls_trace_task(trace, t);
        if (task->kind != LS_TASK_COPY || strcmp(task->phase, phase) != 0) continue;
        if ((from == LS_NONE || task->from == from) && (to == LS_NONE || task->to == to)) bytes += task->bytes;
    }
    return bytes;
}

static void expect_copies(const struct rank *rank, const struct plan *plan, const struct recorded *r) {
    const ls_phase phases[] = {LS_PHASE_SCATTER, LS_PHASE_REPLICATE, LS_PHASE_GATHER, LS_PHASE_REDUCE};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        const char *phase = ls_phase_name(phases[i]);
        bool outward = phases[i] == LS_PHASE_SCATTER || phases[i] == LS_PHASE_REPLICATE;
        uint64_t all = copied(r->trace, phase, LS_NONE, LS_NONE), sent = 0, received = 0;
        CHECK(all > 0 &&
              all == r->bytes[phases[i]]); /* the program's own count, which tests/train compares with formulas */
        for (int d = 0; d < plan->devices; d++) {
            sent += copied(r->trace, phase, d, LS_NONE);
            received += copied(r->trace, phase, LS_NONE, d);
        }
        CHECK(sent == all && received == all); /* only between the known devices */
        CHECK((outward ? copied(r->trace, phase, 0, LS_NONE) : copied(r->trace, phase, LS_NONE, 0)) == all);
    }
}

/* tests/trace checks the ancestors through which a task waits for the same phase of another device. Here the result of
 * the threads' hand-offs for the whole step is checked: the update follows all work of the replicas. */
static void expect_dp(const struct rank *rank, const struct plan *plan, const struct recorded *r) {
    expect_copies(rank, plan, r);
    for (int step = UNSEEN_STEPS; step < UNSEEN_STEPS + SEEN_STEPS; step++) {
        int update = LS_NONE, backward = 0;
        for (int t = 0; t < ls_trace_task_count(r->trace); t++) {
            const struct ls_task *task = ls_trace_task(r->trace, t);
            bool on_stream = ls_trace_lane(r->trace, task->lane)->kind != LS_LANE_HOST;
            if (on_stream && task->step == step && strcmp(task->phase, "optimizer") == 0 && update == LS_NONE)
                update = t;
        }
        CHECK(update != LS_NONE);
        for (int t = 0; t < ls_trace_task_count(r->trace); t++) {
            const struct ls_task *task = ls_trace_task(r->trace, t);
            bool on_stream = ls_trace_lane(r->trace, task->lane)->kind != LS_LANE_HOST;
            if (!on_stream || task->step != step || strcmp(task->phase, "backward") != 0) continue;
            CHECK(happens_before(r->trace, t, update));
            backward++;
        }
        CHECK(backward >= 2 * plan->devices);
    }
}

/* Every hand-off between threads is an edge, from the giver to the taker. */
static void expect_hand_overs(const struct rank *rank, const struct plan *plan, const struct recorded *r) {
    const char *const sides[][2] = {{"wait for replica starts", "raise replica starts"},
                                    {"wait for replica done", "raise replica done"}};
    for (int side = 0; side < 2; side++) {
        int waits = 0;
        for (int t = 0; t < ls_trace_task_count(r->trace); t++) {
            const struct ls_task *wait = ls_trace_task(r->trace, t);
            if (strcmp(wait->name, sides[side][0]) != 0) continue;
            int count, given = 0;
            const int *before = ls_trace_before(r->trace, t, &count);
            for (int b = 0; b < count; b++) {
                const struct ls_task *raise = ls_trace_task(r->trace, before[b]);
                given += strcmp(raise->name, sides[side][1]) == 0 && raise->lane != wait->lane;
            }
            CHECK(given == 1);
            waits++;
        }
        CHECK(waits == 2 * SEEN_STEPS * (plan->devices - 1)); /* forward and backward */
    }
}

TEST(test_hand_overs_of_data_parallel) {
    struct plan plan = {.mode = MODE_DP, .devices = 3, .model = "mlp:64,32,10", .batch = 12, .samples = 60};
    run(plan, expect_hand_overs);
}

TEST(test_copies_of_data_parallel) {
    struct plan plan = {.mode = MODE_DP, .devices = 3, .model = "mlp:64,32,10", .batch = 12, .samples = 60};
    const char *const modes[] = {"inline", "threads", "shuffle:5"};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        plan.streams = modes[m];
        run(plan, expect_dp);
    }
}

static void expect_all_reduces(const struct rank *rank, const struct plan *plan, const struct recorded *r) {
    uint64_t bytes = 0;
    for (int m = 0; m < ls_trace_meeting_count(r->trace); m++) {
        const struct ls_meeting *meeting = ls_trace_meeting(r->trace, m);
        if (strcmp(meeting->operation, "all_reduce") != 0) continue;
        CHECK(strcmp(meeting->algorithm, plan->allreduce) == 0);
        CHECK(meeting->ranks == plan->devices);
        bytes += meeting->bytes;
    }
    CHECK(bytes > 0 && bytes == r->bytes[LS_PHASE_ALL_REDUCE]);
    CHECK(r->sent_bytes > 0 && r->sent_bytes == r->received_bytes);
}

TEST(test_bytes_of_all_reduces) {
    struct plan plan = {.mode = MODE_DDP,
                        .devices = 2,
                        .model = "mlp:64,32,10",
                        .batch = 12,
                        .samples = 60,
                        .bucket_cap_mb = 0.001,
                        .allreduce = "ring",
                        .streams = "threads"};
    run(plan, expect_all_reduces);
    plan.streams = "shuffle:9";
    run(plan, expect_all_reduces);
}
