/* shm_group — joining and leaving a group over shared memory.
 *   idea  : rank 0 makes an anonymous file and gives it to the others over a Unix socket (shm_handshake.c); each maps
 *           it, writes its process number into its slot and meets the others. The file has no name, and the socket
 *           lives in the abstract namespace and only while the group forms: whatever kills a rank, nothing stays behind
 *   fails : every step ends at the same deadline; ranks that did not come are named */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/comm/comm_internal.h"

#define LS_TIMEOUT_LIMIT_S 1e7 /* four months; larger numbers are mistakes and might not fit the kernel's types */

static ls_status check_options(const ls_comm_options *options) {
    if (options->world_size < 1 || options->world_size > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_INVALID, "a group has 1 to %d ranks, not %d", LS_COMM_MAX_RANKS, options->world_size);
    if (options->rank < 0 || options->rank >= options->world_size)
        return ls_fail(LS_ERR_INVALID, "rank %d does not exist in a group of %d", options->rank, options->world_size);
    if (!(options->timeout_s > 0 && options->timeout_s <= LS_TIMEOUT_LIMIT_S))
        return ls_fail(LS_ERR_INVALID, "a group's timeout must be more than 0 and at most %g seconds, not %g",
                       LS_TIMEOUT_LIMIT_S, options->timeout_s);
    if (options->allreduce && !ls_allreduce_find(options->allreduce)) {
        char names[128] = "";
        for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++) {
            if (row != ls_allreduce_algorithms) strncat(names, ", ", sizeof names - strlen(names) - 1);
            strncat(names, row->name, sizeof names - strlen(names) - 1);
        }
        return ls_fail(LS_ERR_INVALID, "there is no all-reduce algorithm \"%s\"; choose from: %s", options->allreduce,
                       names);
    }
    if (options->world_size > 1 && !options->bootstrap)
        return ls_fail(LS_ERR_INVALID, "a group of %d ranks needs a bootstrap", options->world_size);
    return LS_OK;
}

static ls_status join(ls_comm *comm, const ls_comm_options *options) {
    double until_us = ls_now_us() + options->timeout_s * 1e6;
    ls_status status =
        comm->rank == 0 ? ls_handshake_host(comm, options, until_us) : ls_handshake_join(comm, options, until_us);
    if (status != LS_OK) return status;
    ls_comm_watch_peers(comm); /* rank 0 at least is there */
    ls_announcement what = {.kind = LS_OPERATION_JOIN, .root = -1};
    status = ls_comm_meet(comm, LS_CHANNEL_HOST, &what);
    if (status == LS_OK) ls_comm_watch_peers(comm);
    return status;
}

ls_status ls_comm_create_shm(ls_comm **out, const ls_comm_options *options) {
    *out = NULL;
    ls_status status = check_options(options);
    if (status != LS_OK) return status;
    ls_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a process group");
    comm->rank = options->rank;
    comm->world_size = options->world_size;
    comm->timeout_s = options->timeout_s;
    comm->spin_us = ls_spin_us_for(options->world_size);
    comm->allreduce = options->allreduce ? ls_allreduce_find(options->allreduce) : NULL;
    comm->tuning = options->tuning;
    comm->fd = -1;
    for (int r = 0; r < LS_COMM_MAX_RANKS; r++) comm->pidfd[r] = -1;
    if (comm->world_size > 1) status = join(comm, options);
    if (status != LS_OK) {
        ls_comm_destroy(comm);
        return status;
    }
    *out = comm;
    return LS_OK;
}

void ls_comm_destroy(ls_comm *comm) {
    if (!comm) return;
    if (comm->segment) {
        int32_t present = LS_PRESENT;
        atomic_compare_exchange_strong(&comm->segment->slot[comm->rank].left, &present, LS_LEFT);
    }
    ls_regions_destroy(comm);
    if (comm->base) munmap(comm->base, LS_SEGMENT_SPACE_BYTES);
    if (comm->fd >= 0) close(comm->fd);
    for (int r = 0; r < comm->world_size; r++)
        if (comm->pidfd[r] >= 0) close(comm->pidfd[r]);
    free(comm);
}

const char *ls_comm_backend(const ls_comm *comm) {
    (void)comm;
    return "shm";
}
