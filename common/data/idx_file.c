/* idx_file — big-endian: magic number 0x000008NN (08: unsigned bytes, NN: dimensions), a 32-bit length per dimension,
 * bytes.
 *   idea  : zlib's gzread reads plain and gzipped files alike and checks the gzip checksum at the end of the stream,
 *           which is why one byte more than announced is asked for: it finds the end, or bytes too many.
 *   fails : the lengths are not believed until the file could hold that much, so a damaged header cannot ask for a
 *           terabyte. */
#define _GNU_SOURCE
#include "common/data/idx_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/log.h"

#define LS_DEFLATE_MAX_RATIO 1032 /* no byte of a gzip file gives more than that many bytes */
#define LS_GZ_WHOLE_BUFFER_BYTES (1u << 17)
#define LS_GZ_MAX_READ_BYTES ((size_t)1 << 30) /* gzread counts in int */

static const struct {
    char separator;
    const char *suffix;
} spellings[] = {{'-', ""}, {'-', ".gz"}, {'.', ""}, {'.', ".gz"}};
enum { SPELLINGS = sizeof spellings / sizeof spellings[0] };

static int spell(char *name, size_t capacity, int spelling, const char *prefix, int ndim) {
    return snprintf(name, capacity, "%s%cidx%d-ubyte%s", prefix, spellings[spelling].separator, ndim,
                    spellings[spelling].suffix);
}

static bool find_file(char path[PATH_MAX], const char *folder, const char *prefix, int ndim) {
    int folder_length = snprintf(path, PATH_MAX, "%s/", folder);
    for (int i = 0; folder_length < PATH_MAX && i < SPELLINGS; i++) {
        size_t capacity = PATH_MAX - (size_t)folder_length;
        int length = spell(path + folder_length, capacity, i, prefix, ndim);
        if ((size_t)length < capacity && access(path, F_OK) == 0) return true;
    }
    return false;
}

bool ls_idx_is_spelling(const char *name, const char *prefix, int ndim) {
    char spelling[64];
    for (int i = 0; i < SPELLINGS; i++) {
        (void)spell(spelling, sizeof spelling, i, prefix, ndim);
        if (strcmp(name, spelling) == 0) return true;
    }
    return false;
}

static size_t header_nbytes(int ndim) { return 4 + 4 * (size_t)ndim; }

/* Why gzread stopped early, in zlib's words or in ours. */
static ls_status fail_read(const ls_idx_reader *reader) {
    int error = Z_OK;
    const char *text = gzerror(reader->stream, &error);
    if (error == Z_ERRNO) return ls_fail(LS_ERR_IO, "cannot read %s: %s", reader->path, strerror(errno));
    if (error != Z_OK && error != Z_BUF_ERROR) {
        return ls_fail(LS_ERR_FORMAT, "%s is damaged: %s", reader->path, text);
    }
    z_off_t there = gztell(reader->stream) - (z_off_t)header_nbytes(reader->ndim);
    if (reader->sample_nbytes == 0 || there < 0) {
        return ls_fail(LS_ERR_FORMAT, "%s is truncated: it ends within its header", reader->path);
    }
    size_t samples = (size_t)there / reader->sample_nbytes;
    if (samples == reader->dims[0]) {
        return ls_fail(LS_ERR_FORMAT, "%s is truncated: it ends within its checksum", reader->path);
    }
    return ls_fail(LS_ERR_FORMAT, "%s is truncated: it ends within sample %zu of %zu", reader->path, samples,
                   reader->dims[0]);
}

static ls_status read_bytes(const ls_idx_reader *reader, uint8_t *destination, size_t nbytes) {
    while (nbytes > 0) {
        size_t wanted = nbytes < LS_GZ_MAX_READ_BYTES ? nbytes : LS_GZ_MAX_READ_BYTES;
        int got = gzread(reader->stream, destination, (unsigned)wanted);
        if (got <= 0) return fail_read(reader);
        destination += got;
        nbytes -= (size_t)got;
    }
    return LS_OK;
}

