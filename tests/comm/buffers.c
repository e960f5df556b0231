#include "tests/comm/buffers.h"

#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 72 /* so that buffers are not aligned to cache lines */

bool is_shared(enum place place, int rank) { return place == SHARED || (place == MIXED && rank % 2 == 1); }

void buffers_open(struct rank *rank, struct buffers *b, size_t capacity) {
    size_t nbytes = capacity + 2 * GUARD_BYTES;
    *b = (struct buffers){
        .own = malloc(nbytes), .second = malloc(nbytes), .expected = malloc(nbytes), .capacity = capacity};
    CHECK(b->own && b->second && b->expected);
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, nbytes, (void **)&b->shared) == LS_OK);
}

void buffers_close(struct buffers *b) {
    free(b->own);
    free(b->second);
    free(b->expected);
}

static char *guard(const struct rank *rank, const struct buffers *b, char *whole, size_t nbytes) {
    CHECK(nbytes <= b->capacity);
    memset(whole, 0xa5, GUARD_BYTES);
    memset(whole + GUARD_BYTES + nbytes, 0xa5, GUARD_BYTES);
    return whole + GUARD_BYTES;
}

char *guarded(const struct rank *rank, const struct buffers *b, enum place place, size_t nbytes) {
    return guard(rank, b, is_shared(place, rank->rank) ? b->shared : b->own, nbytes);
}

char *guarded_second(const struct rank *rank, const struct buffers *b, size_t nbytes) {
    return guard(rank, b, b->second, nbytes);
}

void check_guards(const struct rank *rank, const char *buffer, size_t nbytes) {
    for (int i = 1; i <= GUARD_BYTES; i++) {
        CHECK(buffer[-i] == (char)0xa5);
        CHECK(buffer[nbytes + (size_t)i - 1] == (char)0xa5);
    }
}
