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

void buffers_open_on_gpu(struct rank *rank, struct buffers *b, size_t capacity) {
    size_t nbytes = capacity + 2 * GUARD_BYTES;
    *b = (struct buffers){.on_gpu = true, .capacity = capacity};
    char **const host[] = {&b->own, &b->shared, &b->second, &b->expected};
    for (int i = 0; i < 4; i++) CHECK((*host[i] = malloc(nbytes)) != NULL);
    CHECK(ls_device_alloc(rank->device, LS_MEMORY_WORKSPACE, nbytes, "a test", (void **)&b->gpu_own) == LS_OK);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, nbytes, (void **)&b->gpu_shared) == LS_OK);
}

void buffers_close(const struct rank *rank, struct buffers *b) {
    if (b->on_gpu) ls_device_free(rank->device, b->gpu_own);
    if (b->on_gpu) free(b->shared);
    free(b->own);
    free(b->second);
    free(b->expected);
}

static char *guard(const struct rank *rank, struct buffers *b, char *whole, size_t nbytes) {
    CHECK(nbytes <= b->capacity);
    b->used[whole == b->second] = nbytes + 2 * GUARD_BYTES;
    memset(whole, 0xa5, GUARD_BYTES);
    memset(whole + GUARD_BYTES + nbytes, 0xa5, GUARD_BYTES);
    return whole + GUARD_BYTES;
}

char *guarded(const struct rank *rank, struct buffers *b, enum place place, size_t nbytes) {
    b->first_is_shared = is_shared(place, rank->rank);
    return guard(rank, b, b->first_is_shared ? b->shared : b->own, nbytes);
}

char *guarded_second(const struct rank *rank, struct buffers *b, size_t nbytes) {
    return guard(rank, b, b->second, nbytes);
}

void check_guards(const struct rank *rank, const char *buffer, size_t nbytes) {
    for (int i = 1; i <= GUARD_BYTES; i++) {
        CHECK(buffer[-i] == (char)0xa5);
        CHECK(buffer[nbytes + (size_t)i - 1] == (char)0xa5);
    }
}

static char *host_of(const struct buffers *b, bool second) {
    return second ? b->second : b->first_is_shared ? b->shared : b->own;
}

static char *gpu_of(const struct buffers *b, bool second) {
    return b->first_is_shared != second ? b->gpu_shared : b->gpu_own;
}

void *buffer_to_group(const struct rank *rank, struct buffers *b, char *buffer) {
    if (!b->on_gpu || !buffer) return buffer;
    bool second = buffer >= b->second && buffer < b->second + b->used[1];
    char *host = host_of(b, second), *gpu = gpu_of(b, second);
    if (!b->given[second]) CHECK(ls_copy_now(rank->stream, gpu, host, b->used[second]) == LS_OK);
    b->given[second] = true;
    return gpu + (buffer - host);
}

void buffers_from_group(const struct rank *rank, struct buffers *b) {
    for (int second = 0; second < 2; second++) {
        if (!b->given[second]) continue;
        CHECK(ls_copy_now(rank->stream, host_of(b, second), gpu_of(b, second), b->used[second]) == LS_OK);
        b->given[second] = false;
    }
}
