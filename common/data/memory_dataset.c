/* memory_dataset — samples in a program's own arrays.
 *   cost  : every value is checked once, at creation; reading a sample is a copy of its rows */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/data/dataset_internal.h"

struct memory_dataset {
    ls_dataset base;
    struct ls_memory_samples samples;
};

static ls_status memory_read(const ls_dataset *dataset, int64_t index, bool alone, void *input, int64_t *label,
                             float *target) {
    const struct ls_memory_samples *samples = &((const struct memory_dataset *)dataset)->samples;
    size_t values = ls_sample_input_count(&dataset->spec), at = (size_t)index, targets = dataset->spec.target_count;
    (void)alone;
    memcpy(input, samples->inputs + at * values, values * sizeof(float));
    if (label) *label = samples->labels[at];
    if (target) memcpy(target, samples->targets + at * targets, targets * sizeof(float));
    return LS_OK;
}

static void memory_close(ls_dataset *dataset) { free(dataset); }

static ls_status check_sizes(const struct ls_memory_samples *samples) {
    const ls_sample_spec *spec = &samples->spec;
    size_t values, all;
    if (spec->channels < 1 || spec->height < 1 || spec->width < 1 || samples->count < 1)
        return ls_fail(LS_ERR_INVALID, "samples cannot have the sizes %zu x %d x %d x %d; expected at least 1 for each",
                       samples->count, spec->channels, spec->height, spec->width);
    if (__builtin_mul_overflow((size_t)spec->channels * (size_t)spec->height, (size_t)spec->width, &values) ||
        __builtin_mul_overflow(values, samples->count, &all) || all > PTRDIFF_MAX / sizeof(float))
        return ls_fail(LS_ERR_INVALID, "%zu samples of %d x %d x %d values do not fit in memory", samples->count,
                       spec->channels, spec->height, spec->width);
    if (spec->classes < 0 || (spec->classes > 0) == (spec->target_count > 0))
        return ls_fail(LS_ERR_INVALID, "samples have either classes or target values, not %d and %zu", spec->classes,
                       spec->target_count);
    if (!samples->inputs || !(spec->classes > 0 ? (const void *)samples->labels : (const void *)samples->targets))
        return ls_fail(LS_ERR_INVALID, "expected the samples' %s, found a NULL pointer",
                       !samples->inputs    ? "inputs"
                       : spec->classes > 0 ? "labels"
                                           : "targets");
    return LS_OK;
}

static ls_status check_finite(const float *values, size_t each, size_t count, const char *what) {
    for (size_t i = 0; i < each * count; i++)
        if (!isfinite(values[i]))
            return ls_fail(LS_ERR_INVALID, "%s of sample %zu has the value %g; expected finite numbers", what, i / each,
                           (double)values[i]);
    return LS_OK;
}

static ls_status check_values(const struct ls_memory_samples *samples) {
    const ls_sample_spec *spec = &samples->spec;
    ls_status status = check_finite(samples->inputs, ls_sample_input_count(spec), samples->count, "the input");
    if (status == LS_OK && spec->classes == 0)
        return check_finite(samples->targets, spec->target_count, samples->count, "the target");
    for (size_t i = 0; status == LS_OK && i < samples->count; i++)
        if (samples->labels[i] < 0 || samples->labels[i] >= spec->classes)
            return ls_fail(LS_ERR_INVALID, "label %lld of sample %zu is out of range 0 to %d: there are %d classes",
                           (long long)samples->labels[i], i, spec->classes - 1, spec->classes);
    return status;
}

ls_status ls_dataset_from_memory(ls_dataset **out, const struct ls_memory_samples *samples) {
    static const ls_dataset_kind kind = {.read = memory_read, .close = memory_close};
    *out = NULL;
    ls_status status = check_sizes(samples);
    if (status == LS_OK) status = check_values(samples);
    if (status != LS_OK) return status;
    struct memory_dataset *memory = malloc(sizeof *memory);
    if (!memory) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a dataset");
    memory->base = (ls_dataset){.kind = &kind, .spec = samples->spec, .count = samples->count};
    memory->samples = *samples;
    *out = &memory->base;
    return LS_OK;
}
