#include "tests/data/folders.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"

enum { PIXELS = 3072 };

void folders_write_records(const char *name, int first, int count, int label_nbytes, int classes, size_t nbytes) {
    size_t record = (size_t)label_nbytes + PIXELS, whole = record * (size_t)count;
    uint8_t *bytes = calloc(whole + 1, 1);
    assert_non_null(bytes);
    for (int s = 0; s < count; s++) {
        uint8_t *pixels = bytes + record * (size_t)s + label_nbytes;
        pixels[-1] = (uint8_t)((first + s) % classes);
        for (int i = 0; i < PIXELS; i++) pixels[i] = (uint8_t)((uint8_t)(7 * (first + s) + i) >> (i / 1024));
    }
    scratch_write(name, bytes, nbytes > 0 ? nbytes : whole);
    free(bytes);
}

void folders_write_cifar10(void) {
    char name[32];
    for (int batch = 0; batch < 5; batch++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", batch + 1);
        folders_write_records(name, batch * (batch + 1) / 2, batch + 1, 1, 10, 0);
    }
    folders_write_records("test_batch.bin", 0, 3, 1, 10, 0);
}

void folders_write_idx4(const char *prefix, int count) {
    uint8_t images[20 + 256] = {0, 0, 8, 4, 0, 0, 0, (uint8_t)count, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3},
                        labels[8 + 64] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)count};
    char name[64];
    for (int i = 0; i < 6 * count; i++) images[20 + i] = (uint8_t)i;
    for (int s = 0; s < count; s++) labels[8 + s] = (uint8_t)s;
    snprintf(name, sizeof name, "%s-images-idx4-ubyte", prefix);
    scratch_write(name, images, 20 + 6 * (size_t)count);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    scratch_write(name, labels, 8 + (size_t)count);
}

void folders_write_npy(const char *name, const char *descr, const char *shape, const void *data, size_t nbytes) {
    uint8_t *bytes = malloc(128 + nbytes);
    assert_non_null(bytes);
    memcpy(bytes, "\x93NUMPY\1\0\x76\0", 10);
    int length =
        snprintf((char *)bytes + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memset(bytes + 10 + length, ' ', 118 - (size_t)length);
    bytes[127] = '\n';
    memcpy(bytes + 128, data, nbytes);
    scratch_write(name, bytes, 128 + nbytes);
    free(bytes);
}

void folders_gzip(const char *name, const void *data, size_t nbytes, int times) {
    gzFile stream = gzopen(scratch_path(name), "wb1");
    assert_non_null(stream);
    for (int i = 0; i < times; i++) assert_int_equal(gzwrite(stream, data, (unsigned)nbytes), nbytes);
    assert_int_equal(gzclose(stream), Z_OK);
}
