/* What the processes of a job have said so far, so that what all of them would complain about is said once.
 *
 * The launcher makes a page of shared memory, its ranks inherit it (LS_SAID_FD in the environment, which log.h reads),
 * and whoever is the first to put a message's hash there is the one to print it. It has no name and goes with the last
 * process. Safe in any thread. */
#ifndef LS_BASE_SAID_H
#define LS_BASE_SAID_H

#include <stdbool.h>

/* Makes the memory; its file descriptor, which is closed on exec, or -1: everybody will say everything. */
int ls_said_create(void);

/* Uses that memory from here on, if it is what ls_said_create has made. Before the first thread starts. */
void ls_said_join(int fd);

/* Whether no other process has said this yet; it counts as said now. Without the memory, or when it is full, always
 * true. */
bool ls_said_first(const char *message);

#endif
