/* estimate — from the times of runs to the one that is believed, on a machine that does other things, too.
 *   idea  : whatever else runs makes a run longer and never shorter. So a figure is the fastest tenth of its runs (the
 *           quantile 0.1): what the machine does when nothing else runs. Not the very fastest, which may be a slip of
 *           the clock. Median and quartiles, which know the disturbances, are for people
 *   beside: several devices at once are undisturbed when the one that was disturbed most was disturbed little. Fastest
 *           alone would choose the rounds in which the others were stopped, and call what is crowded free
 *   limits: with less than a tenth of its runs undisturbed a figure is too slow. A slow quartile far from the fastest
 *           tenth says that this may be so */
#include <math.h>

#include "common/base/statistics.h"
#include "labs/calibrate/calibrate.h"

#define FASTEST 0.1
#define ROUGH 1.5 /* of an undisturbed machine, quartiles and fastest tenth are within a few percent */

calibrate_spread calibrate_spread_of(double *values, int count) {
    ls_sort(values, (size_t)count);
    return (calibrate_spread){.fast = ls_quantile(values, (size_t)count, FASTEST),
                              .median = ls_quantile(values, (size_t)count, 0.5),
                              .low = ls_quantile(values, (size_t)count, 0.25),
                              .high = ls_quantile(values, (size_t)count, 0.75),
                              .runs = count};
}

calibrate_spread calibrate_spread_beside(const calibrate_rounds *us, int devices, int rounds) {
    double sorted[CALIBRATE_RUNS_MAX], worst[CALIBRATE_RUNS_MAX] = {0}, chosen[CALIBRATE_RUNS_MAX];
    calibrate_spread first = {.runs = 0};
    for (int d = devices - 1; d >= 0; d--) {
        for (int r = 0; r < rounds; r++) sorted[r] = us[d][r];
        first = calibrate_spread_of(sorted, rounds);
        for (int r = 0; r < rounds; r++) worst[r] = fmax(worst[r], us[d][r] / first.fast);
    }
    for (int r = 0; r < rounds; r++) sorted[r] = worst[r];
    double limit = calibrate_spread_of(sorted, rounds).fast;
    int count = 0;
    for (int r = 0; r < rounds; r++) {
        if (worst[r] <= limit) chosen[count++] = us[0][r];
    }
    first.fast = calibrate_spread_of(chosen, count).median;
    return first;
}

int calibrate_straighten(calibrate_row *rows, int count) {
    int lowered = 0;
    for (int i = count - 1; i >= 0; i--) {
        bool larger = i + 1 < count && rows[i + 1].ranks == rows[i].ranks;
        rows[i].written_us = larger ? fmin(rows[i].us.fast, rows[i + 1].written_us) : rows[i].us.fast;
        lowered += rows[i].written_us < rows[i].us.fast;
    }
    return lowered;
}

/* By the fastest tenth and not by the lower quartile alone: a load that never ceases slows both quartiles alike. Not
 * "more than": NaN is rough. */
static bool is_rough(const calibrate_spread *us) { return !(us->high <= ROUGH * us->fast); }

bool calibrate_is_rough(const calibrate_figures *f) {
    return is_rough(&f->fp32_us[CALIBRATE_MAIN_BATCH]) || is_rough(&f->copy_us);
}
