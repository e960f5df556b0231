#include "common/nn/cut.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

/* The tensor as rows of ranges: one row per element of the axes before the cut one; each element of a range is `inner`
 * floats. */
struct rows {
    size_t count, inner;
    size_t whole, held;   /* elements of a range */
    size_t first, copied; /* the rank's elements that are not padding */
};

static struct rows rows_of(const struct ls_cut *cut, int rank) {
    struct rows rows = {.count = cut->ranges, .inner = 1};
    for (int d = 0; d < cut->axis; d++) rows.count *= cut->whole.shape[d];
    for (int d = cut->axis + 1; d < cut->whole.ndim; d++) rows.inner *= cut->whole.shape[d];
    rows.whole = cut->whole.shape[cut->axis] / cut->ranges;
    rows.held = cut->held / cut->ranges;
    rows.first = (size_t)rank * rows.held;
    size_t left = rows.first < rows.whole ? rows.whole - rows.first : 0;
    rows.copied = left < rows.held ? left : rows.held;
    return rows;
}

void ls_cut_take(const struct ls_cut *cut, int rank, float *part, const float *whole) {
    struct rows rows = rows_of(cut, rank);
    size_t held = rows.held * rows.inner, copied = rows.copied * rows.inner;
    for (size_t i = 0; i < rows.count; i++) {
        float *to = part + i * held;
        if (copied > 0) memcpy(to, whole + (i * rows.whole + rows.first) * rows.inner, copied * sizeof *to);
        memset(to + copied, 0, (held - copied) * sizeof *to);
    }
}

void ls_cut_put(const struct ls_cut *cut, int rank, const float *part, float *whole) {
    struct rows rows = rows_of(cut, rank);
    size_t held = rows.held * rows.inner, copied = rows.copied * rows.inner;
    for (size_t i = 0; i < rows.count && copied > 0; i++)
        memcpy(whole + (i * rows.whole + rows.first) * rows.inner, part + i * held, copied * sizeof *whole);
}

ls_status ls_cut_gather(const struct ls_cut *cut, ls_comm *group, ls_stream *stream, const float *part, float *whole) {
    int ranks = ls_comm_world_size(group);
    size_t count = cut->whole.count / cut->whole.shape[cut->axis] * cut->held;
    float *all = malloc((size_t)ranks * count * sizeof *all);
    if (!all) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to gather %s", cut->whole.name);
    ls_comm_label(group, cut->whole.name, -1);
    ls_status status = ls_comm_settle(stream, ls_comm_all_gather(group, stream, part, all, count, LS_FP32));
    for (int r = 0; status == LS_OK && r < ranks; r++) ls_cut_put(cut, r, all + (size_t)r * count, whole);
    free(all);
    return status;
}
