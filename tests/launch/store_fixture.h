/* A store on loopback, and a client of it, for each test of a cmocka program:
 *     TEST_WITH(store_set_up, store_tear_down, name) { ... } */
#ifndef TESTS_LAUNCH_STORE_FIXTURE_H
#define TESTS_LAUNCH_STORE_FIXTURE_H

#include "ddp_procs/launch/store.h"

/* The test's *state. */
typedef struct store_fixture {
    ddp_store_server *server;
    int port; /* on localhost */
    ddp_store *store;
} store_fixture;

int store_set_up(void **state);
int store_tear_down(void **state);

#endif
