/* Optimizers against PyTorch: golden files within float32's rounding of float64 runs, and the bits of
 * PyTorch's own float32 runs where they are known. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/kernels/backends.h"

/* An optimizer, its state and its parameters. */
struct run {
    struct ls_update_state *state;
    bool is_adam;
    struct ls_sgd_rule sgd;
    struct ls_adam_rule adam;
    float *p, *m, *v;
    size_t count;
};

static struct run start(const float *p0, size_t count, double learning_rate) {
    struct run run = {.state = kernel_bytes(sizeof *run.state), .p = kernel_copy(p0, count), .count = count};
    memset(run.state, 0, sizeof *run.state);
    run.state->learning_rate = learning_rate;
    run.state->gradient_factor = 1;
    run.m = kernel_floats(count);
    run.v = kernel_floats(count);
    for (size_t i = 0; i < count; i++) run.m[i] = run.v[i] = 0;
    return run;
}

static struct run start_sgd(const float *p0, size_t count, double learning_rate, struct ls_sgd_rule rule) {
    struct run run = start(p0, count, learning_rate);
    run.sgd = rule;
    /* The first update must not read the momentum. */
    for (size_t i = 0; i < count; i++) run.m[i] = NAN;
    if (rule.momentum == 0) run.m = NULL;
    return run;
}

static struct run start_adam(const float *p0, size_t count, double learning_rate, double weight_decay, bool decoupled) {
    struct run run = start(p0, count, learning_rate);
    run.is_adam = true;
    run.adam = (struct ls_adam_rule){0.9, 0.999, 1e-8, weight_decay, decoupled};
    return run;
}

static void step(struct run *run, const float *gradient) {
    ls_stream *stream = kernel_stream();
    ls_begin_update(stream, run->state, run->is_adam ? run->adam.beta1 : 0, run->is_adam ? run->adam.beta2 : 0);
    kernel_done();
    if (run->is_adam) {
        ls_adam(stream, run->adam, run->state, run->p, gradient, run->m, run->v, run->count);
        kernel_done();
    } else {
        ls_sgd(stream, run->sgd, run->state, run->p, gradient, run->m, run->count);
        kernel_done();
    }
}

/* --- golden files ------------------------------------------------------------------------------------------------ */

#define GOLDEN_COUNT 257

/* With gradients of a loss that was multiplied by `scale`, a power of two: the same bits. */
static void check_golden(struct run run, float scale) {
    for (int t = 1; t <= 5; t++) {
        char g[8], p[8];
        snprintf(g, sizeof g, "g%d", t);
        snprintf(p, sizeof p, "p%d", t);
        float *gradient = kernel_golden(g, GOLDEN_COUNT);
        for (int i = 0; i < GOLDEN_COUNT; i++) gradient[i] *= scale;
        run.state->gradient_factor = 1 / scale;
        step(&run, gradient);
        kernel_expect_close(p, run.p, kernel_golden(p, GOLDEN_COUNT), GOLDEN_COUNT, 1e-6, 1e-7);
    }
}

TEST_CASE(sgd_files) {
    kernel_golden_open("optim_sgd_lr0.1");
    check_golden(start_sgd(kernel_golden("p0", GOLDEN_COUNT), GOLDEN_COUNT, 0.1, (struct ls_sgd_rule){0}), 1);
    kernel_golden_open("optim_sgd_lr0.1_momentum0.9_nesterov_wd1e-4");
    struct ls_sgd_rule rule = {.momentum = 0.9f, .weight_decay = 1e-4f, .nesterov = true};
    check_golden(start_sgd(kernel_golden("p0", GOLDEN_COUNT), GOLDEN_COUNT, 0.1, rule), 256);
}

TEST_CASE(adam_files) {
    kernel_golden_open("optim_adam_lr1e-3");
    check_golden(start_adam(kernel_golden("p0", GOLDEN_COUNT), GOLDEN_COUNT, 1e-3, 0, false), 1);
    kernel_golden_open("optim_adam_lr1e-3_wd1e-2");
    check_golden(start_adam(kernel_golden("p0", GOLDEN_COUNT), GOLDEN_COUNT, 1e-3, 1e-2, false), 1);
    kernel_golden_open("optim_adamw_lr1e-3_wd1e-2");
    check_golden(start_adam(kernel_golden("p0", GOLDEN_COUNT), GOLDEN_COUNT, 1e-3, 1e-2, true), 65536);
}

/* --- two parameters, three updates ------------------------------------------------------------------------------- */

static const float p0[] = {1, -2};

/* Gradients (t/2, -1); each of the three results within `rtol` (0: the bits). */
static void check_by_hand(struct run run, const double want[3][2], double rtol) {
    for (int t = 1; t <= 3; t++) {
        const float expected[] = {(float)want[t - 1][0], (float)want[t - 1][1]};
        step(&run, kernel_copy((float[]){0.5f * (float)t, -1}, 2));
        kernel_expect_close("p", run.p, expected, 2, rtol, 0);
    }
}

