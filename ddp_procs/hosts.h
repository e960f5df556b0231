/* The host of each rank of a job, and the address at which other hosts reach this one. */
#ifndef DDP_HOSTS_H
#define DDP_HOSTS_H

#include "ddp_procs/launch/store.h"
#include "ddp_procs/launch/store_address.h"

typedef struct ddp_hosts {
    int count;                           /* 1: all ranks are on this host, and the other fields are not used */
    unsigned char of[LS_COMM_MAX_RANKS]; /* the host of each rank; hosts are numbered from 0 by their lowest rank */
    char address[DDP_IPV4_CAPACITY];     /* of this one */
} ddp_hosts;

/* Collective over the store, in its run `run` (agree.h), unless the launcher says that all ranks are here. Processes
 * are on the same host if they have the same kernel, network and host name; for tests, LS_HOST_IDENTITY (any text)
 * replaces these three. The address is that of the interface LS_SOCKET_IFNAME, else the local address of the connection
 * to the store. LS_ERR_USAGE, reported: no other host could reach it. */
ls_status ddp_hosts_find(ddp_hosts *hosts, ddp_store *store, const ddp_rank *self, int64_t run);

/* The hosts of some ranks only: rank[0 .. count - 1]. */
void ddp_hosts_choose(ddp_hosts *out, const ddp_hosts *hosts, const int *rank, int count);

/* How many of the ranks 0 to below - 1 are on that host. */
int ddp_hosts_count_ranks(const ddp_hosts *hosts, int host, int below);

#endif
