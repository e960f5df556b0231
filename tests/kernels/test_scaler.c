/* Clipping and loss scaling against PyTorch: its clip_grad_norm_ and GradScaler, as operations on the device. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/golden.h"
#include "tests/base/test.h"
#include "tests/kernels/backends.h"

/* --- lists of gradients ------------------------------------------------------------------------------------------- */

enum { MAX_TENSORS = 4 };

/* The inputs and outputs of an update; parameters are 0. */
struct list {
    struct ls_update_tensor *tensors;
    size_t tensor_count, chunks, total;
    float *gradients[MAX_TENSORS];
    double *square_sum;
    struct ls_update_state *state;
};

static float *make_zeros(size_t count) { return memset(kernel_floats(count), 0, count * sizeof(float)); }

static struct list make_list(const size_t *counts, size_t tensor_count) {
    struct list list = {.tensors = kernel_bytes(tensor_count * sizeof *list.tensors), .tensor_count = tensor_count};
    for (size_t i = 0; i < tensor_count; i++) {
        list.gradients[i] = make_zeros(counts[i]);
        list.tensors[i] = (struct ls_update_tensor){.parameter = make_zeros(counts[i]),
                                                    .gradient = list.gradients[i],
                                                    .first = make_zeros(counts[i]),
                                                    .second = make_zeros(counts[i]),
                                                    .count = counts[i],
                                                    .first_chunk = list.chunks};
        list.chunks += (counts[i] + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        list.total += counts[i];
    }
    list.square_sum = kernel_bytes(sizeof *list.square_sum);
    list.state = memset(kernel_bytes(sizeof *list.state), 0, sizeof *list.state);
    return list;
}

static double square_sum(const struct list *list) {
    ls_square_sum_list(kernel_stream(), list->square_sum, list->tensors, list->tensor_count, list->chunks, list->total);
    kernel_done();
    return *list->square_sum;
}

/* The sum and the results derived from it: the state's factor, norm and found_inf. */
static const struct ls_update_state *weigh(const struct list *list, const struct ls_scaler_state *scaler,
                                           float max_norm) {
    (void)square_sum(list);
    ls_weigh_gradients(kernel_stream(), list->state, 1, scaler, list->square_sum, max_norm);
    kernel_done();
    return list->state;
}

/* SGD that adds the gradients, multiplied by their factor, to the parameters. */
static void add_gradients(const struct list *list) {
    list->state->learning_rate = -1;
    ls_begin_update(kernel_stream(), list->state, 0, 0);
    kernel_done();
    ls_sgd_list(kernel_stream(), (struct ls_sgd_rule){0}, list->state, list->tensors, list->tensor_count, list->chunks,
                list->total);
    kernel_done();
}

/* --- the sum of squares -------------------------------------------------------------------------------------------- */

static const size_t odd_counts[MAX_TENSORS] = {1, 37, 0, LS_UPDATE_CHUNK + 3};

TEST_CASE(the_sum_is_over_all_tensors) {
    struct list list = make_list(odd_counts, MAX_TENSORS);
    double want = 0;
    for (int i = 0; i < MAX_TENSORS; i++) {
        for (size_t k = 0; k < odd_counts[i]; k++) {
            list.gradients[i][k] = (float)((int)(k * 7 % 61) - 30 + i);
            want += (double)list.gradients[i][k] * (double)list.gradients[i][k];
        }
    }
    *list.square_sum = 5;
    assert_true(square_sum(&list) == want && want > 0); /* integers: exact in any order */
    list.tensor_count = list.chunks = list.total = 0;
    assert_true(square_sum(&list) == 0);
}

TEST_CASE(the_sum_is_finite_if_and_only_if_all_gradients_are) {
    struct list list = make_list(odd_counts, MAX_TENSORS);
    for (int i = 0; i < MAX_TENSORS; i++) {
        for (size_t k = 0; k < odd_counts[i]; k++) list.gradients[i][k] = k % 2 ? FLT_MAX : -FLT_MAX;
    }
    assert_true(isfinite(square_sum(&list)) && *list.square_sum > (double)FLT_MAX);
    for (int i = 0; i < MAX_TENSORS; i++) {
        for (size_t k = 0; k < odd_counts[i]; k += k < 64 ? 1 : 101) {
            float *at = &list.gradients[i][k], was = *at;
            *at = k % 3 == 0 ? NAN : k % 3 == 1 ? INFINITY : -INFINITY;
            if (isfinite(square_sum(&list))) fail_msg("tensor %d: element %zu is %g and not seen", i, k, (double)*at);
            *at = was;
        }
    }
    assert_true(isfinite(square_sum(&list)));
}

/* Empty tensors, and more chunks than blocks on a GPU, many of them a single element. */
TEST_CASE(each_gradient_counts_once) {
    enum { TENSORS = 4300, LONG = 3 * LS_UPDATE_CHUNK + 5, TOTAL = TENSORS - 3 + LONG };
    struct ls_update_tensor *tensors = memset(kernel_bytes(TENSORS * sizeof *tensors), 0, TENSORS * sizeof *tensors);
    float *gradients = kernel_floats(TOTAL);
    double want = 0, *sum = kernel_bytes(sizeof *sum);
    size_t chunks = 0, total = 0;
    for (int i = 0; i < TOTAL; i++) {
        gradients[i] = (float)(i * 7 % 1001 - 500);
        want += (double)gradients[i] * (double)gradients[i];
    }
    for (int t = 0; t < TENSORS; t++) {
        size_t count = t == 4000 ? LONG : t % (TENSORS - 1) > 0;
        tensors[t] = (struct ls_update_tensor){.gradient = gradients + total, .count = count, .first_chunk = chunks};
        chunks += (count + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK, total += count;
    }
    assert_int_equal(total, TOTAL);
    ls_square_sum_list(kernel_stream(), sum, tensors, TENSORS, chunks, total);
    kernel_done();
    assert_true(*sum == want);
    ls_square_sum_list(kernel_stream(), sum, tensors, 1, 0, 0);
    kernel_done();
    assert_true(*sum == 0);
}

/* --- clipping ------------------------------------------------------------------------------------------------------ */

TEST_CASE(clip_file) {
    static const size_t counts[3] = {10, 200, 3};
    static const char *const before[3] = {"g0", "g1", "g2"}, *const after[3] = {"clipped0", "clipped1", "clipped2"};
    kernel_golden_open("clip_grad_norm_max1");
    struct list list = make_list(counts, 3);
    for (int i = 0; i < 3; i++) {
        memcpy(list.gradients[i], kernel_golden(before[i], counts[i]), counts[i] * sizeof(float));
    }
    kernel_expect_close("total_norm", &weigh(&list, NULL, 1)->norm, kernel_golden("total_norm", 1), 1, 1e-6, 0);
    add_gradients(&list);
    for (int i = 0; i < 3; i++) {
        kernel_expect_close(after[i], list.tensors[i].parameter, kernel_golden(after[i], counts[i]), counts[i], 1e-6,
                            0);
    }
}

static struct ls_scaler_state *make_scaler(struct ls_scaler_state content) {
    struct ls_scaler_state *scaler = memset(kernel_bytes(sizeof *scaler), 0, sizeof *scaler);
    *scaler = content;
    return scaler;
}

/* The gradients (3, 4) and (12), of norm 13, times `scale`. */
static struct list make_thirteen(float scale) {
    struct list list = make_list((const size_t[]){2, 1}, 2);
    list.gradients[0][0] = 3 * scale;
    list.gradients[0][1] = 4 * scale;
    list.gradients[1][0] = 12 * scale;
    return list;
}

TEST_CASE(clip_by_hand) {
    static const float want[] = {1.4999999f, 1.9999999f, 5.9999995f};
    struct list list = make_thirteen(1);
    const struct ls_update_state *weighed = weigh(&list, NULL, 6.5f);
    assert_true(weighed->norm == 13 && weighed->scale == 1 && weighed->gradient_factor == .49999996153846f);
    add_gradients(&list);
    kernel_expect_close("first", list.tensors[0].parameter, want, 2, 1e-7, 0);
    kernel_expect_close("second", list.tensors[1].parameter, want + 2, 1, 1e-7, 0);
}

/* Norm and limit are those of the unscaled gradients. */
TEST_CASE(clip_after_unscaling) {
    const struct ls_scaler_state *scaler = make_scaler((struct ls_scaler_state){.scale = 3});
    struct list list = make_thirteen(3);
    const float inverse = (float)(1 / 3.0), norm = (float)(39 * (double)inverse);
    const struct ls_update_state *weighed = weigh(&list, scaler, 0);
    assert_true(weighed->scale == 3 && weighed->norm == norm && weighed->gradient_factor == inverse);
    weighed = weigh(&list, scaler, 6.5f);
    assert_true(weighed->norm == norm && weighed->gradient_factor == inverse * (6.5f / (norm + 1e-6f)));
    weighed = weigh(&list, scaler, 13.1f); /* below the limit: unscaled only */
    assert_true(weighed->norm == norm && weighed->gradient_factor == inverse);
}

TEST_CASE(clip_at_the_edges) {
    struct list list = make_list((const size_t[]){2, 1}, 2);
    assert_true(weigh(&list, NULL, 6.5f)->gradient_factor == 1 && list.state->norm == 0);
    list.gradients[0][1] = 6.5f; /* because of the 1e-6, the factor is not exactly 1 at the limit */
    assert_true(weigh(&list, NULL, 6.5f)->gradient_factor == 6.5f / (6.5f + 1e-6f) && list.state->norm == 6.5f);
    list.gradients[0][1] = NAN;
    assert_true(isnan(weigh(&list, NULL, 0)->norm) && list.state->gradient_factor == 1);
    assert_true(isnan(weigh(&list, NULL, 6.5f)->gradient_factor) && list.state->found_inf == 0);
    add_gradients(&list); /* as in PyTorch, every gradient becomes NaN */
    assert_true(isnan(list.tensors[0].parameter[0]) && isnan(list.tensors[1].parameter[0]));
    list.gradients[0][1] = INFINITY;
    assert_true(weigh(&list, NULL, 6.5f)->gradient_factor == 0 && isinf(list.state->norm));
    assert_true(list.state->found_inf == 0);
}

TEST_CASE(every_state_learns_what_was_weighed) {
    struct list list = make_thirteen(2);
    const struct ls_scaler_state *scaler = make_scaler((struct ls_scaler_state){.scale = 2});
    struct ls_update_state *states = memset(kernel_bytes(3 * sizeof *states), 0, 3 * sizeof *states);
    states[0].step = 4, states[0].found_inf = 1, states[1].learning_rate = 5, states[2].learning_rate = 6;
    (void)square_sum(&list);
    ls_weigh_gradients(kernel_stream(), states, 2, scaler, list.square_sum, 6.5f);
    kernel_done();
    for (int s = 0; s < 2; s++) {
        assert_true(states[s].norm == 13 && states[s].scale == 2 && states[s].found_inf == 0);
        assert_true(states[s].gradient_factor == .5f * .49999996153846f);
    }
    assert_true(states[0].step == 4 && states[1].learning_rate == 5);
    assert_true(states[2].norm == 0 && states[2].scale == 0 && states[2].gradient_factor == 0);
}

/* --- GradScaler ---------------------------------------------------------------------------------------------------- */

/* Adam's step with gradients of `scale`, one of which may be infinite or NaN. */
static void scaled_step(const struct list *list, struct ls_scaler_state *scaler, struct ls_scaler_rule rule) {
    static const struct ls_adam_rule adam = {0.9, 0.999, 1e-8, 0.01, true};
    (void)weigh(list, scaler, 1);
    ls_begin_update(kernel_stream(), list->state, adam.beta1, adam.beta2);
    kernel_done();
    ls_adam_list(kernel_stream(), adam, list->state, list->tensors, list->tensor_count, list->chunks, list->total);
    kernel_done();
    ls_update_scale(kernel_stream(), scaler, list->state, rule);
    kernel_done();
}

/* Of all parameters and moments. */
static double checksum(const struct list *list) {
    double sum = 0;
    for (size_t i = 0; i < list->tensor_count; i++) {
        const struct ls_update_tensor *t = &list->tensors[i];
        for (size_t k = 0; k < t->count; k++) {
            sum += (double)t->parameter[k] + 3 * (double)t->first[k] + 5 * (double)t->second[k];
        }
    }
    return sum;
}

static void check_scaler(const cJSON *run) {
    const cJSON *found = cJSON_GetObjectItem(run, "found_inf"), *want = cJSON_GetObjectItem(run, "scale_after_update");
    struct ls_scaler_rule rule = {cJSON_GetNumberValue(cJSON_GetObjectItem(run, "growth_factor")),
                                  cJSON_GetNumberValue(cJSON_GetObjectItem(run, "backoff_factor")),
                                  (int32_t)golden_integer(run, "growth_interval")};
    struct ls_scaler_state *scaler =
        make_scaler((struct ls_scaler_state){.scale = (float)golden_integer(run, "init_scale")});
    struct list list = make_list(odd_counts, MAX_TENSORS);
    list.state->learning_rate = 0.1;
    int steps = cJSON_GetArraySize(found), skipped = 0;
    assert_int_equal(steps, 40);
    for (int t = 0; t < steps; t++) {
        bool bad = cJSON_IsTrue(cJSON_GetArrayItem(found, t));
        double before = checksum(&list), scale = (double)scaler->scale;
        for (size_t k = 0; k < odd_counts[1]; k++) list.gradients[1][k] = scaler->scale;
        list.gradients[3][LS_UPDATE_CHUNK] = bad ? t % 2 ? NAN : -INFINITY : 0;
        scaled_step(&list, scaler, rule);
        skipped += bad;
        assert_true(list.state->found_inf == (float)bad && (double)list.state->scale == scale);
        assert_true(list.state->step == t + 1 - skipped && scaler->skipped == skipped);
        assert_true(isfinite(checksum(&list)) && (checksum(&list) == before) == bad);
        assert_true((double)scaler->scale == cJSON_GetNumberValue(cJSON_GetArrayItem(want, t)));
    }
    assert_true(skipped > 0 && skipped < steps);
}

TEST_CASE(scaler_file) {
    cJSON *runs = golden_json("grad_scaler.json");
    assert_int_equal(cJSON_GetArraySize(runs), 2);
    check_scaler(cJSON_GetArrayItem(runs, 0));
    check_scaler(cJSON_GetArrayItem(runs, 1));
    cJSON_Delete(runs);
}

static struct ls_scaler_state update(struct ls_scaler_state scaler, float found_inf, struct ls_scaler_rule rule) {
    struct ls_update_state *state = memset(kernel_bytes(sizeof *state), 0, sizeof *state);
    struct ls_scaler_state *updated = make_scaler(scaler);
    state->found_inf = found_inf;
    ls_update_scale(kernel_stream(), updated, state, rule);
    kernel_done();
    return *updated;
}

static void expect_scaler(struct ls_scaler_state got, float scale, int32_t growth_tracker, int64_t skipped) {
    assert_true(got.scale == scale);
    assert_int_equal(got.growth_tracker, growth_tracker);
    assert_int_equal(got.skipped, skipped);
}

TEST_CASE(the_scale_changes_by_the_rule) {
    const struct ls_scaler_rule rule = {2, 0.5, 3}, uneven = {1.1, 0.7, 1};
    expect_scaler(update((struct ls_scaler_state){8, 1, 4}, 0, rule), 8, 2, 4);
    expect_scaler(update((struct ls_scaler_state){8, 2, 4}, 0, rule), 16, 0, 4);
    expect_scaler(update((struct ls_scaler_state){8, 2, 4}, 1, rule), 4, 0, 5);
    /* only at the interval, not beyond it: as in PyTorch, where the interval may have been shortened meanwhile */
    expect_scaler(update((struct ls_scaler_state){8, 3, 4}, 0, rule), 8, 4, 4);
    /* the scale never grows to infinity, and can always shrink */
    expect_scaler(update((struct ls_scaler_state){0x1p127f, 2, 0}, 0, rule), 0x1p127f, 0, 0);
    expect_scaler(update((struct ls_scaler_state){0x1p126f, 2, 0}, 0, rule), 0x1p127f, 0, 0);
    expect_scaler(update((struct ls_scaler_state){0x1p-149f, 0, 0}, 1, rule), 0, 0, 1);
    /* products in double */
    const float scale = 60003;
    assert_true((float)((double)scale * 1.1) != scale * 1.1f && (float)((double)scale * 0.7) != scale * 0.7f);
    expect_scaler(update((struct ls_scaler_state){scale, 0, 0}, 0, uneven), (float)((double)scale * 1.1), 0, 0);
    expect_scaler(update((struct ls_scaler_state){scale, 0, 0}, 1, uneven), (float)((double)scale * 0.7), 0, 1);
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Numbers of all kinds (backends.h: the results have the bits of the best build). */
TEST_CASE(numbers_of_every_kind) {
    static const double sums[] = {0, 1e-30, 4, 169, 170.3, 1e15 / 3, 1e300, INFINITY, NAN};
    static const float scales[] = {1, 65536, 3, 1e-3f, 0x1p-149f, 0x1p127f, INFINITY, 1e-45f, 1.9e38f, FLT_MAX};
    static const float norms[] = {0, 6.5f, 1e-3f, INFINITY};
    static const struct ls_scaler_rule rules[] = {{2, 0.5, 3}, {1.0 / 3 + 1, 1.0 / 3, 1}, {2, 0.5, 2000}};
    for (size_t i = 0; i < COUNT(sums) * (COUNT(scales) + 1) * COUNT(norms); i++) {
        size_t s = i / COUNT(sums) % (COUNT(scales) + 1);
        double *sum = kernel_bytes(sizeof *sum);
        *sum = sums[i % COUNT(sums)];
        struct ls_scaler_state *scaler = s > 0 ? make_scaler((struct ls_scaler_state){.scale = scales[s - 1]}) : NULL;
        ls_weigh_gradients(kernel_stream(), kernel_bytes(3 * sizeof(struct ls_update_state)), i % 3 + 1, scaler, sum,
                           norms[i / COUNT(sums) / (COUNT(scales) + 1)]);
        kernel_done();
    }
    for (size_t i = 0; i < COUNT(scales) * COUNT(rules) * 2 * 3; i++) {
        struct ls_scaler_rule rule = rules[i / COUNT(scales) % COUNT(rules)];
        int32_t tracker = rule.growth_interval - 2 + (int)(i % 3);
        (void)update((struct ls_scaler_state){scales[i % COUNT(scales)], tracker, 1ll << 40}, i / 30 % 2, rule);
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(the_sum_is_over_all_tensors),
        ROW(the_sum_is_finite_if_and_only_if_all_gradients_are),
        ROW_ON(EACH_ONCE, each_gradient_counts_once),
        ROW(clip_file),
        ROW(clip_by_hand),
        ROW(clip_after_unscaling),
        ROW(clip_at_the_edges),
        ROW(every_state_learns_what_was_weighed),
        ROW(scaler_file),
        ROW(the_scale_changes_by_the_rule),
        ROW(numbers_of_every_kind),
    };
    return RUN_EVERYWHERE("scaler", tests);
}
