/* idx_write — the header of common/data/idx_file.c, then the elements through a buffer into an ls_file_writer. */
#include "common/data/idx_write.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/data/idx_file.h"

#define LS_IDX_BUFFER_BYTES ((size_t)1 << 17)

struct ls_idx_writer {
    ls_file_writer *file;
    char path[PATH_MAX];
    size_t missing; /* elements not written yet */
    bool failed;
    size_t buffered;
    uint8_t buffer[LS_IDX_BUFFER_BYTES];
};

static void append_big_endian_32(ls_idx_writer *writer, size_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) writer->buffer[writer->buffered++] = (uint8_t)(value >> shift);
}

static ls_status put_header(ls_idx_writer *writer, int ndim, const size_t *dims) {
    append_big_endian_32(writer, 0x800u + (unsigned)ndim);
    writer->missing = 1;
    for (int i = 0; i < ndim; i++) {
        bool overflow = __builtin_mul_overflow(writer->missing, dims[i], &writer->missing);
        if (dims[i] == 0 || dims[i] > UINT32_MAX || overflow) {
            return ls_fail(LS_ERR_INVALID, "%s cannot have a dimension of %zu elements; an IDX file takes 1 to %u",
                           writer->path, dims[i], UINT32_MAX);
        }
        append_big_endian_32(writer, dims[i]);
    }
    return LS_OK;
}

ls_status ls_idx_writer_open(ls_idx_writer **out, const char *folder, const char *prefix, int ndim,
                             const size_t *dims) {
    *out = NULL;
    ls_idx_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s-idx%d-ubyte", prefix, ndim);
    int length = snprintf(writer->path, sizeof writer->path, "%s/%s-idx%d-ubyte", folder, prefix, ndim);
    ls_status status = LS_OK;
    if (length >= (int)sizeof writer->path)
        status = ls_fail(LS_ERR_IO, "cannot write %s into a folder whose path is too long: %s", prefix, folder);
    else if (ndim < 1 || ndim > LS_IDX_MAX_DIMS)
        status =
            ls_fail(LS_ERR_INVALID, "%s cannot have %d dimensions, only 1 to %d", writer->path, ndim, LS_IDX_MAX_DIMS);
    if (status == LS_OK) status = put_header(writer, ndim, dims);
    if (status == LS_OK) status = ls_file_writer_open(&writer->file, writer->path);
    if (status != LS_OK) {
        free(writer);
        return status;
    }
    *out = writer;
    return LS_OK;
}

static ls_status flush_buffer(ls_idx_writer *writer) {
    ls_file_writer_put(writer->file, writer->buffer, writer->buffered);
    ls_status status = ls_file_writer_status(writer->file);
    writer->buffered = 0;
    writer->failed = status != LS_OK;
    return status;
}

ls_status ls_idx_writer_put(ls_idx_writer *writer, const void *elements, size_t count) {
    if (count > writer->missing) {
        writer->failed = true;
        return ls_fail(LS_ERR_INVALID, "%s was given more elements than its dimensions hold", writer->path);
    }
    const uint8_t *next = elements;
    while (count > 0) {
        if (writer->buffered == sizeof writer->buffer) {
            ls_status status = flush_buffer(writer);
            if (status != LS_OK) return status;
        }
        size_t room = sizeof writer->buffer - writer->buffered, taken = count < room ? count : room;
        memcpy(writer->buffer + writer->buffered, next, taken);
        writer->buffered += taken;
        writer->missing -= taken;
        next += taken;
        count -= taken;
    }
    if (writer->missing > 0) return LS_OK;
    /* the last byte is brought to the disk here, not by commit, so that a full disk shows before anything is
     * replaced */
    ls_status status = flush_buffer(writer);
    return status == LS_OK ? ls_file_writer_sync(writer->file) : status;
}

ls_status ls_idx_writer_commit(ls_idx_writer *writer) {
    ls_status status = writer->failed ? LS_ERR_IO : LS_OK; /* reported by put */
    if (status == LS_OK && writer->missing > 0) {
        status = ls_fail(LS_ERR_INVALID, "%s lacks its last %zu elements", writer->path, writer->missing);
    }
    if (status == LS_OK) {
        status = ls_file_writer_commit(writer->file);
        writer->file = NULL;
    }
    ls_idx_writer_abort(writer);
    return status;
}

void ls_idx_writer_abort(ls_idx_writer *writer) {
    if (!writer) return;
    ls_file_writer_abort(writer->file);
    free(writer);
}
