/* What student code must not do in a probe: start processes or programs, open files for writing or write to open ones,
 * remove or rename them, send signals. The attempt is told, and ends the process. */
#ifndef LABS_COURSE_PROBE_CONFINE_H
#define LABS_COURSE_PROBE_CONFINE_H

#include <sys/types.h>

/* From here on; nothing takes it back. `fd`: where "forbidden<TAB>..." is written when it is tried. Where the kernel
 * has no seccomp filters for us it does nothing: the grader's limits and its look at the object file remain. */
void probe_confine(int fd);

/* Writes what the probe saw, also after probe_confine. */
ssize_t probe_write(int fd, const char *text, size_t nbytes);

#endif
