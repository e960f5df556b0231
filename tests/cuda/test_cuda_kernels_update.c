/* Optimizers on a GPU over several steps: the bits of kernels/cpu, which tests/kernels holds against PyTorch; one
 * golden file here too. Lists, found_inf, gradient_factor, the numbers of begin_update. Runs on real GPUs too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/transplant.h"

static void add_output(struct problem *p, void *memory, size_t nbytes) {
    p->outputs[p->output_count].memory = memory;
    p->outputs[p->output_count++].nbytes = nbytes;
}

static void run_rung(int rung, const struct problem *problem, transplant_alignment alignment) {
    ls_status status = transplant_run(problem, transplant_rungs()->rungs[rung].enqueue, alignment);
    if (status != LS_OK) fail_msg("%s: %s", ls_op_name(problem->op.id), ls_status_text(status));
}

/* --- begin_update ------------------------------------------------------------------------------------------------- */

static struct ls_update_state *make_state(double rate, double step) {
    struct ls_update_state *state = kernel_bytes(sizeof *state);
    memset(state, 0, sizeof *state);
    *state = (struct ls_update_state){.learning_rate = rate, .step = step, .gradient_factor = 1, .scale = 1};
    return state;
}

/* Powers by repeated squaring in twice the precision, and the host's pow: the same two floats, even where 1 minus the
 * power loses most of its digits. */
static void begin_update_has_the_hosts_bits(void **state) {
    (void)state;
    static const double betas[][2] = {{0.9, 0.999}, {0.5, 0.9999}, {0, 0}, {1 - 1e-7, 1 - 1e-8}};
    for (size_t b = 0; b < sizeof betas / sizeof *betas; b++) {
        for (int step = 0; step < 100000; step += 1 + step / 9) {
            struct ls_update_state *want = make_state(1e-3, step), *got = make_state(1e-3, step);
            ls_begin_update(kernel_stream(), want, betas[b][0], betas[b][1]);
            kernel_done();
            struct problem p = {.op.id = LS_OP_begin_update};
            p.op.arguments.begin_update = (struct ls_begin_update_arguments){got, betas[b][0], betas[b][1]};
            add_output(&p, got, sizeof *got);
            run_rung(RUNG_FAST, &p, TRANSPLANT_ALIGNED);
            kernel_expect_same("state", got, want, sizeof *got);
        }
    }
}

static void set_learning_rate_sets_nothing_else(void **state) {
    (void)state;
    enum { STATES = 3 };
    for (int i = 0; i < RUNG_COUNT * 2; i++) {
        struct ls_update_state *got = kernel_bytes(STATES * sizeof *got), *want = kernel_bytes(STATES * sizeof *want);
        size_t count = i < RUNG_COUNT ? STATES : 1;
        for (size_t s = 0; s < count; s++) want[s].learning_rate = 0.1;
        struct problem p = {.op.id = LS_OP_set_learning_rate};
        p.op.arguments.set_learning_rate = (struct ls_set_learning_rate_arguments){got, count, 0.1};
        add_output(&p, got, STATES * sizeof *got);
        run_rung(i % RUNG_COUNT, &p, TRANSPLANT_ALIGNED);
        kernel_expect_same("states", got, want, STATES * sizeof *got);
    }
}

/* --- updates, step after step, on the host's copies --------------------------------------------------------------- */

struct run {
    struct ls_update_state *state;
    struct ls_sgd_rule sgd;
    struct ls_adam_rule adam;
    bool is_adam;
    float *p, *m, *v;
    size_t count;
};

static struct run start(const struct run *rule, const float *p0, size_t count, double rate) {
    struct run run = *rule;
    run.state = make_state(rate, 0);
    run.p = kernel_copy(p0, count);
    run.m = kernel_floats(count);
    run.v = kernel_floats(count);
    memset(run.v, 0, count * sizeof *run.v);
    for (size_t i = 0; i < count; i++)
        run.m[i] = run.is_adam ? 0 : NAN; /* the first update must not read the momentum */
    run.count = count;
    return run;
}

static struct problem problem_of_begin(const struct run *run) {
    struct problem p = {.op.id = LS_OP_begin_update};
    p.op.arguments.begin_update = (struct ls_begin_update_arguments){run->state, run->is_adam ? run->adam.beta1 : 0,
                                                                     run->is_adam ? run->adam.beta2 : 0};
    add_output(&p, run->state, sizeof *run->state);
    return p;
}

static struct problem problem_of_update(const struct run *run, const float *gradient) {
    struct problem p = {.op.id = run->is_adam ? LS_OP_adam : LS_OP_sgd};
    if (run->is_adam) {
        p.op.arguments.adam =
            (struct ls_adam_arguments){run->adam, run->state, run->p, gradient, run->m, run->v, run->count};
    } else {
        p.op.arguments.sgd = (struct ls_sgd_arguments){run->sgd, run->state, run->p, gradient, run->m, run->count};
    }
    add_output(&p, run->p, run->count * sizeof *run->p);
    add_output(&p, run->m, run->count * sizeof *run->m);
    add_output(&p, run->v, run->count * sizeof *run->v);
    return p;
}

