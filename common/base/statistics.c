#include "common/base/statistics.h"

#include <stdlib.h>

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void ls_sort(double *values, size_t count) {
    if (count > 0) qsort(values, count, sizeof *values, compare); /* qsort needs an array even for none */
}

double ls_quantile(const double *sorted, size_t count, double q) {
    if (count == 0) return 0;
    double place = q * (double)(count - 1);
    size_t below = (size_t)place;
    if (below + 1 >= count) return sorted[count - 1];
    return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}
