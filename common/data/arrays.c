/* arrays — samples by index, from memory with the files' layout: bytes stay bytes, a quarter of the floats' memory.
 *   cost  : a file is read once, into memory of its size, and checked in one pass; there is no second copy */
#include "common/data/arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define LS_MOST_CLASSES (1 << 24) /* outputs that a layer may have */

static int64_t label_of(const struct ls_array *labels, size_t sample) {
    const void *at = labels->data + sample * labels->stride;
    if (labels->element == LS_ELEMENT_U8) return *(const uint8_t *)at;
    return labels->element == LS_ELEMENT_I32 ? *(const int32_t *)at : *(const int64_t *)at;
}

static ls_status array_read(const ls_dataset *dataset, int64_t index, bool alone, void *input, int64_t *label,
                            float *target) {
    (void)alone;
    const struct ls_array_set *set = (const struct ls_array_set *)dataset;
    size_t sample = (size_t)index;
    ls_normalizer_apply(&set->normalizer, set->inputs.element, set->inputs.data + sample * set->inputs.stride, input);
    if (label) *label = label_of(&set->answers, sample);
    if (target) {
        memcpy(target, set->answers.data + sample * set->answers.stride, dataset->spec.target_count * sizeof *target);
    }
    return LS_OK;
}

static void array_close(ls_dataset *dataset) {
    struct ls_array_set *set = (struct ls_array_set *)dataset;
    free(set->memory[0]);
    free(set->memory[1]);
    ls_normalizer_free(&set->normalizer);
    free(set);
}

/* --- valid values of samples -------------------------------------------------------------------------------------- */

static ls_status check_finite(const struct ls_array *array, const char *path, size_t samples, size_t count) {
    for (size_t s = 0; array->element == LS_ELEMENT_F32 && s < samples; s++) {
        const float *values = (const float *)(const void *)(array->data + s * array->stride);
        for (size_t i = 0; i < count; i++) {
            if (isfinite(values[i])) continue;
            return ls_fail(LS_ERR_FORMAT, "%s: value %zu of sample %zu is %f; expected finite numbers", path, i, s,
                           (double)values[i]);
        }
    }
    return LS_OK;
}

static ls_status check_label(struct ls_array_set *set, size_t sample, int classes) {
    int64_t label = label_of(&set->answers, sample), most = classes > 0 ? classes : LS_MOST_CLASSES;
    if (label < 0)
        return ls_fail(LS_ERR_FORMAT, "%s: label %lld of sample %zu is negative; classes are numbered from 0",
                       set->answers_path, (long long)label, sample);
    if (label >= most)
        return ls_fail(LS_ERR_FORMAT,
                       "%s: label %lld of sample %zu is out of range 0 to %lld: the data has %s%lld classes",
                       set->answers_path, (long long)label, sample, (long long)most - 1, classes > 0 ? "" : "at most ",
                       (long long)most);
    ls_dataset_note_label(&set->base, label, sample);
    return LS_OK;
}

/* Counts the classes by the labels if there are neither `classes` nor targets. */
static ls_status check_values(struct ls_array_set *set, int classes) {
    ls_dataset *base = &set->base;
    size_t targets = base->spec.target_count;
    ls_status status = check_finite(&set->inputs, set->inputs_path, base->count, ls_sample_input_count(&base->spec));
    if (status == LS_OK && targets > 0) return check_finite(&set->answers, set->answers_path, base->count, targets);
    for (size_t s = 0; status == LS_OK && s < base->count; s++) status = check_label(set, s, classes);
    if (status == LS_OK && classes > 0) base->spec.classes = classes;
    return status;
}

ls_status ls_array_set_open(struct ls_array_set **out, const struct ls_layout *layout, const char *folder,
                            ls_split split, int classes) {
    static const ls_dataset_kind kind = {.read = array_read, .close = array_close};
    *out = NULL;
    struct ls_array_set *set = calloc(1, sizeof *set);
    if (!set) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the data of %s", folder);
    set->base.kind = &kind;
    ls_status status = layout->read(set, folder, split);
    if (status == LS_OK) status = check_values(set, classes > 0 ? classes : layout->classes);
    if (status == LS_OK)
        *out = set;
    else
        array_close(&set->base);
    return status;
}
