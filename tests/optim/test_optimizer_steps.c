/* The work of an optimizer around its update rule: clipping, rates, records, kept states, parameters that are left
 * out. */
#include <math.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "tests/base/test.h"
#include "tests/optim/updates.h"

static const char *const small = "mlp:6,5,3";

static void expect_close(float got, double want, double rtol) {
    if (!(fabs((double)got - want) <= rtol * fabs(want) + 1e-12)) fail_msg("%.9g, not %.9g", (double)got, want);
}

/* --- clipping ----------------------------------------------------------------------------------------------------- */

/* PyTorch's three gradients, concatenated in a model whose weights begin at 0, so that SGD with a rate of 1 turns them
 * into the clipped gradients, negated. The norm does not depend on the tensor in which they are. */
TEST(clipping_is_pytorchs) {
    ls_safetensors *file;
    ls_optimizer_options o = ls_optimizer_defaults(LS_SGD);
    o.learning_rate = 1;
    o.clip_norm = 1;
    o.record_count = 1;
    struct updates u = updates_open("mlp:16,14", &o); /* 224 consecutive weights */
    assert_int_equal(ls_safetensors_open(&file, "tests/golden/clip_grad_norm_max1.safetensors"), LS_OK);
    memset(u.parameters, 0, u.count * sizeof *u.parameters);
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        const char name[] = {'g', (char)('0' + i), '\0'};
        const ls_safetensor *gradient = ls_safetensors_find(file, name);
        assert_non_null(gradient);
        memcpy(u.gradients + at, gradient->data, gradient->nbytes);
        at += gradient->nbytes / sizeof(float);
    }
    assert_int_equal(at, 213);
    updates_step(&u, NULL);
    at = 0;
    for (int i = 0; i < 3; i++) {
        const char name[] = {'c', 'l', 'i', 'p', 'p', 'e', 'd', (char)('0' + i), '\0'};
        const ls_safetensor *clipped = ls_safetensors_find(file, name);
        assert_non_null(clipped);
        const float *expected = clipped->data;
        for (size_t k = 0; k < clipped->shape[0]; k++) expect_close(-u.parameters[at++], (double)expected[k], 1e-6);
    }
    struct ls_update_state record;
    ls_optimizer_record(u.optimizer, 0);
    assert_int_equal(ls_optimizer_read_records(u.optimizer, &record), LS_OK);
    expect_close(record.norm, (double)*(const float *)ls_safetensors_find(file, "total_norm")->data, 1e-6);
    assert_true(record.norm > 1.5F); /* so that clipping changes the gradients */
    ls_safetensors_close(file);
    updates_close(&u);
}

/* A norm below the limit leaves the gradients as they are, to the bit. */
TEST(small_gradients_are_not_clipped) {
    for (int kind = LS_SGD; kind <= LS_ADAMW; kind++) {
        ls_optimizer_options o = ls_optimizer_defaults((ls_optimizer_kind)kind);
        struct updates plain = updates_open(small, &o);
        o.clip_norm = 100;
        struct updates clipping = updates_open(small, &o);
        updates_fill(&plain, 0, 1);
        updates_fill(&clipping, 0, 1);
        updates_step(&plain, NULL);
        updates_step(&clipping, NULL);
        assert_true(updates_agree(&plain, &clipping));
        updates_close(&plain);
        updates_close(&clipping);
    }
}

/* --- rates and records -------------------------------------------------------------------------------------------- */

TEST(a_rate_counts_from_the_next_update_on) {
    static const double rates[] = {0.25, 0.5, 0.5, 0};
    ls_optimizer_options o = ls_optimizer_defaults(LS_SGD);
    o.learning_rate = 7; /* never used: the first rate is set before the first update */
    o.record_count = 3;
    o.measure_norm = true;
    struct updates u = updates_open("mlp:1,1", &o);
    double expected = 1;
    u.parameters[0] = 1;
    u.gradients[0] = 3;
    u.gradients[16] = 4; /* the bias: a norm of 5 */
    for (size_t i = 0; i < 4; i++) {
        ls_optimizer_set_rate(u.optimizer, rates[i]);
        updates_step(&u, NULL);
        expected -= rates[i] * 3;
        assert_true((double)u.parameters[0] == expected);
        ls_optimizer_record(u.optimizer, i % 3);
    }
    struct ls_update_state records[3];
    assert_int_equal(ls_optimizer_record_count(u.optimizer), 3);
    assert_int_equal(ls_optimizer_read_records(u.optimizer, records), LS_OK);
    for (size_t i = 1; i < 4; i++) {
        const struct ls_update_state *r = &records[i % 3];
        assert_true(r->learning_rate == rates[i] && r->step == (double)(i + 1));
        assert_true(r->norm == 5 && r->scale == 1 && r->found_inf == 0 && r->gradient_factor == 1);
    }
    updates_close(&u);
    o.record_count = 0;
    u = updates_open("mlp:1,1", &o);
    ls_optimizer_record(u.optimizer, 0); /* capacity 0: does nothing */
    assert_int_equal(ls_optimizer_record_count(u.optimizer), 0);
    assert_int_equal(ls_optimizer_read_records(u.optimizer, records), LS_OK);
    updates_close(&u);
}

