/* NumPy's .npy files, plain or gzipped: one array, read whole. Private to common/data. */
#ifndef LS_DATA_NPY_FILE_H
#define LS_DATA_NPY_FILE_H

#include "common/data/arrays.h"

enum { LS_NPY_MOST_AXES = 4 };

typedef struct ls_npy_file {
    char path[PATH_MAX];
    ls_element element;
    int axes;                       /* 1 .. LS_NPY_MOST_AXES */
    size_t shape[LS_NPY_MOST_AXES]; /* each > 0 */
    size_t sample_nbytes;           /* shape[1] x ... x the element's bytes */
    void *data;                     /* in C's order; free() it */
} ls_npy_file;

/* Reads FOLDER/NAME or FOLDER/NAME.gz. Versions 1.0 and 2.0, little endian, in C's order: uint8, int32, int64, float32.
 * LS_ERR_IO: it does not exist or cannot be read; LS_ERR_FORMAT: another format, truncated, too long or damaged. On
 * failure file->data is NULL. */
ls_status ls_npy_file_read(ls_npy_file *file, const char *folder, const char *name);

/* The bytes of an element. */
size_t ls_element_nbytes(ls_element element);

#endif
