/* hosts_group — joining and leaving a group whose ranks are on several hosts. */
#include "common/comm/carrier.h"
#include "common/comm/comm_internal.h"

static bool is_on_one_host(const unsigned char *host, int first, int stride, int count) {
    bool same = true;
    for (int r = 1; host && r < count; r++) same = same && host[first + r * stride] == host[first];
    return same;
}

ls_status ls_comm_create_hosts(ls_comm **out, const ls_comm_options *options, const struct ls_carrier *carrier) {
    *out = NULL;
    ls_status status = ls_group_check_options(options);
    if (status != LS_OK) return status;
    const ls_comm *job = options->job;
    bool job_is_here = job ? is_on_one_host(job->host, 0, 1, job->world_size)
                           : is_on_one_host(options->host, 0, 1, options->world_size);
    bool is_here =
        job ? is_on_one_host(job->host, options->first, options->stride ? options->stride : 1, options->world_size)
            : job_is_here;
    if (is_here) return ls_group_join(out, &ls_shm_transport, options, job_is_here ? carrier : NULL);
    return ls_fail(LS_ERR_UNSUPPORTED, "a group of several hosts");
}
