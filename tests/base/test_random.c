#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "tests/base/golden.h"
#include "tests/base/test.h"

static void expect_near(float got, double want, double tolerance) {
    if (!(fabs((double)got - want) <= tolerance)) fail_msg("%.9g, expected %.9g", (double)got, want);
}

TEST(first_outputs_are_those_of_mt19937) {
    static const uint32_t seed_0[] = {2357136044u, 2546248239u, 3071714933u, 3626093760u, 2588848963u};
    static const uint32_t seed_5489[] = {3499211612u, 581869302u, 3890346734u};
    ls_generator generator;
    ls_generator_seed(&generator, 0);
    for (size_t i = 0; i < COUNT_OF(seed_0); i++) assert_int_equal(ls_random32(&generator), seed_0[i]);
    ls_generator_seed(&generator, 5489);
    for (size_t i = 0; i < COUNT_OF(seed_5489); i++) assert_int_equal(ls_random32(&generator), seed_5489[i]);
}

/* The C++ standard requires this of std::mt19937: it covers sixteen renewals of the state. */
TEST(ten_thousandth_output) {
    ls_generator generator;
    ls_generator_seed(&generator, 5489);
    for (int i = 1; i < 10000; i++) ls_random32(&generator);
    assert_int_equal(ls_random32(&generator), 4123659995u);
}

TEST(only_the_low_half_of_a_seed_counts) {
    ls_generator generator;
    ls_generator_seed(&generator, UINT64_C(1) << 32);
    assert_int_equal(ls_random32(&generator), 2357136044u);
    ls_generator same;
    ls_generator_seed(&generator, UINT64_MAX);
    ls_generator_seed(&same, 0xffffffffu);
    for (int i = 0; i < 5; i++) assert_int_equal(ls_random32(&generator), ls_random32(&same));
}

TEST(the_first_output_is_the_high_half) {
    ls_generator generator;
    ls_generator_seed(&generator, 0);
    assert_true(ls_random64(&generator) == ((uint64_t)2357136044u << 32 | 2546248239u));
    ls_generator_seed(&generator, 0);
    uint64_t low_53 = ((uint64_t)2357136044u << 32 | 2546248239u) & ((UINT64_C(1) << 53) - 1);
    assert_true(ls_uniform_double(&generator) == (double)low_53 / 9007199254740992.0);
}

TEST(permutations_are_pytorchs) {
    cJSON *file = golden_json("randperm.json");
    assert_int_equal(cJSON_GetArraySize(file), 15);
    const cJSON *row;
    cJSON_ArrayForEach(row, file) {
        int64_t n = golden_integer(row, "n");
        int64_t *order = malloc((size_t)n * sizeof *order);
        assert_non_null(order);
        ls_generator generator;
        ls_generator_seed(&generator, (uint64_t)golden_integer(row, "seed"));
        ls_randperm(&generator, n, order);
        golden_expect_integers(cJSON_GetObjectItemCaseSensitive(row, "perm"), order, n);
        free(order);
    }
    cJSON_Delete(file);
}

TEST(long_permutations_begin_and_end_as_pytorchs) {
    static const struct {
        uint64_t seed;
        int64_t n, first[5], last[3];
    } rows[] = {
        {0, 1000, {44, 37, 675, 775, 947}, {745, 263, 354}},
        {0, 60000, {36044, 10678, 57327, 55074, 21567}, {31951, 27130, 1544}},
        {1, 1000, {845, 303, 66, 436, 239}, {513, 935, 639}},
        {1, 60000, {35845, 27522, 33254, 23645, 11299}, {21675, 36444, 12053}},
        {42, 1000, {542, 618, 816, 68, 94}, {638, 96, 455}},
        {42, 60000, {37542, 43087, 2992, 25810, 39634}, {28045, 16929, 22100}},
    };
    static int64_t order[60000];
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        ls_generator generator;
        ls_generator_seed(&generator, rows[i].seed);
        ls_randperm(&generator, rows[i].n, order);
        assert_memory_equal(order, rows[i].first, sizeof rows[i].first);
        assert_memory_equal(order + rows[i].n - 3, rows[i].last, sizeof rows[i].last);
    }
}

TEST(a_permutation_draws_n_minus_1_numbers) {
    static const int64_t second[] = {3, 9, 4, 2, 7, 8, 6, 0, 5, 1};
    int64_t order[10] = {-1};
    ls_generator generator;
    ls_generator_seed(&generator, 0);
    ls_randperm(&generator, 0, order);
    assert_int_equal(order[0], -1);
    ls_randperm(&generator, 1, order);
    assert_int_equal(order[0], 0);
    ls_randperm(&generator, 10, order);
    ls_randperm(&generator, 10, order);
    assert_memory_equal(order, second, sizeof second);
}

