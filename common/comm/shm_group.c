/* shm_group — joining and leaving a group over shared memory.
 *   idea  : rank 0 (on several hosts, the lowest rank of each) creates an anonymous file and passes it to the others
 *           over a Unix socket (shm_handshake.c); each maps it, writes its process number into its slot and meets the
 *           others. The file has no name, and the socket is in the abstract namespace, only while the group forms: if a
 *           rank is killed, no file is left behind
 *   fails : every step ends at the same deadline; ranks that did not arrive are named */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/carrier.h"
#include "common/comm/comm_internal.h"
#include "common/comm/mirror.h"
#include "common/comm/wait.h"

static ls_status check_options(const ls_comm_options *options) {
    ls_status status = ls_group_check_options(options);
    if (status != LS_OK) return status;
    if (options->rank < 0 || options->rank >= options->world_size)
        return ls_fail(LS_ERR_INVALID, "rank %d is out of range in a group of %d", options->rank, options->world_size);
    if (options->world_size > 1 && !options->bootstrap)
        return ls_fail(LS_ERR_INVALID, "a group of %d ranks needs a bootstrap", options->world_size);
    return LS_OK;
}

static ls_status join(ls_comm *comm, const ls_comm_options *options) {
    double until_us = ls_now_us() + options->timeout_s * 1e6;
    bool leads = comm->rank == comm->leader, mirrors = leads && comm->transport->over_hosts;
    ls_status status = leads ? ls_handshake_host(comm, options, until_us) : ls_handshake_join(comm, options, until_us);
    if (status != LS_OK) return status;
    ls_comm_watch_peers(comm); /* at least the leader has arrived */
    if (mirrors) status = ls_mirror_connect(comm, options, until_us);
    if (mirrors && status == LS_OK) status = ls_mirror_start(comm);
    if (status != LS_OK) return status;
    ls_announcement what = {.kind = LS_OPERATION_JOIN, .root = -1};
    status = ls_comm_meet(comm, LS_CHANNEL_HOST, &what);
    if (status != LS_OK) return status;
    ls_comm_watch_peers(comm);
    if (mirrors) atomic_store(&comm->mirror->watches, true);
    return LS_OK;
}

void ls_shm_leave(ls_comm *comm) {
    ls_mirror_stop(comm);
    if (comm->kick_fd >= 0) close(comm->kick_fd);
    ls_shm_unmap(comm);
    if (comm->fd >= 0) close(comm->fd);
    for (int r = 0; r < comm->world_size; r++)
        if (comm->pidfd[r] >= 0) close(comm->pidfd[r]);
}

const struct ls_transport ls_shm_transport = {
    .name = "shm", .fill = ls_shm_fill, .keep = ls_shm_keep, .empty = ls_shm_empty, .leave = ls_shm_leave};

/* The file, and for each other rank its process or a connection to its host; while the group forms, also two sockets,
 * and over several hosts the eventfd. */
int ls_comm_descriptors(int world_size) { return world_size > 1 ? world_size + 3 : 0; }

static ls_status join_carrier(ls_comm *comm, const ls_comm_options *options, const struct ls_carrier *carrier) {
    comm->carrier = carrier;
    snprintf(comm->backend, sizeof comm->backend, "%s", carrier->name);
    return carrier->join(comm, options);
}

ls_status ls_group_join(ls_comm **out, const struct ls_transport *transport, const ls_comm_options *options,
                        const struct ls_carrier *carrier) {
    *out = NULL;
    ls_status status = check_options(options);
    if (status != LS_OK) return status;
    ls_comm *comm = ls_group_endpoint(transport, options, options->rank);
    if (!comm) return LS_ERR_NO_MEMORY;
    if (comm->world_size > 1) status = join(comm, options);
    if (status == LS_OK && carrier && comm->world_size > 1) status = join_carrier(comm, options, carrier);
    if (status != LS_OK) {
        ls_comm_destroy(comm);
        return status;
    }
    *out = comm;
    return LS_OK;
}

ls_status ls_comm_create_shm(ls_comm **out, const ls_comm_options *options) {
    return ls_group_join(out, &ls_shm_transport, options, NULL);
}
