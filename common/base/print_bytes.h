/* Text of unknown origin, on a terminal: what a network writes, or a file holds. */
#ifndef LS_BASE_PRINT_BYTES_H
#define LS_BASE_PRINT_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Prints printable ASCII, line feeds, tabs and valid UTF-8 beyond the control characters as they are, a backslash as two,
 * and any other byte as \xNN: nothing that a terminal would take for a command. */
void ls_print_bytes(FILE *file, const uint8_t *bytes, size_t count);

#endif
