/* store: clients that misbehave are dropped, and other clients do not notice. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/launch/store_protocol.h"
#include "tests/base/test.h"
#include "tests/launch/store_fixture.h"

static void expect_service(const store_fixture *f) {
    char value[8];
    size_t nbytes;
    assert_int_equal(ddp_store_set(f->store, "alive", "yes", 3), LS_OK);
    assert_int_equal(ddp_store_get(f->store, "alive", value, sizeof value, &nbytes), LS_OK);
    assert_int_equal(nbytes, 3);
}

/* --- bytes by hand ---------------------------------------------------------------------------------------------------- */

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int open_raw(int port) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void send_raw(int fd, const void *bytes, size_t nbytes) {
    assert_int_equal(send(fd, bytes, nbytes, MSG_NOSIGNAL), nbytes);
}

/* An admitted client, or -1 if the server has dropped it. */
static int try_client(int port) {
    unsigned char hello[DDP_HELLO_NBYTES], reply[DDP_REPLY_HEADER_NBYTES];
    int fd = open_raw(port);
    ddp_hello_write(hello, &(ddp_hello){.client = "0123456789abcdef0123456789abcdef"});
    if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello &&
        recv(fd, reply, sizeof reply, MSG_WAITALL) == sizeof reply)
        return fd;
    close(fd);
    return -1;
}

static int open_client(int port) {
    int fd = try_client(port);
    assert_true(fd >= 0);
    return fd;
}

/* True if the server closes the connection within 20 s; data that it sends before are discarded. */
static bool is_dropped(int fd) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    char bytes[65536];
    while (poll(&wanted, 1, 20000) == 1)
        if (recv(fd, bytes, sizeof bytes, 0) <= 0) return true;
    return false;
}

static size_t make_request(unsigned char *bytes, ddp_store_operation operation, const char *key, size_t value_nbytes) {
    const ddp_request_header header = {operation, strlen(key), value_nbytes};
    ddp_request_header_write(bytes, &header);
    memcpy(bytes + DDP_REQUEST_HEADER_NBYTES, key, strlen(key));
    return DDP_REQUEST_HEADER_NBYTES + strlen(key);
}

/* A valid SET with bytes at `offset` overwritten. */
typedef struct damage {
    const char *what;
    size_t offset, nbytes;
    unsigned char bytes[8];
} damage;

TEST_WITH(store_set_up, store_tear_down, test_malformed_requests_are_dropped) {
    const store_fixture *f = *state;
    static const damage damages[] = {
        {"magic", 0, 1, {'X'}},
        {"a reply's magic", 1, 2, {'S', 'R'}},
        {"operation 0", 4, 1, {0}},
        {"operation 1", 4, 1, {1}},
        {"operation 5", 4, 1, {5}},
        {"operation 6", 4, 1, {6}},
        {"operation 8", 4, 1, {8}},
        {"operation 9", 4, 1, {9}},
        {"operation 255", 4, 1, {255}},
        {"padding", 6, 1, {1}},
        {"more padding", 15, 1, {1}},
        {"empty key", 8, 4, {0}},
        {"key of 1025", 8, 4, {0x01, 0x04}},
        {"huge key", 8, 4, {255, 255, 255, 255}},
        {"value of 64 KiB + 1", 16, 8, {1, 0, 1}},
        {"huge value", 16, 8, {255, 255, 255, 255, 255, 255, 255, 255}},
        {"a value that a sum would wrap", 16, 8, {248, 255, 255, 255, 255, 255, 255, 255}},
        {"padding behind the lengths", 24, 1, {1}},
        {"the last padding", 31, 1, {255}},
        {"a key with a zero byte", 33, 1, {0}},
    };
    ddp_store_server_set_patience(f->server, 1000); /* so that the server does not drop them for being slow */
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        unsigned char bytes[64];
        size_t nbytes = make_request(bytes, DDP_OP_SET, "key", 0);
        memcpy(bytes + damages[i].offset, damages[i].bytes, damages[i].nbytes);
        int fd = open_client(f->port);
        send_raw(fd, bytes, nbytes);
        if (!is_dropped(fd)) fail_msg("not dropped: %s", damages[i].what);
        close(fd);
        expect_service(f);
    }
    bool exists = true;
    assert_int_equal(ddp_store_check(f->store, "key", &exists), LS_OK);
    assert_false(exists); /* nothing of the above was stored */
}

