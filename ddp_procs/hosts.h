/* On which host each rank of a job runs, and how the other hosts reach this one. */
#ifndef DDP_HOSTS_H
#define DDP_HOSTS_H

#include "ddp_procs/launch/store.h"
#include "ddp_procs/launch/store_address.h"

typedef struct ddp_hosts {
    int count;                           /* 1: all ranks are on this host, and nothing else here counts */
    unsigned char of[LS_COMM_MAX_RANKS]; /* the host of each rank; hosts are numbered from 0 by their lowest rank */
    char address[DDP_IPV4_CAPACITY];     /* of this one */
} ddp_hosts;

/* Collective, in this run of the store's (agree.h), unless the launcher says that all ranks are here. Processes are on the
 * same host if they have the same kernel, network and host name; LS_HOST_IDENTITY, any text, takes the place of all that
 * in tests. The address is that of the interface LS_SOCKET_IFNAME, or else this end of the connection to the store.
 * LS_ERR_USAGE, reported, if no other host could reach it. */
ls_status ddp_hosts_find(ddp_hosts *hosts, ddp_store *store, const ddp_rank *self, int64_t run);

/* Of some of the ranks, rank[0..count). */
void ddp_hosts_choose(ddp_hosts *out, const ddp_hosts *hosts, const int *rank, int count);

/* How many of the ranks 0 to below - 1 are on that host. */
int ddp_hosts_count_ranks(const ddp_hosts *hosts, int host, int below);

#endif
