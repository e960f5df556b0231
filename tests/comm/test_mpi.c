/* Groups whose operations Open MPI carries, in one machine and without mpirun. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/comm/comm_internal.h"
#include "common/comm/mpi_plugin.h"
#include "tests/base/test.h"
#include "tests/comm/leftovers.h"
#include "tests/comm/operations.h"
#include "tests/comm/values.h"

#define TIMEOUT_S 6.0

static void run_processes(const struct rank *first, int deadline_s, void (*body)(struct rank *rank),
                          void (*meanwhile)(const pid_t *pids), int *exit_codes) {
    rank_backends[0].run(first, deadline_s, body, meanwhile, exit_codes);
}

static ls_status create(struct rank *rank, const ls_comm_options *options) {
    char why[512];
    const struct ls_carrier *carrier = ls_mpi_carrier(why, sizeof why);
    CHECK(carrier);
    return ls_comm_create_hosts(&rank->comm, options, carrier);
}

static const struct rank_backend mpi = {.name = "mpi", .run = run_processes, .create = create};

static void operations_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", "direct", TIMEOUT_S) == LS_OK);
    struct buffers b;
    buffers_open(rank, &b, (size_t)rank->world_size * (2 * LS_STAGE_BYTES + 1024));
    run_operations(rank, &b);
    buffers_close(rank, &b);
    rank_close(rank);
}

TEST(test_operations) {
    for (int n = 1; n <= 4; n++) run_good_ranks_on(&mpi, n, operations_body, NULL);
}

LEFTOVERS_MAIN
