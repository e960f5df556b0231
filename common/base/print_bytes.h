/* Prints text of unknown origin on a terminal: a network's output, or a file's content. */
#ifndef LS_BASE_PRINT_BYTES_H
#define LS_BASE_PRINT_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Prints printable ASCII, line feeds, tabs and valid UTF-8 above the control characters unchanged, a backslash as two,
 * and any other byte as \xNN, so that no terminal command gets through. */
void ls_print_bytes(FILE *file, const uint8_t *bytes, size_t count);

#endif
