/* What groups may not leave behind: sockets and shared memory with a name, open descriptors, processes. */
#ifndef TESTS_COMM_LEFTOVERS_H
#define TESTS_COMM_LEFTOVERS_H

#include "tests/base/test.h"

/* Remembers what there is before a program's tests. */
void leftovers_begin(void);

/* Asserts that there is no more now. What other programs of this machine have there is waited for. */
void leftovers_check(void);

/* The end of a program that checks it behind its tests. */
#define LEFTOVERS_MAIN                                                                                                 \
    TEST(nothing_is_left) { leftovers_check(); }                                                                       \
    int main(void) {                                                                                                   \
        leftovers_begin();                                                                                             \
        return run_added_tests();                                                                                      \
    }

#endif
