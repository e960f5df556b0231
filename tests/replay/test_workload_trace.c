/* Workloads from traces: of a program that was built from a workload, which must be recovered, and of traces that a
 * test writes step by step. */
#include <math.h>
#include <string.h>

#include "labs/replay/engine/plan.h"
#include "labs/replay/engine/workload.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/replay/expected_work.h"
#include "tests/replay/planned.h"

/* --- from a workload and back ------------------------------------------------------------------------------------ */

TEST(a_built_program_gives_its_workload_back) {
    ls_workload *file, *back;
    struct planned b;
    enum { BATCH = 8 };
    assert_int_equal(ls_workload_open(&file, "resnet50"), LS_OK);
    planned_begin(&b, LS_PLAN_SINGLE, 1, BATCH, 1);
    ls_node_change_device(b.node)->memory_GBps = 500;
    ls_node_change_host(b.node)->launch_us = 4;
    b.workload = *file;
    planned_make(&b);
    assert_int_equal(ls_workload_from_trace(&back, b.trace), LS_OK);
    assert_true(back->samples == BATCH && back->work_count == file->work_count);
    assert_true(ls_workload_parameters(back) == ls_workload_parameters(file));
    assert_true(back->buffer_bytes == 0); /* its kernels do not have the names of this project's batch norm */
    assert_int_equal(back->optimizer_states, 1);
    for (int i = 0; i < file->work_count; i++) {
        const struct ls_work *got = &back->work[i], *wanted = &file->work[i];
        double grown = strcmp(wanted->phase, "optimizer") == 0 ? 1 : BATCH;
        assert_string_equal(got->name, wanted->name);
        assert_string_equal(got->phase, wanted->phase);
        assert_true(fabs(got->flops - wanted->flops * grown) <= 1);
        assert_true(got->us == ls_cost_work_us(b.node, wanted, file, BATCH, LS_FP32, 1));
        assert_int_equal(got->ready_count, wanted->ready_count);
        if (got->ready_count > 0) assert_int_equal(got->first_ready, wanted->first_ready);
        assert_true(got->host_us >= 4 && got->host_us <= 4 + 1e-9);
    }
    assert_memory_equal(back->ready, file->ready, (size_t)file->ready_count * sizeof *file->ready);
    ls_workload_close(back);
    ls_workload_close(file);
    planned_end(&b);
}

/* --- step by step ------------------------------------------------------------------------------------------------ */

enum { HOST, COMPUTE, LANES };

struct recorded {
    double probes_us; /* in each task of the host */
    ls_trace *trace;
    int step, samples;
};

static void recorded_begin(struct recorded *r) {
    static const struct ls_trace_parameter parameters[] = {
        {"fc.weight", 60}, {"fc.bias", 6}, {"bn.weight", 6}, {"bn.bias", 6}};
    static const char *const names[LANES] = {"rank 0", "compute"};
    *r = (struct recorded){.samples = 10};
    assert_int_equal(ls_trace_create(&r->trace), LS_OK);
    for (int k = 0; k < LANES; k++) {
        struct ls_lane lane = {.name = names[k], .kind = k == HOST ? LS_LANE_HOST : LS_LANE_COMPUTE};
        assert_int_equal(ls_trace_add_lane(r->trace, &lane), k);
    }
    for (size_t p = 0; p < 4; p++) (void)ls_trace_add_parameter(r->trace, &parameters[p]);
    struct ls_trace_about *about = ls_trace_about(r->trace);
    about->mode = about->precision = about->device_kind = about->device_name = about->backend = "";
    about->algorithm = about->stream_mode = "";
    about->model = ls_trace_text(r->trace, "two layers");
    about->optimizer = ls_trace_text(r->trace, "sgd");
    about->devices = about->world_size = about->recorded_ranks = about->micro_batches = 1;
    about->batch_size = 10;
    about->input_bytes = 40;
    about->output_bytes = 24;
    about->answer_bytes = 8;
}

static int under_lock(struct recorded *r, const char *phase, double us, int lock) {
    struct ls_task task = ls_task_default(LS_TASK_HOST, "call", HOST);
    task.phase = phase;
    task.lock = lock;
    task.probes_us = lock == LS_NONE ? r->probes_us : 0;
    task.us = us + task.probes_us;
    task.step = r->step;
    return ls_trace_add_task(r->trace, &task);
}

static int host(struct recorded *r, const char *phase, double us) { return under_lock(r, phase, us, LS_NONE); }

