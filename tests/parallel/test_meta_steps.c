/* A meta device runs the same program as a CPU: the same steps, recorded on both, have the same launches, copies,
 * events and meetings in the same order, and the same memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/probe.h"
#include "dp_threads/data_parallel.h"
#include "tests/base/test.h"
#include "tests/parallel/plan.h"

enum { STEPS = 3, LINES = 4096, TEXT = 40, RANKS = 2 };

/* A record, without its times and addresses. */
struct line {
    char thread[TEXT], label[TEXT], phase[TEXT], detail[TEXT];
    uint64_t bytes, flops, elements, group;
    uint32_t number;
    int kind, device, stream_kind, from, to, peers, root, dtype;
};

struct recording {
    int kind;
    const struct plan *plan;
    size_t count;
    struct line lines[LINES];
    ls_memory_report memory[RANKS];
    ls_comm_traffic traffic;
};

/* --- a rank, or a process with all devices ------------------------------------------------------------------------ */

struct opened {
    struct session session;
    ls_comm *comm, *sync_bn;
};

static void open_groups(struct rank *rank, const struct plan *plan, int kind, struct opened *o) {
    if (plan->mode != MODE_DDP) return;
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = plan->devices,
                               .timeout_s = PLAN_TIMEOUT_S,
                               .allreduce = plan->allreduce,
                               .bootstrap = &rank->bootstrap};
    bool meta = kind == LS_DEVICE_META;
    ls_device *device = o->session.devices[0];
    CHECK((meta ? ls_comm_create_meta(&o->comm, &options, device) : ls_comm_create_shm(&o->comm, &options)) == LS_OK);
    if (!plan->sync_bn) return;
    options.group = "sync_bn";
    CHECK((meta ? ls_comm_create_meta(&o->sync_bn, &options, device) : ls_comm_create_shm(&o->sync_bn, &options)) ==
          LS_OK);
}

static void open_devices(struct rank *rank, const struct plan *plan, int kind, struct session *s) {
    s->device_count = plan->mode == MODE_DP ? plan->devices : 1;
    for (int d = 0; d < s->device_count; d++) {
        ls_device_options options = {.kind = (ls_device_kind)kind,
                                     .index = rank->rank + d,
                                     .place = rank->rank + d,
                                     .devices_on_node = plan->devices};
        CHECK(ls_device_open(&s->devices[d], &options) == LS_OK);
    }
    CHECK(ls_device_bind_thread(s->devices[0]) == LS_OK);
}

static void open_parallel(struct rank *rank, const struct plan *plan, struct opened *o) {
    struct session *s = &o->session;
    size_t rows = ls_micro_batch_rows(plan->batch, plan->accumulate);
    ls_optimizer_options optimizer = plan->optimizer;
    optimizer.scaler.enabled = plan->precision == LS_FP16;
    CHECK(ls_model_create(&s->model, s->devices[0], plan->model, rows / (size_t)plan->devices, plan->precision) ==
          LS_OK);
    CHECK(ls_model_init(s->model, 0) == LS_OK);
    if (plan->mode == MODE_DDP) {
        ddp_options options = {.max_batch = rows / (size_t)plan->devices, .optimizer = optimizer};
        options.reducer.bucket_cap_mb = plan->bucket_cap_mb;
        options.reducer.overlap = !plan->no_overlap;
        options.reducer.find_unused = plan->find_unused;
        open_groups(rank, plan, (int)ls_device_kind_of(s->devices[0]), o);
        options.comm = o->comm;
        options.sync_bn = o->sync_bn;
        CHECK(ddp_create(&s->parallel, s->model, &options) == LS_OK);
    } else {
        dp_options options = {.devices = s->devices,
                              .device_count = s->device_count,
                              .max_batch = rows,
                              .sync_bn = plan->sync_bn,
                              .optimizer = optimizer};
        CHECK(dp_create(&s->parallel, s->model, &options) == LS_OK);
    }
    s->parallel->micro_batches = plan->accumulate;
    s->parallel->check_each_loss = true;
}

