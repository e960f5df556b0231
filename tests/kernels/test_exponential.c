/* exp and GELU of floats against double precision, with the same bits for any instruction set. Every 4099th float; with
 * LS_EVERY_FLOAT in the environment (make every-float), all of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/exponential.h"
#include "tests/base/test.h"

/* Loops for the instruction sets that kernels/cpu/variant is built for. */
enum { BLOCK = 4096 };
struct function {
    const char *name;
    void (*run)(float *y, const float *x);
    double (*error)(float x, float got);
    bool (*runs_here)(void);
};

#define LOOP(function, build)                                                                                          \
    static BUILT_FOR_##build void function##_##build(float *restrict y, const float *restrict x) {                     \
        for (int i = 0; i < BLOCK; i++) y[i] = ls_##function(x[i]);                                                    \
    }
#define LOOPS(build) LOOP(exp_float, build) LOOP(gelu_float, build) LOOP(gelu_slope, build)
#define BUILT_FOR_plain
static bool plain(void) { return true; }
LOOPS(plain)
#if defined(__x86_64__)
#define BUILT_FOR_avx2 __attribute__((target("avx2,fma")))
#define BUILT_FOR_avx512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
static bool avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static bool avx512(void) { return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"); }
LOOPS(avx2)
LOOPS(avx512)
#endif

/* --- errors, in each function's own unit; infinite if a NaN or an infinity is wrong ------------------------------- */

static double unit_of(double value) {
    int exponent;
    (void)frexp(value, &exponent);
    return ldexp(1, exponent - 24 > -149 ? exponent - 24 : -149);
}

/* In units in the last place of the correct result. */
static double error_of_exp(float x, float got) {
    double want = exp((double)x);
    if (isnan(x)) return isnan(got) ? 0 : INFINITY;
    if (isinf((float)want) || isinf(got)) return got == (float)want ? 0 : INFINITY;
    return fabs((double)got - want) / unit_of(want);
}

/* In units of 2^-24 of the result, with the rounding of exp's argument: below 2^-100 it counts as 0. */
static double error_of_gelu(float x, float got) {
    double u = sqrt(2 / acos(-1)) * ((double)x + 0.044715 * (double)x * (double)x * (double)x),
           want = (double)x / (1 + exp(-2 * u));
    if (isnan(x) || x == -INFINITY) return isnan(got) ? 0 : INFINITY;
    if (isinf(x)) return got == x ? 0 : INFINITY;
    return fabs((double)got - want) / (fmax(fabs(want), 0x1p-100) * 0x1p-24 * (1 + 2 * fabs(u)));
}

/* In units of 2^-24. If x^2 is infinite, PyTorch's slope is a NaN, too. */
static double error_of_slope(float x, float got) {
    double a = sqrt(2 / acos(-1)), u = a * ((double)x + 0.044715 * (double)x * (double)x * (double)x),
           share = 1 / (1 + exp(-2 * u)),
           want = share + (double)x * share * (1 - share) * 2 * a * (1 + 3 * 0.044715 * (double)x * (double)x);
    if (isinf(x * x) || isnan(x)) return isnan(got) ? 0 : INFINITY;
    return fabs((double)got - (isnan(want) ? x > 0 : want)) / 0x1p-24;
}

/* --- all floats, or some ------------------------------------------------------------------------------------------------ */

#define FUNCTIONS(build)                                                                                               \
    {"exp, " #build, exp_float_##build, error_of_exp, build},                                                          \
        {"GELU, " #build, gelu_float_##build, error_of_gelu, build}, {                                                 \
        "GELU's slope, " #build, gelu_slope_##build, error_of_slope, build                                             \
    }
static const double most[] = {1, 4, 8};
static const struct function functions[] = {
    FUNCTIONS(plain),
#if defined(__x86_64__)
    FUNCTIONS(avx2),
    FUNCTIONS(avx512),
#endif
};

struct found {
    double error; /* the largest */
    float at;
    uint64_t bits; /* of all results */
};

static struct found walk(const struct function *f, uint32_t stride, bool only_bits) {
    static float x[BLOCK], y[BLOCK];
    struct found found = {0};
    for (uint64_t next = 0; next <= UINT32_MAX;) {
        int count = 0;
        for (; count < BLOCK && next <= UINT32_MAX; next += stride) x[count++] = ls_float_of_bits((uint32_t)next);
        f->run(y, x);
        for (int i = 0; i < count; i++) {
            double error = only_bits ? 0 : f->error(x[i], y[i]);
            if (!(error <= found.error)) found.error = error, found.at = x[i];
            found.bits = found.bits * 31 + (isnan(y[i]) ? 1 : ls_float_bits(y[i]));
        }
    }
    return found;
}

TEST(floats_are_near_enough_and_the_same_everywhere) {
    const uint32_t stride = getenv("LS_EVERY_FLOAT") ? 1 : 4099;
    struct found first[COUNT_OF(most)];
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        const struct function *f = &functions[i];
        if (!f->runs_here()) continue;
        size_t kind = i % COUNT_OF(most);
        struct found found = walk(f, stride, i != kind);
        if (i == kind) {
            first[kind] = found;
            printf("%-22s off by %.3f at most, at %a (%g)\n", f->name, found.error, (double)found.at, (double)found.at);
        }
        if (!(found.error <= most[kind])) fail_msg("%s of %a is off by %g", f->name, (double)found.at, found.error);
        if (found.bits != first[kind].bits) fail_msg("%s has other bits than %s", f->name, functions[kind].name);
    }
}

/* Values that a stride may miss. */
TEST(ends_of_the_range) {
    static const struct {
        float x, want;
    } of_exp[] = {{0, 1},
                  {-0.0f, 1},
                  {INFINITY, INFINITY},
                  {-INFINITY, 0},
                  {0x1.62e42ep+6f, 0x1.ffff08p+127f},
                  {0x1.62e430p+6f, INFINITY},
                  {-0x1.9fe368p+6f, 0x1p-149f},
                  {-0x1.9fe36ap+6f, 0},
                  {0x1p-149f, 1},
                  {0x1.fffffep127f, INFINITY},
                  {-0x1.fffffep127f, 0}};
    for (size_t i = 0; i < COUNT_OF(of_exp); i++) {
        float got = ls_exp_float(of_exp[i].x);
        if (!(got == of_exp[i].want)) fail_msg("exp(%a) is %a", (double)of_exp[i].x, (double)got);
    }
    assert_true(isnan(ls_exp_float(NAN)) && isnan(ls_gelu_float(NAN)) && isnan(ls_gelu_slope(NAN)));
    assert_true(ls_gelu_float(0x1p127f) == 0x1p127f && ls_gelu_float(-0x1p127f) == 0 && ls_gelu_float(0x1p-149f) == 0);
    assert_true(ls_gelu_slope(0) == 0.5f && ls_gelu_slope(100) == 1 && ls_gelu_slope(-100) == 0);
}
