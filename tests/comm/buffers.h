/* Buffers for collectives: in memory of the rank's own, in the group's, or mixed; with guards around them. */
#ifndef TESTS_COMM_BUFFERS_H
#define TESTS_COMM_BUFFERS_H

#include "tests/comm/ranks.h"

/* Where a rank's buffer lies: its own memory; the group's (ls_comm_alloc_shared); odd ranks' in the group's. */
enum place { PRIVATE, SHARED, MIXED, PLACE_COUNT };

bool is_shared(enum place place, int rank);

struct buffers {
    char *own, *shared, *second, *expected;
    size_t capacity;
};

void buffers_open(struct rank *rank, struct buffers *b, size_t capacity);
void buffers_close(struct buffers *b);

/* The rank's buffer of `nbytes` at this place, not aligned to cache lines; the bytes around it hold a pattern. */
char *guarded(const struct rank *rank, const struct buffers *b, enum place place, size_t nbytes);

/* Another one, in memory of the rank's own. */
char *guarded_second(const struct rank *rank, const struct buffers *b, size_t nbytes);

/* Checks that the pattern is still there. */
void check_guards(const struct rank *rank, const char *buffer, size_t nbytes);

#endif
