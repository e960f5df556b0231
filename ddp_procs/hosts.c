/* hosts — which ranks share a host.
 *   idea  : each rank sets, under a key of its own, a text that identifies its host: the kernel's boot id, its network
 *           namespace, its host name. Ranks with the same text are on the same host
 *   cost  : one value set and W fetched by each of W ranks; nothing if the launcher reports that all are on one host
 *   fails : an address that means the host itself (a name of /etc/hosts for 127.0.1.1) is refused at once: a connection
 *           to it would fail on the other hosts, or reach another program */
#define _GNU_SOURCE
#include "ddp_procs/hosts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"

enum { IDENTITY_CAPACITY = 256, KEY_CAPACITY = 64 };
#define IDENTITY_VARIABLE "LS_HOST_IDENTITY"
#define INTERFACE_VARIABLE "LS_SOCKET_IFNAME"

static void describe_host(char identity[IDENTITY_CAPACITY]) {
    const char *chosen = getenv(IDENTITY_VARIABLE);
    char boot[64] = "", name[65] = "";
    struct stat network = {0};
    FILE *file = chosen ? NULL : fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(boot, sizeof boot, file)) boot[0] = '\0';
    if (file) fclose(file);
    boot[strcspn(boot, "\n")] = '\0';
    (void)stat("/proc/self/ns/net", &network);
    (void)gethostname(name, sizeof name - 1);
    if (chosen)
        snprintf(identity, IDENTITY_CAPACITY, "%s", chosen);
    else
        snprintf(identity, IDENTITY_CAPACITY, "%s %ju %s", boot, (uintmax_t)network.st_ino, name);
}

static ls_status exchange(char identities[][IDENTITY_CAPACITY], ddp_store *store, const ddp_rank *self, int64_t run) {
    char key[KEY_CAPACITY], *mine = identities[self->rank];
    size_t nbytes;
    describe_host(mine);
    snprintf(key, sizeof key, "run%" PRId64 "/host/rank%d", run, self->rank);
    ls_status status = ddp_store_set(store, key, mine, strlen(mine) + 1);
    for (int r = 0; status == LS_OK && r < self->world_size; r++) {
        snprintf(key, sizeof key, "run%" PRId64 "/host/rank%d", run, r);
        status = ddp_store_get(store, key, identities[r], IDENTITY_CAPACITY, &nbytes);
        if (status == LS_OK && (nbytes == 0 || identities[r][nbytes - 1] != '\0'))
            status = ls_fail(LS_ERR_INVALID, "the host of rank %d is not known", r);
    }
    return status;
}

/* Numbers hosts in the order of their lowest ranks. */
static void number_hosts(ddp_hosts *hosts, char identities[][IDENTITY_CAPACITY], int world_size) {
    hosts->count = 0;
    for (int r = 0; r < world_size; r++) {
        int same = 0;
        while (same < r && strcmp(identities[same], identities[r]) != 0) same++;
        hosts->of[r] = same < r ? hosts->of[same] : (unsigned char)hosts->count++;
    }
}

static ls_status find_address(ddp_hosts *hosts, const ddp_store *store, const ddp_rank *self) {
    const char *interface = getenv(INTERFACE_VARIABLE);
    char own[256];
    if (interface && !ddp_address_of_interface(interface, hosts->address))
        return ls_fail(
            LS_ERR_USAGE,
            "the environment's " INTERFACE_VARIABLE
            " is '%s', but this host has no network interface of that name with an IPv4 address; choose among %s",
            interface, ddp_address_list(own, sizeof own));
    if (!interface && !ddp_store_own_address(store, hosts->address)) memcpy(hosts->address, "127.0.0.1", 10);
    if (!ddp_address_is_loopback(hosts->address) || getenv(IDENTITY_VARIABLE)) return LS_OK;
    if (ddp_address_only(hosts->address)) return LS_OK; /* MASTER_ADDR is a name, for 127.x.y.z on its own host */
    return ls_fail(LS_ERR_USAGE,
                   "the ranks are on %d hosts, but the address of rank %d for the others is not known, since its "
                   "connection to the store is local: set " INTERFACE_VARIABLE
                   " to one of this host's interfaces, which has %s, "
                   "or MASTER_ADDR to rank 0's address in the network",
                   hosts->count, self->rank, ddp_address_list(own, sizeof own));
}

ls_status ddp_hosts_find(ddp_hosts *hosts, ddp_store *store, const ddp_rank *self, int64_t run) {
    *hosts = (ddp_hosts){.count = 1};
    if (self->local_world_size == self->world_size && !getenv(IDENTITY_VARIABLE)) return LS_OK;
    char(*identities)[IDENTITY_CAPACITY] = calloc((size_t)self->world_size, sizeof *identities);
    if (!identities) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to find the other hosts");
    ls_status status = exchange(identities, store, self, run);
    if (status == LS_OK) number_hosts(hosts, identities, self->world_size);
    free(identities);
    return status == LS_OK && hosts->count > 1 ? find_address(hosts, store, self) : status;
}

void ddp_hosts_choose(ddp_hosts *out, const ddp_hosts *hosts, const int *rank, int count) {
    *out = *hosts;
    out->count = 0;
    for (int i = 0; i < count; i++) {
        int same = 0;
        while (same < i && hosts->of[rank[same]] != hosts->of[rank[i]]) same++;
        out->of[i] = same < i ? out->of[same] : (unsigned char)out->count++;
    }
}

int ddp_hosts_count_ranks(const ddp_hosts *hosts, int host, int below) {
    int count = 0;
    for (int r = 0; r < below; r++) count += hosts->count == 1 || hosts->of[r] == host;
    return count;
}
