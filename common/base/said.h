/* Messages that a job has printed so far, so that a message that every rank would print is printed once.
 *
 * The launcher makes a page of shared memory, and its ranks inherit it (LS_SAID_FD in the environment, which log.h
 * reads). The first rank that puts a message's hash there prints the message. The page has no name and ends with the
 * last process. Safe in any thread. */
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
