/* estimate — one figure from the times of several runs, on a machine that also runs other work.
 *   idea  : the median. Training steps are reported by their medians, on the same machine with its other work, and the
 *           figures are to predict them. The fastest tenth, the machine's speed while nothing else runs, is less noisy,
 *           but a machine that is never idle does not reach it
 *   factor: the slow-down of a job by another is the median of ratios, each of two consecutive runs: a disturbance that
 *           slows both cancels
 *   limits: if more than half of its runs are disturbed, a figure is too slow. A slow quartile far from the fastest
 *           tenth indicates this */
#include <math.h>

#include "common/base/statistics.h"
#include "labs/replay/calibrate/calibrate.h"

#define FASTEST 0.1
#define ROUGH 1.5        /* on an undisturbed machine, quartiles and fastest tenth are within a few percent */
#define ROUGH_WAKING 3.0 /* within half; a thread that must first regain its core takes ten times as long */

calibrate_spread calibrate_spread_of(double *values, int count) {
    ls_sort(values, (size_t)count);
    return (calibrate_spread){.median = ls_quantile(values, (size_t)count, 0.5),
                              .low = ls_quantile(values, (size_t)count, 0.25),
                              .high = ls_quantile(values, (size_t)count, 0.75),
                              .fast = ls_quantile(values, (size_t)count, FASTEST),
                              .runs = count};
}

double calibrate_factor(const double *beside_us, const double *alone_us, int rounds) {
    double ratios[CALIBRATE_RUNS_MAX];
    for (int r = 0; r < rounds; r++) ratios[r] = beside_us[r] / alone_us[r];
    return calibrate_spread_of(ratios, rounds).median;
}

int calibrate_straighten(calibrate_row *rows, int count) {
    int lowered = 0;
    for (int i = count - 1; i >= 0; i--) {
        bool larger = i + 1 < count && rows[i + 1].ranks == rows[i].ranks;
        rows[i].written_us = larger ? fmin(rows[i].us.median, rows[i + 1].written_us) : rows[i].us.median;
        lowered += rows[i].written_us < rows[i].us.median;
    }
    return lowered;
}

/* Compares with the fastest tenth and not with the lower quartile alone: a permanent load slows both quartiles equally.
 * Not "more than": NaN is rough. */
static bool is_rough(const calibrate_spread *us, double limit) { return !(us->high <= limit * us->fast); }

bool calibrate_is_rough(const calibrate_figures *f) {
    return is_rough(&f->fp32_us[CALIBRATE_MAIN_BATCH], ROUGH) || is_rough(&f->copy_us, ROUGH) ||
           is_rough(&f->hand_over_us, ROUGH_WAKING);
}
