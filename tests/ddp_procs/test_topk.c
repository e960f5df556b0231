/* Gradients sent as lists of their largest elements (--compress topk): the numbers of a re-implementation, that nothing
 * is lost or sent twice, and memory and bytes of a step. */
#include "ddp_procs/topk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "ddp_procs/topk_internal.h"
#include "tests/base/golden.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/parallel/outcomes.h"

/* A tensor with so few elements that 5 % of them are less than one. */
static const struct plan small = {
    .mode = MODE_TOPK, .devices = 3, .model = "mlp:20,33,13,7", .batch = 24, .steps = 6, .samples = 3 * 24 + 5};

static ls_optimizer_options sgd(double rate, double momentum) {
    ls_optimizer_options o = ls_optimizer_defaults(LS_SGD);
    o.learning_rate = rate;
    o.momentum = momentum;
    return o;
}

/* --- the numbers of tests/golden/topk10_*.json -------------------------------------------------------------------- */

enum { RANKS = 4, ROWS = 8, INPUTS = 20, STEPS = 8, SHOWN_STEPS = 3 };

static const struct topk *state_of(const struct session *s) { return (const struct topk *)s->parallel; }

static ls_safetensors *open_golden(const struct rank *rank, const char *name) {
    char path[128];
    ls_safetensors *file = NULL;
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", name);
    CHECK(ls_safetensors_open(&file, path) == LS_OK);
    return file;
}

/* Compares "after.error.rank2." and "fc1.weight" with values of this run times `factor`. */
static void check_tensor(const struct rank *rank, const ls_safetensors *file, const char *prefix,
                         const struct ls_tensor *tensor, const float *values, float factor) {
    char name[128];
    snprintf(name, sizeof name, "%s%s", prefix, tensor->name);
    const ls_safetensor *stored = ls_safetensors_find(file, name);
    CHECK(stored && stored->nbytes == tensor->count * sizeof *values);
    for (size_t i = 0; i < tensor->count; i++)
        CHECK(fabsf(factor * values[i] - ((const float *)stored->data)[i]) <= 2e-6F);
}

static const cJSON *at(const cJSON *object, const char *name, int first, int second) {
    return cJSON_GetArrayItem(cJSON_GetArrayItem(cJSON_GetObjectItem(object, name), first), second);
}

/* All gradients are in one bucket, so their lists are concatenated, rank by rank. */
static void check_indices(const struct rank *rank, const struct session *s, const cJSON *sent, int step) {
    const struct topk *t = state_of(s);
    size_t stride = 0, begin = 0;
    for (size_t p = 0; p < ls_model_parameter_count(s->model); p++) stride += t->counts[p];
    for (size_t p = 0; p < ls_model_parameter_count(s->model); begin += t->counts[p++]) {
        for (int r = 0; r < RANKS; r++) {
            const cJSON *indices = at(sent, ls_model_parameter(s->model, p)->name, step, r);
            CHECK(cJSON_GetArraySize(indices) == (int)t->counts[p]);
            for (size_t j = 0; j < t->counts[p]; j++)
                CHECK(t->lists[(size_t)r * stride + begin + j].index == cJSON_GetArrayItem(indices, (int)j)->valueint);
        }
    }
}

