/* The build id that the linker has written into a program. The id is a hash of the code and its debug information, and
 * of nothing else: the same sources, compiled by the same compiler with the same options, have the same id in every
 * folder. */
#ifndef LS_BASE_BUILD_ID_H
#define LS_BASE_BUILD_ID_H

#define LS_BUILD_ID_CAPACITY 72 /* 32 bytes in hexadecimal digits, which is more than linkers write */

/* Writes the build id of the program (`library` NULL) or of a shared library that it has loaded ("ls_cuda.so").
 * "unknown": the linker has left no id; "not loaded": there is no such library. Returns `text`. Safe in any thread. */
const char *ls_build_id(char text[LS_BUILD_ID_CAPACITY], const char *library);

#endif
