/* Clipping and loss scaling on a GPU: the sum of the gradients' squares, what the update is to make of them, and the
 * loss's scale, with the CPU's bits; and PyTorch's GradScaler, step after step. Runs on real GPUs too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/base/golden.h"
#include "tests/cuda/transplant.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void add_output(struct problem *p, void *memory, size_t nbytes) {
    p->outputs[p->output_count].memory = memory;
    p->outputs[p->output_count++].nbytes = nbytes;
}

static void run_rung(int rung, const struct problem *problem) {
    ls_status status = transplant_run(problem, transplant_rungs()->rungs[rung].enqueue, TRANSPLANT_ALIGNED);
    if (status != LS_OK) fail_msg("%s: %s", ls_op_name(problem->op.id), ls_status_text(status));
}

/* --- the sum of squares ------------------------------------------------------------------------------------------- */

struct list {
    struct ls_update_tensor *tensors;
    size_t tensor_count, chunk_count, total;
};

/* Tensors of these many elements, one after the other in `gradients`. */
static struct list make_list(const float *gradients, const size_t *counts, size_t tensor_count) {
    struct list list = {kernel_bytes(tensor_count * sizeof *list.tensors), tensor_count, 0, 0};
    for (size_t t = 0; t < tensor_count; t++) {
        list.tensors[t] = (struct ls_update_tensor){
            .gradient = gradients + list.total, .count = counts[t], .first_chunk = list.chunk_count};
        list.chunk_count += (counts[t] + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        list.total += counts[t];
    }
    return list;
}

/* What was there before must not count. */
static double square_sum(int rung, struct list list) {
    double *sum = kernel_bytes(sizeof *sum);
    struct problem p = {.op.id = LS_OP_square_sum_list};
    p.op.arguments.square_sum_list =
        (struct ls_square_sum_list_arguments){sum, list.tensors, list.tensor_count, list.chunk_count, list.total};
    add_output(&p, sum, sizeof *sum);
    run_rung(rung, &p);
    return *sum;
}

/* In whole numbers, which add up in any order: more chunks than there are blocks, many of them a single element. */
static void each_gradient_counts_once(void **state) {
    (void)state;
    enum { TENSORS = 8500, LONG = 3 * LS_UPDATE_CHUNK + 5, TOTAL = TENSORS - 3 + LONG };
    size_t counts[TENSORS];
    float *gradients = kernel_floats(TOTAL);
    double want = 0;
    for (int t = 0; t < TENSORS; t++) counts[t] = t == 4000 ? LONG : t % 8499 > 0;
    for (int i = 0; i < TOTAL; i++) {
        gradients[i] = (float)(i * 7 % 1001 - 500);
        want += (double)gradients[i] * (double)gradients[i];
    }
    struct list list = make_list(gradients, counts, TENSORS);
    assert_int_equal(list.total, TOTAL);
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        assert_true(square_sum(rung, list) == want);
        assert_true(square_sum(rung, make_list(gradients, counts, 1)) == 0);
        assert_true(square_sum(rung, (struct list){0}) == 0);
    }
}

static void the_sum_is_finite_if_all_gradients_are(void **state) {
    (void)state;
    static const size_t counts[] = {1, LS_UPDATE_CHUNK + 3, 0, 2}, places[] = {0, 1, LS_UPDATE_CHUNK + 3, 4100, 4101};
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    enum { TOTAL = LS_UPDATE_CHUNK + 6 };
    float *gradients = kernel_floats(TOTAL);
    for (int i = 0; i < TOTAL; i++) gradients[i] = i % 2 ? FLT_MAX : -FLT_MAX;
    struct list list = make_list(gradients, counts, COUNT(counts));
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        assert_true(isfinite(square_sum(rung, list)));
        for (size_t i = 0; i < COUNT(places); i++) {
            gradients[places[i]] = bad[i % COUNT(bad)];
            if (isfinite(square_sum(rung, list))) fail_msg("%g at %zu does not show", (double)bad[i % 3], places[i]);
            gradients[places[i]] = FLT_MAX;
        }
    }
}

/* --- the CPU's bits ----------------------------------------------------------------------------------------------- */

enum { STATES = 3 };

