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

/* Whether there is FOLDER/NAME, or else FOLDER/NAME.gz, whose path is then in the file; it is not opened. */
bool ls_packed_find(ls_packed *file, const char *folder, const char *name);

/* Opens file->path; memory is some three times `buffer_nbytes`. LS_ERR_IO: it cannot be opened, or is no regular file. On
 * failure there is nothing to close. */
ls_status ls_packed_open(ls_packed *file, unsigned buffer_nbytes);

/* Reads up to `nbytes`; *got is fewer where the file ends. LS_ERR_IO, LS_ERR_FORMAT: it cannot be read, or is damaged. */
ls_status ls_packed_read(ls_packed *file, void *destination, size_t nbytes, size_t *got);

/* Behind the last byte that is expected. LS_ERR_FORMAT: there are more, or a gzipped file fails its checksum or lacks it. */
ls_status ls_packed_check_end(ls_packed *file);

/* LS_ERR_FORMAT if the file is too small to hold `count` of the `announced` elements, however well it is compressed. To be
 * called before memory for them is allocated. */
ls_status ls_packed_check_room(const ls_packed *file, size_t count, size_t announced, size_t element_nbytes);

/* A file that is all zero is fine. */
void ls_packed_close(ls_packed *file);

#endif
