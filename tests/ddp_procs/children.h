/* Child processes of a test, forked with a deadline and killed when the test ends. */
#ifndef TESTS_DDP_PROCS_CHILDREN_H
#define TESTS_DDP_PROCS_CHILDREN_H

#include <sys/types.h>

/* Forks; the child runs body(argument) and exits with its result, without the parent's atexit handlers. */
pid_t start_child(int (*body)(void *argument), void *argument);

/* Waits for the child. Returns its exit status, or 128 + the signal that ended it. */
int finish_child(pid_t pid);

/* Waits until a process that is not a child of this one has ended; fails past a deadline. */
void await_gone(pid_t pid);

/* Waits until /proc/PID/stat shows the process in that state ('T': stopped); fails past a deadline. */
void await_state(pid_t pid, char state);

#endif
