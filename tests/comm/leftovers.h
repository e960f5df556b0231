/* What groups may not leave behind: sockets and shared memory with a name, open descriptors, processes. */
#ifndef TESTS_COMM_LEFTOVERS_H
#define TESTS_COMM_LEFTOVERS_H

/* Remembers what there is before a program's tests. */
void leftovers_begin(void);

/* Asserts that there is no more now. What other programs of this machine have there is waited for. */
void leftovers_check(void);

#endif
