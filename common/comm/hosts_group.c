/* hosts_group — a group whose ranks are on several hosts.
 *   idea  : on each host its ranks share a control area, as on one machine (shm_group.c), and the hosts' areas are kept
 *           alike (mirror.h). So ranks meet, and find missing ranks, in the same way. Regions of ls_comm_alloc_shared
 *           are private memory of each rank. The carrier runs operations on host memory; without one, only those of one
 *           round work, whose messages are sent with the meeting
 *   cost  : a group of some of a job's ranks has a control area and a mirror of its own: a thread, and a connection
 *           between each two of its hosts
 *   fails : see shm_group.c, mirror_connect.c and mirror.c */
#include "common/comm/carrier.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

static const struct ls_transport transport = {.name = "hosts",
                                              .fill = ls_region_fill_private,
                                              .empty = ls_region_empty_private,
                                              .leave = ls_shm_leave,
                                              .over_hosts = true};

static bool is_on_one_host(const unsigned char *host, int first, int stride, int count) {
    bool same = true;
    for (int r = 1; host && r < count; r++) same = same && host[first + r * stride] == host[first];
    return same;
}

/* --- without a carrier ---------------------------------------------------------------------------------------------- */

static ls_status join_nothing(ls_comm *comm, const ls_comm_options *options) {
    (void)comm;
    (void)options;
    return LS_OK;
}

static void leave_nothing(ls_comm *comm) { (void)comm; }

bool ls_is_one_round(const ls_operation *operation) {
    const ls_announcement *what = &operation->what;
    return !ls_is_point_to_point(what) && ls_published_nbytes(operation->comm, what) <= LS_EAGER_BYTES;
}

static ls_status run_in_one_round(const ls_operation *operation) {
    char text[LS_TEXT_CAPACITY];
    if (ls_is_one_round(operation)) return ls_run_in_shared_memory(operation);
    return ls_comm_break(operation->comm, LS_ERR_UNSUPPORTED, NULL,
                         "%s: between hosts, more than %zu bytes of host memory, and messages between two ranks, need "
                         "--backend mpi or NCCL",
                         ls_announcement_text(operation->comm, text, &operation->what, true), LS_EAGER_BYTES);
}

const struct ls_carrier ls_one_round_carrier = {
    .name = "hosts", .join = join_nothing, .run = run_in_one_round, .leave = leave_nothing};

/* --- joining --------------------------------------------------------------------------------------------------------- */

ls_status ls_comm_create_hosts(ls_comm **out, const ls_comm_options *options, const struct ls_carrier *carrier) {
    *out = NULL;
    ls_status status = ls_group_check_options(options);
    if (status != LS_OK) return status;
    const ls_comm *job = options->job;
    const unsigned char *host = job ? job->host : options->host;
    int first = job ? options->first : 0, stride = job && options->stride ? options->stride : 1;
    bool job_is_here = is_on_one_host(host, 0, 1, job ? job->world_size : options->world_size);
    bool is_here = is_on_one_host(host, first, stride, options->world_size);
    if (is_here) return ls_group_join(out, &ls_shm_transport, options, job_is_here ? carrier : NULL);
    ls_comm_options over_hosts = *options;
    if (!carrier) over_hosts.allreduce = "direct"; /* the only one with one round */
    return ls_group_join(out, &transport, &over_hosts, carrier ? carrier : &ls_one_round_carrier);
}
