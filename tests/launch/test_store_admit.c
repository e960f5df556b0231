/* store: which clients are admitted. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/secret.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/launch/store_address.h"
#include "ddp_procs/launch/store_pass.h"
#include "ddp_procs/launch/store_protocol.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"

enum { MESSAGE_CAPACITY = 512, NOBODY = 65534 };

static const ddp_store_pass job = {.token = "secret", .job = "first", .world_size = 3, .rank = 1};

static int forget_environment(void **state) {
    (void)state;
    unsetenv("LS_JOB_TOKEN");
    return 0;
}

static ddp_store_server *serve(const char *host, const ddp_store_pass *pass) {
    ddp_store_server *server;
    assert_int_equal(ddp_store_serve_job(&server, host, 0, pass), LS_OK);
    return server;
}

static ddp_store *join(const ddp_store_server *server, const ddp_store_pass *pass) {
    ddp_store *store;
    assert_int_equal(ddp_store_join(&store, ddp_store_server_host(server), ddp_store_server_port(server), pass, 30),
                     LS_OK);
    return store;
}

/* Asserts that the client is rejected, with a line that ends like this after the store's address. */
static void expect_refusal(const ddp_store_server *server, const ddp_store_pass *pass, const char *text) {
    char message[MESSAGE_CAPACITY], place[DDP_PLACE_CAPACITY], expected[MESSAGE_CAPACITY];
    ddp_store *store;
    ddp_address_text(place, ddp_store_server_host(server), ddp_store_server_port(server));
    snprintf(expected, sizeof expected, "the store at %s %s", place, text);
    ls_log_capture(message, sizeof message);
    ls_status status = ddp_store_join(&store, ddp_store_server_host(server), ddp_store_server_port(server), pass, 30);
    ls_log_capture(NULL, 0);
    assert_int_equal(status, LS_ERR_USAGE);
    assert_null(store);
    assert_string_equal(message, expected);
}

/* --- the token ------------------------------------------------------------------------------------------------------- */

TEST_WITH(forget_environment, forget_environment, test_secrets) {
    char first[33], second[33];
    assert_int_equal(ls_secret_make(first, 32), LS_OK);
    assert_int_equal(ls_secret_make(second, 32), LS_OK);
    assert_int_equal(strspn(first, "0123456789abcdef"), 32);
    assert_int_equal(first[32], '\0');
    assert_string_not_equal(first, second);
    assert_true(ls_secret_equal(first, first, sizeof first));
    for (int i = 0; i < 32; i++) {
        memcpy(second, first, sizeof first);
        second[i] ^= 1;
        assert_false(ls_secret_equal(first, second, sizeof first));
    }
}

TEST_WITH(forget_environment, forget_environment, test_a_wrong_token_is_refused) {
    ddp_store_pass wrong = job;
    ddp_store_server *server = serve("127.0.0.1", &job);
    static const char *const tokens[] = {"secreT", "Secret", "secre", "secret2", "xxxxxx"};
    for (size_t i = 0; i < COUNT_OF(tokens); i++) {
        snprintf(wrong.token, sizeof wrong.token, "%s", tokens[i]);
        wrong.world_size = 9; /* a client with a wrong token gets no other reason */
        expect_refusal(server, &wrong,
                       "refuses rank 1: its LS_JOB_TOKEN differs from the job's; give all ranks of a job the "
                       "same token, and each job a port of its own (MASTER_PORT)");
    }
    wrong.token[0] = '\0';
    expect_refusal(server, &wrong,
                   "refuses rank 1: its LS_JOB_TOKEN is not set; give all ranks of a job the same token, and each job "
                   "a port of its own (MASTER_PORT)");
    ddp_store_close(join(server, &job));
    ddp_store_server_stop(server, 0);
    ddp_store_pass open = job;
    open.token[0] = '\0';
    server = serve("127.0.0.1", &open); /* a rank that has a secret does not join a job without one */
    expect_refusal(server, &job,
                   "refuses rank 1: its LS_JOB_TOKEN differs from the job's; give all ranks of a job the "
                   "same token, and each job a port of its own (MASTER_PORT)");
    ddp_store_server_stop(server, 0);
}

