/* Files in IDX format (MNIST's, unsigned bytes), plain or gzipped: read whole, or from front to back. Private to
 * common/data. */
#ifndef LS_DATA_IDX_FILE_H
#define LS_DATA_IDX_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/data/packed.h"

#define LS_IDX_MAX_DIMS 4

typedef struct ls_idx_file {
    char path[PATH_MAX];
    int ndim;
    size_t dims[LS_IDX_MAX_DIMS]; /* each > 0 */
    uint8_t *data;                /* the product of dims; free() it */
} ls_idx_file;

/* Reads FOLDER/PREFIX-idxN-ubyte or FOLDER/PREFIX.idxN-ubyte, where N = ndim (1 to 4), each plain or with .gz; the
 * first that exists. LS_ERR_IO: none exists, or it cannot be read; LS_ERR_FORMAT: it is not a complete IDX file of
 * bytes with ndim dimensions. On failure file->data is NULL. */
ls_status ls_idx_file_read(ls_idx_file *file, const char *folder, const char *prefix, int ndim);

/* The number of dimensions of the image file that exists: 4 (samples, channels, rows, columns), else 3. */
int ls_idx_images_ndim(const char *folder, const char *prefix);

/* Whether `name` is a spelling of that file's name. */
bool ls_idx_is_spelling(const char *name, const char *prefix, int ndim);

typedef struct ls_idx_reader {
    ls_packed packed;
    int ndim;
    size_t dims[LS_IDX_MAX_DIMS]; /* each > 0; dims[0] samples, as the header says */
    size_t sample_nbytes;         /* the product of the other dims */
    size_t position;              /* samples read so far */
} ls_idx_reader;

/* Finds a file as above and reads its header; memory is some three times `buffer_nbytes`. LS_ERR_IO, LS_ERR_FORMAT: as
 * above, but the data after the header are not checked. On failure there is nothing to close. */
ls_status ls_idx_reader_open(ls_idx_reader *reader, const char *folder, const char *prefix, int ndim,
                             unsigned buffer_nbytes);

/* LS_ERR_FORMAT if the file is too small to hold `count` samples, however well it is compressed. Call before allocating
 * memory for them. */
ls_status ls_idx_reader_check_room(const ls_idx_reader *reader, size_t count);

/* Reads the next sample_nbytes bytes; *end: there was no sample left, and the file ends there as it should. LS_ERR_IO,
 * LS_ERR_FORMAT: it cannot be read, ends too early or too late, or fails its gzip checksum. */
ls_status ls_idx_reader_next(ls_idx_reader *reader, uint8_t *sample, bool *end);

/* A zero-filled reader is a no-op. */
void ls_idx_reader_close(ls_idx_reader *reader);

#endif