TEST_WITH(store_set_up, store_tear_down, test_text_of_another_protocol_is_dropped) {
    const store_fixture *f = *state;
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fd = open_raw(f->port);
    send_raw(fd, http, sizeof http - 1);
    assert_true(is_dropped(fd));
    close(fd);
    expect_service(f);
}

TEST_WITH(store_set_up, store_tear_down, test_half_requests_delay_nobody_and_are_dropped) {
    const store_fixture *f = *state;
    unsigned char bytes[64];
    size_t nbytes = make_request(bytes, DDP_OP_SET, "half", DDP_STORE_VALUE_MAX);
    int header = open_client(f->port), key = open_client(f->port), value = open_client(f->port),
        idle = open_client(f->port);
    send_raw(header, bytes, 7);
    send_raw(key, bytes, DDP_REQUEST_HEADER_NBYTES + 2);
    send_raw(value, bytes, nbytes);
    send_raw(value, bytes, 10);
    expect_service(f);
    ddp_store_server_set_patience(f->server, 0.1);
    /* clients whose request had begun keep the deadline of its begin; new ones get the new deadline */
    int late = open_client(f->port);
    send_raw(late, bytes, 7);
    assert_true(is_dropped(late));
    close(header); /* clients that leave by themselves */
    close(key);
    close(value);
    expect_service(f);
    unsigned char reply[DDP_REPLY_HEADER_NBYTES + 8];
    for (int i = 0; i < 2; i++) { /* sending no request for a long time is allowed */
        send_raw(idle, bytes, make_request(bytes, DDP_OP_CHECK, "half", 0));
        assert_int_equal(recv(idle, reply, sizeof reply, MSG_WAITALL), sizeof reply);
        usleep(300000);
    }
    close(idle);
    close(late);
}

TEST_WITH(store_set_up, store_tear_down, test_dripping_bytes_buys_no_time) {
    const store_fixture *f = *state;
    unsigned char bytes[64];
    size_t nbytes = make_request(bytes, DDP_OP_SET, "drip", DDP_STORE_VALUE_MAX);
    bool exists = true;
    ddp_store_server_set_patience(f->server, 0.2);
    int fd = open_client(f->port);
    double until_us = ls_now_us() + 10e6;
    send_raw(fd, bytes, nbytes);
    while (send(fd, "d", 1, MSG_NOSIGNAL) == 1 && ls_now_us() < until_us) usleep(1000);
    assert_true(ls_now_us() < until_us);
    assert_int_equal(ddp_store_check(f->store, "drip", &exists), LS_OK);
    assert_false(exists);
    close(fd);
    expect_service(f);
}

TEST_WITH(store_set_up, store_tear_down, test_an_unread_reply_delays_nobody) {
    const store_fixture *f = *state;
    enum { QUESTIONS = 1000 }; /* their replies, 64 MiB, are more than the sockets can buffer */
    unsigned char bytes[64];
    void *big = calloc(1, DDP_STORE_VALUE_MAX);
    assert_non_null(big);
    assert_int_equal(ddp_store_set(f->store, "big", big, DDP_STORE_VALUE_MAX), LS_OK);
    ddp_store_server_set_patience(f->server, 0.2);
    int fd = open_client(f->port);
    size_t nbytes = make_request(bytes, DDP_OP_GET, "big", 0);
    for (int i = 0; i < QUESTIONS && send(fd, bytes, nbytes, MSG_NOSIGNAL) == (ssize_t)nbytes; i++) continue;
    expect_service(f);
    usleep(400000);
    size_t total = 0;
    for (ssize_t got; (got = recv(fd, big, DDP_STORE_VALUE_MAX, 0)) > 0;) total += (size_t)got;
    assert_true(total < QUESTIONS * DDP_STORE_VALUE_MAX); /* dropped in the middle */
    free(big);
    close(fd);
    expect_service(f);
}