/* Of which `count` are to be written; the others stay as they are, all ones. */
static void weigh(int rung, size_t count, struct ls_scaler_state *scaler, double *sum, float max_norm) {
    struct ls_update_state *got = kernel_bytes(STATES * sizeof *got), *want = kernel_bytes(STATES * sizeof *want);
    ls_weigh_gradients(kernel_stream(), want, count, scaler, sum, max_norm);
    kernel_done();
    struct problem p = {.op.id = LS_OP_weigh_gradients};
    p.op.arguments.weigh_gradients = (struct ls_weigh_gradients_arguments){got, count, scaler, sum, max_norm};
    add_output(&p, got, STATES * sizeof *got);
    run_rung(rung, &p);
    for (size_t s = 0; s < count; s++) { /* a NaN may be any NaN */
        float *numbers[] = {&got[s].gradient_factor, &want[s].gradient_factor, &got[s].norm, &want[s].norm};
        for (size_t i = 0; i < COUNT(numbers); i++) *numbers[i] = isnan(*numbers[i]) ? 12345 : *numbers[i];
    }
    kernel_expect_same("states", got, want, STATES * sizeof *got);
}

static void weighing_has_the_cpus_bits(void **state) {
    (void)state;
    static const double sums[] = {0, 1e-30, 4, 169, 170.3, 1e15 / 3, 1e300, INFINITY, NAN};
    static const float scales[] = {1, 65536, 3, 1e-3f, 0x1p-149f, 0x1p127f, INFINITY},
                       norms[] = {0, 6.5f, 1e-3f, INFINITY};
    for (size_t i = 0; i < COUNT(sums) * (COUNT(scales) + 1) * COUNT(norms); i++) {
        double *sum = kernel_bytes(sizeof *sum);
        struct ls_scaler_state *scaler = kernel_bytes(sizeof *scaler);
        size_t s = i / COUNT(sums) % (COUNT(scales) + 1);
        *sum = sums[i % COUNT(sums)];
        if (s > 0) *scaler = (struct ls_scaler_state){.scale = scales[s - 1]};
        weigh((int)i % RUNG_COUNT, i % STATES + 1, s > 0 ? scaler : NULL, sum,
              norms[i / COUNT(sums) / (COUNT(scales) + 1)]);
    }
}

static void the_scale_has_the_cpus_bits(void **state) {
    (void)state;
    static const float scales[] = {65536, 3, 1e-45f, 0x1p127f, 1.9e38f, FLT_MAX, INFINITY};
    static const struct ls_scaler_rule rules[] = {{2, 0.5, 3}, {1.0 / 3 + 1, 1.0 / 3, 1}, {2, 0.5, 2000}};
    for (size_t i = 0; i < COUNT(scales) * COUNT(rules) * 2 * 3; i++) {
        struct ls_scaler_state *got = kernel_bytes(sizeof *got), *want = kernel_bytes(sizeof *want);
        struct ls_update_state *update = memset(kernel_bytes(sizeof *update), 0, sizeof *update);
        struct ls_scaler_rule rule = rules[i / COUNT(scales) % COUNT(rules)];
        update->found_inf = i / COUNT(scales) / COUNT(rules) % 2 ? 1 : 0;
        *got = (struct ls_scaler_state){scales[i % COUNT(scales)], rule.growth_interval - 2 + (int)(i / 42), 1ll << 40};
        *want = *got;
        ls_update_scale(kernel_stream(), want, update, rule);
        kernel_done();
        struct problem p = {.op.id = LS_OP_update_scale};
        p.op.arguments.update_scale = (struct ls_update_scale_arguments){got, update, rule};
        add_output(&p, got, sizeof *got);
        run_rung((int)i % RUNG_COUNT, &p);
        kernel_expect_same("scaler", got, want, sizeof *got);
    }
}

/* --- PyTorch's GradScaler ----------------------------------------------------------------------------------------- */

struct run {
    int rung;
    struct list list;
    float *parameter, *gradient;
    double *sum;
    struct ls_update_state *update;
    struct ls_scaler_state *scaler;
    struct ls_scaler_rule rule;
};

static struct run start(const cJSON *row, int rung) {
    static const size_t counts[] = {2, 0, 3};
    struct run run = {.rung = rung, .gradient = kernel_floats(5), .parameter = kernel_random(5, 1)};
    run.list = make_list(run.gradient, counts, COUNT(counts));
    for (size_t t = 0; t < COUNT(counts); t++)
        run.list.tensors[t].parameter = run.parameter + (run.list.tensors[t].gradient - run.gradient);
    run.sum = kernel_bytes(sizeof *run.sum);
    run.update = kernel_bytes(sizeof *run.update), run.scaler = kernel_bytes(sizeof *run.scaler);
    *run.update = (struct ls_update_state){.learning_rate = 1, .gradient_factor = 1, .scale = 1};
    *run.scaler = (struct ls_scaler_state){.scale = (float)golden_integer(row, "init_scale")};
    run.rule = (struct ls_scaler_rule){
        .growth_factor = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(row, "growth_factor")),
        .backoff_factor = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(row, "backoff_factor")),
        .growth_interval = (int32_t)golden_integer(row, "growth_interval")};
    return run;
}

