/* Buffers for collectives: in the rank's own memory, in the group's shared memory, or mixed; with guards around
 * them. */
#ifndef TESTS_COMM_BUFFERS_H
#define TESTS_COMM_BUFFERS_H

#include "tests/comm/ranks.h"

/* Where a rank's buffer lies: in its own memory; in the group's (ls_comm_alloc_shared); in the group's for odd ranks
 * only. */
enum place { PRIVATE, SHARED, MIXED, PLACE_COUNT };

bool is_shared(enum place place, int rank);

struct buffers {
    char *own, *shared, *second, *expected;
    size_t capacity;
    bool on_gpu; /* the four above are then host copies, in the rank's own memory, of these: */
    char *gpu_own, *gpu_shared;
    bool first_is_shared; /* where guarded's lies; guarded_second's is in the other memory */
    size_t used[2];       /* bytes of guarded's and guarded_second's, guards included */
    bool given[2];
};

void buffers_open(struct rank *rank, struct buffers *b, size_t capacity);
/* The same on the rank's GPU, to which the group is attached. */
void buffers_open_on_gpu(struct rank *rank, struct buffers *b, size_t capacity);
void buffers_close(const struct rank *rank, struct buffers *b);

/* The rank's buffer of `nbytes` at this place, not aligned to cache lines; the bytes around it contain a pattern. */
char *guarded(const struct rank *rank, struct buffers *b, enum place place, size_t nbytes);

/* A second buffer, in the rank's own memory (on a GPU: in the memory that guarded's is not in). */
char *guarded_second(const struct rank *rank, struct buffers *b, size_t nbytes);

/* Checks that the pattern is unchanged. */
void check_guards(const struct rank *rank, const char *buffer, size_t nbytes);

/* buffer_to_group returns the address to pass to the group for a buffer, or for an address in one (NULL: NULL), with
 * its present contents; call buffers_from_group after the operation, before reading the buffers. On the host the former
 * returns the buffer itself, and the latter does nothing. */
void *buffer_to_group(const struct rank *rank, struct buffers *b, char *buffer);
void buffers_from_group(const struct rank *rank, struct buffers *b);

#endif
