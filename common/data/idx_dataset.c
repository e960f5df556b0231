/* idx_dataset — images and labels kept as bytes (a quarter of the floats' memory); a table of 256 floats turns pixels
 * into inputs. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/data/dataset_impl.h"
#include "common/data/idx_file.h"

#define LS_IDX_CLASSES 10

struct idx_dataset {
    ls_dataset base;
    uint8_t *pixels; /* count x height x width */
    uint8_t *labels; /* count */
    float value_of[256];
};

static ls_status idx_read(const ls_dataset *dataset, int64_t index, float *input, int64_t *label, float *target) {
    (void)target;
    const struct idx_dataset *idx = (const struct idx_dataset *)dataset;
    size_t pixel_count = ls_sample_input_count(&dataset->spec);
    const uint8_t *pixels = idx->pixels + (size_t)index * pixel_count;
    for (size_t i = 0; i < pixel_count; i++) input[i] = idx->value_of[pixels[i]];
    if (label) *label = idx->labels[index];
    return LS_OK;
}

static void idx_close(ls_dataset *dataset) {
    struct idx_dataset *idx = (struct idx_dataset *)dataset;
    free(idx->pixels);
    free(idx->labels);
    free(idx);
}

static void fill_table(float *value_of, ls_normalize normalize) {
    for (int pixel = 0; pixel < 256; pixel++) {
        float value = (float)pixel / 255.0f;
        if (normalize == LS_NORMALIZE_MNIST) {
            value = value - 0.1307f; /* a statement per rounding, as torchvision has a tensor operation for each */
            value = value / 0.3081f;
        }
        value_of[pixel] = value;
    }
}

static ls_status check_pair(const ls_idx_file *images, const ls_idx_file *labels) {
    if (images->dims[1] > INT_MAX || images->dims[2] > INT_MAX) {
        return ls_fail(LS_ERR_FORMAT, "%s has images of %zu x %zu pixels, which is too large", images->path,
                       images->dims[1], images->dims[2]);
    }
    if (images->dims[0] != labels->dims[0]) {
        return ls_fail(LS_ERR_FORMAT, "%s has %zu images but %s has %zu labels", images->path, images->dims[0],
                       labels->path, labels->dims[0]);
    }
    for (size_t i = 0; i < labels->dims[0]; i++) {
        if (labels->data[i] >= LS_IDX_CLASSES) {
            return ls_fail(LS_ERR_FORMAT, "%s: label %u of sample %zu is out of range 0 to %d", labels->path,
                           labels->data[i], i, LS_IDX_CLASSES - 1);
        }
    }
    return LS_OK;
}

static ls_status read_pair(struct idx_dataset *idx, const char *folder, ls_split split) {
    const char *images_prefix = split == LS_SPLIT_TRAIN ? "train-images" : "t10k-images";
    const char *labels_prefix = split == LS_SPLIT_TRAIN ? "train-labels" : "t10k-labels";
    ls_idx_file images, labels;
    ls_status status = ls_idx_file_read(&images, folder, images_prefix, 3);
    if (status != LS_OK) return status;
    idx->pixels = images.data;
    status = ls_idx_file_read(&labels, folder, labels_prefix, 1);
    if (status != LS_OK) return status;
    idx->labels = labels.data;
    status = check_pair(&images, &labels);
    if (status != LS_OK) return status;
    idx->base.count = images.dims[0];
    idx->base.spec = (ls_sample_spec){
        .channels = 1, .height = (int)images.dims[1], .width = (int)images.dims[2], .classes = LS_IDX_CLASSES};
    return LS_OK;
}

ls_status ls_dataset_open_idx(ls_dataset **out, const char *folder, ls_split split, ls_normalize normalize) {
    static const ls_dataset_kind kind = {.read = idx_read, .close = idx_close};
    *out = NULL;
    struct idx_dataset *idx = calloc(1, sizeof *idx);
    if (!idx) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the data of %s", folder);
    idx->base.kind = &kind;
    fill_table(idx->value_of, normalize);
    ls_status status = read_pair(idx, folder, split);
    if (status != LS_OK) {
        ls_dataset_close(&idx->base);
        return status;
    }
    *out = &idx->base;
    return LS_OK;
}
