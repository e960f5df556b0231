/* Prints a message of a job once, though every rank would print it.
 *
 * The launcher creates a page of shared memory, and its ranks inherit it (LS_SAID_FD in the environment, which log.h
 * reads). The first rank that stores a message's hash there prints the message. The page has no name and is freed with
 * the last process. Safe in any thread. */
#ifndef LS_BASE_LOG_ONCE_H
#define LS_BASE_LOG_ONCE_H

#include <stdbool.h>

/* Creates the page. Returns its file descriptor, which is closed on exec, or -1: every rank then prints every
 * message. */
int ls_log_once_create(void);

/* Uses that page from now on, if ls_log_once_create has made it. Call before the first thread starts. */
void ls_log_once_join(int fd);

/* Returns whether this process is the first to print the message, and marks it as printed. Always true without the
 * page, or when it is full. */
bool ls_log_once(const char *message);

#endif