static void kernel(struct recorded *r, const char *phase, const char *name, double host_us, double us, uint64_t flops,
                   uint64_t bytes) {
    int launch = host(r, phase, host_us);
    struct ls_task task = ls_task_default(LS_TASK_KERNEL, name, COMPUTE);
    task.phase = phase;
    task.us = us;
    task.step = r->step;
    task.flops = flops;
    task.bytes = bytes;
    ls_trace_add_edge(r->trace, launch, ls_trace_add_task(r->trace, &task));
}

static void mark(struct recorded *r, int64_t parameter, int after) {
    struct ls_mark mark = {"gradient ready", HOST, r->step, parameter, after, NAN};
    (void)ls_trace_add_mark(r->trace, &mark);
}

/* A micro-batch of `samples` samples in which everything takes `us` times its usual time. */
static void micro_batch(struct recorded *r, double us, uint64_t samples) {
    uint64_t m = samples;
    (void)host(r, "forward", 1 * us);             /* an event: counts for the next launch */
    (void)under_lock(r, "forward", 1000 * us, 0); /* the time of an emulated lock belongs to the node */
    kernel(r, "forward", "gemm", 2 * us, 10 * us, 2 * m * 60, 4 * (10 * m + 60 + 6 * m));
    kernel(r, "forward", "batchnorm_train", 3 * us, 20 * us, 8 * m * 6, 3 * 4 * 6 * m);
    kernel(r, "loss", "cross_entropy", 4 * us, 5 * us, 30 * m, 12 * 6 * m);
    kernel(r, "backward", "batchnorm_backward", 5 * us, 25 * us, 11 * m * 6, 5 * 4 * 6 * m);
    int behind_norm = host(r, "backward", 0);
    mark(r, 3, behind_norm);
    mark(r, 2, behind_norm);
    kernel(r, "backward", "bias_gradient", 1 * us, 1 * us, 6 * m, 4 * 6 * m);
    kernel(r, "backward", "gemm", 6 * us, 15 * us, 2 * m * 60, 4 * (10 * m + 60 + 6 * m));
    int behind_linear = host(r, "backward", 0);
    mark(r, 1, behind_linear);
    mark(r, 0, behind_linear);
}

static void begin_step(struct recorded *r, double us) { (void)host(r, "loader", 50 * us); }

static void end_step(struct recorded *r, double us) {
    kernel(r, "optimizer", "sgd_list", 7 * us, 8 * us, 2 * 78, 20 * 78);
    (void)host(r, "optimizer", 9 * us);
    (void)host(r, "other", 1 * us);
    r->step++;
}

static void step(struct recorded *r, double us, uint64_t samples) {
    begin_step(r, us);
    micro_batch(r, us, samples);
    end_step(r, us);
}

static const struct ls_work expected[] = {
    {"gemm", "forward", 1200, 4 * 220, 240, true, 20, 6, 0, 0, 0, {0}},
    {"batchnorm_train", "forward", 480, 720, 0, false, 40, 6, 0, 0, 6, {0}},
    {"cross_entropy", "loss", 300, 720, 0, false, 10, 8, 0, 0, 0, {0}},
    {"batchnorm_backward", "backward", 660, 1200, 0, false, 50, 10, 0, 2, 6, {0}},
    {"bias_gradient", "backward", 60, 240, 0, false, 2, 2, 0, 0, 0, {0}},
    {"gemm", "backward", 1200, 4 * 220, 240, true, 30, 12, 2, 2, 0, {0}},
    {"sgd_list", "optimizer", 156, 1560, 1560, false, 16, 14, 0, 0, 0, {0}},
};
enum { WORKS = sizeof expected / sizeof *expected };

/* `expected` is the step with us = 2. */
static void expect_operations(const ls_workload *w) { expect_work(w, expected, WORKS); }

/* Three whole steps, the middle one of which is the median, and a short one, which does not count. */
TEST(operations_are_medians_of_whole_steps) {
    struct recorded r;
    ls_workload *w;
    recorded_begin(&r);
    r.probes_us = 0.5; /* counted for no operation */
    step(&r, 3, 10);
    step(&r, 1, 10);
    step(&r, 2, 10);
    step(&r, 0.5, 4);
    assert_int_equal(ls_trace_seal(r.trace), LS_OK);
    assert_int_equal(ls_workload_from_trace(&w, r.trace), LS_OK);
    expect_operations(w);
    assert_int_equal(w->step_count, 3); /* each whole step's own times */
    for (int i = 0; i < w->work_count; i++) {
        double unit_us = expected[i].us / 2;
        assert_true(w->step_us[i] == 3 * unit_us && w->step_us[w->work_count + i] == unit_us);
        assert_true(w->step_us[2 * w->work_count + i] == 2 * unit_us);
    }
    const int order[] = {3, 2, 1, 0};
    assert_int_equal(w->ready_count, 4);
    assert_memory_equal(w->ready, order, sizeof order);
    assert_true(w->loader_us == 2 * (50 + 9 + 1)); /* host time without a following launch */
    assert_true(w->samples == 10 && w->input_bytes == 40 && w->optimizer_states == 0);
    assert_true(w->buffer_bytes == 2 * 4 * 6);
    assert_true(w->activation_bytes == 24 + 24); /* of the matrix multiply and of the norm, per sample */
    ls_workload_close(w);
    ls_trace_destroy(r.trace);
}

