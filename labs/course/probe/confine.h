/* Confines student code in a probe. It may compute, start threads, read files and print. It must not start processes or
 * programs, open files for writing or write to open ones, remove or rename them, send signals, or open connections.
 * Such an attempt is reported, and ends the process. */
#ifndef LABS_COURSE_PROBE_CONFINE_H
#define LABS_COURSE_PROBE_CONFINE_H

#include <stdbool.h>
#include <sys/types.h>

/* Confines this process from here on, irrevocably. `fd`: receives "forbidden<TAB>..." when a forbidden call is tried;
 * the only file that probe_write may write to. Returns false if the kernel has no seccomp filters for this process:
 * then only the grader's limits and its checks of the source and the object file protect it. */
bool probe_confine(int fd);

/* Returns whether probe_confine works on this machine. Tries it in a child process. */
bool probe_can_confine(void);

/* Writes observations, also after probe_confine. */
ssize_t probe_write(int fd, const char *text, size_t nbytes);

#endif