static void check_end(const struct rank *rank, const struct session *s, const char *golden) {
    char prefix[32];
    const struct topk *t = state_of(s);
    ls_safetensors *file = open_golden(rank, golden);
    snprintf(prefix, sizeof prefix, "after.error.rank%d.", s->rank);
    for (size_t p = 0; p < ls_model_parameter_count(s->model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(s->model, p);
        check_tensor(rank, file, "after.", tensor, tensor->data, 1);
        if (t->errors) check_tensor(rank, file, prefix, tensor, t->errors + t->error_at[p], RANKS);
    }
    ls_safetensors_close(file);
}

static void run_golden(struct rank *rank) {
    const struct plan *plan = rank->argument;
    const char *golden = plan->forgets ? "topk10_nofeedback" : "topk10_feedback";
    char name[64];
    struct session s;
    ls_comm *comm;
    snprintf(name, sizeof name, "%s.json", golden);
    cJSON *numbers = golden_json(name);
    ls_safetensors *data = open_golden(rank, "topk10_data");
    const float *x = ls_safetensors_find(data, "x")->data;
    const int64_t *labels = ls_safetensors_find(data, "labels")->data;
    CHECK(group_open(&comm, rank, "direct") == LS_OK);
    CHECK(session_open(&s, plan, comm) == LS_OK);
    for (int step = 0; step < STEPS; step++) {
        size_t row = ((size_t)step * RANKS + (size_t)rank->rank) * ROWS;
        ls_batch batch = {.inputs = (void *)(uintptr_t)(x + row * INPUTS),
                          .labels = (int64_t *)(uintptr_t)(labels + row),
                          .count = ROWS,
                          .global_count = ROWS * RANKS};
        double loss,
            expected =
                cJSON_GetArrayItem(cJSON_GetArrayItem(cJSON_GetObjectItem(numbers, "loss_per_rank"), rank->rank), step)
                    ->valuedouble;
        CHECK(session_step(&s, &batch) == LS_OK && session_synchronize(&s) == LS_OK);
        CHECK(session_loss(&s, (uint64_t)step, &loss) == LS_OK && fabs(loss - expected) <= 1e-5);
        if (step < SHOWN_STEPS) check_indices(rank, &s, cJSON_GetObjectItem(numbers, "indices_sent"), step);
    }
    check_end(rank, &s, golden);
    session_close(&s);
    ls_comm_destroy(comm);
    ls_safetensors_close(data);
    cJSON_Delete(numbers);
}

TEST(a_re_implementations_numbers) {
    for (int forgets = 0; forgets < 2; forgets++) {
        struct plan plan = {.mode = MODE_TOPK,
                            .devices = RANKS,
                            .model = "mlp:20,16,10",
                            .batch = ROWS * RANKS,
                            .stored = "topk10_data",
                            .state = "before.",
                            .fraction = 0.1,
                            .forgets = forgets,
                            .optimizer = sgd(0.1, 0)};
        run_training_ranks(RANKS, run_golden, &plan);
    }
}

TEST(at_least_one_element_and_no_more_than_there_are) {
    assert_int_equal(ddp_topk_count(10, 0.1), 1);
    assert_int_equal(ddp_topk_count(9, 0.1), 1);
    assert_int_equal(ddp_topk_count(19, 0.1), 1);
    assert_int_equal(ddp_topk_count(320, 0.1), 32);
    assert_int_equal(ddp_topk_count(100, 0.29), 29); /* 0.29 * 100 < 29 in double */
    assert_int_equal(ddp_topk_count(1, 1e-9), 1);
    assert_int_equal(ddp_topk_count(7, 1), 7);
    for (size_t n = 1; n < 5000; n++) assert_int_equal(ddp_topk_count(n, 0.1), n < 10 ? 1 : n / 10);
}

/* --- bits ---------------------------------------------------------------------------------------------------------- */

/* All elements of all gradients, and no residual: DDP with a sum in the ranks' order. */
static void expect_ddps(struct plan plan) {
    plan.bucket_cap_mb = 0.001;
    plan.fraction = 1;
    struct outcome *topk = outcomes_run(&plan);
    plan.mode = MODE_DDP;
    struct outcome *ddp = outcomes_run(&plan);
    outcomes_expect_equal(&plan, ddp, topk);
    outcomes_free(topk);
    outcomes_free(ddp);
}

TEST(a_fraction_of_one_has_the_bits_of_distributed_data_parallel) {
    for (int ranks = 1; ranks <= 5; ranks++) {
        struct plan plan = small;
        plan.devices = ranks;
        plan.optimizer = sgd(0.05, 0.9);
        expect_ddps(plan);
        plan.accumulate = 2;
        plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
        plan.optimizer.clip_norm = 0.05;
        expect_ddps(plan);
        plan.precision = LS_BF16;
        expect_ddps(plan);
    }
}

static struct outcome *run_with(struct plan plan, double cap_mb, bool no_overlap, const char *streams) {
    plan.bucket_cap_mb = cap_mb;
    plan.no_overlap = no_overlap;
    plan.streams = streams;
    return outcomes_run(&plan);
}

/* Elements are chosen tensor by tensor. */
TEST(buckets_and_overlap_change_no_bit) {
    ls_network *network = residual_network();
    for (int tied = 0; tied < 2; tied++) {
        struct plan plan = small;
        plan.network = tied ? network : NULL;
        plan.fraction = 0.05;
        plan.optimizer = sgd(0.05, 0.9);
        struct outcome *one = run_with(plan, 25, false, NULL), *many = run_with(plan, 1e-6, false, NULL);
        struct outcome *late = run_with(plan, 0.001, true, NULL), *threads = run_with(plan, 0.001, false, "threads");
        assert_true(many->buckets > one->buckets);
        outcomes_expect_equal(&plan, one, many);
        outcomes_expect_equal(&plan, one, late);
        outcomes_expect_equal(&plan, one, threads);
        outcomes_free(one);
        outcomes_free(many);
        outcomes_free(late);
        outcomes_free(threads);
    }
    ls_network_destroy(network);
}

/* The ranks keep the same weights, in combination with other options. */
TEST(ranks_agree_with_whatever_else_a_step_has) {
    struct plan plans[] = {small, small, small, small, small, small};
    plans[0].optimizer = sgd(0.05, 0.9);
    plans[0].optimizer.clip_norm = 0.1;
    plans[1].accumulate = 3;
    plans[2].model = "convnet";
    plans[2].sync_bn = true;
    plans[2].every = 1;
    plans[3].precision = LS_BF16;
    plans[4].precision = LS_FP16; /* infinite gradients at first: the largest of all */
    plans[4].forgets = true;
    plans[4].optimizer = ls_optimizer_defaults(LS_ADAM);
    plans[4].optimizer.scaler.init_scale = 0x1p24;
    plans[5].model = "branched";
    plans[5].forgets = plans[5].find_unused = true;
    for (size_t i = 0; i < COUNT_OF(plans); i++) {
        if (plans[i].optimizer.learning_rate == 0) plans[i].optimizer = ls_optimizer_defaults(LS_ADAM);
        plans[i].fraction = 0.05;
        plans[i].bucket_cap_mb = 0.001;
        plans[i].compare_each_step = true;
        struct outcome *outcomes = outcomes_run(&plans[i]);
        if (i == 4) assert_true(outcomes->skipped > 0 && outcomes->skipped < (int64_t)plans[i].steps);
        outcomes_free(outcomes);
    }
}

/* --- nothing is lost ----------------------------------------------------------------------------------------------- */

struct pair {
    struct session topk, ddp;
    struct samples samples;
    ls_comm *comm;
};

/* Two sessions of a rank with the same model, which no update changes. The gradients of the second are kept and
 * accumulate. */
static void open_pair(struct pair *pair, struct rank *rank) {
    struct plan plan = *(const struct plan *)rank->argument;
    CHECK(group_open(&pair->comm, rank, "direct") == LS_OK);
    CHECK(session_open(&pair->topk, &plan, pair->comm) == LS_OK);
    plan.mode = MODE_DDP;
    CHECK(session_open(&pair->ddp, &plan, pair->comm) == LS_OK);
    pair->ddp.parallel->no_sync = true;
    CHECK(samples_make(&pair->samples, &plan, pair->topk.model, rank->rank, rank->world_size));
}

static void close_pair(struct pair *pair) {
    samples_free(&pair->samples);
    session_close(&pair->topk);
    session_close(&pair->ddp);
    ls_comm_destroy(pair->comm);
}

/* Adds the contributions that this rank has just sent for all parameters (one bucket). */
static void add_sent(const struct session *s, double *sums) {
    const struct topk *t = state_of(s);
    size_t stride = 0;
    for (size_t p = 0; p < ls_model_parameter_count(s->model); p++) stride += t->counts[p];
    const struct ls_entry *entry = t->lists + (size_t)s->rank * stride;
    for (size_t p = 0; p < ls_model_parameter_count(s->model); p++) {
        for (size_t j = 0; j < t->counts[p]; j++, entry++)
            sums[t->error_at[p] + (size_t)entry->index] += (double)entry->value;
    }
}

static void send_and_keep(struct rank *rank) {
    const struct plan *plan = rank->argument;
    double sums[4096] = {0};
    struct pair pair;
    size_t unsent = 0;
    open_pair(&pair, rank);
    for (size_t k = 0; k < plan->steps; k++) {
        CHECK(session_step(&pair.topk, &pair.samples.batches[k]) == LS_OK && session_synchronize(&pair.topk) == LS_OK);
        CHECK(ls_step_gradients(pair.ddp.parallel, &pair.samples.batches[k]) == LS_OK);
        add_sent(&pair.topk, sums);
    }
    CHECK(session_synchronize(&pair.ddp) == LS_OK);
    const struct topk *t = state_of(&pair.topk);
    for (size_t p = 0; p < ls_model_parameter_count(pair.ddp.model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(pair.ddp.model, p);
        for (size_t i = 0; i < tensor->count; i++) {
            double error = (double)t->errors[t->error_at[p] + i], sent = sums[t->error_at[p] + i];
            double all = (double)tensor->gradient[i] / rank->world_size;
            CHECK(fabs(sent + error - all) <= 1e-6 * (0.1 + fabs(all)));
            unsent += error != 0;
        }
    }
    CHECK(unsent > 100); /* many elements were kept for later */
    close_pair(&pair);
}

TEST(what_was_sent_and_the_error_are_the_gradients) {
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct plan plan = small;
        plan.devices = ranks;
        plan.fraction = 0.05;
        plan.optimizer = sgd(0, 0);
        run_training_ranks(ranks, send_and_keep, &plan);
    }
}

/* --- memory and bytes of a rank ----------------------------------------------------------------------------------- */

static void count_bytes_and_memory(struct rank *rank) {
    const struct plan *plan = rank->argument;
    struct pair pair;
    ls_comm_traffic before, after;
    ls_memory_report topk, ddp;
    uint64_t announced[LS_PHASE_COUNT] = {0}, entries = 0;
    size_t floats = 0;
    open_pair(&pair, rank);
    const struct topk *t = state_of(&pair.topk);
    for (size_t p = 0; p < ls_model_parameter_count(pair.topk.model); p++) {
        floats += ls_aligned_floats(ls_model_parameter(pair.topk.model, p)->count);
        entries += t->counts[p];
    }
    for (size_t k = 0; k < 3; k++) { /* the second step rebuilds buckets, which takes communication */
        ls_comm_traffic_read(pair.comm, &before);
        ls_phase_reset(pair.topk.parallel->clocks);
        CHECK(session_step(&pair.topk, &pair.samples.batches[k]) == LS_OK && session_synchronize(&pair.topk) == LS_OK);
        ls_comm_traffic_read(pair.comm, &after);
    }
    CHECK(after.sent_bytes - before.sent_bytes == 8 * entries * (uint64_t)(rank->world_size - 1));
    CHECK(after.received_bytes - before.received_bytes == 8 * entries * (uint64_t)(rank->world_size - 1));
    ddp_topk_mode.count_bytes(pair.topk.parallel, (struct ls_step_size){plan->batch, 1}, 0, announced);
    CHECK(memcmp(announced, pair.topk.parallel->clocks->bytes, sizeof announced) == 0);
    CHECK(announced[LS_PHASE_GATHER] == 8 * entries * (uint64_t)rank->world_size);
    ls_device_memory(pair.topk.devices[0], &topk);
    ls_device_memory(pair.ddp.devices[0], &ddp);
    CHECK(topk.current_bytes[LS_MEMORY_GRADIENT] - ddp.current_bytes[LS_MEMORY_GRADIENT] ==
          (plan->forgets ? 0 : floats * sizeof(float)));
    CHECK(topk.current_bytes[LS_MEMORY_BUCKET] - ddp.current_bytes[LS_MEMORY_BUCKET] ==
          8 * entries * (uint64_t)rank->world_size);
    close_pair(&pair);
}

TEST(a_rank_has_an_error_and_receives_the_others_lists) {
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int forgets = 0; forgets < 2; forgets++) {
            struct plan plan = small;
            plan.devices = ranks;
            plan.forgets = forgets;
            plan.fraction = 0.05;
            plan.bucket_cap_mb = 0.001;
            plan.optimizer = sgd(0.05, 0);
            run_training_ranks(ranks, count_bytes_and_memory, &plan);
        }
}

