/* NumPy's .npy files, plain and gzipped: one array, and a data set that uses it as inputs and as targets. */
#include <stdlib.h>
#include <string.h>

#include "common/data/npy_file.h"
#include "tests/fuzz/targets/targets.h"

/* A set that was opened can be read from end to end. */
static void read_all(const char *folder) {
    ls_dataset *set;
    int normalize = LS_NORMALIZE_AUTO;
    if (ls_dataset_open_folder(&set, NULL, folder, &normalize) != LS_OK) {
        fuzz_require(set == NULL, "there is no data set after a failure");
        return;
    }
    const ls_sample_spec *spec = ls_dataset_spec(set);
    float *input = malloc(ls_sample_input_count(spec) * sizeof *input), *target = calloc(spec->target_count + 1, 4);
    for (size_t i = 0; input && target && i < ls_dataset_count(set); i++) {
        int64_t label = -1, index = (int64_t)i;
        ls_dataset_read(set, &index, 1, input, &label, target);
        fuzz_require(spec->classes == 0 || (label >= 0 && label < spec->classes), "labels are in range");
    }
    free(input);
    free(target);
    ls_dataset_close(set);
}

void fuzz_npy(const uint8_t *data, size_t nbytes) {
    static const char *const names[] = {"inputs.npy", "targets.npy"};
    static const char *folder;
    static ls_npy_file file;
    if (!folder) folder = fuzz_memory_folder(names, 2);
    (void)fuzz_memory_file(data, nbytes);
    ls_status status = ls_npy_file_read(&file, folder, names[0]);
    fuzz_require((status == LS_OK) == (file.data != NULL), "bytes are there if and only if they were read");
    if (!file.data) return;
    size_t whole = file.shape[0] * file.sample_nbytes;
    fuzz_require(file.axes >= 1 && file.axes <= LS_NPY_MOST_AXES && whole > 0, "the shape is one");
    bool is_plain = nbytes > 2 && !(data[0] == 0x1f && data[1] == 0x8b);
    fuzz_require(!is_plain || nbytes > whole, "a file is longer than its elements");
    uint8_t *copy = malloc(whole);
    if (copy) memcpy(copy, file.data, whole);
    free(copy);
    free(file.data);
    read_all(folder);
}
