/* The ranges that count in the norm of all gradients. Private to common/optim. */
#ifndef LS_OPTIM_WEIGHED_H
#define LS_OPTIM_WEIGHED_H

#include "common/comm/comm.h"
#include "kernels/kernels.h"

struct ls_weighed {
    /* set by the caller: the device's list of all ranges, used if there is no separate list */
    struct ls_update_tensor *device_list;
    /* from ls_weighed_create */
    bool *elsewhere; /* per range, set by the caller: another rank counts it */
    /* the rest is weighed.c's */
    ls_device *device;
    struct ls_update_tensor *list; /* on the host */
    size_t count, chunk_count, total;
};

/* Creates a separate list, and `elsewhere`, all false. Call destroy in any case, even after a failure or without
 * create. */
ls_status ls_weighed_create(struct ls_weighed *weighed, ls_device *device, size_t range_count);
void ls_weighed_destroy(struct ls_weighed *weighed);

/* Enqueues an update of the list from `all`, the host's list of all ranges. The work of the previous call must be
 * done. */
void ls_weighed_list(struct ls_weighed *weighed, ls_stream *stream, const struct ls_update_tensor *all,
                     size_t range_count);

/* Enqueue: the square sum of their gradients, and that of all ranks of the group (NULL: of this one). */
void ls_weighed_sum(const struct ls_weighed *weighed, ls_stream *stream, double *square_sum);
void ls_weighed_add_up(ls_comm *group, ls_stream *stream, double *square_sum);

#endif