TEST_CASE(sgd_by_hand) {
    static const double plain[3][2] = {{.95, -1.9}, {.85, -1.8}, {.7, -1.7}};
    static const double decayed[3][2] = {{.949, -1.898}, {.802151, -1.704302}, {.519184749, -1.428269498}};
    static const double nesterov[3][2] = {{.905, -1.81}, {.6745, -1.539}, {.27205, -1.1951}};
    static const double dampened[3][2] = {{.95, -1.9}, {.855, -1.76}, {.6945, -1.584}};
    static const double bits[3][2] = {
        {0x1.e5e354p-1, -0x1.e5e354p+0}, {0x1.9ab38ap-1, -0x1.b44d22p+0}, {0x1.09d296p-1, -0x1.6da312p+0}};
    struct ls_sgd_rule momentum = {.momentum = 0.9f, .weight_decay = 0.01f};
    check_by_hand(start_sgd(p0, 2, 0.1, (struct ls_sgd_rule){0}), plain, 3e-7);
    check_by_hand(start_sgd(p0, 2, 0.1, momentum), decayed, 3e-7);
    check_by_hand(start_sgd(p0, 2, 0.1, momentum), bits, 0);
    check_by_hand(start_sgd(p0, 2, 0.1, (struct ls_sgd_rule){.momentum = 0.9f, .nesterov = true}), nesterov, 3e-7);
    check_by_hand(start_sgd(p0, 2, 0.1, (struct ls_sgd_rule){.momentum = 0.9f, .dampening = 0.5f}), dampened, 3e-7);
}

TEST_CASE(adam_by_hand) {
    static const double plain[3][2] = {
        {.99900000002, -1.99900000001}, {.998034818006385, -1.99800000002}, {.9970768167911536, -1.99700000003}};
    static const double coupled[3][2] = {{.9000000016666666, -1.9000000008333333},
                                         {.8025029703202308, -1.8000226891227293},
                                         {.7056952879647671, -1.700083391480767}};
    static const double decoupled[3][2] = {
        {.899000002, -1.898000001}, {.8015828006365093, -1.7961020019990006}, {.7049810963127292, -1.6943059009970016}};
    static const double bits[3][2] = {
        {0x1.cccccep-1, -0x1.e66666p+0}, {0x1.9b61f8p-1, -0x1.ccccccp+0}, {0x1.6a5542p-1, -0x1.b33332p+0}};
    check_by_hand(start_adam(p0, 2, 1e-3, 0, false), plain, 3e-7);
    check_by_hand(start_adam(p0, 2, 0.1, 0.1, false), coupled, 3e-7);
    check_by_hand(start_adam(p0, 2, 0.1, 0.01, true), decoupled, 3e-7);
    check_by_hand(start_adam(p0, 2, 0.1, 0, false), bits, 0);
}

/* --- found_inf --------------------------------------------------------------------------------------------------- */

static void check_skips(struct run run) {
    float *good = kernel_copy((float[]){0.5f, -1}, 2), *bad = kernel_copy((float[]){INFINITY, NAN}, 2), *m = run.m;
    step(&run, good);
    struct ls_update_state state = *run.state;
    float before[6] = {run.p[0], run.p[1], m ? m[0] : 0, m ? m[1] : 0, run.v[0], run.v[1]};
    run.state->found_inf = state.found_inf = 1;
    step(&run, bad);
    float after[6] = {run.p[0], run.p[1], m ? m[0] : 0, m ? m[1] : 0, run.v[0], run.v[1]};
    kernel_expect_same("parameters and moments", after, before, sizeof after);
    assert_true(run.state->step == state.step && run.state->step == 1);
    run.state->found_inf = 0;
    step(&run, good);
    assert_true(run.state->step == 2 && run.p[0] < before[0] && run.p[1] > before[1]);
}

TEST_CASE(found_inf_skips_the_update) {
    check_skips(start_sgd(p0, 2, 0.1, (struct ls_sgd_rule){.weight_decay = 0.01f}));
    check_skips(start_sgd(p0, 2, 0.1, (struct ls_sgd_rule){.momentum = 0.9f}));
    check_skips(start_adam(p0, 2, 0.1, 0.1, false));
    check_skips(start_adam(p0, 2, 0.1, 0.1, true));
}

/* --- the gradients' factor, the learning rate --------------------------------------------------------------------- */

static void expect_same_runs(const struct run *got, const struct run *want) {
    size_t nbytes = got->count * sizeof(float);
    kernel_expect_same("parameters", got->p, want->p, nbytes);
    if (got->m) kernel_expect_same("first moments", got->m, want->m, nbytes);
    kernel_expect_same("second moments", got->v, want->v, nbytes);
}

/* Two updates: with gradients that the update multiplies by the factor, and with gradients that were multiplied
 * before. */
static void check_factor(struct run run, struct run same, float factor) {
    run.state->gradient_factor = factor;
    for (uint64_t t = 1; t <= 2; t++) {
        float *g = kernel_random(run.count, t), *multiplied = kernel_copy(g, run.count);
        for (size_t i = 0; i < run.count; i++) multiplied[i] *= factor;
        step(&run, g);
        step(&same, multiplied);
        expect_same_runs(&run, &same);
    }
}

