/* Address space that a limit (ulimit -v) leaves this process. Check it before calls into libraries that do not check
 * their own allocations and crash near the limit: hwloc's topologies, and oneDNN when it generates code. */
#ifndef LS_BASE_ROOM_H
#define LS_BASE_ROOM_H

#include <stdbool.h>
#include <stddef.h>

/* More than such a call allocates; and the same plus what other threads may allocate meanwhile (the C library reserves
 * 64 MiB for a thread's first allocation). */
#define LS_ROOM_FOR_LIBRARIES ((size_t)64 << 20)
#define LS_ROOM_BESIDE_THREADS ((size_t)160 << 20)

/* Bytes left; SIZE_MAX if there is no limit, or if /proc does not show the use. Any thread; one system call, or four
 * with a limit. */
size_t ls_address_space_left(void);

#endif
