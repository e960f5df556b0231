/* Meetings at the store: all members that arrive get the same list. The meeting does not wait for members that have
 * left, and waits until the deadline for members that are alive and do not arrive. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/store.h"
#include "tests/base/test.h"

enum { RANKS = 4 };
#define LONG_S 50.0
#define SHORT_S 0.5

/* A rank's client, and its next meeting, in a separate thread. */
static struct visitor {
    ddp_store *store;
    int least;
    pthread_t thread;
    ls_status status;
    ddp_meeting meeting;
    char message[512];
} visitors[RANKS];

static ddp_store_server *server;

static int open_store(void **state) {
    (void)state;
    memset(visitors, 0, sizeof visitors);
    const ddp_store_pass pass = {.job = "meetings", .world_size = RANKS};
    return ddp_store_serve_job(&server, "unix", 0, &pass) == LS_OK ? 0 : -1;
}

static int close_store(void **state) {
    (void)state;
    for (int r = 0; r < RANKS; r++) ddp_store_close(visitors[r].store);
    ddp_store_server_stop(server, 0);
    return 0;
}

static void open_client(int rank, double timeout_s) {
    const ddp_store_pass pass = {.job = "meetings", .world_size = RANKS, .rank = rank};
    assert_int_equal(ddp_store_join(&visitors[rank].store, ddp_store_server_host(server), 0, &pass, timeout_s), LS_OK);
}

static void *visit(void *argument) {
    struct visitor *v = argument;
    char said[32];
    ls_log_capture(v->message, sizeof v->message);
    snprintf(said, sizeof said, "I am visitor %d", (int)(v - visitors));
    v->status = ddp_store_meet(v->store, v->least, said, sizeof said, &v->meeting);
    return NULL;
}

static void begin_visit(int rank, int least) {
    visitors[rank].least = least;
    assert_int_equal(pthread_create(&visitors[rank].thread, NULL, visit, &visitors[rank]), 0);
}

static void end_visit(int rank, ls_status status) {
    assert_int_equal(pthread_join(visitors[rank].thread, NULL), 0);
    if (visitors[rank].status != status) fail_msg("visitor %d: %s", rank, visitors[rank].message);
}

/* Asserts that these ranks (a string of digits) have met, and that the list has the part of each. */
static void expect_meeting(int64_t number, const char *ranks) {
    for (const char *c = ranks; *c; c++) {
        const ddp_meeting *m = &visitors[*c - '0'].meeting;
        assert_int_equal(m->number, number);
        assert_int_equal(m->count, strlen(ranks));
        for (int i = 0; i < m->count; i++) {
            char said[32];
            snprintf(said, sizeof said, "I am visitor %d", ranks[i] - '0');
            assert_int_equal(m->rank[i], ranks[i] - '0');
            assert_string_equal((const char *)m->said[i], said);
        }
    }
}

static void meet(int64_t number, const char *ranks, int least) {
    for (const char *c = ranks; *c; c++) begin_visit(*c - '0', least);
    for (const char *c = ranks; *c; c++) end_visit(*c - '0', LS_OK);
    expect_meeting(number, ranks);
}

static bool is_due(int rank) {
    bool due = false;
    assert_int_equal(ddp_store_is_due(visitors[rank].store, &due), LS_OK);
    return due;
}

static void await_due(int rank) {
    double until_us = ls_now_us() + 20e6;
    while (!is_due(rank))
        if (ls_now_us() > until_us) fail_msg("it is not due");
}

TEST_WITH(open_store, close_store, test_all_get_the_same_list) {
    assert_false(ddp_store_server_has_met(server));
    for (int r = 0; r < RANKS; r++) open_client(r, LONG_S);
    assert_false(is_due(2));
    meet(1, "0123", RANKS);
    assert_true(ddp_store_server_has_met(server));
    assert_false(is_due(2));
    meet(2, "0123", 1);
}

TEST_WITH(open_store, close_store, test_a_member_that_has_gone_is_not_waited_for) {
    for (int r = 0; r < RANKS; r++) open_client(r, LONG_S);
    meet(1, "0123", RANKS);
    ddp_store_close(visitors[1].store);
    visitors[1].store = NULL;
    await_due(0);
    meet(2, "023", 2);
    assert_false(is_due(0));
    begin_visit(0, 2);
    begin_visit(2, 2);
    usleep(50000);
    ddp_store_close(visitors[3].store); /* while the others wait for it */
    visitors[3].store = NULL;
    end_visit(0, LS_OK);
    end_visit(2, LS_OK);
    expect_meeting(3, "02");
}

TEST_WITH(open_store, close_store, test_whoever_comes_later_waits_for_the_members) {
    for (int r = 0; r < RANKS; r++) open_client(r, LONG_S);
    meet(1, "12", 2);
    begin_visit(0, 1);
    await_due(2);
    assert_int_equal(visitors[0].meeting.count, 0);
    begin_visit(1, 1);
    begin_visit(2, 1);
    for (int r = 0; r < 3; r++) end_visit(r, LS_OK);
    expect_meeting(2, "012");
}

/* The late member is excluded, and can join again as a new one. */
TEST_WITH(open_store, close_store, test_a_member_that_does_not_come_is_left_out) {
    open_client(0, SHORT_S);
    open_client(1, SHORT_S);
    open_client(2, LONG_S);
    meet(1, "012", 3);
    double begin_us = ls_now_us();
    meet(2, "01", 2);
    assert_true(ls_now_us() - begin_us >= SHORT_S * 1e6 * 0.9);
    begin_visit(2, 1);
    end_visit(2, LS_ERR_PEER);
    begin_visit(2, 1);
    await_due(0);
    begin_visit(0, 2);
    begin_visit(1, 2);
    for (int r = 0; r < 3; r++) end_visit(r, LS_OK);
    expect_meeting(3, "012");
}

/* However short its timeout, a new member excludes no other. */
TEST_WITH(open_store, close_store, test_whoever_comes_later_may_lose_patience) {
    open_client(0, LONG_S);
    open_client(1, LONG_S);
    open_client(2, SHORT_S);
    meet(1, "01", 2);
    begin_visit(2, 1);
    end_visit(2, LS_ERR_TIMEOUT);
    assert_false(is_due(0));
    assert_false(is_due(1));
    meet(2, "01", 2);
}

TEST_WITH(open_store, close_store, test_too_few_do_not_wait_for_ever) {
    open_client(0, SHORT_S);
    open_client(3, SHORT_S);
    begin_visit(0, 3);
    begin_visit(3, 3);
    end_visit(0, LS_ERR_TIMEOUT);
    end_visit(3, LS_ERR_TIMEOUT);
    assert_non_null(strstr(visitors[0].message, "too few ranks met at the store"));
    meet(1, "03", 2);
}
