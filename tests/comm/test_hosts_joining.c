/* Groups over several hosts that do not form, or form despite foreign connections: an address that leads nowhere or is
 * not of this machine, and connections from other programs. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/base/test.h"
#include "tests/comm/hosts.h"
#include "tests/comm/leftovers.h"

/* Ranks 0 and 1 of the first host, and rank 2 of the second. */
static const struct layout two_and_one = {3, {0, 0, 1}};

/* The usual calls of the store, and the address that replaces the first host's for the last host. */
static ls_status (*usual_get)(void *context, const char *key, void *value, size_t capacity, size_t *nbytes);
static ls_status (*usual_set)(void *context, const char *key, const void *value, size_t nbytes);
static char published[128];

static ls_status spoil_address(void *context, const char *key, void *value, size_t capacity, size_t *nbytes) {
    ls_status status = usual_get(context, key, value, capacity, nbytes);
    char *address = status == LS_OK && strstr(key, "/mirror/") ? memmem(value, *nbytes, "127.0.0.1", 9) : NULL;
    if (address) memcpy(address, published, strlen(published) + 1);
    return status;
}

static void unreachable_body(struct rank *rank) {
    usual_get = rank->bootstrap.get;
    if (rank->rank == 2) rank->bootstrap.get = spoil_address;
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) != LS_OK && rank->comm == NULL);
    if (rank->rank == 2)
        CHECK(rank_says(rank, "rank 2 cannot reach the host with ranks 0, 1 at ") && rank_says(rank, published) &&
              rank_says(rank, "set LS_SOCKET_IFNAME to the interface"));
    if (rank->rank == 2 && strncmp(published, "127.", 4) == 0) CHECK(rank_says(rank, "the address is this host's own"));
    if (rank->rank != 2)
        CHECK(rank_says(rank, "no connection came from the host of rank 2 to 127.0.0.1, port ") ||
              rank_says(rank, "rank 0 did not"));
    rank_close(rank);
}

TEST(a_host_that_cannot_be_reached_is_named_with_its_address) {
    snprintf(published, sizeof published, "127.0.0.9"); /* no process listens there */
    hosts_run(&two_and_one, unreachable_body, NULL, UINT64_MAX, 0);
}

static void wrong_address_body(struct rank *rank) {
    ls_comm_options options = hosts_options(rank);
    options.timeout_s = TIMEOUT_S;
    if (rank->rank == 2) options.address = "192.0.2.1";
    CHECK(ls_comm_create_hosts(&rank->comm, &options, NULL) != LS_OK && !rank->comm);
    if (rank->rank == 2)
        CHECK(rank_says(rank,
                        "rank 2 cannot listen on 192.0.2.1 for the other hosts: Cannot assign requested address; set "
                        "LS_SOCKET_IFNAME"));
    if (rank->rank != 2) CHECK(rank_says(rank, "no connection came from the host of rank 2"));
}

TEST(an_address_of_another_machine_is_refused) { hosts_run(&two_and_one, wrong_address_body, NULL, UINT64_MAX, 0); }

static void different_body(struct rank *rank) {
    ls_comm_options options = hosts_options(rank);
    options.allreduce = rank->rank == 2 ? "ring" : "naive";
    ls_status status = ls_comm_create_hosts(&rank->comm, &options, NULL);
    CHECK(status == LS_OK); /* without a carrier the all-reduce algorithms may differ */
    rank_close(rank);
}

TEST(the_all_reduce_of_one_round_is_taken) { hosts_run(&two_and_one, different_body, NULL, UINT64_MAX, 0); }

/* Foreign connections that send nothing, too little, or rank 2's message without the secret. */
static ls_status stranger_set(void *context, const char *key, const void *value, size_t nbytes) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *text = strstr(key, "/mirror/rank0") ? memmem(value, nbytes, "127.0.0.1", 9) : NULL;
    int32_t port = 0;
    if (text) memcpy(&port, (const char *)value + nbytes - sizeof port, sizeof port);
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    char nonsense[200];
    memset(nonsense, 'x', sizeof nonsense);
    memcpy(nonsense + 36, &(int32_t){2}, sizeof(int32_t)); /* after the secret */
    for (int i = 0; text && i < 3; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) _exit(1);
        if (i > 0 && send(fd, nonsense, i == 1 ? 10 : 48, MSG_NOSIGNAL) < 0) _exit(1);
        if (i > 0) (void)shutdown(fd, SHUT_WR); /* the first one stays silent */
    }
    return usual_set(context, key, value, nbytes);
}

static void strangers_body(struct rank *rank) {
    usual_set = rank->bootstrap.set;
    rank->bootstrap.set = stranger_set;
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    rank_close(rank);
}

TEST(strangers_do_not_join) { hosts_run(&two_and_one, strangers_body, NULL, UINT64_MAX, 0); }

LEFTOVERS_MAIN
