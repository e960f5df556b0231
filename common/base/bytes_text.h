/* Numbers of bytes as text, in readable units. */
#ifndef LS_BASE_BYTES_TEXT_H
#define LS_BASE_BYTES_TEXT_H

enum { LS_BYTES_TEXT_CAPACITY = 24 };

/* "512 B", "1.5 KiB", "12.4 MiB", "3.0 GiB": units of 1024. Returns `text`. */
const char *ls_bytes_text(char text[LS_BYTES_TEXT_CAPACITY], double nbytes);

#endif
