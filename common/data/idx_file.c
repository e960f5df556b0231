/* idx_file — big-endian: magic number 0x000008NN (08: unsigned bytes, NN: dimensions), a 32-bit length per dimension, bytes.
 *   idea  : zlib's gzread reads plain and gzipped files alike and checks the gzip checksum at the end of the stream,
 *           which is why one byte more than announced is asked for: it finds the end, or bytes too many.
 *   fails : the lengths are not believed until the file could hold that much, so a damaged header cannot ask for a
 *           terabyte. */
#define _GNU_SOURCE
#include "common/data/idx_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/log.h"

#define LS_DEFLATE_MAX_RATIO 1032 /* no byte of a gzip file gives more than that many bytes */
#define LS_GZ_BUFFER_BYTES (1u << 17)
#define LS_GZ_MAX_READ_BYTES ((size_t)1 << 30) /* gzread counts in int */

static bool find_file(ls_idx_file *file, const char *folder, const char *prefix, int ndim) {
    static const struct {
        char separator;
        const char *suffix;
    } spellings[] = {{'-', ""}, {'-', ".gz"}, {'.', ""}, {'.', ".gz"}};
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        int length = snprintf(file->path, sizeof file->path, "%s/%s%cidx%d-ubyte%s", folder, prefix,
                              spellings[i].separator, ndim, spellings[i].suffix);
        if (length < (int)sizeof file->path && access(file->path, F_OK) == 0) return true;
    }
    return false;
}

/* Why gzread stopped early, in zlib's words or in ours. */
static ls_status fail_read(const ls_idx_file *file, gzFile stream) {
    int error = Z_OK;
    const char *text = gzerror(stream, &error);
    if (error == Z_ERRNO) return ls_fail(LS_ERR_IO, "cannot read %s: %s", file->path, strerror(errno));
    if (error == Z_OK || error == Z_BUF_ERROR) {
        return ls_fail(LS_ERR_FORMAT, "%s is truncated: it ends before its last byte", file->path);
    }
    return ls_fail(LS_ERR_FORMAT, "%s is damaged: %s", file->path, text);
}

static ls_status read_bytes(const ls_idx_file *file, gzFile stream, uint8_t *destination, size_t nbytes) {
    while (nbytes > 0) {
        size_t wanted = nbytes < LS_GZ_MAX_READ_BYTES ? nbytes : LS_GZ_MAX_READ_BYTES;
        int got = gzread(stream, destination, (unsigned)wanted);
        if (got <= 0) return fail_read(file, stream);
        destination += got;
        nbytes -= (size_t)got;
    }
    return LS_OK;
}

/* The end of the file, and with it the checksum of a gzipped one. */
static ls_status check_end(const ls_idx_file *file, gzFile stream) {
    uint8_t extra;
    int got = gzread(stream, &extra, 1);
    int error = Z_OK;
    gzerror(stream, &error);
    if (got > 0) return ls_fail(LS_ERR_FORMAT, "%s has bytes after its last element", file->path);
    if (got < 0 || error != Z_OK) return fail_read(file, stream);
    return LS_OK;
}

static uint32_t big_endian_32(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Reads the magic number and the lengths; *nbytes is their product. */
static ls_status read_header(ls_idx_file *file, gzFile stream, int ndim, size_t *nbytes) {
    uint8_t bytes[4 + 4 * LS_IDX_MAX_DIMS];
    ls_status status = read_bytes(file, stream, bytes, 4);
    if (status != LS_OK) return status;
    uint32_t magic = big_endian_32(bytes);
    uint32_t expected = 0x800u + (uint32_t)ndim;
    if (magic != expected) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is not an IDX file of bytes with %d dimension%s: magic number 0x%08x expected, "
                       "0x%08x found",
                       file->path, ndim, ndim == 1 ? "" : "s", expected, magic);
    }
    status = read_bytes(file, stream, bytes + 4, 4 * (size_t)ndim);
    if (status != LS_OK) return status;
    file->ndim = ndim;
    *nbytes = 1;
    bool overflow = false;
    for (int i = 0; i < ndim; i++) {
        file->dims[i] = big_endian_32(bytes + 4 + 4 * i);
        if (file->dims[i] == 0) {
            return ls_fail(LS_ERR_FORMAT, "%s is empty: its dimension %d is zero", file->path, i);
        }
        overflow = overflow || __builtin_mul_overflow(*nbytes, file->dims[i], nbytes);
    }
    struct stat disk;
    if (stat(file->path, &disk) != 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", file->path, strerror(errno));
    size_t ratio = gzdirect(stream) ? 1 : LS_DEFLATE_MAX_RATIO;
    if (overflow || *nbytes / ratio > (size_t)disk.st_size) {
        return ls_fail(LS_ERR_FORMAT,
                       "%s is truncated or damaged: it announces %zu elements of %zu bytes, more than its "
                       "%lld bytes can hold",
                       file->path, file->dims[0], overflow ? SIZE_MAX : *nbytes / file->dims[0],
                       (long long)disk.st_size);
    }
    return LS_OK;
}

static ls_status read_stream(ls_idx_file *file, gzFile stream, int ndim) {
    size_t nbytes = 0;
    ls_status status = read_header(file, stream, ndim, &nbytes);
    if (status != LS_OK) return status;
    file->data = malloc(nbytes);
    if (!file->data) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the %zu bytes of %s", nbytes, file->path);
    status = read_bytes(file, stream, file->data, nbytes);
    if (status == LS_OK) status = check_end(file, stream);
    if (status != LS_OK) {
        free(file->data);
        file->data = NULL;
    }
    return status;
}

ls_status ls_idx_file_read(ls_idx_file *file, const char *folder, const char *prefix, int ndim) {
    file->data = NULL;
    struct stat entry;
    if (stat(folder, &entry) != 0 || !S_ISDIR(entry.st_mode)) {
        return ls_fail(LS_ERR_IO,
                       "there is no data folder %s: name one with files in MNIST's format, such as data/digits",
                       folder);
    }
    if (!find_file(file, folder, prefix, ndim)) {
        return ls_fail(LS_ERR_IO, "there is no %s-idx%d-ubyte or %s-idx%d-ubyte.gz in %s", prefix, ndim, prefix, ndim,
                       folder);
    }
    errno = 0;
    gzFile stream = gzopen(file->path, "rbe");
    if (!stream) return ls_fail(LS_ERR_IO, "cannot open %s: %s", file->path, errno ? strerror(errno) : "out of memory");
    gzbuffer(stream, LS_GZ_BUFFER_BYTES);
    ls_status status = read_stream(file, stream, ndim);
    gzclose_r(stream);
    return status;
}
