/* An offloaded optimizer has the bits of one on the device, after each update, whichever parameters are left out,
 * scaled, moved or written between two updates, and wherever a tile ends; the device holds no moments. In every mode:
 * tests/parallel/test_offload_modes.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/optim/updates.h"

/* Seven tiles of 65,536 floats, more than are in flight at a time; they end within weights, and one has parts of four
 * tensors. */
#define SOME_TILES "mlp:600,500,270,10"
#define SMALL "mlp:30,20,10"

enum { PARAMETERS = 6, TURNS = 6 };

struct pair {
    struct updates kept, offloaded;
};

static struct pair open_pair(const char *model, ls_optimizer_options options) {
    struct pair pair = {.kept = updates_open(model, &options)};
    options.offload = true;
    pair.offloaded = updates_open(model, &options);
    return pair;
}

static void close_pair(struct pair *pair) {
    updates_close(&pair->kept);
    updates_close(&pair->offloaded);
}

/* Once the step's call has returned, gradients may be overwritten. */
static void step_both(struct pair *pair, int turn, float factor, const bool *skip) {
    updates_fill(&pair->kept, turn, factor);
    updates_step(&pair->kept, skip);
    updates_fill(&pair->offloaded, turn, factor);
    assert_int_equal(ls_optimizer_step(pair->offloaded.optimizer, skip), LS_OK);
    updates_fill(&pair->offloaded, turn + 1000, 7);
    assert_int_equal(ls_device_synchronize(pair->offloaded.device), LS_OK);
}

static void expect_same_moments(const struct pair *pair) {
    const ls_optimizer *kept = pair->kept.optimizer, *offloaded = pair->offloaded.optimizer;
    assert_int_equal(ls_optimizer_moment_count(kept), ls_optimizer_moment_count(offloaded));
    for (size_t m = 0; m < ls_optimizer_moment_count(kept); m++) {
        for (size_t p = 0; p < ls_model_parameter_count(pair->kept.model); p++) {
            size_t nbytes = ls_model_parameter(pair->kept.model, p)->count * sizeof(float);
            assert_memory_equal(ls_optimizer_moment(offloaded, m, p), ls_optimizer_moment(kept, m, p), nbytes);
        }
    }
}

static void expect_same(const struct pair *pair, int turn) {
    struct ls_update_state kept[PARAMETERS], offloaded[PARAMETERS];
    size_t count = ls_optimizer_state_count(pair->kept.optimizer);
    if (!updates_agree(&pair->kept, &pair->offloaded)) fail_msg("other values after update %d", turn + 1);
    expect_same_moments(pair);
    assert_int_equal(ls_optimizer_state_count(pair->offloaded.optimizer), count);
    assert_int_equal(ls_optimizer_read_states(pair->kept.optimizer, kept), LS_OK);
    assert_int_equal(ls_optimizer_read_states(pair->offloaded.optimizer, offloaded), LS_OK);
    assert_memory_equal(offloaded, kept, count * sizeof *kept);
}

/* --- the bits ----------------------------------------------------------------------------------------------------------- */

static ls_optimizer_options recipe(int number) {
    ls_optimizer_options o = ls_optimizer_defaults(number < 3 ? LS_SGD : number == 3 ? LS_ADAM : LS_ADAMW);
    o.weight_decay = 0.01;
    if (number == 1 || number == 2) o.momentum = 0.9;
    o.nesterov = number == 2;
    return o;
}
enum { RECIPES = 5 };

/* With a scaler, turn 2 has infinite gradients; turns 3 and 4 leave parameters out; the rate changes. */
static void expect_same_updates(const char *model, ls_optimizer_options options) {
    static const bool skip[PARAMETERS] = {false, true, true, false};
    struct pair pair = open_pair(model, options);
    for (int turn = 0; turn < TURNS; turn++) {
        ls_optimizer_set_rate(pair.kept.optimizer, 0.01 / (1 + turn / 2));
        ls_optimizer_set_rate(pair.offloaded.optimizer, 0.01 / (1 + turn / 2));
        bool infinite = turn == 2 && options.scaler.enabled;
        step_both(&pair, turn, infinite ? INFINITY : 3, turn == 3 || turn == 4 ? skip : NULL);
        expect_same(&pair, turn);
    }
    close_pair(&pair);
}

TEST(the_bits_are_those_of_the_device) {
    for (int number = 0; number < RECIPES; number++) {
        ls_optimizer_options options = recipe(number);
        expect_same_updates(SMALL, options);
        expect_same_updates(SOME_TILES, options);
        options.clip_norm = 0.5;
        options.scaler.enabled = true;
        expect_same_updates(SOME_TILES, options);
    }
}

