/* normalizer — converts bytes and floats to normalized floats.
 *   idea  : a byte has 256 values, so a channel has a table of 256 floats; its mean and deviation follow from how often each
 *           occurs. Floats take two passes. All sums are doubles in the order of the samples, so every rank gets the same bits
 *   rows  : features without height and width have a mean each if they are floats, and a common one if they are bytes,
 *           like the pixels of a flattened image
 *   fails : a channel whose values are all the same has deviation 0; 1 is used instead */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/data/arrays.h"

void ls_byte_values(float value_of[256], ls_normalize rule, float mean, float deviation) {
    for (int byte = 0; byte < 256; byte++) {
        float value = (float)byte / 255.0f;
        if (rule != LS_NORMALIZE_NONE) {
            value = value - mean; /* a statement per rounding, as torchvision has a tensor operation for each */
            value = value / deviation;
        }
        value_of[byte] = value;
    }
}

/* Four at a time, since the speed of so short a loop depends on where in memory the linker happens to put it. */
void ls_convert_bytes(float *restrict input, const uint8_t *bytes, size_t count, const float value_of[256]) {
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        input[i] = value_of[bytes[i]];
        input[i + 1] = value_of[bytes[i + 1]];
        input[i + 2] = value_of[bytes[i + 2]];
        input[i + 3] = value_of[bytes[i + 3]];
    }
    for (; i < count; i++) input[i] = value_of[bytes[i]];
}

void ls_normalizer_apply(const struct ls_normalizer *n, ls_element element, const uint8_t *elements,
                         float *restrict input) {
    const float *floats = (const float *)(const void *)elements;
    for (size_t c = 0; c < n->channels; c++) {
        size_t at = c * n->area;
        if (element == LS_ELEMENT_U8) {
            ls_convert_bytes(input + at, elements + at, n->area, n->tables + 256 * c);
            continue;
        }
        for (size_t i = at; i < at + n->area; i++)
            input[i] = n->rule == LS_NORMALIZE_NONE ? floats[i] : (floats[i] - n->mean[c]) / n->deviation[c];
    }
}

static void measure_bytes(const struct ls_array_set *set, size_t channel, double *mean, double *deviation) {
    size_t occurs[256] = {0}, area = set->normalizer.area;
    double sum = 0, squares = 0, count = (double)set->base.count * (double)area;
    for (size_t s = 0; s < set->base.count; s++) {
        const uint8_t *bytes = set->inputs.data + s * set->inputs.stride + channel * area;
        for (size_t i = 0; i < area; i++) occurs[bytes[i]]++;
    }
    for (int v = 0; v < 256; v++) sum += (double)occurs[v] * v / 255;
    *mean = sum / count;
    for (int v = 0; v < 256; v++) squares += (double)occurs[v] * (v / 255.0 - *mean) * (v / 255.0 - *mean);
    *deviation = sqrt(squares / count);
}

static void measure_floats(const struct ls_array_set *set, size_t channel, double *mean, double *deviation) {
    size_t area = set->normalizer.area;
    double count = (double)set->base.count * (double)area;
    *mean = 0;
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;
        for (size_t s = 0; s < set->base.count; s++) {
            const float *values = (const float *)(const void *)(set->inputs.data + s * set->inputs.stride);
            for (size_t i = channel * area; i < (channel + 1) * area; i++) {
                double from_mean = (double)values[i] - *mean;
                sum += pass == 0 ? from_mean : from_mean * from_mean;
            }
        }
        if (pass == 0)
            *mean = sum / count;
        else
            *deviation = sqrt(sum / count);
    }
}

static ls_status allocate(struct ls_array_set *set, ls_normalize rule) {
    const ls_sample_spec *spec = &set->base.spec;
    struct ls_normalizer *n = &set->normalizer;
    bool bytes = set->inputs.element == LS_ELEMENT_U8, flat = spec->height == 1 && spec->width == 1;
    n->rule = rule;
    n->channels = rule == LS_NORMALIZE_AUTO && !(bytes && flat) ? (size_t)spec->channels : 1;
    n->area = ls_sample_input_count(spec) / n->channels;
    n->mean = calloc(n->channels, sizeof *n->mean);
    n->deviation = calloc(n->channels, sizeof *n->deviation);
    n->tables = calloc(bytes ? 256 * n->channels : 1, sizeof *n->tables);
    if (n->mean && n->deviation && n->tables) return LS_OK;
    return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to normalize %zu channels", n->channels);
}

static void fill_tables(struct ls_array_set *set) {
    struct ls_normalizer *n = &set->normalizer;
    for (size_t c = 0; set->inputs.element == LS_ELEMENT_U8 && c < n->channels; c++)
        ls_byte_values(n->tables + 256 * c, n->rule, n->mean[c], n->deviation[c]);
}

ls_status ls_array_set_normalize(struct ls_array_set *set, ls_normalize rule) {
    struct ls_normalizer *n = &set->normalizer;
    ls_status status = allocate(set, rule);
    for (size_t c = 0; status == LS_OK && c < n->channels; c++) {
        double mean = LS_MNIST_MEAN, deviation = LS_MNIST_DEVIATION;
        if (rule == LS_NORMALIZE_AUTO)
            (set->inputs.element == LS_ELEMENT_U8 ? measure_bytes : measure_floats)(set, c, &mean, &deviation);
        n->mean[c] = (float)mean;
        n->deviation[c] = (float)deviation > 0 ? (float)deviation : 1;
    }
    if (status == LS_OK) fill_tables(set);
    return status;
}

ls_status ls_array_set_normalize_like(struct ls_array_set *set, const struct ls_array_set *train) {
    struct ls_normalizer *n = &set->normalizer;
    ls_status status = allocate(set, train->normalizer.rule);
    for (size_t c = 0; status == LS_OK && c < n->channels; c++) {
        n->mean[c] = train->normalizer.mean[c];
        n->deviation[c] = train->normalizer.deviation[c];
    }
    if (status == LS_OK) fill_tables(set);
    return status;
}

static size_t put_numbers(char *text, size_t capacity, const char *name, const float *numbers, size_t count) {
    size_t length = (size_t)snprintf(text, capacity, "%s", name);
    for (size_t i = 0; i < count && length < capacity; i++)
        length += (size_t)snprintf(text + length, capacity - length, " %.4g", (double)numbers[i]);
    return length < capacity ? length : capacity - 1;
}

void ls_dataset_describe_normalization(const ls_dataset *dataset, char *text, size_t capacity) {
    static const char *const rules[] = {"none", "mnist", "auto"};
    const struct ls_normalizer *n = &((const struct ls_array_set *)dataset)->normalizer;
    enum { CHANNELS_SHOWN = 4 };
    size_t shown = n->channels < CHANNELS_SHOWN ? n->channels : CHANNELS_SHOWN;
    size_t length = (size_t)snprintf(text, capacity, "%s", rules[n->rule]);
    if (n->rule != LS_NORMALIZE_AUTO) return;
    length += put_numbers(text + length, capacity - length, " (mean", n->mean, shown);
    if (n->channels > shown) length += put_numbers(text + length, capacity - length, " ...", NULL, 0);
    length += put_numbers(text + length, capacity - length, ", deviation", n->deviation, shown);
    (void)put_numbers(text + length, capacity - length, n->channels > shown ? " ...)" : ")", NULL, 0);
}

void ls_normalizer_free(struct ls_normalizer *normalizer) {
    free(normalizer->mean);
    free(normalizer->deviation);
    free(normalizer->tables);
}