TEST_CASE(gradients_are_multiplied_by_their_factor) {
    enum { COUNT = 37 };
    static const float factors[] = {0x1p-16f, 0.3f, 1, 0};
    static const struct ls_sgd_rule rules[] = {
        {0}, {.weight_decay = 0.01f}, {.momentum = 0.9f, .nesterov = true}, {.momentum = 0.9f, .weight_decay = 0.01f}};
    const float *p = kernel_random(COUNT, 9);
    for (int f = 0; f < 4; f++) {
        for (int r = 0; r < 4; r++) {
            check_factor(start_sgd(p, COUNT, 0.1, rules[r]), start_sgd(p, COUNT, 0.1, rules[r]), factors[f]);
        }
        for (int decoupled = 0; decoupled < 2; decoupled++) {
            check_factor(start_adam(p, COUNT, 0.1, 0.1, decoupled), start_adam(p, COUNT, 0.1, 0.1, decoupled),
                         factors[f]);
        }
    }
}

TEST_CASE(the_learning_rate_is_that_of_all_states) {
    for (size_t count = 1; count <= 3; count += 2) {
        struct ls_update_state *states = kernel_bytes(4 * sizeof *states), *want = kernel_bytes(4 * sizeof *want);
        for (size_t s = 0; s < count; s++) want[s].learning_rate = 0.1; /* the rest is 0xff */
        ls_set_learning_rate(kernel_stream(), states, count, 0.1);
        kernel_done();
        kernel_expect_same("states", states, want, 4 * sizeof *want);
    }
}

/* --- the numbers of a step ---------------------------------------------------------------------------------------- */

/* Powers by repeated squaring in twice the precision, and the host's pow: the same two floats, even where 1 minus the
 * power loses most of its digits. */
TEST_CASE(begin_update_has_the_hosts_bits) {
    static const double betas[][2] = {{0.9, 0.999}, {0.5, 0.9999}, {0, 0}, {1 - 1e-7, 1 - 1e-8}};
    for (size_t b = 0; b < sizeof betas / sizeof *betas; b++) {
        for (int t = 0; t < 100000; t += 1 + t / 9) {
            struct run run = start(NULL, 0, 1e-3);
            run.state->step = t;
            struct ls_update_state want = *run.state;
            want.step = t + 1;
            want.step_size = (float)(1e-3 / (1 - pow(betas[b][0], t + 1)));
            want.bias2_sqrt = (float)sqrt(1 - pow(betas[b][1], t + 1));
            ls_begin_update(kernel_stream(), run.state, betas[b][0], betas[b][1]);
            kernel_done();
            kernel_expect_same("state", run.state, &want, sizeof want);
        }
    }
}

/* --- Adam's arithmetic --------------------------------------------------------------------------------------------- */

/* The kernel divides by its own method; the bits are those of the formula in float, infinite gradients included. */
TEST_CASE(adam_has_the_bits_of_its_formula) {
    enum { COUNT = LS_UPDATE_CHUNK + 1003 };
    float *start_at = kernel_random(COUNT, 1), *g = kernel_random(COUNT, 2), *want = kernel_copy(start_at, COUNT);
    float *m = kernel_floats(COUNT), *v = kernel_floats(COUNT);
    memset(m, 0, COUNT * sizeof *m);
    memset(v, 0, COUNT * sizeof *v);
    g[7] = INFINITY; /* the square overflows */
    g[8] = 1e25f;
    g[9] = 1e-42f;
    struct run run = start_adam(start_at, COUNT, 1e-3, 0, false);
    for (int t = 1; t <= 20; t++) {
        step(&run, g);
        float step_size = (float)(1e-3 / (1 - pow(0.9, t))), bias2_sqrt = (float)sqrt(1 - pow(0.999, t));
        for (size_t i = 0; i < COUNT; i++) {
            m[i] = fmaf(g[i], (float)(1 - 0.9), m[i] * 0.9f);
            v[i] = fmaf(g[i] * (float)(1 - 0.999), g[i], v[i] * 0.999f);
            want[i] = fmaf(-step_size, m[i] / (sqrtf(v[i]) / bias2_sqrt + 1e-8f), want[i]);
        }
        for (size_t i = 0; i < COUNT; i++) {
            if (memcmp(&run.p[i], &want[i], sizeof *want) == 0 || (isnan(run.p[i]) && isnan(want[i]))) continue;
            fail_msg("step %d, element %zu: %a, not %a", t, i, (double)run.p[i], (double)want[i]);
        }
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(adam_has_the_bits_of_its_formula),
        ROW(sgd_files),
        ROW(adam_files),
        ROW(sgd_by_hand),
        ROW(adam_by_hand),
        ROW(found_inf_skips_the_update),
        ROW(gradients_are_multiplied_by_their_factor),
        ROW(the_learning_rate_is_that_of_all_states),
        ROW(begin_update_has_the_hosts_bits),
    };
    return RUN_EVERYWHERE("optimizers", tests);
}