TEST_WITH(forget_environment, forget_environment, test_beyond_loopback_a_token_must_be_set) {
    static const char *const hosts[] = {"0.0.0.0", "node0.example.org", "10.0.0.1", "128.0.0.1",
                                        "127.0.0.1.example.org"};
    char message[MESSAGE_CAPACITY];
    ddp_store_server *server;
    ddp_store *store;
    for (size_t i = 0; i < COUNT_OF(hosts); i++) {
        for (int rank = 0; rank < 2; rank++) { /* ranks that do not serve it report this, too, without waiting */
            ddp_rank self = {.rank = rank,
                             .world_size = 2,
                             .local_world_size = 1,
                             .launched = true,
                             .hosts_store = rank == 0,
                             .master_port = 29500};
            snprintf(self.master_host, sizeof self.master_host, "%s", hosts[i]);
            ls_log_capture(message, sizeof message);
            assert_int_equal(ddp_store_open(&store, &self, 30), LS_ERR_USAGE);
            assert_int_equal(ddp_store_serve(&server, hosts[i], 0), LS_ERR_USAGE);
            ls_log_capture(NULL, 0);
            char expected[MESSAGE_CAPACITY];
            snprintf(expected, sizeof expected,
                     "a store at %s:29500 is open to other machines, but this job has no secret: set "
                     "LS_JOB_TOKEN to ",
                     hosts[i]);
            assert_memory_equal(message, expected, strlen(expected));
        }
    }
}

/* Rank 0 of a job on this machine, started by hand. Returns its stderr. */
static const char *open_by_hand(const char *host) {
    ddp_rank self = {.world_size = 1, .local_world_size = 1, .launched = true, .hosts_store = true};
    ddp_store_server *probe = serve("127.0.0.1", &(ddp_store_pass){.rank = 0});
    ddp_store *store;
    self.master_port = ddp_store_server_port(probe);
    ddp_store_server_stop(probe, 0);
    snprintf(self.master_host, sizeof self.master_host, "%s", host);
    stderr_begin();
    ls_status status = ddp_store_open(&store, &self, 30);
    const char *text = stderr_end();
    assert_int_equal(status, LS_OK);
    ddp_store_close(store);
    return text;
}

TEST_WITH(forget_environment, forget_environment, test_a_job_by_hand_without_a_token_says_so) {
    const char *text = open_by_hand("localhost");
    assert_non_null(strstr(text, "any user of this machine can reach this job's store at localhost:"));
    assert_non_null(strstr(text, "set LS_JOB_TOKEN"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    text = open_by_hand("node0.example.org"); /* all ranks are here: loopback, whatever the address */
    assert_non_null(strstr(text, "store at 127.0.0.1:"));
    setenv("LS_JOB_TOKEN", "secret", 1);
    assert_string_equal(open_by_hand("localhost"), "");
}

/* --- the job and its ranks ------------------------------------------------------------------------------------------- */

TEST_WITH(forget_environment, forget_environment, test_another_job_is_refused_by_name) {
    ddp_store_server *server = serve("127.0.0.1", &job);
    ddp_store_pass other = job;
    snprintf(other.job, sizeof other.job, "second");
    expect_refusal(server, &other,
                   "serves job 'first', but this rank 1 belongs to job 'second': give each job a port of its own "
                   "(MASTER_PORT), and all ranks of a job the same LS_JOB");
    other.job[0] = '\0';
    expect_refusal(
        server, &other,
        "serves job 'first', but this rank 1 belongs to a job without a name: give each job a port of its own "
        "(MASTER_PORT), and all ranks of a job the same LS_JOB");
    other = job;
    other.world_size = 2;
    expect_refusal(
        server, &other,
        "serves a job of 3 ranks, but this rank 1 belongs to a job of 2 (WORLD_SIZE): give each job a port of "
        "its own (MASTER_PORT)");
    ddp_store_server_stop(server, 0);
}

TEST_WITH(forget_environment, forget_environment, test_a_rank_comes_in_once) {
    char message[MESSAGE_CAPACITY], value[8];
    size_t nbytes;
    ddp_store_server *server = serve("127.0.0.1", &job);
    ddp_store *store;
    assert_int_equal(ddp_store_join(&store, "127.0.0.1", ddp_store_server_port(server), &job, 1), LS_OK);
    for (int i = 0; i < 2; i++) {
        expect_refusal(
            server, &job,
            "already has a rank 1: the same was started twice, or belongs to another job, which needs a port of "
            "its own (MASTER_PORT)");
        /* the first client still works, also after closing its connection and opening a new one */
        ls_log_capture(message, sizeof message);
        assert_int_equal(ddp_store_get(store, "absent", value, sizeof value, &nbytes), LS_ERR_TIMEOUT);
        ls_log_capture(NULL, 0);
        assert_int_equal(ddp_store_set(store, "present", "", 0), LS_OK);
    }
    ddp_store_pass second = job;
    second.rank = 2;
    ddp_store *another = join(server, &second);
    ddp_store_close(another);
    ddp_store_close(store);
    ddp_store_close(join(server, &job)); /* a script may start one program after the other */
    ddp_store_server_stop(server, 0);
}

/* The pass of a rank: its rank, its job, and the environment's token. */
TEST_WITH(forget_environment, forget_environment, test_the_pass_of_a_rank) {
    const ddp_rank self = {.rank = 2, .world_size = 4, .master_host = "127.0.0.1", .job = "first"};
    ddp_store_pass pass;
    char message[MESSAGE_CAPACITY], value[DDP_TOKEN_CAPACITY + 1] = "";
    assert_int_equal(ddp_store_pass_of_rank(&pass, &self), LS_OK);
    assert_string_equal(pass.token, "");
    assert_string_equal(pass.job, "first");
    assert_int_equal(pass.rank, 2);
    assert_int_equal(pass.world_size, 4);
    memset(value, 'x', DDP_TOKEN_CAPACITY);
    setenv("LS_JOB_TOKEN", value, 1);
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_pass_of_rank(&pass, &self), LS_ERR_INVALID);
    ls_log_capture(NULL, 0);
    assert_string_equal(message, "the environment's LS_JOB_TOKEN has 128 characters; expected at most 127");
    setenv("LS_JOB_TOKEN", value + 1, 1);
    assert_int_equal(ddp_store_pass_of_rank(&pass, &self), LS_OK);
    assert_string_equal(pass.token, value + 1);
}

/* --- the socket of one machine ---------------------------------------------------------------------------------------- */

TEST_WITH(forget_environment, forget_environment, test_a_store_without_a_port) {
    ddp_store_server *server = serve("unix", &job), *other = serve("unix", &job);
    const char *host = ddp_store_server_host(server);
    assert_int_equal(strlen(host), strlen("unix:") + 32);
    assert_string_not_equal(host, ddp_store_server_host(other));
    ddp_store_pass wrong = job;
    snprintf(wrong.token, sizeof wrong.token,
             "of another job"); /* of the same user: admitted by the socket, rejected by the token */
    expect_refusal(server, &wrong,
                   "refuses rank 1: its LS_JOB_TOKEN differs from the job's; give all ranks of a job the same token, "
                   "and each job a port of its own (MASTER_PORT)");
    ddp_store *store = join(server, &job);
    char value[8];
    size_t nbytes = 0;
    assert_int_equal(ddp_store_set(store, "key", "value", 5), LS_OK);
    assert_int_equal(ddp_store_get(store, "key", value, sizeof value, &nbytes), LS_OK);
    assert_int_equal(nbytes, 5);
    ddp_store_server_stop(server, 0);
    ddp_store_server_stop(other, 0);
    char message[MESSAGE_CAPACITY];
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_set(store, "key", "value", 5), LS_ERR_PEER);
    assert_int_equal(ddp_store_set(store, "key", "value", 5), LS_ERR_PEER);
    ls_log_capture(NULL, 0);
    ddp_store_close(store);
}

