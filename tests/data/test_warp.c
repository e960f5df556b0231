#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/data/warp.h"
#include "tests/base/test.h"

enum { HEIGHT = 9, WIDTH = 7, PIXELS = HEIGHT * WIDTH, DRAWS = 20000 };

static const ls_warp identity = {.xx = 1, .yy = 1};

static void fill_image(uint8_t pixels[PIXELS]) {
    for (int i = 0; i < PIXELS; i++) pixels[i] = (uint8_t)(i * 37 + 5);
}

static void warp_image(const ls_warp *warp, const uint8_t *source, uint8_t result[PIXELS]) {
    ls_generator generator;
    ls_generator_seed(&generator, 1);
    memset(result, 0xa5, PIXELS);
    ls_warp_image(warp, source, HEIGHT, WIDTH, result, &generator);
}

/* --- maps --------------------------------------------------------------------------------------------------------- */

TEST(zero_limits_change_nothing) {
    uint8_t source[PIXELS], result[PIXELS];
    const ls_warp_limits limits = {0};
    ls_generator generator;
    ls_generator_seed(&generator, 3);
    fill_image(source);
    for (int i = 0; i < 20; i++) {
        ls_warp warp;
        ls_warp_draw(&warp, &limits, &generator);
        warp_image(&warp, source, result);
        assert_memory_equal(result, source, PIXELS);
    }
}

/* Pixel (x, y) of the result is pixel (x - dx, y - dy) of the source, and background outside of it. */
TEST(whole_shifts_copy_pixels) {
    uint8_t source[PIXELS], result[PIXELS];
    fill_image(source);
    for (int dy = -HEIGHT - 1; dy <= HEIGHT + 1; dy++) {
        for (int dx = -WIDTH - 1; dx <= WIDTH + 1; dx++) {
            ls_warp warp = identity;
            warp.shift_x = (float)dx;
            warp.shift_y = (float)dy;
            warp_image(&warp, source, result);
            for (int i = 0; i < PIXELS; i++) {
                int x = i % WIDTH - dx, y = i / WIDTH - dy;
                bool inside = x >= 0 && x < WIDTH && y >= 0 && y < HEIGHT;
                assert_int_equal(result[i], inside ? source[y * WIDTH + x] : 0);
            }
        }
    }
}

TEST(fractions_mix_neighbours) {
    uint8_t source[PIXELS] = {0}, result[PIXELS];
    source[3 * WIDTH + 2] = 200;
    ls_warp warp = identity;
    warp.shift_x = 0.25f;
    warp.shift_y = -0.5f;
    warp_image(&warp, source, result);
    for (int i = 0; i < PIXELS; i++) {
        int x = i % WIDTH, y = i / WIDTH;
        double share = (x == 2 ? 0.75 : x == 3 ? 0.25 : 0) * (y == 2 || y == 3 ? 0.5 : 0);
        assert_int_equal(result[i], 200 * share);
    }
}

/* Quarter turns and mirrors map pixels onto pixels; a wrong centre or swapped axes would misplace them. */
TEST(the_centre_stays) {
    enum { SIDE = 8 };
    uint8_t source[SIDE * SIDE], result[SIDE * SIDE];
    ls_generator unused = {0};
    for (int i = 0; i < SIDE * SIDE; i++) source[i] = (uint8_t)(i * 3 + 1);
    const ls_warp clockwise = {.xy = 1, .yx = -1}, mirror = {.xx = -1, .yy = 1};
    ls_warp_image(&clockwise, source, SIDE, SIDE, result, &unused);
    for (int i = 0; i < SIDE * SIDE; i++) assert_int_equal(result[i], source[(SIDE - 1 - i % SIDE) * SIDE + i / SIDE]);
    ls_warp_image(&mirror, source, SIDE, SIDE, result, &unused);
    for (int i = 0; i < SIDE * SIDE; i++) assert_int_equal(result[i], source[i / SIDE * SIDE + SIDE - 1 - i % SIDE]);
}

/* --- draws -------------------------------------------------------------------------------------------------------- */

struct range {
    double low, high;
};