/* The operations of the first micro-batch and the update. The host's time for the others is not counted. */
TEST(of_micro_batches_the_first_one_counts) {
    struct recorded r;
    ls_workload *w;
    recorded_begin(&r);
    ls_trace_about(r.trace)->batch_size = 28; /* 10, 10, 8 */
    ls_trace_about(r.trace)->micro_batches = 3;
    for (int s = 0; s < 3; s++) {
        begin_step(&r, 2);
        micro_batch(&r, 2, 10);
        micro_batch(&r, 100, 10);
        micro_batch(&r, 200, 8);
        end_step(&r, 2);
    }
    assert_int_equal(ls_trace_seal(r.trace), LS_OK);
    assert_int_equal(ls_workload_from_trace(&w, r.trace), LS_OK);
    expect_operations(w);
    assert_true(w->samples == 10 && w->ready_count == 4);
    assert_true(w->loader_us == 2 * (50 + 9 + 1));
    ls_workload_close(w);
    ls_trace_destroy(r.trace);
}

/* A matrix multiply: m rows times a matrix of n x k. */
static void product(struct recorded *r, const char *phase, uint64_t m, uint64_t n, uint64_t k) {
    kernel(r, phase, "gemm", 1, 1, 2 * m * n * k, 4 * (m * k + k * n + m * n));
}

static void copy_within(struct recorded *r, uint64_t bytes, int to) {
    int launch = host(r, "backward", 1);
    struct ls_task task = ls_task_default(LS_TASK_COPY, "copy", COMPUTE);
    task.phase = "backward";
    task.us = 3;
    task.step = r->step;
    task.bytes = bytes;
    task.from = 0;
    task.to = to;
    ls_trace_add_edge(r->trace, launch, ls_trace_add_task(r->trace, &task));
}

/* A text: its matrix multiplies have a row for each label, and their parameters' bytes do not depend on the number of
 *         samples. A block of a transformer, whose sums and GELU read and write more than one output. */
TEST(a_text_has_a_row_for_each_label) {
    enum { SAMPLES = 10, LABELS = 4, M = SAMPLES * LABELS, C = 6, SAVED = 4 * M };
    const double row = 4.0 * C * LABELS; /* bytes of a sample's channels */
    struct recorded r;
    ls_workload *w;
    recorded_begin(&r);
    ls_trace_about(r.trace)->input_bytes = 4 * LABELS;
    ls_trace_about(r.trace)->answer_bytes = 8 * LABELS;
    kernel(&r, "forward", "embedding_forward", 1, 1, M * C, (8 * M + 4 * LABELS) * C + 4 * M);
    kernel(&r, "forward", "layernorm_forward", 1, 1, 8 * M * C, 8 * M * C);
    product(&r, "forward", M, 3 * C, C);
    kernel(&r, "forward", "add_bias", 1, 1, M * 3 * C, 8 * M * 3 * C);
    kernel(&r, "forward", "attention_forward", 1, 1, 1000, 16 * M * C + SAVED);
    kernel(&r, "forward", "add", 1, 1, M * C, 12 * M * C);
    kernel(&r, "forward", "layernorm_forward", 1, 1, 8 * M * C, 8 * M * C);
    product(&r, "forward", M, 4 * C, C);
    kernel(&r, "forward", "add_bias_gelu", 1, 1, 10 * M * 4 * C, 12 * M * 4 * C);
    product(&r, "forward", M, C, 4 * C);
    kernel(&r, "loss", "cross_entropy", 1, 1, 5 * M * C, 8 * M * C + 8 * M);
    copy_within(&r, 4 * M * C, 0);
    copy_within(&r, 4, LS_HOST_MEMORY); /* by the program, not by the network */
    assert_int_equal(ls_trace_seal(r.trace), LS_OK);
    assert_int_equal(ls_workload_from_trace(&w, r.trace), LS_OK);
    assert_int_equal(w->work_count, 12);
    assert_true(w->work[2].fixed_bytes == 4 * 3 * C * C && w->work[7].fixed_bytes == 4 * 4 * C * C);
    assert_true(w->work[4].is_product && !w->work[1].is_product && w->work[4].fixed_bytes == 0);
    assert_string_equal(w->work[11].name, "gradient copy");
    assert_true(w->work[11].bytes == 2 * 4 * M * C && w->work[11].us == 3);
    double kept = row * (1 + 1 + 3 + 1 + 1 + 1 + 4 + 4 + 1) + 4 * LABELS;
    if (!(fabs(w->activation_bytes - kept) <= 0.01 * kept))
        fail_msg("%g bytes kept, not %g", w->activation_bytes, kept);
    assert_true(w->exchange_bytes == 2 * 4 * row);
    ls_workload_close(w);
    ls_trace_destroy(r.trace);
}

