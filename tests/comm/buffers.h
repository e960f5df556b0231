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
    bool on_gpu; /* then the four are in host memory of the rank's own, and stand for these: */
    char *gpu_own, *gpu_shared;
    bool first_is_shared; /* where guarded's lies; guarded_second's is in the other one */
    size_t used[2];       /* bytes of guarded's and guarded_second's, with guards */
    bool given[2];
};

void buffers_open(struct rank *rank, struct buffers *b, size_t capacity);
/* The same on the rank's GPU, which the group has. */
void buffers_open_on_gpu(struct rank *rank, struct buffers *b, size_t capacity);
void buffers_close(const struct rank *rank, struct buffers *b);

/* The rank's buffer of `nbytes` at this place, not aligned to cache lines; the bytes around it hold a pattern. */
char *guarded(const struct rank *rank, struct buffers *b, enum place place, size_t nbytes);

/* Another one, in memory of the rank's own (on a GPU: where guarded's is not). */
char *guarded_second(const struct rank *rank, struct buffers *b, size_t nbytes);

/* Checks that the pattern is still there. */
void check_guards(const struct rank *rank, const char *buffer, size_t nbytes);

/* What to give the group for a buffer, or a place in one (NULL: NULL), as it is now; and after the operation, to be
 * called before the buffers are looked at. On the host the buffer itself, and nothing. */
void *buffer_to_group(const struct rank *rank, struct buffers *b, char *buffer);
void buffers_from_group(const struct rank *rank, struct buffers *b);

#endif