/* What follows the backward pass: all of it on the GPU. */
static void step(const struct run *run) {
    struct problem weigh_problem = {.op.id = LS_OP_weigh_gradients}, begin = {.op.id = LS_OP_begin_update};
    struct problem sgd = {.op.id = LS_OP_sgd_list}, scale = {.op.id = LS_OP_update_scale};
    *run->sum = square_sum(run->rung, run->list);
    weigh_problem.op.arguments.weigh_gradients =
        (struct ls_weigh_gradients_arguments){run->update, 1, run->scaler, run->sum, 0};
    begin.op.arguments.begin_update = (struct ls_begin_update_arguments){run->update, 0, 0};
    sgd.op.arguments.sgd_list = (struct ls_sgd_list_arguments){.state = run->update,
                                                               .tensors = run->list.tensors,
                                                               .tensor_count = run->list.tensor_count,
                                                               .chunk_count = run->list.chunk_count,
                                                               .total = run->list.total};
    scale.op.arguments.update_scale = (struct ls_update_scale_arguments){run->scaler, run->update, run->rule};
    add_output(&weigh_problem, run->update, sizeof *run->update);
    add_output(&begin, run->update, sizeof *run->update);
    add_output(&sgd, run->parameter, 5 * sizeof *run->parameter);
    add_output(&scale, run->scaler, sizeof *run->scaler);
    run_rung(run->rung, &weigh_problem);
    run_rung(run->rung, &begin);
    run_rung(run->rung, &sgd);
    run_rung(run->rung, &scale);
}

/* Each clean step takes 1/4 from every parameter, whatever the scale; the others change nothing. */
static void check_scaler(const cJSON *row, int rung) {
    struct run run = start(row, rung);
    const cJSON *infinities = cJSON_GetObjectItemCaseSensitive(row, "found_inf");
    const cJSON *scales = cJSON_GetObjectItemCaseSensitive(row, "scale_after_update");
    int steps = cJSON_GetArraySize(infinities), skipped = 0;
    assert_true(steps >= 10 && cJSON_GetArraySize(scales) == steps);
    for (int t = 0; t < steps; t++) {
        bool bad = cJSON_IsTrue(cJSON_GetArrayItem(infinities, t));
        float *before = kernel_copy(run.parameter, 5);
        for (int i = 0; i < 5; i++) run.gradient[i] = 0.25f * run.scaler->scale;
        if (bad) run.gradient[t % 5] = t % 2 ? INFINITY : NAN;
        step(&run);
        for (int i = 0; i < 5; i++) assert_true(run.parameter[i] == (bad ? before[i] : before[i] - 0.25f));
        skipped += bad;
        assert_true((double)run.scaler->scale == cJSON_GetArrayItem(scales, t)->valuedouble);
        assert_true(run.scaler->skipped == skipped && run.update->step == t + 1 - skipped);
    }
}

static void the_scale_is_pytorchs(void **state) {
    (void)state;
    cJSON *file = golden_json("grad_scaler.json");
    assert_true(cJSON_GetArraySize(file) >= 2);
    const cJSON *row;
    cJSON_ArrayForEach(row, file) {
        for (int rung = 0; rung < RUNG_COUNT; rung++) check_scaler(row, rung);
    }
    cJSON_Delete(file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)
#define TEST_SO(name, setting)                                                                                         \
    cmocka_unit_test_prestate_setup_teardown(name, transplant_setup, transplant_teardown, (void *)(uintptr_t)(setting))

int main(void) {
    struct CMUnitTest tests[] = {
        TEST(each_gradient_counts_once),
        TEST(the_sum_is_finite_if_all_gradients_are),
        TEST_SO(the_sum_is_finite_if_all_gradients_are, "CUDA_ON_CPU_THREADS=random:1"),
        TEST(weighing_has_the_cpus_bits),
        TEST(the_scale_has_the_cpus_bits),
        TEST(the_scale_is_pytorchs),
        TEST_SO(the_scale_is_pytorchs, "CUDA_ON_CPU_STREAMS=shuffle:1"),
    };
    transplant_leave_out(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests_name("clipping and loss scaling on GPUs", tests, NULL, NULL);
}
