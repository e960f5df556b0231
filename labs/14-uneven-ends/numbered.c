#include "labs/14-uneven-ends/numbered.h"

#include <stdlib.h>

#include "common/base/log.h"

struct numbered_cursor {
    ls_cursor base;
    int64_t next;
    bool over;
};

static ls_status cursor_open(ls_cursor **out, const ls_dataset *dataset) {
    const numbered *n = (const numbered *)dataset;
    *out = NULL;
    if (n->open_status != LS_OK) return ls_fail(n->open_status, "there is no cursor");
    struct numbered_cursor *cursor = calloc(1, sizeof *cursor);
    *out = cursor ? &cursor->base : NULL;
    return cursor ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a cursor");
}

/* Writes every output that is not NULL, as a careless kind would. */
static ls_status cursor_next(ls_cursor *base, bool *end, float *input, int64_t *label, float *target) {
    struct numbered_cursor *cursor = (struct numbered_cursor *)base;
    numbered *n = (numbered *)(uintptr_t)base->dataset;
    if (cursor->over) atomic_fetch_add(&n->asked_too_late, 1);
    int64_t i = cursor->next;
    *end = i >= n->count;
    cursor->over = *end || i == n->bad;
    if (*end) return LS_OK;
    if (i == n->bad) return ls_fail(n->bad_status, "sample %lld is bad", (long long)i);
    cursor->next++;
    if (input) atomic_fetch_add(&n->converted, 1);
    if (input) input[0] = (float)i, input[1] = (float)i + 0.5F;
    if (label) *label = i;
    if (target) *target = (float)i;
    return LS_OK;
}

static void cursor_close(ls_cursor *cursor) { free(cursor); }

static void close_nothing(ls_dataset *dataset) { (void)dataset; }

void numbered_init(numbered *n, int64_t count, bool targets) {
    static const ls_dataset_kind kind = {
        .cursor_open = cursor_open, .cursor_next = cursor_next, .cursor_close = cursor_close, .close = close_nothing};
    *n = (numbered){.base = {.kind = &kind,
                             .spec = {.channels = 1, .height = 1, .width = NUMBERED_INPUTS, .classes = targets ? 0 : 1},
                             .promised = (size_t)count},
                    .count = count,
                    .bad = -1,
                    .bad_status = LS_ERR_FORMAT};
    n->base.spec.target_count = targets ? 1 : 0;
}
