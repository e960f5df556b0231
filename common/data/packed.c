/* packed — zlib's gzread reads plain and gzipped files alike, and checks the gzip checksum at the end of the stream: so
 * one byte more than announced is requested, which finds the end or extra bytes.
 *   fails : an announced length is used only if the file could contain that much, so that neither a damaged header nor
 *           a gzip bomb can ask for a terabyte. */
#define _GNU_SOURCE
#include "common/data/packed.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/log.h"

#define LS_DEFLATE_MAX_RATIO 1032              /* no byte of a gzip file expands to more than that many bytes */
#define LS_GZ_MAX_READ_BYTES ((size_t)1 << 30) /* gzread counts in int */

bool ls_packed_find(ls_packed *file, const char *folder, const char *name) {
    static const char *const suffixes[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int length = snprintf(file->path, sizeof file->path, "%s/%s%s", folder, name, suffixes[i]);
        if ((size_t)length < sizeof file->path && access(file->path, F_OK) == 0) return true;
    }
    return false;
}

ls_status ls_packed_open(ls_packed *file, unsigned buffer_nbytes) {
    struct stat entry;
    file->stream = NULL;
    if (stat(file->path, &entry) == 0 && !S_ISREG(entry.st_mode)) /* opening a pipe would wait for its other end */
        return ls_fail(LS_ERR_IO, "%s is not a regular file", file->path);
    errno = 0;
    file->stream = gzopen(file->path, "rbe");
    if (!file->stream)
        return ls_fail(LS_ERR_IO, "cannot open %s: %s", file->path, errno ? strerror(errno) : "out of memory");
    gzbuffer(file->stream, buffer_nbytes);
    return LS_OK;
}

/* Reports why zlib stopped; the caller reports an early end (*cut). */
static ls_status check_error(const ls_packed *file, bool *cut) {
    int error = Z_OK;
    const char *text = gzerror(file->stream, &error);
    *cut = error == Z_BUF_ERROR;
    if (error == Z_OK || *cut) return LS_OK;
    if (error == Z_ERRNO) return ls_fail(LS_ERR_IO, "cannot read %s: %s", file->path, strerror(errno));
    size_t length = strlen(file->path); /* zlib's text begins with the path */
    if (strncmp(text, file->path, length) == 0 && strncmp(text + length, ": ", 2) == 0) text += length + 2;
    return ls_fail(LS_ERR_FORMAT, "%s is damaged: %s", file->path, text);
}

ls_status ls_packed_read(ls_packed *file, void *destination, size_t nbytes, size_t *got) {
    bool cut;
    for (*got = 0; *got < nbytes;) {
        size_t wanted = nbytes - *got < LS_GZ_MAX_READ_BYTES ? nbytes - *got : LS_GZ_MAX_READ_BYTES;
        int count = gzread(file->stream, (uint8_t *)destination + *got, (unsigned)wanted);
        if (count <= 0) return check_error(file, &cut);
        *got += (size_t)count;
    }
    return LS_OK;
}

ls_status ls_packed_check_end(ls_packed *file) {
    uint8_t extra;
    bool cut;
    gzclearerr(file->stream); /* or zlib, which has seen the file's end, would not report a missing checksum */
    if (gzread(file->stream, &extra, 1) > 0)
        return ls_fail(LS_ERR_FORMAT, "%s has bytes after its last element", file->path);
    ls_status status = check_error(file, &cut);
    if (status != LS_OK || !cut) return status;
    return ls_fail(LS_ERR_FORMAT, "%s is truncated: the file ends within its compressed data", file->path);
}

ls_status ls_packed_check_room(const ls_packed *file, size_t count, size_t announced, size_t element_nbytes) {
    struct stat disk;
    if (stat(file->path, &disk) != 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", file->path, strerror(errno));
    size_t ratio = gzdirect(file->stream) ? 1 : LS_DEFLATE_MAX_RATIO, nbytes;
    bool overflow = __builtin_mul_overflow(count, element_nbytes, &nbytes);
    if (!overflow && nbytes / ratio <= (size_t)disk.st_size) return LS_OK;
    return ls_fail(
        LS_ERR_FORMAT,
        "%s is truncated or damaged: its header announces %zu elements of %zu bytes, more than its %lld bytes can hold",
        file->path, announced, element_nbytes, (long long)disk.st_size);
}

void ls_packed_close(ls_packed *file) {
    if (file->stream) gzclose_r(file->stream);
    file->stream = NULL;
}