/* --- states that are kept ----------------------------------------------------------------------------------------- */

static void copy_all(struct updates *to, const struct updates *from) {
    memcpy(to->parameters, from->parameters, from->count * sizeof(float));
    for (size_t m = 0; m < ls_optimizer_moment_count(from->optimizer); m++) {
        for (size_t p = 0; p < ls_model_parameter_count(from->model); p++) {
            memcpy(ls_optimizer_moment(to->optimizer, m, p), ls_optimizer_moment(from->optimizer, m, p),
                   ls_model_parameter(from->model, p)->count * sizeof(float));
        }
    }
}

/* Some updates in `here`, the second without fc1.weight if `skipping`; then the rest in `there`. */
static void expect_to_go_on(ls_optimizer_kind kind, bool skipping) {
    static const bool skip[4] = {true};
    struct ls_update_state states[4];
    ls_optimizer_options o = ls_optimizer_defaults(kind);
    if (kind == LS_SGD) o.momentum = 0.9;
    struct updates here = updates_open(small, &o), there = updates_open(small, &o), forgetful = updates_open(small, &o);
    for (int turn = 0; turn < 3; turn++) {
        updates_fill(&here, turn, 1);
        ls_optimizer_set_rate(here.optimizer, 0.1 / (turn + 1));
        updates_step(&here, skipping && turn == 1 ? skip : NULL);
    }
    size_t count = ls_optimizer_state_count(here.optimizer);
    assert_int_equal(count, skipping ? 4 : 1);
    assert_int_equal(ls_optimizer_read_states(here.optimizer, states), LS_OK);
    assert_true(states[0].step == (skipping ? 2 : 3) && states[count - 1].step == 3);
    copy_all(&there, &here);
    copy_all(&forgetful, &here);
    assert_int_equal(ls_optimizer_write_states(there.optimizer, states, count), LS_OK);
    assert_int_equal(ls_optimizer_state_count(there.optimizer), count);
    for (int turn = 3; turn < 5; turn++) {
        struct updates *all[] = {&here, &there, &forgetful};
        for (int i = 0; i < 3; i++) {
            updates_fill(all[i], turn, 1);
            /* the rate that `there` was created with, which it must still set */
            if (turn == 4) ls_optimizer_set_rate(all[i]->optimizer, o.learning_rate);
            updates_step(all[i], NULL);
        }
        assert_true(updates_agree(&here, &there));
    }
    assert_false(updates_agree(&here, &forgetful));
    updates_close(&here);
    updates_close(&there);
    updates_close(&forgetful);
}

TEST(another_optimizer_goes_on_from_the_states) {
    for (int kind = LS_SGD; kind <= LS_ADAMW; kind++) {
        expect_to_go_on((ls_optimizer_kind)kind, false);
        expect_to_go_on((ls_optimizer_kind)kind, true);
    }
}

/* One state, written to an optimizer whose parameters have separate states, is copied to each. */
TEST(one_state_is_that_of_all) {
    static const bool skip[4] = {false, true};
    const struct ls_update_state one = {.learning_rate = 0.5, .step = 9, .gradient_factor = 1, .scale = 1};
    struct ls_update_state states[4];
    ls_optimizer_options o = ls_optimizer_defaults(LS_ADAM);
    struct updates u = updates_open(small, &o);
    updates_fill(&u, 0, 1);
    updates_step(&u, skip);
    assert_int_equal(ls_optimizer_write_states(u.optimizer, &one, 1), LS_OK);
    assert_int_equal(ls_optimizer_read_states(u.optimizer, states), LS_OK);
    for (int p = 0; p < 4; p++) assert_true(states[p].step == 9 && states[p].learning_rate == 0.5);
    updates_close(&u);
}

/* --- parameters that are left out, combined with other options ---------------------------------------------------- */

/* Clipping and loss scaling cover all parameters, also if each has its own state: updated parameters get the bits of an
 * update of all; an infinity leaves all of them unchanged. */