static void step_on_gpu(int rung, const struct run *run, const float *gradient, transplant_alignment alignment) {
    struct problem begin = problem_of_begin(run), update = problem_of_update(run, gradient);
    run_rung(rung, &begin, alignment);
    run_rung(rung, &update, alignment);
}

static void step_on_cpu(const struct run *run, const float *gradient) {
    struct problem begin = problem_of_begin(run), update = problem_of_update(run, gradient);
    ls_enqueue(kernel_stream(), &begin.op);
    kernel_done();
    ls_enqueue(kernel_stream(), &update.op);
    kernel_done();
}

#define ADAM(decay, is_decoupled)                                                                                      \
    {                                                                                                                  \
        .is_adam = true, .adam = { 0.9, 0.999, 1e-8, decay, is_decoupled }                                             \
    }
static const struct run rules[] = {
    {.sgd = {0, 0, 0, false}},
    {.sgd = {0, 0, 0.01f, false}},
    {.sgd = {0.9f, 0, 0.01f, false}},
    {.sgd = {0.9f, 0, 0, true}},
    {.sgd = {0.9f, 0.5f, 0, false}},
    ADAM(0, false),
    ADAM(0.01, false),
    ADAM(0.01, true),
};

/* Infinite and tiny gradients on the way. Not bytes: a NaN may be any NaN. */
static void expect_same_numbers(const char *what, const float *got, const float *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) == 0 || (isnan(got[i]) && isnan(want[i]))) continue;
        fail_msg("%s[%zu] is %a, not %a", what, i, (double)got[i], (double)want[i]);
    }
}

static void updates_have_the_cpus_bits(void **state) {
    (void)state;
    enum { N = LS_UPDATE_CHUNK + 1003 };
    static const float factors[] = {1, 0.37f, 0.5f, 1e-3f};
    float *p0 = kernel_random(N, 1);
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        struct run want = start(&rules[r], p0, N, 1e-2), got[RUNG_COUNT];
        for (int rung = 0; rung < RUNG_COUNT; rung++) got[rung] = start(&rules[r], p0, N, 1e-2);
        for (int t = 1; t <= 4; t++) {
            float *gradient = kernel_random(N, 10 + (uint64_t)t);
            gradient[7] = INFINITY;
            gradient[8] = 1e25f;
            gradient[9] = 1e-42f;
            want.state->found_inf = t == 3; /* an update that must change nothing */
            want.state->gradient_factor = factors[t - 1];
            step_on_cpu(&want, gradient);
            for (int rung = 0; rung < RUNG_COUNT; rung++) {
                got[rung].state->found_inf = t == 3;
                got[rung].state->gradient_factor = factors[t - 1];
                step_on_gpu(rung, &got[rung], gradient, (transplant_alignment)(t % TRANSPLANT_ALIGNMENTS));
                kernel_expect_same("state", got[rung].state, want.state, sizeof *want.state);
                expect_same_numbers("p", got[rung].p, want.p, N);
                expect_same_numbers("m", got[rung].m, want.m, N);
                expect_same_numbers("v", got[rung].v, want.v, N);
            }
        }
    }
}

/* With the gradients of a loss that was multiplied by `scale`, a power of two: the same bits. */
static void check_golden(const char *file, struct run rule, double rate, float scale) {
    enum { N = 257 };
    kernel_golden_open(file);
    struct run run = start(&rule, kernel_golden("p0", N), N, rate);
    for (int t = 1; t <= 5; t++) {
        char g[8], p[8];
        snprintf(g, sizeof g, "g%d", t);
        snprintf(p, sizeof p, "p%d", t);
        float *gradient = kernel_copy(kernel_golden(g, N), N);
        for (int i = 0; i < N; i++) gradient[i] *= scale;
        run.state->gradient_factor = 1 / scale;
        step_on_gpu(RUNG_FAST, &run, gradient, TRANSPLANT_ALIGNED);
        kernel_expect_close(p, run.p, kernel_golden(p, N), N, 1e-6, 1e-7);
    }
}