static void close_all(struct opened *o) {
    session_close(&(struct session){.model = NULL, .parallel = o->session.parallel});
    ls_comm_destroy(o->comm);
    ls_comm_destroy(o->sync_bn);
    o->session.parallel = NULL;
    session_close(&o->session);
}

/* --- the compared records ----------------------------------------------------------------------------------------- */

static void copy_text(char to[TEXT], const char *from) { snprintf(to, TEXT, "%s", from ? from : ""); }

static void add_line(struct recording *r, const struct ls_probe_thread *thread, const struct ls_probe_record *record) {
    if (r->count == LINES) return;
    struct line *line = &r->lines[r->count++];
    bool meeting = record->kind == LS_PROBE_MEETING;
    *line = (struct line){.bytes = record->bytes,
                          .flops = record->flops,
                          .elements = record->elements,
                          .group = meeting ? record->object : 0,
                          .number = record->number,
                          .kind = record->kind,
                          .device = record->device,
                          .stream_kind = record->stream_kind,
                          .peers = record->peers,
                          .root = record->root,
                          .dtype = record->dtype};
    if (r->plan->mode == MODE_DP) { /* the probes do not know a CPU rank's buckets, which are in its group's memory */
        line->from = record->from;
        line->to = record->to;
    }
    copy_text(line->thread, thread->name);
    copy_text(line->label, record->label);
    copy_text(line->phase, record->phase);
    copy_text(line->detail, record->detail);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct ls_probe_thread *)a)->name, ((const struct ls_probe_thread *)b)->name);
}

/* All records but RUN, which a device that runs only meetings does not write. */
static void take_lines(struct rank *rank, struct recording *r) {
    const struct ls_probe_thread *read;
    size_t count;
    CHECK(ls_probe_read(&read, &count) == LS_OK);
    struct ls_probe_thread threads[2 * RANKS + 2];
    CHECK(count <= sizeof threads / sizeof *threads);
    memcpy(threads, read, count * sizeof *threads);
    qsort(threads, count, sizeof *threads, by_name);
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < threads[t].count; i++) {
            if (threads[t].records[i].kind != LS_PROBE_RUN) add_line(r, &threads[t], &threads[t].records[i]);
        }
    }
    CHECK(r->count < LINES);
}

static void record_steps(struct rank *rank) {
    struct recording *r = (struct recording *)(uintptr_t)rank->argument;
    const struct plan *plan = r->plan;
    struct opened o = {0};
    struct samples samples;
    ls_comm_traffic before = {0};
    ls_set_wait_timeout_s(PLAN_TIMEOUT_S);
    setenv("LS_CPU_STREAMS", "inline", 1);
    open_devices(rank, plan, r->kind, &o.session);
    open_parallel(rank, plan, &o);
    CHECK(samples_make(&samples, plan, o.session.model, rank->rank, plan_ranks(plan)));
    if (o.comm) ls_comm_traffic_read(o.comm, &before);
    ls_probe_start(false);
    for (size_t k = 0; k < STEPS; k++) CHECK(session_step(&o.session, &samples.batches[k]) == LS_OK);
    CHECK(session_synchronize(&o.session) == LS_OK);
    ls_probe_stop();
    if (rank->rank == 0) {
        take_lines(rank, r);
        for (int d = 0; d < o.session.device_count; d++) ls_device_memory(o.session.devices[d], &r->memory[d]);
        if (o.comm) ls_comm_traffic_read(o.comm, &r->traffic);
        r->traffic.operations -= before.operations;
        r->traffic.sent_bytes -= before.sent_bytes;
        r->traffic.sent_messages -= before.sent_messages;
        r->traffic.received_bytes -= before.received_bytes;
        r->traffic.received_messages -= before.received_messages;
    }
    ls_probe_drop();
    samples_free(&samples);
    close_all(&o);
}