TEST(left_out_parameters_share_factor_and_infinities) {
    static const bool skip[4] = {false, false, true, false};
    for (int kind = LS_SGD; kind <= LS_ADAMW; kind++) {
        ls_optimizer_options o = ls_optimizer_defaults((ls_optimizer_kind)kind);
        o.scaler.enabled = true;
        o.scaler.init_scale = 8;
        o.clip_norm = 0.25;
        struct ls_update_state states[4];
        struct updates all = updates_open(small, &o), some = updates_open(small, &o);
        const struct ls_tensor *left_out = ls_model_parameter(some.model, 2);
        size_t begin = (size_t)(left_out->data - some.parameters), end = begin + left_out->count;
        struct updates *both[] = {&all, &some};
        for (int turn = 0; turn < 3; turn++) {
            for (int i = 0; i < 2; i++) {
                updates_fill(both[i], turn, 8);
                if (turn == 1) both[i]->gradients[both[i]->count - 16] = INFINITY; /* of fc2.bias */
                memset(both[i]->gradients + begin, 0, left_out->count * sizeof(float));
            }
            updates_step(&all, NULL);
            updates_step(&some, skip);
            assert_memory_equal(all.parameters, some.parameters, begin * sizeof(float));
            assert_memory_equal(all.parameters + end, some.parameters + end, (some.count - end) * sizeof(float));
            assert_int_equal(ls_optimizer_read_states(some.optimizer, states), LS_OK);
            for (int p = 0; p < 4; p++) {
                assert_true(states[p].found_inf == (turn == 1) && states[p].scale == (turn == 2 ? 4 : 8));
                assert_true(states[p].step == (p == 2 ? 0 : turn == 0 ? 1 : turn));
                if (turn != 1) assert_true(states[p].norm > 0.25F && states[p].gradient_factor < 1 / states[p].scale);
            }
        }
        updates_close(&all);
        updates_close(&some);
    }
}

/* The elements of each parameter before or after its middle; one part has all of every third parameter. */
static size_t make_part(ls_optimizer_range *ranges, const ls_model *model, int part) {
    size_t count = ls_model_parameter_count(model);
    for (size_t p = 0; p < count; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        size_t middle = p % 3 == 2 ? tensor->count : tensor->count / 2;
        ranges[p] = part == 0 ? (ls_optimizer_range){tensor, 0, middle, NULL, NULL}
                              : (ls_optimizer_range){tensor, middle, tensor->count - middle, NULL, NULL};
    }
    return count;
}

/* Two optimizers of parts, and one without parameters, together match one optimizer of all parameters; their moments
 * are its moments. */
static void expect_parts_to_agree(ls_optimizer_kind kind) {
    ls_optimizer_options options = ls_optimizer_defaults(kind);
    if (kind == LS_SGD) options.momentum = 0.9;
    options.measure_norm = true;
    struct updates whole = updates_open("mlp:64,32,10", &options), cut = updates_open("mlp:64,32,10", &options);
    ls_optimizer_range ranges[4];
    ls_optimizer *parts[3];
    for (int i = 0; i < 3; i++) {
        size_t count = i < 2 ? make_part(ranges, cut.model, i) : 0;
        assert_int_equal(ls_optimizer_create_of(&parts[i], cut.device, ranges, count, NULL, &options), LS_OK);
    }
    for (int turn = 0; turn < 6; turn++) {
        const bool skip[4] = {turn == 3};
        updates_fill(&whole, turn, 1);
        updates_fill(&cut, turn, 1);
        updates_step(&whole, turn >= 3 ? skip : NULL);
        for (int i = 0; i < 3; i++) assert_int_equal(ls_optimizer_step(parts[i], turn >= 3 ? skip : NULL), LS_OK);
        assert_true(updates_agree(&whole, &cut));
    }
    for (size_t p = 0; p < 4; p++) {
        const float *moment = ls_optimizer_moment(whole.optimizer, 0, p);
        make_part(ranges, cut.model, 1);
        assert_memory_equal(ls_optimizer_moment(parts[1], 0, p), moment + ranges[p].first,
                            ranges[p].count * sizeof(float));
    }
    for (int i = 0; i < 3; i++) ls_optimizer_destroy(parts[i]);
    updates_close(&whole);
    updates_close(&cut);
}

TEST(parts_of_parameters_are_updated_as_the_whole) {
    for (int kind = LS_SGD; kind <= LS_ADAMW; kind++) expect_parts_to_agree((ls_optimizer_kind)kind);
}
