/* Count, mean and M2 (the sum of squared deviations from the mean) of a set of values. Batch norm needs them, and those
 * of two sets can be merged without the values. Host memory; any thread. */
#ifndef LS_KERNELS_CPU_STATISTICS_H
#define LS_KERNELS_CPU_STATISTICS_H

struct ls_statistics {
    double count, mean, m2; /* of an empty set: 0 0 0 */
};

/* `total` becomes the statistics of both sets together. Either may be empty. Chan's formula:
 *     M2 += M2' + (mean' - mean)^2 n n'/(n + n');  mean += (mean' - mean) n'/(n + n');  n += n'
 * It does not cancel as sum(x^2) - sum(x)^2/n does. */
void ls_statistics_merge(struct ls_statistics *total, struct ls_statistics more);

#endif