TEST_WITH(store_set_up, store_tear_down, test_waiting_clients_may_leave_or_be_rude) {
    const store_fixture *f = *state;
    unsigned char bytes[64];
    size_t nbytes = make_request(bytes, DDP_OP_GET, "never", 0);
    int gone = open_client(f->port), rude = open_client(f->port), patient = open_client(f->port);
    send_raw(gone, bytes, nbytes);
    send_raw(rude, bytes, nbytes);
    send_raw(patient, bytes, nbytes);
    close(gone);
    expect_service(f);
    send_raw(rude, bytes, nbytes); /* the next request before the reply */
    assert_true(is_dropped(rude));
    close(rude);
    assert_int_equal(ddp_store_set(f->store, "never", "now", 3), LS_OK);
    unsigned char reply[DDP_REPLY_HEADER_NBYTES + 3];
    assert_int_equal(recv(patient, reply, sizeof reply, MSG_WAITALL), sizeof reply);
    assert_memory_equal(reply + DDP_REPLY_HEADER_NBYTES, "now", 3);
    close(patient);
}

/* --- strangers: connections that are not admitted yet ------------------------------------------------------------- */

enum { MANY = 300 };

TEST_WITH(store_set_up, store_tear_down, test_idle_strangers_are_dropped_and_keep_nobody_out) {
    const store_fixture *f = *state;
    int fds[MANY];
    ddp_store *late;
    for (int i = 0; i < MANY; i++) fds[i] = open_raw(f->port);
    expect_service(f);
    int client = -1; /* at once: a new one replaces the oldest (this process may sleep in between) */
    for (int tries = 0; client < 0 && tries < 3; tries++) client = try_client(f->port);
    assert_true(client >= 0);
    close(client);
    assert_int_equal(ddp_store_connect(&late, "127.0.0.1", f->port, 30), LS_OK);
    for (int i = 0; i < MANY; i++) assert_true(is_dropped(fds[i]));
    for (int i = 0; i < MANY; i++) close(fds[i]);
    assert_int_equal(ddp_store_set(late, "late", "", 0), LS_OK); /* an admitted client may be silent for any time */
    expect_service(f);
    ddp_store_close(late);
}

TEST_WITH(store_set_up, store_tear_down, test_nothing_is_served_before_the_pass) {
    const store_fixture *f = *state;
    unsigned char bytes[DDP_HELLO_NBYTES + 64] = {0};
    bool exists = true;
    int fd = open_raw(f->port);
    make_request(bytes, DDP_OP_SET, "stranger", 0);
    send_raw(fd, bytes, DDP_HELLO_NBYTES); /* a request padded with zeros to the length of a hello */
    assert_true(is_dropped(fd));
    close(fd);
    fd = open_raw(f->port);
    ddp_hello_write(bytes, &(ddp_hello){.pass = {.token = "wrong"}, .client = "0123456789abcdef0123456789abcdef"});
    size_t request_nbytes = make_request(bytes + DDP_HELLO_NBYTES, DDP_OP_SET, "stranger", 0);
    send_raw(fd, bytes, DDP_HELLO_NBYTES + request_nbytes);
    assert_true(is_dropped(fd));
    close(fd);
    assert_int_equal(ddp_store_check(f->store, "stranger", &exists), LS_OK);
    assert_false(exists);
}

/* A hello that is sent a byte at a time has the same second as silence. */
TEST_WITH(store_set_up, store_tear_down, test_a_dripping_hello_buys_no_time) {
    const store_fixture *f = *state;
    unsigned char hello[DDP_HELLO_NBYTES];
    ddp_hello_write(hello, &(ddp_hello){.client = "0123456789abcdef0123456789abcdef"});
    int fd = open_raw(f->port);
    size_t sent = 0;
    while (sent + 1 < sizeof hello && send(fd, hello + sent, 1, MSG_NOSIGNAL) == 1) {
        sent++;
        usleep(20000);
    }
    assert_true(sent + 1 < sizeof hello);
    close(fd);
    expect_service(f);
}

int main(void) {
    alarm(120);
    return run_added_tests();
}
