/* The reduction kernels and the conversions of fp16 and bf16: to the bit, against plain scalar code, in every build of
 * the loops. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/comm/reduce_kernels.h"
#include "tests/base/test.h"
#include "tests/comm/values.h"

/* --- conversions, case by case ------------------------------------------------------------------------------------ */

/* Builds the value from its parts in double, which holds all of them exactly. */
static double fp16_value(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) magnitude = fraction ? (double)NAN : (double)INFINITY;
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* The nearest neighbour, or the even one at a tie: fp16 values of one sign ascend with their bits. */
static uint16_t nearest_fp16(float value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs((double)value);
    if (isnan(value)) return sign | 0x7e00;
    if (magnitude >= 65520) return sign | 0x7c00;
    uint16_t low = 0, high = 0x7c00; /* low <= magnitude < high, where 0x7c00 stands for 65536 */
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (fp16_value(middle) <= magnitude) low = middle;
        if (fp16_value(middle) > magnitude) high = middle;
    }
    double above = high == 0x7c00 ? 65536.0 : fp16_value(high);
    double to_low = magnitude - fp16_value(low), to_high = above - magnitude;
    bool up = to_high < to_low || (to_high == to_low && high % 2 == 0);
    return sign | (up ? high : low);
}

/* Truncates, and adds one if the cut part is more than a half, or exactly a half after an odd number. */
static uint16_t nearest_bf16(float value) {
    uint32_t bits = ls_float_bits(value), cut = bits & 0xffff;
    uint16_t upper = (uint16_t)(bits >> 16);
    if (isnan(value)) return upper | 0x40;
    return (uint16_t)(upper + (cut > 0x8000 || (cut == 0x8000 && upper % 2 == 1)));
}

TEST(test_widening) {
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        double expected = fp16_value((uint16_t)bits);
        float got = ls_fp16_to_float((uint16_t)bits);
        if (isnan(expected) ? !isnan(got) : (double)got != expected) fail_msg("fp16 %04x became %g", bits, (double)got);
        if (!signbit(got) != !(bits & 0x8000)) fail_msg("fp16 %04x lost its sign", bits);
        if (ls_float_bits(ls_bf16_to_float((uint16_t)bits)) != bits << 16) fail_msg("bf16 %04x", bits);
    }
}

static void check_narrowing(uint32_t bits) {
    float value = ls_float_of_bits(bits);
    uint16_t fp16 = ls_fp16_from_float(value), bf16 = ls_bf16_from_float(value);
    if (fp16 != nearest_fp16(value)) fail_msg("fp32 %08x became fp16 %04x, not %04x", bits, fp16, nearest_fp16(value));
    if (bf16 != nearest_bf16(value)) fail_msg("fp32 %08x became bf16 %04x, not %04x", bits, bf16, nearest_bf16(value));
}

/* Every sign and exponent, with fractions at and next to each tie of both types, and random ones. */
TEST(test_narrowing) {
    uint32_t random = 1;
    for (uint32_t upper = 0; upper < 0x10000; upper += 1) {
        static const uint32_t lowers[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff};
        size_t step = upper % 16 < 3 || upper % 16 > 13 ? 1 : 3;
        for (size_t i = 0; i < sizeof lowers / sizeof *lowers; i += step) check_narrowing(upper << 16 | lowers[i]);
        random = random * 1664525u + 1013904223u;
        check_narrowing(upper << 16 | random >> 16);
    }
    for (int shift = 0; shift < 24; shift++) /* ties of fp16's subnormals occur at every bit of the fraction */
        for (uint32_t exponent = 0x65; exponent < 0x72; exponent++)
            for (int beside = -1; beside <= 1; beside++)
                check_narrowing((exponent << 23 | (1u << shift)) + (uint32_t)beside);
}

/* --- reductions --------------------------------------------------------------------------------------------------- */

#define INPUTS 5
#define COUNT 70001
#define OFFSET 3 /* elements before the first, so that nothing is aligned */

typedef struct memory {
    _Alignas(8) unsigned char bytes[(COUNT + OFFSET) * 8];
} memory;

static memory inputs[INPUTS], outputs[2], originals[INPUTS];

static char *at(memory *m, ls_dtype dtype) { return (char *)m->bytes + OFFSET * ls_dtype_nbytes(dtype); }

/* fp16 and bf16: every value is paired with values of all kinds, since odd multiples of the index run through all
 * 65536. */
static void fill_input(int input, ls_dtype dtype) {
    fill_values(at(&inputs[input], dtype), dtype, input, 0, COUNT);
    if (dtype != LS_FP16 && dtype != LS_BF16) return;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint16_t half = (uint16_t)(i * (2u * (uint32_t)input * 7919u + 1u));
        memcpy(at(&inputs[input], dtype) + i * 2, &half, 2);
    }
}

