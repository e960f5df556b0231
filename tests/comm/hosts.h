/* Ranks that take each other for ranks of several hosts: processes of one machine, joined over 127.0.0.1. */
#ifndef TESTS_COMM_HOSTS_H
#define TESTS_COMM_HOSTS_H

#include "tests/comm/ranks.h"

#define TIMEOUT_S 2.0
/* Where something else is noticed long before; a whole machine may stand still for a minute. */
#define LONG_TIMEOUT_S 150.0

/* The host of each rank. */
struct layout {
    int ranks;
    unsigned char host[8];
};

/* Runs `body` in each rank, whose argument is the layout. Those ranks end well whose bit is set in `good`, and the others
 * with that exit status; asserts. */
void hosts_run(const struct layout *layout, void (*body)(struct rank *rank), void (*meanwhile)(const pid_t *pids),
               uint64_t good, int other);

/* Options of the rank's group, with LONG_TIMEOUT_S. */
ls_comm_options hosts_options(const struct rank *rank);

/* Forms the group with LONG_TIMEOUT_S, however busy the machine is; `timeout_s` counts from then on. */
void hosts_open_rank(struct rank *rank, double timeout_s);

#endif
