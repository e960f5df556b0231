/* group — creating and leaving a group: the part common to all transports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cores.h"
#include "common/base/hash.h"
#include "common/comm/carrier.h"
#include "common/comm/comm_internal.h"

ls_status ls_group_check_options(const ls_comm_options *options) {
    if (options->world_size < 1 || options->world_size > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_INVALID, "a group takes 1 to %d ranks, not %d", LS_COMM_MAX_RANKS, options->world_size);
    if (!(options->timeout_s > 0 && options->timeout_s <= LS_COMM_LONGEST_TIMEOUT_S))
        return ls_fail(LS_ERR_INVALID, "a group's timeout must be more than 0 and at most %g seconds, not %g",
                       LS_COMM_LONGEST_TIMEOUT_S, options->timeout_s);
    int first = options->first, last = first + (options->world_size - 1) * (options->stride ? options->stride : 1);
    if (options->job && (first < 0 || last < first || last >= options->job->world_size))
        return ls_fail(LS_ERR_INVALID,
                       "a job of %d ranks cannot have a group of %d that begins at rank %d with stride %d",
                       options->job->world_size, options->world_size, first, options->stride);
    if (!options->allreduce || ls_allreduce_find(options->allreduce)) return LS_OK;
    char names[256];
    ls_allreduce_names(names, sizeof names);
    return ls_fail(LS_ERR_INVALID, "unknown all-reduce algorithm \"%s\"; choose from: %s", options->allreduce, names);
}

ls_comm *ls_group_endpoint(const struct ls_transport *transport, const ls_comm_options *options, int rank) {
    ls_comm *comm = aligned_alloc(LS_CACHE_LINE_BYTES, sizeof *comm);
    if (!comm) {
        ls_report_error("cannot allocate memory for a process group");
        return NULL;
    }
    memset(comm, 0, sizeof *comm);
    comm->transport = transport;
    comm->rank = rank;
    comm->world_size = options->world_size;
    comm->first = options->job ? options->first : 0;
    comm->stride = options->job && options->stride ? options->stride : 1;
    comm->broken = options->job ? options->job->broken : NULL;
    comm->timeout_s = options->timeout_s;
    comm->allreduce = ls_allreduce_find(options->allreduce ? options->allreduce : LS_ALLREDUCE_AUTO);
    comm->ranks_per_node = ls_ranks_per_node(options->world_size);
    comm->flight = options->job ? options->job->flight : NULL;
    comm->flight_ranks = options->job ? options->job->flight_ranks : options->world_size;
    comm->owns_flight = !options->job;
    comm->unrecorded = options->unrecorded;
    comm->debug = options->debug || (options->job && options->job->debug);
    comm->flight_folder = options->job      ? options->job->flight_folder
                          : options->flight ? options->flight
                                            : getenv("LS_FLIGHT");
    const char *name = options->group ? options->group : "group0", *run_end = strchr(name, '/');
    snprintf(comm->name, sizeof comm->name, "%s", run_end ? run_end + 1 : name);
    comm->name_hash = ls_hash(LS_HASH_SEED, name, strlen(name));
    snprintf(comm->backend, sizeof comm->backend, "%s", transport->name);
    comm->fd = comm->kick_fd = -1;
    comm->job = options->job ? options->job : comm;
    if (options->job) memcpy(comm->host, options->job->host, sizeof comm->host);
    if (!options->job && options->host) memcpy(comm->host, options->host, (size_t)options->world_size);
    const char *address = options->job ? options->job->address : options->address;
    snprintf(comm->address, sizeof comm->address, "%s", address ? address : "");
    comm->leader = ls_leader_of(comm, rank);
    int threads = ls_ranks_on_this_host(comm) + transport->over_hosts; /* the mirror's is one, too */
    comm->patience.spin_us = ls_spin_us_for(threads);
    comm->patience.yield_us = ls_yield_us_for(threads);
    comm->label_number = -1;
    for (int r = 0; r < LS_COMM_MAX_RANKS; r++) comm->pidfd[r] = -1;
    return comm;
}

void ls_comm_destroy(ls_comm *comm) {
    if (!comm) return;
    if (comm->path) comm->path->close(comm);
    if (comm->carrier) comm->carrier->leave(comm);
    if (comm->segment) {
        int32_t present = LS_PRESENT;
        atomic_compare_exchange_strong(&comm->segment->slot[comm->rank].left, &present, LS_LEFT);
        ls_flight_leave(comm);
    }
    ls_regions_destroy(comm);
    comm->transport->leave(comm);
    free(comm);
}

const char *ls_comm_backend(const ls_comm *comm) { return comm->backend; }
bool ls_comm_can_be_captured(const ls_comm *comm) { return comm->path && comm->path->can_be_captured; }
