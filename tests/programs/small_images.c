#include "tests/programs/small_images.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/data/idx_write.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

enum { SIDE = 8, CLASSES = 10 };

static void write_file(const char *folder, const char *prefix, int ndim, size_t samples, unsigned below) {
    static uint8_t bytes[SMALL_IMAGES_MOST * SIDE * SIDE];
    size_t dims[3] = {samples, SIDE, SIDE}, count = ndim == 3 ? samples * SIDE * SIDE : samples;
    uint32_t state = 12345;
    assert_in_range(samples, 1, SMALL_IMAGES_MOST);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)((state >> 16) % below);
    }
    ls_idx_writer *writer;
    assert_int_equal(ls_idx_writer_open(&writer, folder, prefix, ndim, dims), 0);
    assert_int_equal(ls_idx_writer_put(writer, bytes, count), 0);
    assert_int_equal(ls_idx_writer_commit(writer), 0);
}

const char *small_images(const char *name, size_t train, size_t test) {
    const char *folder = scratch_path(name);
    (void)mkdir(folder, 0700);
    write_file(folder, "train-images", 3, train, 256);
    write_file(folder, "train-labels", 1, train, CLASSES);
    write_file(folder, "t10k-images", 3, test, 256);
    write_file(folder, "t10k-labels", 1, test, CLASSES);
    return folder;
}
