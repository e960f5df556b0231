/* check_sync — whether the ranks hold the same bits, and if not, which tensor differs on which ranks.
 *   idea  : every rank hashes its tensors and gathers the hashes of all ranks. So all ranks reach the same verdict, and
 *           none is left waiting; the others' hashes are compared with rank 0's
 *   cost  : one pass over the tensors on the host, to which a GPU's are copied first, and an all-gather of 8 bytes per
 *           tensor and rank
 *   fails : a difference is a failure. Equal hashes of different bits are possible, and less likely than a memory error
 *           (hash.h) */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/nn/tensor_parallel.h"
#include "ddp_procs/ddp.h"

/* --- any memory --------------------------------------------------------------------------------------------------- */

/* The range's hash; a GPU's memory is first copied to `room`, which has nbytes. */
static ls_status hash_range(uint64_t *hash, ls_stream *stream, const void *data, size_t nbytes, void *room) {
    const void *host = data;
    ls_status status = LS_OK;
    if (ls_device_is_gpu_memory(ls_stream_device(stream), data)) {
        status = ls_copy_now(stream, room, data, nbytes);
        host = room;
    }
    if (status == LS_OK) *hash = ls_hash(LS_HASH_SEED, host, nbytes);
    return status;
}

/* All hashes of this rank. */
static ls_status hash_ranges(uint64_t *hashes, ls_stream *stream, const struct ddp_named_range *ranges, size_t count) {
    size_t room_nbytes = 0;
    for (size_t i = 0; i < count; i++) {
        bool copied = ls_device_is_gpu_memory(ls_stream_device(stream), ranges[i].data);
        if (copied && ranges[i].nbytes > room_nbytes) room_nbytes = ranges[i].nbytes;
    }
    void *room = room_nbytes > 0 ? malloc(room_nbytes) : NULL;
    if (room_nbytes > 0 && !room)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare %zu bytes", room_nbytes);
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        status = hash_range(&hashes[i], stream, ranges[i].data, ranges[i].nbytes, room);
    }
    free(room);
    return status;
}

/* Marks the ranks whose hash of this range differs from rank 0's; false: none differs. */
static bool find_deviating(bool *deviating, const uint64_t *all, size_t range, size_t count, int world_size) {
    bool any = false;
    for (int r = 0; r < world_size; r++) {
        deviating[r] = all[(size_t)r * count + range] != all[range];
        any = any || deviating[r];
    }
    return any;
}

static ls_status report_first(const char *when, const struct ddp_named_range *ranges, size_t count, const uint64_t *all,
                              int world_size) {
    for (size_t i = 0; i < count; i++) {
        bool deviating[LS_COMM_MAX_RANKS];
        char ranks[LS_RANKS_TEXT_CAPACITY];
        if (!find_deviating(deviating, all, i, count, world_size)) continue;
        return ls_fail(LS_ERR_INVALID, "%s%s (%zu bytes) differs between ranks: other bits than on rank 0 on %s", when,
                       ranges[i].name, ranges[i].nbytes, ls_ranks_text(ranks, deviating, world_size));
    }
    return LS_OK;
}

ls_status ddp_compare_over_ranks(const char *when, ls_comm *comm, ls_stream *stream,
                                 const struct ddp_named_range *ranges, size_t count) {
    size_t world_size = (size_t)ls_comm_world_size(comm);
    uint64_t *mine = calloc(count + 1, sizeof *mine), *all = calloc(count * world_size + 1, sizeof *all);
    ls_status status =
        mine && all ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare %zu tensors", count);
    if (status == LS_OK) status = hash_ranges(mine, stream, ranges, count);
    ls_comm_label(comm, "hashes", -1);
    if (status == LS_OK) status = ls_comm_settle(stream, ls_comm_all_gather(comm, stream, mine, all, count, LS_INT64));
    if (status == LS_OK) status = report_first(when, ranges, count, all, (int)world_size);
    free(mine);
    free(all);
    return status;
}

/* --- the state after a step --------------------------------------------------------------------------------------- */

