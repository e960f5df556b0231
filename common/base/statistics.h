/* Order statistics of measurements. */
#ifndef LS_BASE_STATISTICS_H
#define LS_BASE_STATISTICS_H

#include <stddef.h>

/* Sorts ascending, in place. */
void ls_sort(double *values, size_t count);

/* The quantile q (0 .. 1) of ascending values, with linear interpolation between neighbours; 0 if count is 0. q = 0.5
 * is the median. */
double ls_quantile(const double *sorted, size_t count, double q);

#endif
