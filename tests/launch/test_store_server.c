/* store: servers that are missing, late, on a used port, gone or of another kind; which clients can reach one; rank 0
 * as the host. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "ddp_procs/launch/store.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"
#include "tests/programs/program.h"

enum { MESSAGE_CAPACITY = 512 };

static void expect_no_connection(const char *host, int port, double timeout_s, ls_status status,
                                 const char *beginning) {
    char message[MESSAGE_CAPACITY];
    ddp_store *store = (ddp_store *)message;
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_connect(&store, host, port, timeout_s), status);
    ls_log_capture(NULL, 0);
    assert_null(store);
    if (strncmp(message, beginning, strlen(beginning)) != 0) assert_string_equal(message, beginning);
}

TEST(test_no_server) {
    char expected[MESSAGE_CAPACITY];
    int port = free_port();
    snprintf(expected, sizeof expected, "no store answers at 127.0.0.1:%d after ", port);
    double begin_us = ls_now_us();
    expect_no_connection("127.0.0.1", port, 0.2, LS_ERR_TIMEOUT, expected);
    assert_true(ls_now_us() - begin_us >= 0.2e6);
    expect_no_connection("no.such.host.invalid", port, 0.2, LS_ERR_INVALID,
                         "cannot find the host of the store, no.such.host.invalid:");
    expect_no_connection("127.0.0.1", 0, 0.2, LS_ERR_INVALID, "cannot connect to a store at 127.0.0.1:0");
}

static int connect_early(void *argument) {
    ddp_store *store;
    if (ddp_store_connect(&store, "127.0.0.1", *(int *)argument, 30) != LS_OK) return 1;
    ddp_store_close(store);
    return 0;
}

TEST(test_a_server_that_comes_later) {
    ddp_store_server *server;
    int port = free_port();
    pid_t child = start_child(connect_early, &port);
    usleep(200000);
    assert_int_equal(ddp_store_serve(&server, "127.0.0.1", port), LS_OK);
    assert_int_equal(finish_child(child), 0);
    ddp_store_server_stop(server, 0);
}

TEST(test_a_port_in_use_or_out_of_range) {
    ddp_store_server *first;
    assert_int_equal(ddp_store_serve(&first, "127.0.0.1", 0), LS_OK);
    int port = ddp_store_server_port(first);
    char message[MESSAGE_CAPACITY], expected[MESSAGE_CAPACITY];
    ddp_store_server *second = (ddp_store_server *)message;
    snprintf(expected, sizeof expected, "cannot serve the store at localhost:%d: the port is in use; end the program",
             port);
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_serve(&second, "localhost", port), LS_ERR_SYSTEM);
    assert_null(second);
    assert_memory_equal(message, expected, strlen(expected));
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_serve(&second, "localhost", 65536), LS_ERR_INVALID);
    assert_int_equal(ddp_store_serve(&second, "localhost", -1), LS_ERR_INVALID);
    ls_log_capture(NULL, 0);
    ddp_store_server_stop(first, 0);
}

/* Sends a greeting to each client, or nothing if it is empty; NULL: echoes what it has received. */
static int be_another_service(int listener, const char *greeting) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 || (greeting && write(fd, greeting, strlen(greeting)) < 0)) return 1;
    char bytes[64];
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
        if (!greeting && send(fd, bytes, (size_t)got, MSG_NOSIGNAL) < 0) break; /* it has received enough */
    return 0;
}

static int listener;
static int greet(void *argument) { return be_another_service(listener, argument); }

TEST(test_another_service_at_the_port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t nbytes = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 5), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &nbytes), 0);
    int port = ntohs(address.sin_port);
    char expected[MESSAGE_CAPACITY];
    snprintf(expected, sizeof expected,
             "the process that listens at 127.0.0.1:%d does not answer as a store of this program", port);
    pid_t child = start_child(greet, "220 mail.example.org ready, say hello\r\n");
    expect_no_connection("127.0.0.1", port, 20, LS_ERR_INVALID, expected);
    assert_int_equal(finish_child(child), 0);
    child = start_child(greet, NULL);
    expect_no_connection("127.0.0.1", port, 20, LS_ERR_INVALID, expected);
    assert_int_equal(finish_child(child), 0);
    child = start_child(greet, "");
    expect_no_connection("127.0.0.1", port, 0.3, LS_ERR_TIMEOUT, expected);
    assert_int_equal(finish_child(child), 0);
    close(listener);
}

