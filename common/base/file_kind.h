/* Guesses a file's format from its first bytes, for error messages of readers that expected another format. */
#ifndef LS_BASE_FILE_KIND_H
#define LS_BASE_FILE_KIND_H

#include <stddef.h>

/* "a NumPy array (.npy)"; NULL: unknown. `begin` holds the first `nbytes` bytes of the file; 16 suffice. */
const char *ls_file_kind(const void *begin, size_t nbytes);

#endif
