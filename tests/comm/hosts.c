#include "tests/comm/hosts.h"

#include "common/comm/comm_internal.h"
#include "tests/base/test.h"

enum { DEADLINE_S = 200 };

static ls_status create_hosts(struct rank *rank, const ls_comm_options *options) {
    const struct layout *layout = rank->argument;
    ls_comm_options over_hosts = *options;
    over_hosts.host = layout->host;
    over_hosts.address = "127.0.0.1";
    return ls_comm_create_hosts(&rank->comm, &over_hosts, NULL);
}

static struct rank_backend backend; /* with the processes of the shm back-end */

void hosts_run(const struct layout *layout, void (*body)(struct rank *rank), void (*meanwhile)(const pid_t *pids),
               uint64_t good, int other) {
    backend = rank_backends[0];
    backend.name = "hosts";
    backend.create = create_hosts;
    int exit_codes[LS_COMM_MAX_RANKS];
    rank_get_timeout_s = LONG_TIMEOUT_S;
    run_ranks_on(&backend, layout->ranks, DEADLINE_S, body, layout, meanwhile, exit_codes);
    for (int r = 0; r < layout->ranks; r++) {
        int expected = (good >> r & 1) ? 0 : other;
        if (exit_codes[r] != expected)
            fail_msg("rank %d of %d ended with %d, not %d", r, layout->ranks, exit_codes[r], expected);
    }
}

ls_comm_options hosts_options(const struct rank *rank) {
    const struct layout *layout = rank->argument;
    return (ls_comm_options){.rank = rank->rank,
                             .world_size = layout->ranks,
                             .timeout_s = LONG_TIMEOUT_S,
                             .bootstrap = &rank->bootstrap,
                             .host = layout->host,
                             .address = "127.0.0.1"};
}

void hosts_open_rank(struct rank *rank, double timeout_s) {
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    rank->comm->timeout_s = timeout_s;
}