/* Everything that is compared. The names of optimizer state are made here. */
struct inventory {
    struct ddp_named_range *ranges;
    char (*names)[2 * LS_TENSOR_NAME_NBYTES];
    size_t count;
};

static void add(struct inventory *inventory, const char *kind, const struct ls_tensor *tensor, const float *data) {
    char *name = inventory->names[inventory->count];
    snprintf(name, sizeof *inventory->names, "%s%s", kind, tensor->name);
    inventory->ranges[inventory->count++] = (struct ddp_named_range){name, data, tensor->count * sizeof(float)};
}

/* `alike`: of a part of a network, list only the tensors that are not cut, which all parts have. */
static ls_status list_ranges(struct inventory *inventory, const ls_parallel *p, bool buffers, bool alike) {
    const struct ls_cut *cuts = alike ? ls_model_tensors(p->model)->cuts : NULL;
    bool shared_out = ls_optimizer_group(p->optimizer) != NULL; /* each rank has moments of its own */
    size_t parameters =
        ls_model_tensors(p->model)->parts ? 0 : ls_model_parameter_count(p->model); /* or slices of each */
    size_t moments = shared_out ? 0 : ls_optimizer_moment_count(p->optimizer);
    size_t room = parameters * (1 + moments) + ls_model_buffer_count(p->model) + 1;
    inventory->ranges = calloc(room, sizeof *inventory->ranges);
    inventory->names = calloc(room, sizeof *inventory->names);
    if (!inventory->ranges || !inventory->names)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare the ranks");
    for (size_t i = 0; i < parameters; i++) {
        const struct ls_tensor *parameter = ls_model_parameter(p->model, i);
        if (!cuts || !ls_cut_is_cut(&cuts[i])) add(inventory, "", parameter, parameter->data);
    }
    for (size_t m = 0; m < moments; m++) {
        char kind[LS_TENSOR_NAME_NBYTES];
        snprintf(kind, sizeof kind, "the optimizer's %s of ", ls_optimizer_moment_name(p->optimizer, m));
        for (size_t i = 0; i < parameters; i++) {
            if (!cuts || !ls_cut_is_cut(&cuts[i]))
                add(inventory, kind, ls_model_parameter(p->model, i), ls_optimizer_moment(p->optimizer, m, i));
        }
    }
    const ls_grad_scaler *scaler = ls_optimizer_scaler(p->optimizer);
    if (scaler) {
        inventory->ranges[inventory->count++] =
            (struct ddp_named_range){"the loss scaler", ls_grad_scaler_state(scaler), sizeof(struct ls_scaler_state)};
    }
    for (size_t i = 0; buffers && i < ls_model_buffer_count(p->model); i++) {
        if (!cuts || !ls_cut_is_cut(&cuts[ls_model_parameter_count(p->model) + i]))
            add(inventory, "", ls_model_buffer(p->model, i), ls_model_buffer(p->model, i)->data);
    }
    return LS_OK;
}

static ls_status compare(const struct ddp *ddp, ls_comm *comm, ls_stream *stream, bool buffers, bool alike) {
    const ls_parallel *p = &ddp->base;
    struct inventory inventory = {0};
    char when[40];
    snprintf(when, sizeof when, "after step %llu, ", (unsigned long long)p->step);
    ls_status status = ls_device_synchronize(p->devices[0]);
    if (status == LS_OK) status = list_ranges(&inventory, p, buffers, alike);
    if (status == LS_OK) status = ddp_compare_over_ranks(when, comm, stream, inventory.ranges, inventory.count);
    free(inventory.ranges);
    free(inventory.names);
    return status;
}

/* All state is equal on replicas; on ranks that share layers, only the tensors that are not cut are. */
ls_status ddp_compare_state(struct ddp *ddp, bool buffers) {
    ls_comm *tensor = ls_tensor_group(ddp->base.model);
    ls_status status = compare(ddp, ddp->comm, ddp->comm_stream, buffers, false);
    return status == LS_OK && tensor ? compare(ddp, tensor, ddp->compute, buffers, true) : status;
}
