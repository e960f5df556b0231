/* warp — an affine map of the plane, sampled by bilinear interpolation.
 *   idea  : for each pixel of the result, its place in the source is computed, and the four source pixels around that
 *           are interpolated. So the inverse of the warp is kept: unshift, rotate back, unshear, divide by the scales.
 *   bytes : only sums, products, quotients, floor and lround, which are exact or rounded the same way everywhere; sin,
 *           cos and the logarithm of a normal distribution would come from a C library, whose last bits differ. A
 *           rotation by a is built from t = tan(a/2): cos a = (1 - t^2) / (1 + t^2), sin a = 2t / (1 + t^2), a rotation
 *           whatever t is. Only the angle depends on the series for t, which is good to 1e-5 radians at 45 degrees.
 *   noise : the sum of a draw's four bytes, which is bell-shaped, scaled to the standard deviation wanted. Paper stays at
 *           0, as in MNIST, where the scanner's background was cut off.
 *   exact : without rotation, scale and shear, a shift by whole pixels copies them. */
#include "common/data/warp.h"

#include <math.h>
#include <stdbool.h>

/* Mean and standard deviation of the sum of four independent uniform bytes: 4 * 255 / 2 and sqrt(4 (256^2 - 1) /
 * 12). */
#define LS_BYTES_MEAN 510
#define LS_BYTES_DEVIATION 147.80054f

static const double radians_per_degree = 0.017453292519943295;

/* The series x + x^3/3 + 2 x^5/15 + 17 x^7/315. */
static double tangent(double x) {
    double square = x * x;
    return x * (1 + square * (1.0 / 3 + square * (2.0 / 15 + square * (17.0 / 315))));
}

void ls_warp_draw(ls_warp *warp, const ls_warp_limits *limits, ls_generator *generator) {
    float drawn[6];
    ls_fill_uniform(generator, drawn, 6, -1, 1);
    double t = tangent((double)drawn[2] * limits->rotation_degrees * radians_per_degree / 2);
    double cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
    double scale_x = 1 + (double)drawn[3] * limits->scale, scale_y = 1 + (double)drawn[4] * limits->scale;
    double shear = (double)drawn[5] * limits->shear;
    warp->shift_x = (float)((double)drawn[0] * limits->shift_pixels);
    warp->shift_y = (float)((double)drawn[1] * limits->shift_pixels);
    warp->xx = (float)((cosine + shear * sine) / scale_x);
    warp->xy = (float)((sine - shear * cosine) / scale_x);
    warp->yx = (float)(-sine / scale_y);
    warp->yy = (float)(cosine / scale_y);
    warp->noise = (float)limits->noise;
}

struct image {
    const uint8_t *pixels;
    int height, width;
};

static float pixel_at(const struct image *image, int x, int y) {
    bool inside = x >= 0 && x < image->width && y >= 0 && y < image->height;
    return inside ? (float)image->pixels[y * image->width + x] : 0;
}

static float sample(const struct image *image, float x, float y) {
    if (!(x > -1 && x < (float)image->width && y > -1 && y < (float)image->height)) return 0;
    int left = (int)floorf(x), top = (int)floorf(y);
    float right_share = x - (float)left, bottom_share = y - (float)top;
    float upper = (1 - right_share) * pixel_at(image, left, top) + right_share * pixel_at(image, left + 1, top);
    float lower = (1 - right_share) * pixel_at(image, left, top + 1) + right_share * pixel_at(image, left + 1, top + 1);
    return (1 - bottom_share) * upper + bottom_share * lower;
}

static float draw_noise(ls_generator *generator, float deviation) {
    uint32_t bits = ls_random32(generator);
    int sum = (int)((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24));
    return (float)(sum - LS_BYTES_MEAN) * (deviation / LS_BYTES_DEVIATION);
}

static uint8_t round_to_byte(float value) {
    if (value <= 0) return 0;
    return value >= 255 ? 255 : (uint8_t)lroundf(value);
}

void ls_warp_image(const ls_warp *warp, const uint8_t *source, int height, int width, uint8_t *result,
                   ls_generator *generator) {
    const struct image image = {source, height, width};
    float centre_x = (float)(width - 1) / 2, centre_y = (float)(height - 1) / 2;
    for (int row = 0; row < height; row++) {
        float y = (float)row - centre_y - warp->shift_y;
        for (int column = 0; column < width; column++) {
            float x = (float)column - centre_x - warp->shift_x;
            float value =
                sample(&image, centre_x + (warp->xx * x + warp->xy * y), centre_y + (warp->yx * x + warp->yy * y));
            if (value > 0 && warp->noise > 0) value += draw_noise(generator, warp->noise);
            result[row * width + column] = round_to_byte(value);
        }
    }
}