static void updates_are_pytorchs(void **state) {
    (void)state;
    struct run nesterov = {.sgd = {.momentum = 0.9f, .weight_decay = 1e-4f, .nesterov = true}};
    for (int scale = 1; scale < 100000; scale *= 256) {
        check_golden("optim_sgd_lr0.1_momentum0.9_nesterov_wd1e-4", nesterov, 0.1, (float)scale);
        check_golden("optim_adamw_lr1e-3_wd1e-2", (struct run)ADAM(1e-2, true), 1e-3, (float)scale);
    }
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

enum { TENSORS = 9 };

/* Tensors without elements at both ends and in the middle, whole chunks, one element more, one less. */
static struct problem make_list(bool is_adam, float found_inf, const struct ls_update_tensor **tensors) {
    static const size_t counts[TENSORS] = {0, 1, LS_UPDATE_CHUNK, 0, 0, LS_UPDATE_CHUNK + 1, 13, LS_UPDATE_CHUNK - 1,
                                           0};
    struct problem p = {.op.id = is_adam ? LS_OP_adam_list : LS_OP_sgd_list};
    struct ls_update_tensor *list = kernel_bytes(TENSORS * sizeof *list);
    struct ls_update_state *state = make_state(0.1, 2);
    *state = (struct ls_update_state){.learning_rate = 0.1,
                                      .step = 2,
                                      .found_inf = found_inf,
                                      .gradient_factor = 0.7f,
                                      .step_size = 0.3f,
                                      .bias2_sqrt = 0.2f};
    size_t chunks = 0, total = 0;
    for (uint64_t i = 0; i < TENSORS; i++) {
        float *second = kernel_random(counts[i], 40 + i);
        for (size_t k = 0; k < counts[i]; k++) second[k] = fabsf(second[k]);
        list[i] = (struct ls_update_tensor){kernel_random(counts[i], 10 + i),
                                            kernel_random(counts[i], 20 + i),
                                            kernel_random(counts[i], 30 + i),
                                            second,
                                            counts[i],
                                            chunks};
        chunks += (counts[i] + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        total += counts[i];
    }
    struct ls_sgd_rule sgd = {0.9f, 0, 0.01f, true};
    struct ls_adam_rule adam = {0.9, 0.999, 1e-8, 0.01, true};
    if (is_adam) p.op.arguments.adam_list = (struct ls_adam_list_arguments){adam, state, list, TENSORS, chunks, total};
    if (!is_adam) p.op.arguments.sgd_list = (struct ls_sgd_list_arguments){sgd, state, list, TENSORS, chunks, total};
    *tensors = list;
    return p;
}

static void add_tensors(struct problem *p, const struct ls_update_tensor *list) {
    for (int i = 0; i < TENSORS; i++) {
        add_output(p, list[i].parameter, list[i].count * sizeof(float));
        add_output(p, list[i].first, list[i].count * sizeof(float));
        if (p->op.id == LS_OP_adam_list) add_output(p, list[i].second, list[i].count * sizeof(float));
    }
}

static void check_list(bool is_adam, float found_inf, int rung, transplant_alignment alignment) {
    const struct ls_update_tensor *want_list, *got_list;
    struct problem want = make_list(is_adam, found_inf, &want_list), got = make_list(is_adam, found_inf, &got_list);
    add_tensors(&got, got_list);
    ls_enqueue(kernel_stream(), &want.op);
    kernel_done();
    run_rung(rung, &got, alignment);
    for (int i = 0; i < TENSORS; i++) {
        size_t nbytes = want_list[i].count * sizeof(float);
        kernel_expect_same("parameter", got_list[i].parameter, want_list[i].parameter, nbytes);
        kernel_expect_same("first", got_list[i].first, want_list[i].first, nbytes);
        kernel_expect_same("second", got_list[i].second, want_list[i].second, nbytes);
    }
    bool untouched = memcmp(got_list[6].parameter, kernel_random(13, 16), 13 * sizeof(float)) == 0;
    assert_int_equal(untouched, found_inf != 0);
}

static void lists_have_the_cpus_bits(void **state) {
    (void)state;
    for (int is_adam = 0; is_adam < 2; is_adam++) {
        for (int rung = 0; rung < RUNG_COUNT; rung++) {
            for (int alignment = 0; alignment < TRANSPLANT_ALIGNMENTS; alignment++)
                check_list(is_adam, 0, rung, (transplant_alignment)alignment);
            check_list(is_adam, 1, rung, TRANSPLANT_ALIGNED);
        }
    }
}

static void an_empty_list_is_nothing(void **state) {
    (void)state;
    struct problem p = {.op.id = LS_OP_adam_list};
    p.op.arguments.adam_list = (struct ls_adam_list_arguments){.state = make_state(0.1, 2)};
    for (int rung = 0; rung < RUNG_COUNT; rung++) run_rung(rung, &p, TRANSPLANT_ALIGNED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(begin_update_has_the_hosts_bits),
        TEST(updates_have_the_cpus_bits),
        TEST(updates_are_pytorchs),
        TEST(lists_have_the_cpus_bits),
        TEST(an_empty_list_is_nothing),
        TEST(set_learning_rate_sets_nothing_else),
    };
    return cmocka_run_group_tests_name("updates on GPUs", tests, NULL, NULL);
}
