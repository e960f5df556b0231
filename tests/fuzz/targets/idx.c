/* IDX files, plain and gzipped. The reader looks for the file by name in a folder, so the first call creates a folder
 * with names that link to the file in memory; it is removed at the end. The first byte of the input selects labels (1
 * dimension) or images (3, or 4 if it is 4). */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/data/idx_file.h"
#include "tests/fuzz/targets/targets.h"

static const char *folder;

/* Reads the file sample by sample; the bytes must be the same, and as many, as when it is read at once. False if the
 * file is rejected. */
static bool read_by_samples(int ndim, const ls_idx_file *whole) {
    static ls_idx_reader reader;
    if (ls_idx_reader_open(&reader, folder, "f", ndim, 4096) != LS_OK) return false;
    bool good = ls_idx_reader_check_room(&reader, 1) == LS_OK, end = false;
    uint8_t *sample = good ? malloc(reader.sample_nbytes) : NULL;
    for (size_t i = 0; sample && good && !end; i++) {
        good = ls_idx_reader_next(&reader, sample, &end) == LS_OK;
        if (!good || end || !whole->data) continue;
        fuzz_require(memcmp(sample, whole->data + i * reader.sample_nbytes, reader.sample_nbytes) == 0,
                     "both ways give the same bytes");
    }
    fuzz_require(!good || !end || reader.position == reader.dims[0], "the end comes after the last sample");
    free(sample);
    ls_idx_reader_close(&reader);
    return good && end;
}

void fuzz_idx(const uint8_t *data, size_t nbytes) {
    if (nbytes == 0) return;
    static const char *const names[] = {"f-idx1-ubyte", "f-idx3-ubyte", "f-idx4-ubyte"};
    if (!folder) folder = fuzz_memory_folder(names, 3);
    (void)fuzz_memory_file(data + 1, nbytes - 1);
    int ndim = data[0] == 4 ? 4 : data[0] % 2 ? 3 : 1;
    static ls_idx_file file;
    ls_status status = ls_idx_file_read(&file, folder, "f", ndim);
    fuzz_require((status == LS_OK) == (file.data != NULL), "bytes are there if and only if they were read");
    fuzz_require(read_by_samples(ndim, &file) == (status == LS_OK), "both ways take the same files");
    if (!file.data) return;
    size_t count = 1;
    for (int d = 0; d < ndim; d++) count *= file.dims[d];
    fuzz_require(count > 0, "no dimension is zero");
    bool is_plain = nbytes > 2 && !(data[1] == 0x1f && data[2] == 0x8b);
    fuzz_require(!is_plain || nbytes - 1 == 4 + 4 * (size_t)ndim + count, "a file is as long as its header says");
    uint8_t *copy = malloc(count);
    if (copy) memcpy(copy, file.data, count);
    free(copy);
    free(file.data);
}