static void widen(struct range *range, double value) {
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

/* The values reach both limits up to a thousandth of the range, and do not exceed them. */
static void expect_range(struct range seen, double low, double high) {
    double slack = 1e-3 * (high - low);
    if (!(seen.low >= low - 1e-6 && seen.low <= low + slack && seen.high <= high + 1e-6 && seen.high >= high - slack))
        fail_msg("%g to %g instead of %g to %g", seen.low, seen.high, low, high);
}

TEST(draws_fill_their_limits) {
    const double degree = acos(-1) / 180;
    const ls_warp_limits limits[] = {{.shift_pixels = 2}, {.rotation_degrees = 45}, {.scale = 0.3}, {.shear = 0.5}};
    struct range seen[6];
    for (int i = 0; i < 6; i++) seen[i] = (struct range){INFINITY, -INFINITY};
    ls_generator generator;
    ls_generator_seed(&generator, 5);
    for (int i = 0; i < 4 * DRAWS; i++) {
        ls_warp w;
        ls_warp_draw(&w, &limits[i % 4], &generator);
        widen(&seen[0], (double)w.shift_x);
        widen(&seen[1], (double)w.shift_y);
        if (i % 4 == 1) {
            widen(&seen[2], atan2((double)-w.yx, (double)w.xx) / degree);
            double side = hypot((double)w.xx, (double)w.xy),
                   determinant = (double)w.xx * (double)w.yy - (double)w.xy * (double)w.yx;
            assert_true(fabs(side - 1) < 1e-6 && fabs(determinant - 1) < 1e-6); /* a rotation */
        }
        if (i % 4 == 2) {
            assert_true(w.xy == 0 && w.yx == 0);
            widen(&seen[3], 1 / (double)w.xx);
            widen(&seen[4], 1 / (double)w.yy);
        }
        if (i % 4 == 3) {
            assert_true(w.xx == 1 && w.yy == 1 && w.yx == 0);
            widen(&seen[5], (double)w.xy);
        }
    }
    expect_range(seen[0], -2, 2);
    expect_range(seen[1], -2, 2);
    expect_range(seen[2], -45, 45);
    expect_range(seen[3], 0.7, 1.3);
    expect_range(seen[4], 0.7, 1.3);
    expect_range(seen[5], -0.5, 0.5);
}

/* --- noise -------------------------------------------------------------------------------------------------------- */

TEST(noise_is_bell_shaped_and_spares_the_paper) {
    enum { SIDE = 200, COUNT = SIDE * SIDE };
    static uint8_t source[COUNT], result[COUNT];
    ls_generator generator;
    ls_generator_seed(&generator, 7);
    for (int i = 0; i < COUNT; i++) source[i] = i % 2 ? 128 : 0;
    ls_warp warp = identity;
    warp.noise = 10;
    ls_warp_image(&warp, source, SIDE, SIDE, result, &generator);
    double sum = 0, squares = 0;
    int far = 0;
    for (int i = 0; i < COUNT; i++) {
        if (i % 2 == 0) {
            assert_int_equal(result[i], 0);
            continue;
        }
        double off = result[i] - 128.0;
        sum += off;
        squares += off * off;
        far += fabs(off) > 20.5;
    }
    int inked = COUNT / 2;
    double mean = sum / inked, deviation = sqrt(squares / inked);
    assert_true(fabs(mean) < 0.3 && fabs(deviation - 10) < 0.3);
    assert_true(far > inked * 0.02 && far < inked * 0.06); /* 4.6 % of a normal distribution are beyond 2 deviations */
}

/* --- the same everywhere ------------------------------------------------------------------------------------------ */

/* These bytes do not depend on the processor, the compiler or its options. */
TEST(bytes_do_not_depend_on_the_machine) {
    const ls_warp_limits limits = {.shift_pixels = 3, .rotation_degrees = 45, .scale = 0.5, .shear = 0.5, .noise = 20};
    uint8_t source[PIXELS], result[PIXELS];
    uint64_t hash = LS_HASH_SEED;
    ls_generator generator;
    ls_generator_seed(&generator, 11);
    fill_image(source);
    for (int i = 0; i < 2000; i++) {
        ls_warp warp;
        ls_warp_draw(&warp, &limits, &generator);
        ls_warp_image(&warp, source, HEIGHT, WIDTH, result, &generator);
        hash = ls_hash(hash, result, PIXELS);
    }
    assert_true(hash == UINT64_C(0xa61e50a25b6a60ae));
}
