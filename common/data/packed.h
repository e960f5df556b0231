/* Files that may be gzipped, read from front to back. Private to common/data. */
#ifndef LS_DATA_PACKED_H
#define LS_DATA_PACKED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

typedef struct ls_packed {
    char path[PATH_MAX];
    void *stream; /* zlib's */
} ls_packed;

/* Looks for FOLDER/NAME, else FOLDER/NAME.gz, and sets file->path. Does not open it. False: neither exists. */
bool ls_packed_find(ls_packed *file, const char *folder, const char *name);

/* Opens file->path; memory is some three times `buffer_nbytes`. LS_ERR_IO: it cannot be opened, or is no regular file. On
 * failure there is nothing to close. */
ls_status ls_packed_open(ls_packed *file, unsigned buffer_nbytes);

/* Reads up to `nbytes`; *got is fewer where the file ends. LS_ERR_IO, LS_ERR_FORMAT: it cannot be read, or is damaged. */
ls_status ls_packed_read(ls_packed *file, void *destination, size_t nbytes, size_t *got);

/* Call after the last expected byte. LS_ERR_FORMAT: more bytes follow, or a gzipped file fails its checksum or lacks
 * it. */
ls_status ls_packed_check_end(ls_packed *file);

/* LS_ERR_FORMAT if the file is too small to hold `count` of the `announced` elements, however well it is compressed.
 * Call before allocating memory for them. */
ls_status ls_packed_check_room(const ls_packed *file, size_t count, size_t announced, size_t element_nbytes);

/* A zero-filled file is a no-op. */
void ls_packed_close(ls_packed *file);

#endif
