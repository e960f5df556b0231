/* Warps of grey images: shifted, rotated, scaled, sheared and noisy copies, as another hand would have written them. */
#ifndef LS_DATA_WARP_H
#define LS_DATA_WARP_H

#include <stdint.h>

#include "common/base/random.h"

/* How far warps may go; each number is drawn uniformly from -limit .. +limit. All zero: warps change nothing. */
typedef struct ls_warp_limits {
    double shift_pixels;     /* along x, and along y */
    double rotation_degrees; /* 0 .. 45; positive turns clockwise */
    double scale;            /* 0 .. 0.9: factors of 1 - scale .. 1 + scale, along x and along y */
    double shear;            /* pixels to the right per pixel down */
    double noise;            /* standard deviation, in grey levels, of the noise added to each pixel that is not 0 */
} ls_warp_limits;

/* A warp: the pixel at offset (x, y) from the centre of the result shows the source at offset
 * (xx (x - shift_x) + xy (y - shift_y), yx (x - shift_x) + yy (y - shift_y)) from its centre. */
typedef struct ls_warp {
    float shift_x, shift_y;
    float xx, xy, yx, yy;
    float noise; /* standard deviation, in grey levels */
} ls_warp;

/* Takes six draws of `generator`. */
void ls_warp_draw(ls_warp *warp, const ls_warp_limits *limits, ls_generator *generator);

/* Warps `source` into `result`, both height x width bytes, which must not overlap. Pixels outside of the source are 0.
 * Takes a draw per pixel that is not 0, and none without noise. The same bytes on every machine. */
void ls_warp_image(const ls_warp *warp, const uint8_t *source, int height, int width, uint8_t *result,
                   ls_generator *generator);

#endif
