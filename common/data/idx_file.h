/* One file in IDX format (MNIST's), plain or gzipped, read whole; private to common/data. */
#ifndef LS_DATA_IDX_FILE_H
#define LS_DATA_IDX_FILE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define LS_IDX_MAX_DIMS 3

typedef struct ls_idx_file {
    char path[PATH_MAX];
    int ndim;
    size_t dims[LS_IDX_MAX_DIMS]; /* each > 0 */
    uint8_t *data;                /* the product of dims; free() it */
} ls_idx_file;

/* Reads FOLDER/PREFIX-idxN-ubyte, where N = ndim (1 or 3), or its spelling PREFIX.idxN-ubyte, each also with .gz; the
 * first that exists. LS_ERR_IO: none does, or it cannot be read; LS_ERR_FORMAT: it is not a whole IDX file of bytes
 * with ndim dimensions. On failure file->data is NULL. */
ls_status ls_idx_file_read(ls_idx_file *file, const char *folder, const char *prefix, int ndim);

#endif
