#include "common/data/dataset_internal.h"

size_t ls_sample_input_count(const ls_sample_spec *spec) {
    size_t rows = spec->rows > 1 ? (size_t)spec->rows : 1;
    return rows * (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width;
}

size_t ls_sample_label_count(const ls_sample_spec *spec) {
    return spec->classes == 0 ? 0 : spec->rows > 1 ? (size_t)spec->rows : 1;
}

const ls_sample_spec *ls_dataset_spec(const ls_dataset *dataset) { return &dataset->spec; }

size_t ls_dataset_count(const ls_dataset *dataset) { return dataset->count; }

int64_t ls_dataset_largest_label(const ls_dataset *dataset, size_t *sample) {
    *sample = dataset->largest_at;
    return dataset->largest_label;
}

ls_status ls_dataset_read(const ls_dataset *dataset, const int64_t *indices, size_t count, void *inputs,
                          int64_t *labels, float *targets) {
    const ls_sample_spec *spec = &dataset->spec;
    size_t input_nbytes = ls_sample_input_count(spec) * sizeof(float), label_count = ls_sample_label_count(spec);
    if (spec->classes == 0) labels = NULL;
    if (spec->target_count == 0) targets = NULL;
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        status = dataset->kind->read(dataset, indices[i], count == 1, (char *)inputs + i * input_nbytes,
                                     labels ? labels + i * label_count : NULL,
                                     targets ? targets + i * spec->target_count : NULL);
    }
    return status;
}

void ls_dataset_close(ls_dataset *dataset) {
    if (dataset) dataset->kind->close(dataset);
}
