/* idx_dataset — folders in MNIST's format, images of one channel or, with another axis, of several. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/data/arrays.h"
#include "common/data/idx_internal.h"

const char *ls_idx_prefix(ls_split split, ls_idx_role role) {
    if (role == LS_IDX_IMAGES) return split == LS_SPLIT_TRAIN ? "train-images" : "t10k-images";
    return split == LS_SPLIT_TRAIN ? "train-labels" : "t10k-labels";
}

static bool idx_owns(const char *name) {
    for (int split = LS_SPLIT_TRAIN; split <= LS_SPLIT_TEST; split++) {
        const char *images = ls_idx_prefix((ls_split)split, LS_IDX_IMAGES);
        if (ls_idx_is_spelling(name, images, 3) || ls_idx_is_spelling(name, images, 4)) return true;
        if (ls_idx_is_spelling(name, ls_idx_prefix((ls_split)split, LS_IDX_LABELS), 1)) return true;
    }
    return false;
}

ls_status ls_idx_spec(ls_sample_spec *spec, const char *path, int ndim, const size_t dims[LS_IDX_MAX_DIMS]) {
    const size_t shape[3] = {ndim == 4 ? dims[1] : 1, dims[ndim - 2], dims[ndim - 1]};
    size_t values;
    if (__builtin_mul_overflow(shape[0] * shape[1], shape[2], &values) || values > INT_MAX) {
        return ls_fail(LS_ERR_FORMAT, "%s has images of %zu x %zu x %zu pixels, which is too large", path, shape[0],
                       shape[1], shape[2]);
    }
    *spec = (ls_sample_spec){.channels = (int)shape[0], .height = (int)shape[1], .width = (int)shape[2]};
    return LS_OK;
}

static ls_status idx_read(struct ls_array_set *set, const char *folder, ls_split split) {
    ls_idx_file images, labels;
    const char *prefix = ls_idx_prefix(split, LS_IDX_IMAGES);
    ls_status status = ls_idx_file_read(&images, folder, prefix, ls_idx_images_ndim(folder, prefix));
    if (status != LS_OK) return status;
    set->memory[0] = images.data;
    status = ls_idx_file_read(&labels, folder, ls_idx_prefix(split, LS_IDX_LABELS), 1);
    if (status != LS_OK) return status;
    set->memory[1] = labels.data;
    set->base.count = images.dims[0];
    strcpy(set->inputs_path, images.path);
    strcpy(set->answers_path, labels.path);
    if (images.dims[0] != labels.dims[0]) {
        return ls_fail(LS_ERR_FORMAT, "%s has %zu images but %s has %zu labels; expected the same number", images.path,
                       images.dims[0], labels.path, labels.dims[0]);
    }
    status = ls_idx_spec(&set->base.spec, images.path, images.ndim, images.dims);
    set->inputs = (struct ls_array){images.data, ls_sample_input_count(&set->base.spec), LS_ELEMENT_U8};
    set->answers = (struct ls_array){labels.data, 1, LS_ELEMENT_U8};
    return status;
}

const struct ls_layout ls_idx_layout = {.owns = idx_owns, .read = idx_read};

ls_status ls_dataset_open_idx(ls_dataset **out, const char *folder, ls_split split, int classes,
                              ls_normalize normalize) {
    struct ls_array_set *set;
    *out = NULL;
    ls_status status = ls_array_set_open(&set, &ls_idx_layout, folder, split, classes);
    if (status != LS_OK) return status;
    status = ls_array_set_normalize(set, normalize);
    if (status == LS_OK)
        *out = &set->base;
    else
        ls_dataset_close(&set->base);
    return status;
}
