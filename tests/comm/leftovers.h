/* Resources that groups may not leave behind: sockets and named shared memory, open descriptors, processes. */
#ifndef TESTS_COMM_LEFTOVERS_H
#define TESTS_COMM_LEFTOVERS_H

#include "tests/base/test.h"

/* Records the state before a program's tests. */
void leftovers_begin(void);

/* Asserts that nothing has been added since. Waits for names of other programs of this machine to disappear. */
void leftovers_check(void);

/* The end of a program that makes this check after its tests. */
#define LEFTOVERS_MAIN                                                                                                 \
    TEST(nothing_is_left) { leftovers_check(); }                                                                       \
    int main(void) {                                                                                                   \
        leftovers_begin();                                                                                             \
        return run_added_tests();                                                                                      \
    }

#endif