TEST(uniform_values_are_pytorchs) {
    static const float rand_3[] = {0.4962565899f, 0.7682217956f, 0.0884774327f};
    float values[3];
    ls_generator generator;
    ls_generator_seed(&generator, 0);
    ls_fill_uniform(&generator, values, 3, 0, 1);
    assert_memory_equal(values, rand_3, sizeof rand_3);
}

/* torch.nn.Linear(4, 3) and Conv2d(3, 2, 3), whose last bits need the fused multiply-add. */
TEST(initial_weights_are_pytorchs_to_the_last_bit) {
    static const float linear[] = {
        -.003743410110473633f, .26822179555892944f,   -.4115225672721863f, -.3679695129394531f,  -.19257718324661255f,
        .13407868146896362f,   -.009906589984893799f, .39644473791122437f, -.04437202215194702f, .1323062777519226f,
        -.15110653638839722f,  -.09828269481658936f,  -.4776742458343506f, -.33114105463027954f, -.20611155033111572f};
    static const float convolution[] = {.14713551104068756f, .15973509848117828f, -.045085761696100235f,
                                        .17678682506084442f};
    static const float convolution_bias[] = {.055431656539440155f, .07971543073654175f};
    float values[54];
    ls_generator generator;
    ls_generator_seed(&generator, 0);
    double bound = sqrt(3.0) * (sqrt(2.0 / 6.0) / sqrt(4.0));
    ls_fill_uniform(&generator, values, 12, -bound, bound);
    ls_fill_uniform(&generator, values + 12, 3, -0.5, 0.5);
    assert_memory_equal(values, linear, sizeof linear);
    ls_generator_seed(&generator, 42);
    bound = sqrt(3.0) * (sqrt(2.0 / 6.0) / sqrt(27.0));
    ls_fill_uniform(&generator, values, 54, -bound, bound);
    assert_memory_equal(values, convolution, sizeof convolution);
    ls_fill_uniform(&generator, values, 2, -1 / sqrt(27.0), 1 / sqrt(27.0));
    assert_memory_equal(values, convolution_bias, sizeof convolution_bias);
}

TEST(fewer_than_16_normals_come_in_pairs) {
    static const double golden[] = {1.540996, -0.293429, -2.178789, 0.568431};
    float values[4], singly[4];
    ls_generator generator;
    ls_generator_seed(&generator, 0);
    ls_fill_normal(&generator, values, 4);
    for (int i = 0; i < 4; i++) expect_near(values[i], golden[i], 1e-6);
    ls_generator_seed(&generator, 0);
    for (int i = 0; i < 3; i++) ls_fill_normal(&generator, singly + i, 1);
    assert_memory_equal(singly, values, 3 * sizeof *singly);
    ls_generator_seed(&generator, 0); /* discards the cached second value of the pair */
    ls_fill_normal(&generator, singly, 1);
    expect_near(singly[0], golden[0], 1e-6);
}

TEST(blocks_of_16_normals) {
    static const double golden[] = {-1.12584, -1.15236, -0.250579, -0.433879};
    float block[16], values[20], last[16];
    ls_generator generator;
    ls_generator_seed(&generator, 0);
    ls_fill_normal(&generator, block, 16);
    for (int i = 0; i < 4; i++) expect_near(block[i], golden[i], 5e-6);
    /* all values by the formula, from the same draws */
    float uniform[16];
    ls_generator_seed(&generator, 0);
    ls_fill_uniform(&generator, uniform, 16, 0, 1);
    for (int j = 0; j < 8; j++) {
        double radius = sqrt(-2 * log(1 - (double)uniform[j]));
        double angle = 2 * 3.14159265358979323846 * (double)uniform[j + 8];
        expect_near(block[j], radius * cos(angle), 2e-6);
        expect_near(block[j + 8], radius * sin(angle), 2e-6);
    }
    /* of 20 values the last 16 are drawn again, after the 20 draws of the first pass */
    ls_generator_seed(&generator, 0);
    ls_fill_normal(&generator, values, 20);
    uint32_t next = ls_random32(&generator);
    assert_memory_equal(values, block, 4 * sizeof *values);
    ls_generator_seed(&generator, 0);
    for (int i = 0; i < 20; i++) ls_random32(&generator);
    ls_fill_normal(&generator, last, 16);
    assert_memory_equal(values + 4, last, sizeof last);
    assert_int_equal(ls_random32(&generator), next);
}

TEST(many_normals_have_the_right_moments) {
    static float values[100000];
    ls_generator generator;
    ls_generator_seed(&generator, 7);
    ls_fill_normal(&generator, values, COUNT_OF(values));
    double sum = 0, squares = 0;
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    expect_near((float)(sum / (double)COUNT_OF(values)), 0, 0.02);
    expect_near((float)(squares / (double)COUNT_OF(values)), 1, 0.02);
}