/* --- the option ---------------------------------------------------------------------------------------------------- */

TEST(options_are_parsed) {
    static const char *const wrong[] = {"topk",
                                        "topk:",
                                        "topk:0",
                                        "topk:-0.1",
                                        "topk:1.1",
                                        "topk:inf",
                                        "topk:nan",
                                        "topk:0.1,",
                                        "topk:0.1x",
                                        "topk: 0.1",
                                        "TOPK:0.1",
                                        "nofeedback",
                                        "topk,nofeedback",
                                        "fp32",
                                        "fp16,nofeedback",
                                        "topk:0.1,,",
                                        "topk:0.1,feed",
                                        "",
                                        "topk:0,nofeedback"};
    char text[DDP_COMPRESSION_CAPACITY], reported[400];
    ddp_compression c;
    assert_int_equal(ddp_compression_parse(&c, "topk:0.01"), LS_OK);
    assert_true(c.half == LS_FP32 && c.fraction == 0.01 && c.feedback);
    ddp_compression_text(&c, text);
    assert_string_equal(text, "topk:0.01");
    assert_int_equal(ddp_compression_parse(&c, "topk:1,nofeedback"), LS_OK);
    ddp_compression_text(&c, text);
    assert_string_equal(text, "topk:1,nofeedback");
    assert_int_equal(ddp_compression_parse(&c, "bf16"), LS_OK);
    assert_true(c.half == LS_BF16 && c.fraction == 0);
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        ls_log_sink sink = ls_log_capture(reported, sizeof reported);
        ls_status status = ddp_compression_parse(&c, wrong[i]);
        ls_log_restore(sink);
        if (status != LS_ERR_USAGE || !strstr(reported, "expected none, fp16, bf16, topk:FRACTION or"))
            fail_msg("--compress %s: %s", wrong[i], reported);
    }
}
