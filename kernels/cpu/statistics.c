/* statistics — merges mean and variance of two sets into those of their union.
 *   idea  : two variances do not include the distance of the means; the term with (mean' - mean)^2 adds it
 *   cost  : two divisions of doubles, for each plane of a batch and each rank of a group
 *   order : in double, in the order of the calls. Compiled once, without instruction set extensions */
#include "kernels/cpu/statistics.h"

void ls_statistics_merge(struct ls_statistics *total, struct ls_statistics more) {
    if (more.count == 0) return;
    double apart = more.mean - total->mean, count = total->count + more.count;
    total->m2 += more.m2 + apart * apart * total->count * more.count / count;
    total->mean += apart * more.count / count;
    total->count = count;
}
