/* weighed — the norm of all gradients if ranks have parts of them: each element counts on one of its ranks only.
 *   idea  : if some elements count on other ranks, the rest is a second list, which the same operation adds up
 *   cost  : a second list; an all-reduce of one number in each group
 *   order : range by range in double, then the ranks in rank order; not the order of one device */
#include "common/optim/weighed.h"

#include <stdlib.h>

#include "common/base/log.h"

ls_status ls_weighed_create(struct ls_weighed *w, ls_device *device, size_t range_count) {
    *w = (struct ls_weighed){.device = device};
    w->elsewhere = calloc(range_count + 1, sizeof *w->elsewhere);
    w->list = calloc(range_count + 1, sizeof *w->list);
    if (!w->elsewhere || !w->list) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for an optimizer");
    return ls_device_alloc(device, LS_MEMORY_OPTIMIZER, range_count * sizeof *w->list, "list of parameters that count",
                           (void **)&w->device_list);
}

void ls_weighed_destroy(struct ls_weighed *w) {
    if (w->device) ls_device_free(w->device, w->device_list); /* otherwise it is the caller's */
    free(w->elsewhere);
    free(w->list);
}

void ls_weighed_list(struct ls_weighed *w, ls_stream *stream, const struct ls_update_tensor *all, size_t range_count) {
    w->count = w->chunk_count = w->total = 0;
    for (size_t r = 0; r < range_count; r++) {
        if (w->elsewhere && w->elsewhere[r]) continue;
        if (w->list) {
            w->list[w->count] = all[r];
            w->list[w->count].first_chunk = w->chunk_count;
        }
        w->count++;
        w->chunk_count += (all[r].count + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        w->total += all[r].count;
    }
    if (w->list) ls_copy(stream, w->device_list, w->list, w->count * sizeof *w->list);
}

void ls_weighed_sum(const struct ls_weighed *w, ls_stream *stream, double *square_sum) {
    ls_square_sum_list(stream, square_sum, w->device_list, w->count, w->chunk_count, w->total);
}

void ls_weighed_add_up(ls_comm *group, ls_stream *stream, double *square_sum) {
    if (!group) return;
    ls_comm_label(group, "norm of gradients", -1);
    ls_device_fail(ls_stream_device(stream), ls_comm_all_reduce(group, stream, square_sum, 1, LS_FP64, LS_REDUCE_SUM));
}
