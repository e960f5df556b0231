#define _GNU_SOURCE
#include "tests/data/numbers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

/* This thread's number, assigned at its first read of this dataset. */
static int this_thread(numbers *n) {
    static _Thread_local int of, number;
    if (of != n->id) number = atomic_fetch_add(&n->threads, 1) + 1;
    of = n->id;
    return number;
}

static unsigned chance(unsigned below) {
    static _Thread_local uint64_t state;
    if (state == 0) state = (uint64_t)(uintptr_t)&state;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static ls_status read_number(numbers *n, int64_t i, float *input, int64_t *label) {
    atomic_fetch_add(&n->reads, 1);
    atomic_fetch_add(&n->times_read_of[i], 1);
    atomic_store(&n->reader_of[i], this_thread(n));
    unsigned delay_us = atomic_load(&n->delay_us);
    if (delay_us > 0) usleep(chance(delay_us + 1));
    while (atomic_load(&n->stuck) == i) usleep(500);
    if (i >= atomic_load(&n->bad_from)) {
        return atomic_load(&n->speechless) ? LS_ERR_FORMAT : ls_fail(LS_ERR_FORMAT, "sample %" PRId64 " is bad", i);
    }
    input[0] = (float)i;
    input[1] = (float)i + 0.5f;
    if (label) *label = i % 10;
    return LS_OK;
}

bool numbers_is(int64_t i, const float *input, int64_t label) {
    return input[0] == (float)i && input[1] == (float)i + 0.5f && label == i % 10;
}

static ls_status read_indexed(const ls_dataset *dataset, int64_t i, bool alone, void *input, int64_t *label,
                              float *target) {
    (void)alone;
    (void)target;
    return read_number((numbers *)(uintptr_t)dataset, i, input, label);
}

struct numbers_cursor {
    ls_cursor base;
    int64_t next;
};

static ls_status cursor_open(ls_cursor **out, const ls_dataset *dataset) {
    (void)dataset;
    struct numbers_cursor *cursor = calloc(1, sizeof *cursor);
    *out = &cursor->base;
    return cursor ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a cursor");
}

static ls_status cursor_next(ls_cursor *base, bool *end, float *input, int64_t *label, float *target) {
    struct numbers_cursor *cursor = (struct numbers_cursor *)base;
    numbers *n = (numbers *)(uintptr_t)base->dataset;
    (void)target;
    *end = cursor->next == n->stream_count;
    if (*end) return LS_OK;
    int64_t i = cursor->next++;
    return input ? read_number(n, i, input, label) : LS_OK;
}

static void cursor_close(ls_cursor *cursor) { free(cursor); }

static void close_nothing(ls_dataset *dataset) { (void)dataset; }

static void init(numbers *n, const ls_dataset_kind *kind) {
    static int ids;
    memset(n, 0, sizeof *n);
    n->id = ++ids;
    n->base.kind = kind;
    n->base.spec = (ls_sample_spec){.channels = 1, .height = 1, .width = NUMBERS_INPUT_COUNT, .classes = 10};
    n->bad_from = NUMBERS_NONE;
    n->stuck = NUMBERS_NONE;
}

void numbers_init(numbers *n, size_t count) {
    static const ls_dataset_kind kind = {.read = read_indexed, .close = close_nothing};
    init(n, &kind);
    n->base.count = count;
}

void numbers_init_stream(numbers *n, size_t count) {
    static const ls_dataset_kind kind = {
        .cursor_open = cursor_open, .cursor_next = cursor_next, .cursor_close = cursor_close, .close = close_nothing};
    init(n, &kind);
    n->stream_count = (int64_t)count;
}
