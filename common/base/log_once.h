/* Messages that a job has printed so far, so that a message that every rank would print is printed once.
 *
 * The launcher makes a page of shared memory, and its ranks inherit it (LS_SAID_FD in the environment, which log.h
 * reads). The first rank that puts a message's hash there prints the message. The page has no name and ends with the
 * last process. Safe in any thread. */
#ifndef LS_BASE_LOG_ONCE_H
#define LS_BASE_LOG_ONCE_H

#include <stdbool.h>

/* Makes the memory; its file descriptor, which is closed on exec, or -1: every process then prints every message. */
int ls_log_once_create(void);

/* Uses the memory of `fd` from here on, if ls_log_once_create has made it. Call before the first thread starts. */
void ls_log_once_join(int fd);

/* Whether no other process has printed this message yet; from now on this one has. Always true without the memory, or
 * when the memory is full. */
bool ls_log_once(const char *message);

#endif
