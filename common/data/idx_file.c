/* idx_file — big-endian: magic number 0x000008NN (08: unsigned bytes, NN: dimensions), a 32-bit length per dimension,
 * bytes. */
#define _GNU_SOURCE
#include "common/data/idx_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/data/refusal.h"

#define LS_GZ_WHOLE_BUFFER_BYTES (1u << 17)

static const struct {
    char separator;
    const char *suffix;
} spellings[] = {{'-', ""}, {'-', ".gz"}, {'.', ""}, {'.', ".gz"}};
enum { SPELLINGS = sizeof spellings / sizeof spellings[0] };

static int format_name(char *name, size_t capacity, int spelling, const char *prefix, int ndim) {
    return snprintf(name, capacity, "%s%cidx%d-ubyte%s", prefix, spellings[spelling].separator, ndim,
                    spellings[spelling].suffix);
}

static bool find_file(char path[PATH_MAX], const char *folder, const char *prefix, int ndim) {
    int folder_length = snprintf(path, PATH_MAX, "%s/", folder);
    for (int i = 0; folder_length < PATH_MAX && i < SPELLINGS; i++) {
        size_t capacity = PATH_MAX - (size_t)folder_length;
        int length = format_name(path + folder_length, capacity, i, prefix, ndim);
        if ((size_t)length < capacity && access(path, F_OK) == 0) return true;
    }
    return false;
}

int ls_idx_images_ndim(const char *folder, const char *prefix) {
    char path[PATH_MAX];
    return !find_file(path, folder, prefix, 3) && find_file(path, folder, prefix, 4) ? 4 : 3;
}

bool ls_idx_is_spelling(const char *name, const char *prefix, int ndim) {
    char spelling[64];
    for (int i = 0; i < SPELLINGS; i++) {
        (void)format_name(spelling, sizeof spelling, i, prefix, ndim);
        if (strcmp(name, spelling) == 0) return true;
    }
    return false;
}

static ls_status fail_short(const ls_idx_reader *reader, size_t got) {
    if (reader->sample_nbytes == 0)
        return ls_fail(LS_ERR_FORMAT, "%s is truncated: the file ends within its header", reader->packed.path);
    return ls_fail(LS_ERR_FORMAT, "%s is truncated: the file ends within sample %zu of %zu", reader->packed.path,
                   reader->position + got / reader->sample_nbytes, reader->dims[0]);
}

static ls_status read_bytes(ls_idx_reader *reader, uint8_t *destination, size_t nbytes) {
    size_t got;
    ls_status status = ls_packed_read(&reader->packed, destination, nbytes, &got);
    return status == LS_OK && got < nbytes ? fail_short(reader, got) : status;
}

static uint32_t big_endian_32(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Reads the magic number and the lengths. */
static ls_status read_header(ls_idx_reader *reader) {
    int ndim = reader->ndim;
    uint8_t bytes[4 + 4 * LS_IDX_MAX_DIMS];
    ls_status status = read_bytes(reader, bytes, 4);
    if (status != LS_OK) return status;
    uint32_t magic = big_endian_32(bytes);
    uint32_t expected = 0x800u + (uint32_t)ndim;
    if (magic != expected) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is not an IDX file of bytes with %d dimension%s: expected magic number 0x%08x, found 0x%08x",
                       reader->packed.path, ndim, ndim == 1 ? "" : "s", expected, magic);
    }
    status = read_bytes(reader, bytes + 4, 4 * (size_t)ndim);
    if (status != LS_OK) return status;
    size_t sample_nbytes = 1;
    bool overflow = false;
    for (int i = 0; i < ndim; i++) {
        reader->dims[i] = big_endian_32(bytes + 4 + 4 * i);
        if (reader->dims[i] == 0) {
            return ls_fail(LS_ERR_FORMAT, "%s is empty: its dimension %d is zero", reader->packed.path, i);
        }
        if (i > 0) overflow |= __builtin_mul_overflow(sample_nbytes, reader->dims[i], &sample_nbytes);
    }
    if (overflow)
        return ls_fail(LS_ERR_FORMAT, "%s is damaged: its samples would be larger than any file", reader->packed.path);
    reader->sample_nbytes = sample_nbytes;
    return LS_OK;
}

/* --- from front to back ------------------------------------------------------------------------------------------ */

ls_status ls_idx_reader_open(ls_idx_reader *reader, const char *folder, const char *prefix, int ndim,
                             unsigned buffer_nbytes) {
    memset(reader, 0, sizeof *reader);
    reader->ndim = ndim;
    ls_status status = ls_data_check_folder(folder);
    if (status != LS_OK) return status;
    if (!find_file(reader->packed.path, folder, prefix, ndim)) {
        return ls_fail(LS_ERR_IO, "there is no %s-idx%d-ubyte or %s-idx%d-ubyte.gz in %s", prefix, ndim, prefix, ndim,
                       folder);
    }
    status = ls_packed_open(&reader->packed, buffer_nbytes);
    if (status != LS_OK) return status;
    status = read_header(reader);
    if (status != LS_OK) ls_idx_reader_close(reader);
    return status;
}

ls_status ls_idx_reader_check_room(const ls_idx_reader *reader, size_t count) {
    return ls_packed_check_room(&reader->packed, count, reader->dims[0], reader->sample_nbytes);
}

ls_status ls_idx_reader_next(ls_idx_reader *reader, uint8_t *sample, bool *end) {
    *end = reader->position == reader->dims[0];
    if (*end) return ls_packed_check_end(&reader->packed);
    ls_status status = read_bytes(reader, sample, reader->sample_nbytes);
    if (status == LS_OK) reader->position++;
    return status;
}

void ls_idx_reader_close(ls_idx_reader *reader) { ls_packed_close(&reader->packed); }

/* --- whole ------------------------------------------------------------------------------------------------------- */

static ls_status read_whole(ls_idx_file *file, ls_idx_reader *reader) {
    ls_status status = ls_idx_reader_check_room(reader, reader->dims[0]);
    if (status != LS_OK) return status;
    size_t nbytes = reader->dims[0] * reader->sample_nbytes;
    file->data = malloc(nbytes);
    if (!file->data)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the %zu bytes of %s", nbytes, file->path);
    status = read_bytes(reader, file->data, nbytes);
    if (status == LS_OK) status = ls_packed_check_end(&reader->packed);
    if (status != LS_OK) {
        free(file->data);
        file->data = NULL;
    }
    return status;
}

ls_status ls_idx_file_read(ls_idx_file *file, const char *folder, const char *prefix, int ndim) {
    ls_idx_reader reader;
    file->data = NULL;
    ls_status status = ls_idx_reader_open(&reader, folder, prefix, ndim, LS_GZ_WHOLE_BUFFER_BYTES);
    if (status != LS_OK) return status;
    memcpy(file->path, reader.packed.path, sizeof file->path);
    memcpy(file->dims, reader.dims, sizeof file->dims);
    file->ndim = ndim;
    status = read_whole(file, &reader);
    ls_idx_reader_close(&reader);
    return status;
}