/* In a child, as another user: connects with the right pass, and receives nothing. */
static int knock(void *argument) {
    unsigned char hello[DDP_HELLO_NBYTES], reply;
    struct sockaddr_un address;
    socklen_t nbytes = ddp_address_unix(&address, ddp_address_socket_name(argument));
    if (setuid(NOBODY) != 0) return 1;
    for (int i = 0; i < 300; i++) { /* more clients than the queue of connections to accept */
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, nbytes) != 0) return 2;
        ddp_hello_write(hello, &(ddp_hello){.pass = job, .client = "0123456789abcdef0123456789abcdef"});
        (void)!send(fd, hello, sizeof hello, MSG_NOSIGNAL);
        if (recv(fd, &reply, 1, 0) > 0) return 3;
        close(fd);
    }
    return 0;
}

static int serve_as_another_user(void *argument) {
    ddp_store_server *server;
    if (setuid(NOBODY) != 0 || ddp_store_serve_job(&server, argument, 0, &job) != LS_OK) return 1;
    pause();
    return 0;
}

TEST_WITH(forget_environment, forget_environment, test_of_another_user) {
    if (geteuid() != 0) { /* only root can become another user */
        print_message("not root: no other user to be\n");
        skip();
    }
    ddp_store_server *server = serve("unix", &job);
    char host[DDP_HOST_CAPACITY], message[MESSAGE_CAPACITY];
    snprintf(host, sizeof host, "%s", ddp_store_server_host(server));
    assert_int_equal(finish_child(start_child(knock, host)), 0);
    ddp_store *store = join(server, &job);
    ddp_store_close(store);
    ddp_store_server_stop(server, 0);
    /* a process that has taken the name after its server ended */
    pid_t pretender = start_child(serve_as_another_user, host);
    ls_log_capture(message, sizeof message);
    assert_int_equal(ddp_store_join(&store, host, 0, &job, 30), LS_ERR_PEER);
    ls_log_capture(NULL, 0);
    assert_non_null(strstr(message, "belongs to another user than this one"));
    kill(pretender, SIGKILL);
    finish_child(pretender);
}

int main(void) {
    alarm(120);
    return run_added_tests();
}