static struct recording *record(const struct plan *plan, ls_device_kind kind) {
    struct recording *r = shared_alloc(sizeof *r);
    assert_non_null(r);
    r->kind = (int)kind;
    r->plan = plan;
    bool ranks = plan->mode == MODE_DDP && kind == LS_DEVICE_CPU;
    run_training_ranks(ranks ? plan->devices : 1, record_steps, r);
    return r;
}

/* --- the comparison ----------------------------------------------------------------------------------------------- */

static void describe(char *text, size_t capacity, const struct line *l) {
    snprintf(text, capacity,
             "[%s: kind %d, %s, number %u, phase %s, device %d, stream %d, bytes %llu, flops %llu, %d>%d]", l->thread,
             l->kind, l->label, l->number, l->phase, l->device, l->stream_kind, (unsigned long long)l->bytes,
             (unsigned long long)l->flops, l->from, l->to);
}

static size_t count_of(const struct recording *r, int kind) {
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++) count += r->lines[i].kind == kind;
    return count;
}

static void expect_same(struct plan plan, const char *name) {
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    plan.steps = STEPS;
    plan.samples = 1000;
    if (plan.accumulate == 0) plan.accumulate = 1;
    struct recording *cpu = record(&plan, LS_DEVICE_CPU), *meta = record(&plan, LS_DEVICE_META);
    for (size_t i = 0; i < cpu->count && i < meta->count; i++) {
        if (memcmp(&cpu->lines[i], &meta->lines[i], sizeof cpu->lines[i]) == 0) continue;
        char left[400], right[400];
        describe(left, sizeof left, &cpu->lines[i]);
        describe(right, sizeof right, &meta->lines[i]);
        fail_msg("%s: record %zu differs: %s on CPU, %s on meta", name, i, left, right);
    }
    assert_int_equal(meta->count, cpu->count);
    assert_true(count_of(meta, LS_PROBE_LAUNCH) >= (size_t)STEPS * 10);
    assert_true(count_of(meta, LS_PROBE_WAIT) > 0);
    bool meets = plan.mode == MODE_DDP || plan.sync_bn;
    assert_true((count_of(meta, LS_PROBE_MEETING) > 0) == meets);
    assert_memory_equal(meta->memory, cpu->memory, sizeof meta->memory);
    assert_memory_equal(&meta->traffic, &cpu->traffic, sizeof meta->traffic);
    assert_true((meta->traffic.sent_bytes > 0) == (plan.mode == MODE_DDP));
    shared_free(cpu, sizeof *cpu);
    shared_free(meta, sizeof *meta);
}

/* --- the tests ---------------------------------------------------------------------------------------------------- */

static const struct plan dp = {.mode = MODE_DP, .devices = 2, .batch = 16};
static const struct plan ddp = {.mode = MODE_DDP, .devices = 2, .batch = 16, .bucket_cap_mb = 0.01};

static struct plan with(struct plan plan, const char *model) {
    plan.model = model;
    return plan;
}

TEST(data_parallel) {
    expect_same(with(dp, "mlp"), "DP, mlp");
    expect_same(with(dp, "convnet"), "DP, convnet");
    struct plan plan = with(dp, "convnet");
    plan.sync_bn = true;
    plan.accumulate = 2;
    plan.precision = LS_FP16;
    expect_same(plan, "DP, convnet, sync_bn, two micro-batches, fp16");
}

TEST(distributed_data_parallel) {
    expect_same(with(ddp, "mlp"), "DDP, mlp");
    struct plan plan = with(ddp, "convnet");
    plan.allreduce = "ring";
    expect_same(plan, "DDP, convnet, ring");
    plan.sync_bn = plan.find_unused = plan.no_overlap = true;
    plan.accumulate = 2;
    plan.precision = LS_FP16;
    expect_same(plan, "DDP, convnet, sync_bn, unused, no overlap, two micro-batches, fp16");
}