static double reduce_two(double a, double b, ls_dtype dtype, ls_reduce_op op) {
    if (op == LS_REDUCE_SUM) return reduce_real(a, b, dtype, op);
    if (isnan(a) || isnan(b)) return (double)NAN;
    return op == LS_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

static int64_t reduce_whole(int64_t a, int64_t b, ls_reduce_op op) {
    if (op == LS_REDUCE_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
    return op == LS_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

static int64_t whole_of(const char *element, ls_dtype dtype) {
    int32_t narrow;
    int64_t wide;
    memcpy(&narrow, element, sizeof narrow);
    if (dtype == LS_INT32) return narrow;
    memcpy(&wide, element, sizeof wide);
    return wide;
}

/* Whether `got` is the reduction of the originals' elements i; any NaN matches a NaN. */
static bool is_reduced(const char *got, ls_dtype dtype, ls_reduce_op op, int ninputs, size_t i) {
    size_t nbytes = ls_dtype_nbytes(dtype);
    char expected[8];
    if (dtype == LS_INT32 || dtype == LS_INT64) {
        int64_t result = whole_of(at(&originals[0], dtype) + i * nbytes, dtype);
        for (int k = 1; k < ninputs; k++)
            result = reduce_whole(result, whole_of(at(&originals[k], dtype) + i * nbytes, dtype), op);
        memcpy(expected, &result, sizeof result);
        return memcmp(got, expected, nbytes) == 0;
    }
    double result = value_get(at(&originals[0], dtype), dtype, i);
    for (int k = 1; k < ninputs; k++)
        result = reduce_two(result, value_get(at(&originals[k], dtype), dtype, i), dtype, op);
    value_set(expected, dtype, 0, result);
    if (isnan(result)) return isnan(value_get(got, dtype, 0));
    return memcmp(got, expected, nbytes) == 0;
}

/* The output is also an input, as in an all-reduce; the bytes after the last element stay unchanged. */
static void check_reduction(ls_dtype dtype, ls_reduce_op op, int ninputs, size_t count) {
    size_t nbytes = ls_dtype_nbytes(dtype);
    for (int k = 0; k < ninputs; k++) fill_input(k, dtype);
    memcpy(originals, inputs, sizeof inputs);
    memset(outputs, 0xa5, sizeof outputs);
    const void *from[INPUTS];
    for (int k = 0; k < ninputs; k++) from[k] = at(&inputs[k], dtype);
    void *to[] = {at(&outputs[0], dtype), at(&inputs[ninputs - 1], dtype)};
    ls_reduce_inputs(to, 2, from, ninputs, count, dtype, op);
    for (size_t i = 0; i < count; i++)
        if (!is_reduced((char *)to[0] + i * nbytes, dtype, op, ninputs, i))
            fail_msg("%s of %d x %zu %s: element %zu", ls_reduce_op_name(op), ninputs, count, ls_dtype_name(dtype), i);
    assert_memory_equal(to[0], to[1], count * nbytes);
    assert_int_equal(((unsigned char *)to[0])[count * nbytes], 0xa5);
    assert_int_equal(((unsigned char *)to[0])[-1], 0xa5);
    assert_memory_equal((char *)to[1] + count * nbytes, at(&originals[ninputs - 1], dtype) + count * nbytes, 8);
}

static void check_all_reductions(void) {
    static const size_t counts[] = {0, 1, 63, 64, 65, 1023, 1024, 1025, 2100};
    for (ls_dtype dtype = LS_FP32; dtype < LS_DTYPE_COUNT; dtype++)
        for (ls_reduce_op op = LS_REDUCE_SUM; op < LS_REDUCE_OP_COUNT; op++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                check_reduction(dtype, op, (int)(c % INPUTS) + 1, counts[c]);
            check_reduction(dtype, op, 3, dtype == LS_FP16 || dtype == LS_BF16 ? COUNT - 8 : 5000);
        }
    check_reduction(LS_FP16, LS_REDUCE_SUM, 1, COUNT - 8); /* all 16-bit values unchanged; NaNs stay NaNs */
    check_reduction(LS_BF16, LS_REDUCE_SUM, 1, COUNT - 8);
}

/* A process chooses the build once, so each build is tested in a process of its own. */
static void check_build(const char *isa) {
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(120);
        setenv("LS_CPU_ISA", isa, 1);
        check_all_reductions();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the %s build is wrong", isa);
}

TEST(test_reductions) {
#if defined(__x86_64__)
    check_build("v2");
    check_build("v3");
#else
    check_build("plain");
#endif
}
