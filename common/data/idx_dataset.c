/* idx_dataset — images and labels kept as bytes (a quarter of the floats' memory); a table of 256 floats turns pixels
 * into inputs. */
#include <limits.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/data/idx_internal.h"

struct idx_dataset {
    ls_dataset base;
    uint8_t *pixels; /* count x height x width */
    uint8_t *labels; /* count */
    float value_of[256];
};

static ls_status idx_read(const ls_dataset *dataset, int64_t index, bool alone, void *input, int64_t *label,
                          float *target) {
    (void)alone;
    (void)target;
    const struct idx_dataset *idx = (const struct idx_dataset *)dataset;
    size_t pixel_count = ls_sample_input_count(&dataset->spec);
    const uint8_t *pixels = idx->pixels + (size_t)index * pixel_count;
    ls_idx_convert(input, pixels, pixel_count, idx->value_of);
    if (label) *label = idx->labels[index];
    return LS_OK;
}

static void idx_close(ls_dataset *dataset) {
    struct idx_dataset *idx = (struct idx_dataset *)dataset;
    free(idx->pixels);
    free(idx->labels);
    free(idx);
}

const char *ls_idx_prefix(ls_split split, ls_idx_role role) {
    if (role == LS_IDX_IMAGES) return split == LS_SPLIT_TRAIN ? "train-images" : "t10k-images";
    return split == LS_SPLIT_TRAIN ? "train-labels" : "t10k-labels";
}

bool ls_dataset_owns_name(const char *name) {
    for (int split = LS_SPLIT_TRAIN; split <= LS_SPLIT_TEST; split++) {
        if (ls_idx_is_spelling(name, ls_idx_prefix((ls_split)split, LS_IDX_IMAGES), 3)) return true;
        if (ls_idx_is_spelling(name, ls_idx_prefix((ls_split)split, LS_IDX_LABELS), 1)) return true;
    }
    return false;
}

void ls_idx_pixel_values(float value_of[256], ls_normalize normalize) {
    for (int pixel = 0; pixel < 256; pixel++) {
        float value = (float)pixel / 255.0f;
        if (normalize == LS_NORMALIZE_MNIST) {
            value = value - 0.1307f; /* a statement per rounding, as torchvision has a tensor operation for each */
            value = value / 0.3081f;
        }
        value_of[pixel] = value;
    }
}

/* Four at a time, since the speed of so short a loop depends on where in memory the linker happens to put it. */
void ls_idx_convert(float *restrict input, const uint8_t *pixels, size_t count, const float value_of[256]) {
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        input[i] = value_of[pixels[i]];
        input[i + 1] = value_of[pixels[i + 1]];
        input[i + 2] = value_of[pixels[i + 2]];
        input[i + 3] = value_of[pixels[i + 3]];
    }
    for (; i < count; i++) input[i] = value_of[pixels[i]];
}

ls_status ls_idx_spec(ls_sample_spec *spec, const char *path, const size_t dims[LS_IDX_MAX_DIMS], int classes) {
    if (dims[1] > INT_MAX || dims[2] > INT_MAX) {
        return ls_fail(LS_ERR_FORMAT, "%s has images of %zu x %zu pixels, which is too large", path, dims[1], dims[2]);
    }
    *spec = (ls_sample_spec){.channels = 1, .height = (int)dims[1], .width = (int)dims[2], .classes = classes};
    return LS_OK;
}

ls_status ls_idx_check_label(const char *path, uint8_t label, size_t sample, int classes) {
    if (label < classes) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "%s: label %u of sample %zu is out of range 0 to %d: there are %d classes", path,
                   label, sample, classes - 1, classes);
}

static ls_status check_labels(ls_dataset *dataset, const ls_idx_file *labels, const ls_idx_file *images, int classes) {
    if (images->dims[0] != labels->dims[0]) {
        return ls_fail(LS_ERR_FORMAT, "%s has %zu images but %s has %zu labels", images->path, images->dims[0],
                       labels->path, labels->dims[0]);
    }
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < labels->dims[0]; i++) {
        if (classes == 0)
            ls_dataset_note_label(dataset, labels->data[i], i);
        else
            status = ls_idx_check_label(labels->path, labels->data[i], i, classes);
    }
    return status;
}

static ls_status read_pair(struct idx_dataset *idx, const char *folder, ls_split split, int classes) {
    ls_idx_file images, labels;
    ls_status status = ls_idx_file_read(&images, folder, ls_idx_prefix(split, LS_IDX_IMAGES), 3);
    if (status != LS_OK) return status;
    idx->pixels = images.data;
    status = ls_idx_file_read(&labels, folder, ls_idx_prefix(split, LS_IDX_LABELS), 1);
    if (status != LS_OK) return status;
    idx->labels = labels.data;
    idx->base.count = images.dims[0];
    status = ls_idx_spec(&idx->base.spec, images.path, images.dims, classes);
    return status == LS_OK ? check_labels(&idx->base, &labels, &images, classes) : status;
}

ls_status ls_dataset_open_idx(ls_dataset **out, const char *folder, ls_split split, int classes,
                              ls_normalize normalize) {
    static const ls_dataset_kind kind = {.read = idx_read, .close = idx_close};
    *out = NULL;
    struct idx_dataset *idx = calloc(1, sizeof *idx);
    if (!idx) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the data of %s", folder);
    idx->base.kind = &kind;
    ls_idx_pixel_values(idx->value_of, normalize);
    ls_status status = read_pair(idx, folder, split, classes);
    if (status != LS_OK) {
        ls_dataset_close(&idx->base);
        return status;
    }
    *out = &idx->base;
    return LS_OK;
}
