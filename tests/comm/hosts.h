/* Ranks that act as ranks of several hosts: processes of one machine, joined over 127.0.0.1. */
#ifndef TESTS_COMM_HOSTS_H
#define TESTS_COMM_HOSTS_H

#include "tests/comm/ranks.h"

#define TIMEOUT_S 2.0
/* For waits that must end much earlier for another reason; a whole machine may stall for a minute. */
#define LONG_TIMEOUT_S 150.0

/* The host of each rank. */
struct layout {
    int ranks;
    unsigned char host[8];
};

/* Runs `body`, whose argument is the layout, in each rank. Ranks whose bit is set in `good` must succeed, the others
 * must end with that exit status; asserts. */
void hosts_run(const struct layout *layout, void (*body)(struct rank *rank), void (*meanwhile)(const pid_t *pids),
               uint64_t good, int other);

/* Options for the rank's group, with LONG_TIMEOUT_S. */
ls_comm_options hosts_options(const struct rank *rank);

/* Forms the group with LONG_TIMEOUT_S, however busy the machine is; `timeout_s` applies from then on. */
void hosts_open_rank(struct rank *rank, double timeout_s);

#endif
