/* hosts: which ranks share a host, and the address by which others reach it. Each rank is a process with its own
 * identity. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "ddp_procs/hosts.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"

enum { RANKS_MAX = 4, TEXT_CAPACITY = 600 };

/* The expected result of a rank. */
typedef struct rank_case {
    const char *identity, *interface; /* NULL: not set */
    const char *expected;             /* "number of hosts: the host of each rank, address", or the error's beginning */
} rank_case;

typedef struct rank {
    const rank_case *is;
    ddp_rank self;
    int port; /* of the store */
} rank;

static void set(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static int be_rank(void *argument) {
    const rank *r = argument;
    const rank_case *c = r->is;
    ddp_store *store;
    ddp_hosts hosts;
    char found[TEXT_CAPACITY] = "";
    set("LS_HOST_IDENTITY", c->identity);
    set("LS_SOCKET_IFNAME", c->interface);
    if (ddp_store_connect(&store, "127.0.0.1", r->port, 20) != LS_OK) return 2;
    ls_log_capture(found, sizeof found);
    if (ddp_hosts_find(&hosts, store, &r->self, 1) == LS_OK) {
        int used = snprintf(found, sizeof found, "%d:", hosts.count);
        for (int i = 0; i < r->self.world_size; i++)
            used += snprintf(found + used, sizeof found - (size_t)used, " %d", hosts.of[i]);
        snprintf(found + used, sizeof found - (size_t)used, ", %s", hosts.address);
    }
    ls_log_capture(NULL, 0);
    ddp_store_close(store);
    if (strncmp(found, c->expected, strlen(c->expected)) == 0) return 0;
    fprintf(stderr, "rank %d: '%s', not '%s'\n", r->self.rank, found, c->expected);
    return 1;
}

static void expect(const rank_case *cases, int ranks, int local_ranks) {
    rank all[RANKS_MAX];
    ddp_store_server *server;
    pid_t pids[RANKS_MAX];
    bool good = true;
    assert_int_equal(ddp_store_serve(&server, "127.0.0.1", 0), LS_OK);
    for (int r = 0; r < ranks; r++) {
        all[r] = (rank){.is = &cases[r],
                        .self = {.rank = r, .world_size = ranks, .local_world_size = local_ranks},
                        .port = ddp_store_server_port(server)};
        pids[r] = start_child(be_rank, &all[r]);
    }
    for (int r = 0; r < ranks; r++) good = finish_child(pids[r]) == 0 && good;
    ddp_store_server_stop(server, 0);
    assert_true(good);
}

TEST(test_hosts_are_numbered_by_their_lowest_ranks) {
    static const char expected[] = "3: 0 1 0 2, 127.0.0.1";
    static const rank_case cases[] = {
        {"a", NULL, expected}, {"b", NULL, expected}, {"a", NULL, expected}, {"c", NULL, expected}};
    expect(cases, 4, 2);
}

/* Two agents of a launcher are on one host if one machine runs them, whatever their variables. */
TEST(test_processes_of_one_machine_are_on_one_host) {
    static const rank_case cases[] = {{NULL, NULL, "1: 0 0, "}, {NULL, NULL, "1: 0 0, "}};
    expect(cases, 2, 1);
}

TEST(test_nobody_is_asked_where_all_are_here) {
    const ddp_rank self = {.rank = 1, .world_size = 2, .local_world_size = 2};
    ddp_hosts hosts;
    unsetenv("LS_HOST_IDENTITY");
    assert_int_equal(ddp_hosts_find(&hosts, NULL, &self, 1), LS_OK); /* without a store */
    assert_int_equal(hosts.count, 1);
}

TEST(test_the_interface_that_is_named) {
    static const rank_case cases[] = {
        {"a", "lo", "2: 0 1, 127.0.0.1"},
        {"b", "no_such0",
         "the environment's LS_SOCKET_IFNAME is 'no_such0', but this host has no network interface of "
         "that name with an IPv4 address; choose among "}};
    expect(cases, 2, 1);
}

TEST(test_some_of_the_ranks) {
    const ddp_hosts all = {.count = 3, .of = {0, 1, 0, 2, 2}, .address = "10.0.0.1"};
    static const int left[] = {1, 3, 4};
    ddp_hosts some;
    assert_int_equal(ddp_hosts_count_ranks(&all, 2, 5), 2);
    assert_int_equal(ddp_hosts_count_ranks(&all, 0, 2), 1);
    ddp_hosts_choose(&some, &all, left, 3);
    assert_int_equal(some.count, 2);
    assert_true(some.of[0] == 0 && some.of[1] == 1 && some.of[2] == 1);
    assert_string_equal(some.address, "10.0.0.1");
    ddp_hosts_choose(&some, &all, left + 1, 2);
    assert_int_equal(some.count, 1);
    assert_int_equal(ddp_hosts_count_ranks(&some, some.of[1], 2), 2);
}

int main(void) {
    alarm(60);
    return run_added_tests();
}