/* Without marks all gradients are ready after the last operation of backward, the last parameter first. */
TEST(without_marks_gradients_are_ready_at_the_end) {
    struct recorded r;
    ls_workload *w;
    recorded_begin(&r);
    kernel(&r, "forward", "gemm", 1, 1, 1, 1);
    kernel(&r, "backward", "gemm", 1, 1, 1, 1);
    kernel(&r, "backward", "gemm", 1, 1, 1, 1);
    kernel(&r, "optimizer", "adam_list", 1, 1, 1, 1);
    assert_int_equal(ls_trace_seal(r.trace), LS_OK);
    assert_int_equal(ls_workload_from_trace(&w, r.trace), LS_OK);
    assert_int_equal(w->work[1].ready_count, 0);
    assert_int_equal(w->work[2].ready_count, 4);
    for (int p = 0; p < 4; p++) assert_int_equal(w->ready[p], 3 - p);
    ls_workload_close(w);
    ls_trace_destroy(r.trace);
}

/* Operations without a time: unknown values stay unknown. */
TEST(meta_devices_have_no_times) {
    struct recorded r;
    ls_workload *w;
    recorded_begin(&r);
    ls_trace_about(r.trace)->devices = ls_trace_about(r.trace)->world_size = 5; /* one of five ranks */
    kernel(&r, "forward", "gemm", 1, -1, 1, 1);
    kernel(&r, "backward", "divide", 1, -1, 1, 1); /* by the reducer, not by the network */
    assert_int_equal(ls_trace_seal(r.trace), LS_OK);
    assert_int_equal(ls_workload_from_trace(&w, r.trace), LS_OK);
    assert_int_equal(w->work_count, 1);
    assert_true(w->work[0].us < 0 && w->work[0].host_us < 0 && w->loader_us == 0 && w->samples == 2);
    ls_workload_close(w);
    ls_trace_destroy(r.trace);
}

/* --- refusals ---------------------------------------------------------------------------------------------------- */

static void expect_refusal(struct recorded *r, const char *why) {
    ls_workload *w = (ls_workload *)r;
    assert_int_equal(ls_trace_seal(r->trace), LS_OK);
    assert_int_equal(ls_workload_from_trace(&w, r->trace), LS_ERR_INVALID);
    assert_null(w);
    scratch_expect_error(why, NULL);
    ls_trace_destroy(r->trace);
}

TEST_IN(scratch, other_traces_are_refused) {
    struct recorded r;
    recorded_begin(&r);
    step(&r, 1, 10);
    step(&r, 1, 10);
    kernel(&r, "forward", "gemm", 1, 1, 1, 1);
    expect_refusal(&r, "steps 0 and 2 of the trace differ");
    recorded_begin(&r);
    step(&r, 1, 10);
    r.step = 1;
    kernel(&r, "forward", "conv2d_forward", 1, 1, 1, 1);
    expect_refusal(&r, "differ in their operations");
    recorded_begin(&r);
    kernel(&r, "graph", "graph", 1, 1, 0, 0);
    expect_refusal(&r, "record without --cuda-graph");
    recorded_begin(&r);
    step(&r, 1, 10);
    const struct ls_lane copy = {.name = "copy", .kind = LS_LANE_COPY};
    struct ls_task down = ls_task_default(LS_TASK_COPY, "copy", ls_trace_add_lane(r.trace, &copy));
    down.phase = "optimizer";
    (void)ls_trace_add_task(r.trace, &down);
    expect_refusal(&r, "record without --offload");
    recorded_begin(&r);
    (void)host(&r, "forward", 1);
    expect_refusal(&r, "no step with a kernel");
    recorded_begin(&r);
    step(&r, 1, 10);
    ls_trace_about(r.trace)->devices = ls_trace_about(r.trace)->recorded_ranks = 2;
    expect_refusal(&r, "a trace of 2 devices");
    recorded_begin(&r);
    step(&r, 1, 10);
    ls_trace_about(r.trace)->batch_size = 0;
    expect_refusal(&r, "how many samples");
}