/* The end of the file, and with it the checksum of a gzipped one. */
static ls_status check_end(const ls_idx_reader *reader) {
    uint8_t extra;
    int got = gzread(reader->stream, &extra, 1);
    int error = Z_OK;
    gzerror(reader->stream, &error);
    if (got > 0) return ls_fail(LS_ERR_FORMAT, "%s has bytes after its last element", reader->path);
    if (got < 0 || error != Z_OK) return fail_read(reader);
    return LS_OK;
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
                       "%s is not an IDX file of bytes with %d dimension%s: magic number 0x%08x expected, "
                       "0x%08x found",
                       reader->path, ndim, ndim == 1 ? "" : "s", expected, magic);
    }
    status = read_bytes(reader, bytes + 4, 4 * (size_t)ndim);
    if (status != LS_OK) return status;
    size_t sample_nbytes = 1; /* cannot overflow: at most two lengths of 32 bits */
    for (int i = 0; i < ndim; i++) {
        reader->dims[i] = big_endian_32(bytes + 4 + 4 * i);
        if (reader->dims[i] == 0) {
            return ls_fail(LS_ERR_FORMAT, "%s is empty: its dimension %d is zero", reader->path, i);
        }
        if (i > 0) sample_nbytes *= reader->dims[i];
    }
    reader->sample_nbytes = sample_nbytes;
    return LS_OK;
}

/* --- from front to back ------------------------------------------------------------------------------------------ */

ls_status ls_idx_reader_open(ls_idx_reader *reader, const char *folder, const char *prefix, int ndim,
                             unsigned buffer_nbytes) {
    memset(reader, 0, sizeof *reader);
    reader->ndim = ndim;
    struct stat entry;
    if (stat(folder, &entry) != 0 || !S_ISDIR(entry.st_mode)) {
        return ls_fail(LS_ERR_IO,
                       "there is no data folder %s: name one with files in MNIST's format, such as data/digits",
                       folder);
    }
    if (!find_file(reader->path, folder, prefix, ndim)) {
        return ls_fail(LS_ERR_IO, "there is no %s-idx%d-ubyte or %s-idx%d-ubyte.gz in %s", prefix, ndim, prefix, ndim,
                       folder);
    }
    struct stat file;
    if (stat(reader->path, &file) == 0 && !S_ISREG(file.st_mode)) { /* opening a pipe would wait for its other end */
        return ls_fail(LS_ERR_IO, "%s is not a regular file", reader->path);
    }
    errno = 0;
    reader->stream = gzopen(reader->path, "rbe");
    if (!reader->stream) {
        return ls_fail(LS_ERR_IO, "cannot open %s: %s", reader->path, errno ? strerror(errno) : "out of memory");
    }
    gzbuffer(reader->stream, buffer_nbytes);
    ls_status status = read_header(reader);
    if (status != LS_OK) ls_idx_reader_close(reader);
    return status;
}

ls_status ls_idx_reader_check_room(const ls_idx_reader *reader, size_t count) {
    struct stat disk;
    if (stat(reader->path, &disk) != 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", reader->path, strerror(errno));
    size_t ratio = gzdirect(reader->stream) ? 1 : LS_DEFLATE_MAX_RATIO, nbytes;
    bool overflow = __builtin_mul_overflow(count, reader->sample_nbytes, &nbytes);
    if (!overflow && nbytes / ratio <= (size_t)disk.st_size) return LS_OK;
    return ls_fail(
        LS_ERR_FORMAT,
        "%s is truncated or damaged: it announces %zu elements of %zu bytes, more than its %lld bytes can hold",
        reader->path, reader->dims[0], reader->sample_nbytes, (long long)disk.st_size);
}

ls_status ls_idx_reader_next(ls_idx_reader *reader, uint8_t *sample, bool *end) {
    *end = reader->position == reader->dims[0];
    if (*end) return check_end(reader);
    ls_status status = read_bytes(reader, sample, reader->sample_nbytes);
    if (status == LS_OK) reader->position++;
    return status;
}

void ls_idx_reader_close(ls_idx_reader *reader) {
    if (reader->stream) gzclose_r(reader->stream);
    reader->stream = NULL;
}

/* --- whole ------------------------------------------------------------------------------------------------------- */

static ls_status read_whole(ls_idx_file *file, const ls_idx_reader *reader) {
    ls_status status = ls_idx_reader_check_room(reader, reader->dims[0]);
    if (status != LS_OK) return status;
    size_t nbytes = reader->dims[0] * reader->sample_nbytes;
    file->data = malloc(nbytes);
    if (!file->data) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the %zu bytes of %s", nbytes, file->path);
    status = read_bytes(reader, file->data, nbytes);
    if (status == LS_OK) status = check_end(reader);
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
    memcpy(file->path, reader.path, sizeof file->path);
    memcpy(file->dims, reader.dims, sizeof file->dims);
    file->ndim = ndim;
    status = read_whole(file, &reader);
    ls_idx_reader_close(&reader);
    return status;
}
