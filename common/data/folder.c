/* folder — opens the data set in a folder, by its files' names.
 *   idea  : the names determine the layout, so nothing is guessed from bytes; a folder with files of two layouts is
 *           refused
 *   order : the training samples are opened first, since the test samples get the same normalization */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/data/arrays.h"
#include "common/data/refusal.h"

static const struct ls_layout *const layouts[] = {&ls_idx_layout, &ls_cifar10_layout, &ls_cifar100_layout,
                                                  &ls_npy_layout};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static const struct ls_layout *layout_of_name(const char *name) {
    for (int l = 0; l < LAYOUTS; l++)
        if (layouts[l]->owns(name)) return layouts[l];
    return NULL;
}

bool ls_dataset_owns_name(const char *name) { return layout_of_name(name) != NULL; }

const char *ls_dataset_find(const char *name) {
    static const char fashion[] = "/usr/share/datasets/" LS_DATA_FASHION;
    bool wanted = strcmp(name, LS_DATA_FASHION) == 0 && access(name, F_OK) != 0;
    return wanted && access(fashion, F_OK) == 0 ? fashion : name;
}

/* *layout is NULL if no file belongs to a layout. */
static ls_status find_layout(const struct ls_layout **layout, const char *folder) {
    char first[NAME_MAX + 1] = "";
    *layout = NULL;
    DIR *entries = opendir(folder);
    if (!entries) return ls_fail(LS_ERR_IO, "cannot read the folder %s: %s", folder, strerror(errno));
    ls_status status = LS_OK;
    for (struct dirent *entry; status == LS_OK && (entry = readdir(entries));) {
        const struct ls_layout *found = layout_of_name(entry->d_name);
        if (!found || found == *layout) continue;
        if (*layout)
            status = ls_fail(LS_ERR_FORMAT, "%s has files of two data sets, such as %s and %s; keep the files of one",
                             folder, first, entry->d_name);
        *layout = found;
        snprintf(first, sizeof first, "%s", entry->d_name);
    }
    closedir(entries);
    return status;
}

/* The test set must be of the training set's kind. */
static ls_status check_alike(const struct ls_array_set *train, const struct ls_array_set *test) {
    const ls_sample_spec *a = &train->base.spec, *b = &test->base.spec;
    if (a->channels != b->channels || a->height != b->height || a->width != b->width)
        return ls_fail(
            LS_ERR_FORMAT,
            "the samples of %s have %d x %d x %d values, but those of %s have %d x %d x %d; expected the same shape",
            test->inputs_path, b->channels, b->height, b->width, train->inputs_path, a->channels, a->height, a->width);
    if (train->inputs.element != test->inputs.element)
        return ls_fail(LS_ERR_FORMAT, "%s and %s differ in type: bytes and floats; save both as the same type",
                       train->inputs_path, test->inputs_path);
    if (a->target_count != b->target_count)
        return ls_fail(LS_ERR_FORMAT,
                       "%s has %zu target values per sample, but %s has %zu (0: labels); expected the same number",
                       test->answers_path, b->target_count, train->answers_path, a->target_count);
    return LS_OK;
}

static ls_normalize usual_rule(const struct ls_layout *layout, const struct ls_array_set *train) {
    if (train->inputs.element == LS_ELEMENT_F32) return LS_NORMALIZE_NONE;
    return layout == &ls_idx_layout && train->base.spec.channels == 1 ? LS_NORMALIZE_MNIST : LS_NORMALIZE_AUTO;
}

ls_status ls_dataset_open_folder(ls_dataset **train, ls_dataset **test, const char *folder, int *normalize) {
    const struct ls_layout *layout;
    struct ls_array_set *training = NULL, *testing = NULL;
    *train = NULL;
    if (test) *test = NULL;
    ls_status status = ls_data_check_folder(folder);
    if (status == LS_OK) status = find_layout(&layout, folder);
    if (status == LS_OK && !layout) status = ls_data_refuse_folder(folder);
    if (status == LS_OK) status = ls_array_set_open(&training, layout, folder, LS_SPLIT_TRAIN, 0);
    if (status != LS_OK) return status;
    if (*normalize < 0) *normalize = (int)usual_rule(layout, training);
    status = ls_array_set_normalize(training, (ls_normalize)*normalize);
    if (status == LS_OK && test && (!layout->has_test || layout->has_test(folder))) {
        status = ls_array_set_open(&testing, layout, folder, LS_SPLIT_TEST, 0);
        if (status == LS_OK) status = check_alike(training, testing);
        if (status == LS_OK) status = ls_array_set_normalize_like(testing, training);
    }
    if (status != LS_OK) {
        ls_dataset_close(&training->base);
        if (testing) ls_dataset_close(&testing->base);
        return status;
    }
    *train = &training->base;
    if (testing) *test = &testing->base;
    return LS_OK;
}
