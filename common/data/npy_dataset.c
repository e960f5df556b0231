/* npy_dataset — pairs of NumPy arrays: inputs.npy and targets.npy, test_inputs.npy and test_targets.npy.
 *   inputs : (N, features), (N, height, width) or (N, channels, height, width), uint8 or float32
 *   targets: (N) integers are labels; (N) or (N, ...) float32 are the targets of a regression */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/data/npy_file.h"
#include "common/data/packed.h"

static const char *const names[2][2] = {
    [LS_SPLIT_TRAIN] = {"inputs.npy", "targets.npy"}, [LS_SPLIT_TEST] = {"test_inputs.npy", "test_targets.npy"}};

static bool npy_owns(const char *name) {
    for (int split = 0; split < 2; split++) {
        for (int role = 0; role < 2; role++) {
            const char *own = names[split][role];
            size_t length = strlen(own);
            if (strncmp(name, own, length) == 0 && (name[length] == '\0' || strcmp(name + length, ".gz") == 0))
                return true;
        }
    }
    return false;
}

static ls_status take_inputs(struct ls_array_set *set, const ls_npy_file *file) {
    const size_t *shape = file->shape;
    size_t values = file->sample_nbytes / ls_element_nbytes(file->element);
    set->memory[0] = file->data;
    strcpy(set->inputs_path, file->path);
    if (file->element != LS_ELEMENT_U8 && file->element != LS_ELEMENT_F32)
        return ls_fail(LS_ERR_FORMAT,
                       "%s has integers of more than a byte; expected uint8 or float32: save a.astype(\"float32\")",
                       file->path);
    if (file->axes < 2)
        return ls_fail(LS_ERR_FORMAT, "%s has 1 axis; expected samples and their values: save a.reshape(-1, 1)",
                       file->path);
    if (file->axes == 4 && shape[3] <= 4 && shape[1] > 4)
        return ls_fail(LS_ERR_FORMAT,
                       "%s has shape (%zu, %zu, %zu, %zu), channels last; expected (samples, channels, height, "
                       "width): save a.transpose(0, 3, 1, 2).copy()",
                       file->path, shape[0], shape[1], shape[2], shape[3]);
    if (values > INT_MAX)
        return ls_fail(LS_ERR_FORMAT, "%s has samples of %zu values, which is too large", file->path, values);
    set->base.count = shape[0];
    set->base.spec = (ls_sample_spec){.channels = file->axes == 3 ? 1 : (int)shape[1],
                                      .height = file->axes > 2 ? (int)shape[file->axes - 2] : 1,
                                      .width = file->axes > 2 ? (int)shape[file->axes - 1] : 1};
    set->inputs = (struct ls_array){file->data, file->sample_nbytes, file->element};
    return LS_OK;
}

static ls_status take_targets(struct ls_array_set *set, const ls_npy_file *file) {
    bool floats = file->element == LS_ELEMENT_F32;
    set->memory[1] = file->data;
    strcpy(set->answers_path, file->path);
    if (file->shape[0] != set->base.count)
        return ls_fail(LS_ERR_FORMAT, "%s has %zu samples but %s has %zu", set->inputs_path, set->base.count,
                       file->path, file->shape[0]);
    if (!floats && file->sample_nbytes != ls_element_nbytes(file->element))
        return ls_fail(LS_ERR_FORMAT,
                       "%s has %zu labels for each sample; expected one: of one-hot rows save a.argmax(1)", file->path,
                       file->sample_nbytes / ls_element_nbytes(file->element));
    if (floats) set->base.spec.target_count = file->sample_nbytes / sizeof(float);
    set->answers = (struct ls_array){file->data, file->sample_nbytes, file->element};
    return LS_OK;
}

static ls_status npy_read(struct ls_array_set *set, const char *folder, ls_split split) {
    ls_npy_file file;
    ls_status status = ls_npy_file_read(&file, folder, names[split][0]);
    if (status == LS_OK) status = take_inputs(set, &file);
    if (status == LS_OK) status = ls_npy_file_read(&file, folder, names[split][1]);
    return status == LS_OK ? take_targets(set, &file) : status;
}

static bool has_test(const char *folder) {
    ls_packed file;
    return ls_packed_find(&file, folder, names[LS_SPLIT_TEST][0]) ||
           ls_packed_find(&file, folder, names[LS_SPLIT_TEST][1]);
}

const struct ls_layout ls_npy_layout = {.owns = npy_owns, .read = npy_read, .has_test = has_test};
