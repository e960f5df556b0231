/* values_compare — checks that memory labelled replicated has the same bits on all ranks of an axis.
 *   idea  : each rank hashes names and contents of its replicated entries, and gathers all ranks' hashes; entries of
 *           one name are compared with those of the lowest rank that has it, since not all ranks of a pipeline's axis
 *           have the same tensors
 *   cost  : a pass over these tensors on the host, to which a GPU's are copied, and 16 bytes a tensor and rank
 *   fails : as check_sync.c: all ranks reach the same verdict */
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/comm/values_internal.h"

struct hashed {
    uint64_t name, content; /* name 0: none */
};

static ls_status hash_entry(struct hashed *out, const struct ls_labelled *entry, ls_stream *stream) {
    const void *host = entry->begin;
    void *copy = NULL;
    ls_status status = LS_OK;
    if (ls_device_is_gpu_memory(ls_stream_device(stream), entry->begin)) {
        host = copy = malloc(entry->nbytes);
        status = copy ? ls_copy_now(stream, copy, entry->begin, entry->nbytes)
                      : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare %s", entry->name);
    }
    if (status == LS_OK)
        *out = (struct hashed){ls_hash(LS_HASH_SEED, entry->name, strlen(entry->name)) | 1,
                               ls_hash(LS_HASH_SEED, host, entry->nbytes)};
    free(copy);
    return status;
}

static bool is_compared(const struct ls_labelled *entry, ls_mesh_axis axis) {
    return entry->kept && entry->begin && entry->labels.on[axis] == LS_REPLICATED;
}

/* Hashes this rank's entries, in an array of at least one. */
static ls_status hash_all(struct hashed **out, size_t *count, const ls_values *v, ls_mesh_axis axis,
                          ls_stream *stream) {
    struct hashed *mine = *out = calloc(v->count + 1, sizeof *mine);
    ls_status status =
        mine ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare %zu tensors", v->count);
    *count = 0;
    for (size_t i = 0; i < v->count && status == LS_OK; i++)
        if (is_compared(&v->list[i], axis)) status = hash_entry(&mine[(*count)++], &v->list[i], stream);
    return status;
}

static const char *name_of(const ls_values *v, uint64_t hash) {
    for (size_t i = 0; i < v->count; i++)
        if ((ls_hash(LS_HASH_SEED, v->list[i].name, strlen(v->list[i].name)) | 1) == hash) return v->list[i].name;
    return "a tensor of other ranks";
}

static const struct hashed *find(const struct hashed *list, size_t count, uint64_t name) {
    for (size_t i = 0; i < count; i++)
        if (list[i].name == name) return &list[i];
    return NULL;
}

/* Compares entry i of rank r with that of the first rank that has it. */
static ls_status compare_entry(const ls_values *v, ls_mesh_axis axis, const struct hashed *all, size_t count, int r,
                               size_t i) {
    const struct hashed *theirs = &all[(size_t)r * count + i], *first = NULL;
    int other = 0;
    for (; theirs->name && !first; other += !first) first = find(all + (size_t)other * count, count, theirs->name);
    if (!first || first->content == theirs->content) return LS_OK;
    return ls_fail(
        LS_ERR_INVALID,
        "--debug-values: %s, %s axis, after the update: expected replicated, but rank %d has other bits than rank %d",
        name_of(v, theirs->name), ls_mesh_axis_names[axis], ls_comm_job_rank(v->groups[axis], r),
        ls_comm_job_rank(v->groups[axis], other));
}

ls_status ls_values_compare(const ls_values *v, ls_mesh_axis axis, ls_stream *stream) {
    ls_comm *group = v->groups[axis];
    size_t count, ranks = (size_t)ls_comm_world_size(group);
    struct hashed *mine, *list = NULL, *all = NULL;
    ls_status status = hash_all(&mine, &count, v, axis, stream);
    int64_t most = (int64_t)count;
    ls_comm_label(group, "number of replicated tensors", -1);
    if (status == LS_OK)
        status = ls_comm_settle(stream, ls_comm_all_reduce(group, stream, &most, 1, LS_INT64, LS_REDUCE_MAX));
    size_t room = (size_t)most;
    if (status == LS_OK) {
        list = calloc(room + 1, sizeof *list);
        all = calloc(ranks * room + 1, sizeof *all);
        if (!list || !all) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare %zu tensors", room);
    }
    if (status == LS_OK) {
        memcpy(list, mine, count * sizeof *list);
        ls_comm_label(group, "hashes of replicated tensors", -1);
        status = ls_comm_settle(stream, ls_comm_all_gather(group, stream, list, all, 2 * room, LS_INT64));
    }
    for (size_t i = 0; i < room && status == LS_OK; i++)
        for (int r = 1; r < (int)ranks && status == LS_OK; r++) status = compare_entry(v, axis, all, room, r, i);
    free(mine);
    free(list);
    free(all);
    return status;
}
