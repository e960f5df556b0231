/* ls_idx_writer: writes a file in IDX format (MNIST's, unsigned bytes), as a whole or not at all
 * (common/base/file.h). */
#ifndef LS_DATA_IDX_WRITE_H
#define LS_DATA_IDX_WRITE_H

#include <stddef.h>

#include "common/base/status.h"

typedef struct ls_idx_writer ls_idx_writer;

/* Begins FOLDER/PREFIX-idxN-ubyte with N = ndim (1 to 3) dimensions of dims[0 .. ndim-1] > 0 elements. LS_ERR_INVALID:
 * a dimension that the format cannot store; LS_ERR_IO: the folder cannot be written. On failure *out is NULL. */
ls_status ls_idx_writer_open(ls_idx_writer **out, const char *folder, const char *prefix, int ndim, const size_t *dims);

/* Appends elements. Small writes are buffered; the last element flushes them. LS_ERR_INVALID: more elements than the
 * dimensions give; LS_ERR_IO: the disk is full, for example. After a failure only abort or commit may follow. */
ls_status ls_idx_writer_put(ls_idx_writer *writer, const void *elements, size_t count);

/* Puts the file in place and frees the writer, whatever the outcome. LS_ERR_INVALID: elements are missing, and nothing
 * is replaced. */
ls_status ls_idx_writer_commit(ls_idx_writer *writer);

/* Drops the written data and frees the writer. NULL is a no-op. */
void ls_idx_writer_abort(ls_idx_writer *writer);

#endif
