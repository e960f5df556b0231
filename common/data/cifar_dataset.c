/* cifar_dataset — the binary versions of CIFAR-10 and CIFAR-100: records of one label byte (CIFAR-100: a coarse one before it) and
 * 3 x 32 x 32 bytes, plane by plane.
 *   idea  : records stay as they are; labels and pixels are two arrays in the same memory
 *   fails : the length of a gzipped file is not known, so it is read record by record, up to MOST_RECORDS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/data/arrays.h"
#include "common/data/packed.h"

enum { CHANNELS = 3, SIDE = 32, PIXELS = CHANNELS * SIDE * SIDE, BATCHES = 5, MOST_RECORDS = 1 << 16 };
#define LS_CIFAR_BUFFER_BYTES (1u << 17)

struct records {
    uint8_t *bytes;
    size_t nbytes, capacity; /* used; allocated */
};

static ls_status make_room(struct records *records, size_t nbytes, const char *path) {
    if (records->capacity - records->nbytes >= nbytes) return LS_OK;
    size_t capacity = records->capacity > 0 ? records->capacity : nbytes;
    while (capacity < records->nbytes + nbytes) capacity *= 2; /* untouched pages cost nothing */
    uint8_t *bytes = realloc(records->bytes, capacity);
    if (!bytes) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the %zu bytes of %s", capacity, path);
    records->bytes = bytes;
    records->capacity = capacity;
    return LS_OK;
}

/* Appends the records of an open file. */
static ls_status read_records(struct records *records, ls_packed *file, size_t record_nbytes) {
    size_t piece = 64 * record_nbytes, got = piece, begin = records->nbytes;
    ls_status status = LS_OK;
    while (status == LS_OK && got == piece) {
        status = make_room(records, piece, file->path);
        if (status == LS_OK) status = ls_packed_read(file, records->bytes + records->nbytes, piece, &got);
        if (status != LS_OK) return status;
        records->nbytes += got;
        if ((records->nbytes - begin) / record_nbytes > MOST_RECORDS)
            return ls_fail(LS_ERR_FORMAT, "%s has more than %d samples of %zu bytes, which no CIFAR file has",
                           file->path, MOST_RECORDS, record_nbytes);
    }
    status = ls_packed_check_end(file);
    size_t nbytes = records->nbytes - begin;
    if (status == LS_OK && (nbytes == 0 || nbytes % record_nbytes != 0))
        return ls_fail(LS_ERR_FORMAT,
                       "%s is truncated or not a CIFAR file: its %zu bytes do not divide into samples of %zu bytes",
                       file->path, nbytes, record_nbytes);
    return status;
}

static ls_status append_file(struct records *records, const char *folder, const char *name, size_t record_nbytes,
                             char path[PATH_MAX]) {
    ls_packed file;
    if (!ls_packed_find(&file, folder, name))
        return ls_fail(LS_ERR_IO, "there is no %s or %s.gz in %s", name, name, folder);
    strcpy(path, file.path);
    ls_status status = ls_packed_open(&file, LS_CIFAR_BUFFER_BYTES);
    if (status != LS_OK) return status;
    status = read_records(records, &file, record_nbytes);
    ls_packed_close(&file);
    return status;
}

static void set_arrays(struct ls_array_set *set, const struct records *records, size_t label_nbytes) {
    size_t stride = label_nbytes + PIXELS;
    set->memory[0] = records->bytes;
    set->base.count = records->nbytes / stride;
    set->base.spec = (ls_sample_spec){.channels = CHANNELS, .height = SIDE, .width = SIDE};
    set->inputs = (struct ls_array){records->bytes + label_nbytes, stride, LS_ELEMENT_U8};
    set->answers = (struct ls_array){records->bytes + label_nbytes - 1, stride, LS_ELEMENT_U8};
}

static ls_status read_files(struct ls_array_set *set, const char *folder, const char *const *names, int count,
                            size_t label_nbytes) {
    struct records records = {0};
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < count; i++)
        status = append_file(&records, folder, names[i], label_nbytes + PIXELS, set->answers_path);
    if (count > 1)
        snprintf(set->answers_path, sizeof set->answers_path, "%s", folder); /* samples count over all files */
    set_arrays(set, &records, label_nbytes);
    return status;
}

static bool is_named(const char *name, const char *const *names, int count) {
    size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, ".gz") == 0) length -= 3;
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) return true;
    return false;
}

static const char *const cifar10[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                      "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
static const char *const cifar100[] = {"train.bin", "test.bin"};

static bool owns10(const char *name) { return is_named(name, cifar10, BATCHES + 1); }
static bool owns100(const char *name) { return is_named(name, cifar100, 2); }

static ls_status read10(struct ls_array_set *set, const char *folder, ls_split split) {
    bool train = split == LS_SPLIT_TRAIN;
    return read_files(set, folder, train ? cifar10 : cifar10 + BATCHES, train ? BATCHES : 1, 1);
}

static ls_status read100(struct ls_array_set *set, const char *folder, ls_split split) {
    return read_files(set, folder, split == LS_SPLIT_TRAIN ? cifar100 : cifar100 + 1, 1, 2);
}

const struct ls_layout ls_cifar10_layout = {.owns = owns10, .read = read10, .classes = 10};
const struct ls_layout ls_cifar100_layout = {.owns = owns100, .read = read100, .classes = 100};
