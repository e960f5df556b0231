/* CIFAR-100's binary files, plain and gzipped; the same code reads CIFAR-10's. */
#include "common/data/dataset.h"
#include "tests/fuzz/targets/targets.h"

void fuzz_cifar(const uint8_t *data, size_t nbytes) {
    static const char *const names[] = {"train.bin", "test.bin"};
    static const char *folder;
    static float input[3072];
    ls_dataset *train, *test;
    int normalize = LS_NORMALIZE_AUTO;
    if (!folder) folder = fuzz_memory_folder(names, 2);
    (void)fuzz_memory_file(data, nbytes);
    ls_status status = ls_dataset_open_folder(&train, &test, folder, &normalize);
    fuzz_require((status == LS_OK) == (train != NULL && test != NULL), "both sets are there, or none");
    if (status != LS_OK) return;
    bool is_plain = !(data[0] == 0x1f && data[1] == 0x8b);
    fuzz_require(!is_plain || ls_dataset_count(train) * 3074 == nbytes, "a file is its samples");
    for (int64_t i = 0; i < (int64_t)ls_dataset_count(train); i++) {
        int64_t label;
        ls_dataset_read(train, &i, 1, input, &label, NULL);
        fuzz_require(label >= 0 && label < 100, "labels are in range");
    }
    ls_dataset_close(train);
    ls_dataset_close(test);
}
