/* Which build of the program this is: the build id that the linker has written into it. It follows from every byte of
 * the code and of its debug information, and from nothing else: the same sources, compiled by the same compiler
 * with the same options, have the same id in every folder. */
#ifndef LS_BASE_BUILD_ID_H
#define LS_BASE_BUILD_ID_H

#define LS_BUILD_ID_CAPACITY 72 /* 32 bytes in hexadecimal digits, which is more than linkers write */

/* The program's id, or that of a shared library which it has loaded, by its file's name ("ls_cuda.so"; NULL: the
 * program). "unknown" if the linker has left none, "not loaded" if there is no such library. Returns `text`. Safe in
 * any thread. */
const char *ls_build_id(char text[LS_BUILD_ID_CAPACITY], const char *library);

#endif
