/* Loss scaling in an optimizer: PyTorch's scales, skipped steps, and that a scale does not change an update. */
#include <math.h>
#include <string.h>

#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/optim/updates.h"

static const char *const small = "mlp:6,5,3";

static ls_optimizer_options scaled(ls_optimizer_kind kind, double init_scale) {
    ls_optimizer_options o = ls_optimizer_defaults(kind);
    o.learning_rate = 0.01;
    o.scaler.enabled = true;
    o.scaler.init_scale = init_scale;
    return o;
}

static struct ls_scaler_state scaler_of(const struct updates *u) {
    struct ls_scaler_state state;
    assert_int_equal(ls_grad_scaler_read(ls_optimizer_scaler(u->optimizer), &state), LS_OK);
    return state;
}

/* --- PyTorch's lists ---------------------------------------------------------------------------------------------- */

static double number(const cJSON *object, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static void expect_run(const cJSON *run) {
    ls_optimizer_options o = scaled(LS_SGD, number(run, "init_scale"));
    o.scaler.growth_factor = number(run, "growth_factor");
    o.scaler.backoff_factor = number(run, "backoff_factor");
    o.scaler.growth_interval = (int)number(run, "growth_interval");
    struct updates u = updates_open(small, &o);
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(run, "found_inf");
    const cJSON *scales = cJSON_GetObjectItemCaseSensitive(run, "scale_after_update");
    int steps = cJSON_GetArraySize(found), skipped = 0;
    assert_true(steps >= 40 && cJSON_GetArraySize(scales) == steps);
    for (int i = 0; i < steps; i++) {
        bool bad = cJSON_IsTrue(cJSON_GetArrayItem(found, i));
        static const float unusable[] = {INFINITY, NAN, -INFINITY};
        float weight = u.parameters[0];
        updates_fill(&u, i, (float)number(run, "init_scale"));
        if (bad) u.gradients[u.count - 16] = unusable[skipped++ % 3]; /* of the last bias */
        updates_step(&u, NULL);
        assert_true((u.parameters[0] == weight) == bad);
        struct ls_scaler_state state = scaler_of(&u);
        if (!((double)state.scale == cJSON_GetNumberValue(cJSON_GetArrayItem(scales, i))))
            fail_msg("the scale after update %d is %g", i, (double)state.scale);
        assert_true(state.skipped == skipped);
    }
    updates_close(&u);
}

TEST(scales_are_pytorchs) {
    cJSON *runs = golden_json("grad_scaler.json");
    const cJSON *run;
    assert_true(cJSON_GetArraySize(runs) >= 2);
    cJSON_ArrayForEach(run, runs) expect_run(run);
    cJSON_Delete(runs);
}

/* --- updates do not depend on the scale --------------------------------------------------------------------------- */

/* Three updates by gradients that are `scale` times larger, optionally with a fourth, unusable one among them. */
static void three_updates(struct updates *u, float scale, bool with_infinity) {
    for (int turn = 0; turn < 3; turn++) {
        if (turn == 1 && with_infinity) {
            updates_fill(u, 9, 1);
            u->gradients[0] = INFINITY;
            updates_step(u, NULL);
            scale /= 2;
        }
        updates_fill(u, turn, scale);
        updates_step(u, NULL);
    }
}

/* A power of two cancels exactly; a skipped step changes no weights, moments or count. */
TEST(scaled_updates_have_the_same_bits) {
    for (int clip = 0; clip < 2; clip++) {
        for (int kind = LS_SGD; kind <= LS_ADAMW; kind++) {
            ls_optimizer_options o = scaled((ls_optimizer_kind)kind, 1024);
            if (kind == LS_SGD) o.momentum = 0.9;
            o.clip_norm = clip ? 0.5 : 0;
            struct updates with = updates_open(small, &o), also = updates_open(small, &o);
            o.scaler.enabled = false;
            struct updates without = updates_open(small, &o);
            assert_null(ls_optimizer_scaler(without.optimizer));
            assert_null(ls_optimizer_loss_scale(without.optimizer));
            assert_true(*ls_optimizer_loss_scale(with.optimizer) == 1024);
            three_updates(&without, 1, false);
            three_updates(&with, 1024, false);
            three_updates(&also, 1024, true);
            assert_true(updates_agree(&without, &with) && updates_agree(&without, &also));
            struct ls_update_state counted;
            assert_int_equal(ls_optimizer_read_states(also.optimizer, &counted), LS_OK);
            assert_true(counted.step == 3 && counted.scale == 512);
            updates_close(&with);
            updates_close(&also);
            updates_close(&without);
        }
    }
}

/* A run that is resumed continues with the scale, and with its growth tracker. */
TEST(its_state_can_be_kept) {
    ls_optimizer_options o = scaled(LS_SGD, 64);
    o.scaler.growth_interval = 3;
    struct updates first = updates_open(small, &o), second = updates_open(small, &o);
    updates_fill(&first, 0, 1);
    updates_step(&first, NULL);
    updates_step(&first, NULL);
    struct ls_scaler_state kept = scaler_of(&first);
    assert_true(kept.scale == 64 && kept.growth_tracker == 2 && kept.skipped == 0);
    kept.skipped = 7;
    assert_int_equal(ls_grad_scaler_write(ls_optimizer_scaler(second.optimizer), &kept), LS_OK);
    updates_fill(&second, 0, 1);
    updates_step(&second, NULL);
    kept = scaler_of(&second);
    assert_true(kept.scale == 128 && kept.growth_tracker == 0 && kept.skipped == 7);
    kept.growth_tracker = 1000; /* from a run with a longer growth interval */
    assert_int_equal(ls_grad_scaler_write(ls_optimizer_scaler(second.optimizer), &kept), LS_OK);
    updates_step(&second, NULL);
    kept = scaler_of(&second);
    assert_true(kept.scale == 256 && kept.growth_tracker == 0);
    updates_close(&first);
    updates_close(&second);
}

/* --- options ------------------------------------------------------------------------------------------------------ */

static void expect_refused(ls_grad_scaler_options options, const char *text) {
    ls_device *device = open_device(0);
    ls_grad_scaler *scaler = (ls_grad_scaler *)device;
    assert_int_equal(ls_grad_scaler_create(&scaler, device, &options), LS_ERR_USAGE);
    assert_null(scaler);
    scratch_expect_error(text, NULL);
    options.enabled = false; /* options that are not used are not checked */
    assert_int_equal(ls_grad_scaler_create(&scaler, device, &options), LS_OK);
    assert_null(scaler);
    close_empty_device(device);
}

TEST_IN(scratch, options_out_of_range_are_refused) {
    ls_grad_scaler_options good = ls_grad_scaler_defaults(), o;
    assert_true(good.init_scale == 65536 && good.growth_factor == 2 && good.backoff_factor == 0.5);
    assert_true(good.growth_interval == 2000 && !good.enabled);
    good.enabled = true;
    static const double scales[] = {0, -1, NAN, INFINITY, 1e39, 1e-46};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        o = good;
        o.init_scale = scales[i];
        expect_refused(o, "initial scale");
    }
    static const double not_growing[] = {1, 0.5, NAN, INFINITY}, not_shrinking[] = {0, 1, -0.5, NAN};
    for (size_t i = 0; i < 4; i++) {
        o = good;
        o.growth_factor = not_growing[i];
        expect_refused(o, "growth factor");
        o = good;
        o.backoff_factor = not_shrinking[i];
        expect_refused(o, "backoff factor");
    }
    o = good;
    o.growth_interval = 0;
    expect_refused(o, "growth interval");
}