/* Serves until a client has set "go", then ends without a message. */
static int serve_for_a_while(void *argument) {
    ddp_store_server *server;
    ddp_store *store;
    size_t nbytes;
    int port = *(int *)argument;
    if (ddp_store_serve(&server, "127.0.0.1", port) != LS_OK) return 1;
    if (ddp_store_connect(&store, "127.0.0.1", port, 30) != LS_OK) return 2;
    if (ddp_store_get(store, "go", NULL, 0, &nbytes) != LS_OK) return 3;
    usleep(100000);
    ddp_store_close(store);
    ddp_store_server_stop(server, 0);
    return 0;
}

TEST(test_a_server_that_ends) {
    char message[MESSAGE_CAPACITY], value[8], expected[MESSAGE_CAPACITY];
    size_t nbytes;
    ddp_store *store;
    int port = free_port();
    pid_t child = start_child(serve_for_a_while, &port);
    assert_int_equal(ddp_store_connect(&store, "127.0.0.1", port, 60), LS_OK);
    assert_int_equal(ddp_store_set(store, "go", "", 0), LS_OK);
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_get(store, "never", value, sizeof value, &nbytes), LS_ERR_PEER);
    snprintf(expected, sizeof expected,
             "the store at 127.0.0.1:%d closed the connection during GET of key 'never': has rank 0, or the launcher, "
             "ended?",
             port);
    assert_string_equal(message, expected);
    ls_log_capture(NULL, 0);
    assert_int_equal(finish_child(child), 0);
    ls_log_capture(message, sizeof message);
    double begin_us = ls_now_us();
    assert_int_equal(ddp_store_set(store, "k", "", 0), LS_ERR_PEER);
    assert_true(ls_now_us() - begin_us < 30e6); /* at once, not after the timeout */
    ls_log_capture(NULL, 0);
    snprintf(expected, sizeof expected, "the store at 127.0.0.1:%d is gone", port);
    assert_memory_equal(message, expected, strlen(expected));
    ddp_store_close(store);
}

TEST(test_a_local_store_listens_on_loopback_only) {
    ddp_store_server *local;
    assert_int_equal(ddp_store_serve(&local, "localhost", 0), LS_OK);
    expect_no_connection("127.0.0.2", ddp_store_server_port(local), 0.2, LS_ERR_TIMEOUT,
                         "no store answers at 127.0.0.2:");
    ddp_store_server_stop(local, 0);
    ddp_store_server *open;
    ddp_store *store;
    const ddp_store_pass pass = {.token = "a secret"};
    assert_int_equal(ddp_store_serve_job(&open, "0.0.0.0", 0, &pass), LS_OK);
    assert_int_equal(ddp_store_join(&store, "127.0.0.2", ddp_store_server_port(open), &pass, 30), LS_OK);
    ddp_store_close(store);
    ddp_store_server_stop(open, 0);
}

/* --- rank 0 as the host ------------------------------------------------------------------------------------------- */

static int be_rank_1(void *argument) {
    const ddp_rank self = {
        .rank = 1, .world_size = 2, .launched = true, .master_host = "127.0.0.1", .master_port = *(int *)argument};
    ddp_store *store;
    size_t nbytes;
    if (ddp_store_open(&store, &self, 30) != LS_OK) return 1;
    if (ddp_store_set(store, "hello", "", 0) != LS_OK) return 2;
    usleep(200000); /* rank 0 closes meanwhile */
    if (ddp_store_get(store, "hello", NULL, 0, &nbytes) != LS_OK) return 3;
    ddp_store_close(store);
    return 0;
}

TEST(test_rank_0_hosts_and_lingers) {
    ddp_rank self = {.world_size = 2, .launched = true, .hosts_store = true, .master_host = "127.0.0.1"};
    self.master_port = free_port();
    ddp_store *store;
    size_t nbytes;
    pid_t child = start_child(be_rank_1, &self.master_port);
    assert_int_equal(ddp_store_open(&store, &self, 30), LS_OK);
    assert_int_equal(ddp_store_get(store, "hello", NULL, 0, &nbytes), LS_OK);
    double begin_us = ls_now_us();
    ddp_store_close(store);
    assert_true(ls_now_us() - begin_us < 20e6);
    assert_int_equal(finish_child(child), 0);
    char message[MESSAGE_CAPACITY];
    self.launched = false;
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_open(&store, &self, 30), LS_ERR_INVALID);
    ls_log_capture(NULL, 0);
    assert_null(store);
}

int main(void) {
    alarm(120);
    return run_added_tests();
}
