/* Which kind of file this is, by its first bytes: for messages of readers that expected another. */
#ifndef LS_BASE_FILE_KIND_H
#define LS_BASE_FILE_KIND_H

#include <stddef.h>

/* "a NumPy array (.npy)"; NULL: none that is known. `nbytes` of the file's beginning, at best 16. */
const char *ls_file_kind(const void *begin, size_t nbytes);

#endif