/* Some elements of each parameter, with values and gradient at separate addresses. */
TEST(ranges_have_their_own_places) {
    ls_optimizer_options options = recipe(3);
    struct pair pair = open_pair(SOME_TILES, options);
    options.offload = true;
    ls_optimizer *part;
    ls_optimizer_range ranges[PARAMETERS];
    float *values = calloc(pair.kept.count, sizeof *values), *gradients = calloc(pair.kept.count, sizeof *gradients);
    size_t at = 0, firsts[PARAMETERS];
    for (size_t p = 0; p < PARAMETERS; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(pair.offloaded.model, p);
        size_t first = tensor->count / 3;
        ranges[p] = (ls_optimizer_range){tensor, first, tensor->count - first, values + at, gradients + at};
        memcpy(values + at, tensor->data + first, ranges[p].count * sizeof *values);
        firsts[p] = first;
        at += ranges[p].count;
    }
    assert_int_equal(ls_optimizer_create_of(&part, pair.offloaded.device, ranges, PARAMETERS, NULL, &options), LS_OK);
    for (int turn = 0; turn < 3; turn++) {
        updates_fill(&pair.kept, turn, 1);
        for (size_t p = 0; p < PARAMETERS; p++)
            memcpy(ranges[p].gradient, ls_model_parameter(pair.kept.model, p)->gradient + firsts[p],
                   ranges[p].count * sizeof(float));
        updates_step(&pair.kept, NULL);
        assert_int_equal(ls_optimizer_step(part, NULL), LS_OK);
        for (size_t p = 0; p < PARAMETERS; p++)
            assert_memory_equal(ranges[p].values, ls_model_parameter(pair.kept.model, p)->data + firsts[p],
                                ranges[p].count * sizeof(float));
    }
    ls_optimizer_destroy(part);
    free(values);
    free(gradients);
    close_pair(&pair);
}

/* A resumed run writes values, moments and states, also from the other kind of optimizer. */
static void go_on(const struct updates *from, struct updates *to) {
    struct ls_update_state state;
    memcpy(to->parameters, from->parameters, from->count * sizeof(float));
    for (size_t m = 0; m < ls_optimizer_moment_count(from->optimizer); m++) {
        for (size_t p = 0; p < ls_model_parameter_count(from->model); p++)
            memcpy(ls_optimizer_moment(to->optimizer, m, p), ls_optimizer_moment(from->optimizer, m, p),
                   ls_model_parameter(from->model, p)->count * sizeof(float));
    }
    assert_int_equal(ls_optimizer_read_states(from->optimizer, &state), LS_OK);
    assert_int_equal(ls_optimizer_write_states(to->optimizer, &state, 1), LS_OK);
}

TEST(each_goes_on_where_the_other_was) {
    for (int number = 1; number < RECIPES; number++) {
        struct pair from = open_pair(SMALL, recipe(number)), to = open_pair(SMALL, recipe(number));
        step_both(&to, 70, 1, NULL); /* overwritten afterwards */
        for (int turn = 0; turn < 3; turn++) step_both(&from, turn, 1, NULL);
        go_on(&from.kept, &to.offloaded);
        go_on(&from.offloaded, &to.kept);
        for (int turn = 3; turn < 5; turn++) {
            step_both(&from, turn, 1, NULL);
            step_both(&to, turn, 1, NULL);
            expect_same(&to, turn);
            assert_true(updates_agree(&from.kept, &to.offloaded));
        }
        close_pair(&from);
        close_pair(&to);
    }
}

/* --- memory and bytes --------------------------------------------------------------------------------------------------- */

static size_t optimizer_bytes(const struct updates *u) {
    ls_memory_report memory;
    ls_device_memory(u->device, &memory);
    return memory.peak_bytes[LS_MEMORY_OPTIMIZER];
}

TEST(the_device_holds_no_moments_and_the_host_does) {
    static const int moments[RECIPES] = {0, 1, 1, 2, 2};
    for (int number = 0; number < RECIPES; number++) {
        struct pair pair = open_pair(SMALL, recipe(number));
        size_t all = 0, padded = 0;
        for (size_t p = 0; p < ls_model_parameter_count(pair.kept.model); p++) {
            all += ls_model_parameter(pair.kept.model, p)->count;
            padded += ls_aligned_floats(ls_model_parameter(pair.kept.model, p)->count);
        }
        step_both(&pair, 0, 1, NULL);
        size_t kept = optimizer_bytes(&pair.kept), offloaded = optimizer_bytes(&pair.offloaded);
        assert_int_equal(kept - offloaded, (size_t)moments[number] * padded * sizeof(float));
        const ls_offload_report *report = ls_optimizer_offload_report(pair.offloaded.optimizer);
        assert_null(ls_optimizer_offload_report(pair.kept.optimizer));
        size_t held = (size_t)(1 + moments[number]) * padded * sizeof(float), staging = 4 * 65536 * sizeof(float);
        assert_true(report->host_nbytes >= held + staging && report->host_nbytes < held + staging + 1024);
        assert_int_equal(report->step_nbytes, 8 * all);
        close_pair(&pair);
    }
}

/* 4 bytes a parameter to the host and 4 back; none for a parameter that is left out. A skipped update counts only the
 * gradients that were copied before the host knew. */
TEST(bytes_are_counted) {
    ls_optimizer_options options = recipe(3);
    options.scaler.enabled = true;
    struct pair pair = open_pair(SOME_TILES, options);
    const ls_offload_report *report = ls_optimizer_offload_report(pair.offloaded.optimizer);
    static const bool skip[PARAMETERS] = {true};
    const size_t tile = 65536 * sizeof(float);
    step_both(&pair, 0, 1, NULL);
    assert_int_equal(report->moved_nbytes, report->step_nbytes);
    step_both(&pair, 1, INFINITY, NULL);
    assert_true(report->moved_nbytes > 3 * tile &&
                report->moved_nbytes <= 4 * tile); /* gradients that were in flight */
    step_both(&pair, 2, 1, skip);
    assert_int_equal(report->moved_nbytes, report->step_nbytes - 8 * ls_model_parameter(pair.kept.model, 0)->count);
    expect_same(&pair, 2);
    close_pair(&pair);
}
