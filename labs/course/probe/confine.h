/* What student code may do in a probe: compute, start threads, read files and print. It must not start processes or
 * programs, open files for writing or write to open ones, remove or rename them, send signals, or open connections. The
 * attempt is told, and ends the process. */
#ifndef LABS_COURSE_PROBE_CONFINE_H
#define LABS_COURSE_PROBE_CONFINE_H

#include <stdbool.h>
#include <sys/types.h>

/* Confines this process from here on; nothing takes it back. `fd`: where "forbidden<TAB>..." is written when a forbidden
 * call is tried, and the only file that probe_write may write to. Returns false where the kernel has no seccomp filters
 * for us: then the grader's limits and its look at the source and the object file remain. */
bool probe_confine(int fd);

/* Whether probe_confine works on this machine. Tries it in a child. */
bool probe_can_confine(void);

/* Writes what the probe saw, also after probe_confine. */
ssize_t probe_write(int fd, const char *text, size_t nbytes);

#endif
