/* A job of ranks without a launcher under attack, by another user if the test can become one: it trains as without the
 * attack, and ranks of other jobs are refused by name. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/launch/store_protocol.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

enum { IDLE = 300, NOBODY = 65534 };

#define TRAINING "ddp_train --model mlp:784,32,10 --batch-size 60 --steps 40 --no-evaluate"

static int connect_raw(int port) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* --- the attacker ------------------------------------------------------------------------------------------------------ */

typedef struct attacker {
    pid_t pid;
    _Atomic int rounds; /* completed attacks */
} attacker;

/* One request of the attacker, after a hello with a guessed token, or without one. */
static void say(int port, const char *token, ddp_store_operation operation, size_t value_nbytes) {
    static unsigned char bytes[DDP_HELLO_NBYTES + DDP_REQUEST_HEADER_NBYTES + DDP_STORE_KEY_MAX];
    static const char key[] = "group0/shm/rank0", value[DDP_STORE_VALUE_MAX];
    size_t nbytes = 0;
    int fd = connect_raw(port);
    if (fd < 0) return;
    if (token) {
        ddp_hello hello = {.pass = {.job = "first", .world_size = 2, .rank = 1},
                           .client = "0123456789abcdef0123456789abcdef"};
        snprintf(hello.pass.token, sizeof hello.pass.token, "%s", token);
        ddp_hello_write(bytes, &hello);
        nbytes = DDP_HELLO_NBYTES;
    }
    ddp_request_header_write(bytes + nbytes, &(ddp_request_header){operation, sizeof key - 1, value_nbytes});
    nbytes += DDP_REQUEST_HEADER_NBYTES;
    memcpy(bytes + nbytes, key, sizeof key - 1);
    (void)!send(fd, bytes, nbytes + sizeof key - 1, MSG_NOSIGNAL);
    (void)!send(fd, value, value_nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    char reply[64];
    (void)!recv(fd, reply, sizeof reply, MSG_DONTWAIT);
    close(fd);
}

/* Keeps IDLE connections open, and disturbs the job until it is killed. */
static void attack(attacker *self, int port) {
    static const char *const guesses[] = {NULL, "", "guess", "secreT"};
    int idle[IDLE];
    for (int i = 0; i < IDLE; i++) idle[i] = connect_raw(port);
    for (;; self->rounds++) {
        for (size_t g = 0; g < sizeof guesses / sizeof *guesses; g++) {
            say(port, guesses[g], DDP_OP_SET, 33);
            say(port, guesses[g], DDP_OP_ADD, 8);
            say(port, guesses[g], DDP_OP_SET, DDP_STORE_VALUE_MAX);
        }
        for (int i = 0; i < 10; i++) { /* reopens dropped connections */
            int which = (self->rounds * 10 + i) % IDLE;
            if (idle[which] >= 0) close(idle[which]);
            idle[which] = connect_raw(port);
        }
        usleep(5000); /* leave some CPU time to the job */
    }
}

static attacker *start_attacker(int port, bool as_nobody) {
    attacker *self = mmap(NULL, sizeof *self, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(self != MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        self->pid = pid;
        return self;
    }
    if (as_nobody && setuid(NOBODY) != 0) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(100);
    attack(self, port);
    _exit(0);
}

static void await_rounds(const attacker *self, int more) {
    int wanted = self->rounds + more;
    for (double until_us = ls_now_us() + 60e6; self->rounds < wanted; usleep(2000)) {
        assert_true(ls_now_us() < until_us);
        assert_int_equal(waitpid(self->pid, NULL, WNOHANG), 0);
    }
}

static void stop_attacker(attacker *self) {
    kill(self->pid, SIGKILL);
    assert_int_equal(waitpid(self->pid, NULL, 0), self->pid);
    munmap(self, sizeof *self);
}

/* --- the job ------------------------------------------------------------------------------------------------------------ */

static void start_rank(program *p, int rank, int world_size, int port, const char *environment) {
    program_start(p,
                  "RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                  "%s " TRAINING,
                  rank, world_size, rank, world_size, port, environment);
}

static void await_store(int port) {
    int fd;
    for (double until_us = ls_now_us() + 60e6; (fd = connect_raw(port)) < 0; usleep(5000))
        assert_true(ls_now_us() < until_us);
    close(fd);
}

static void expect_refusal(program *p, const char *text) {
    program_finish(p);
    if (p->status != 2 || count_lines(p->err_text) != 1 || !strstr(p->err_text, text))
        fail_msg("status 2 and '%s' expected: %d, %s", text, p->status, p->err_text);
}

static void expect_refused(int port, const char *environment, const char *text) {
    static program p;
    start_rank(&p, 1, 2, port, environment);
    expect_refusal(&p, text);
}

static void read_expected_hash(char hash[PROGRAM_HASH + 1]) {
    static program p;
    assert_int_equal(program_run(&p, TRAINING " --spawn 2"), 0);
    program_read_hash(&p, hash);
}

static void train_beside_strangers(bool as_nobody) {
    static program ranks[2];
    static const char *const own = "LS_JOB_TOKEN=secret LS_JOB=first";
    char expected[PROGRAM_HASH + 1], hash[PROGRAM_HASH + 1];
    int port = free_port();
    read_expected_hash(expected);
    start_rank(&ranks[0], 0, 2, port, own);
    await_store(port);
    attacker *self = start_attacker(port, as_nobody); /* rank 0 waits for rank 1 meanwhile */
    await_rounds(self, 5);
    expect_refused(port, "LS_JOB_TOKEN=secret LS_JOB=second",
                   "serves job 'first', but this rank 1 belongs to job 'second'");
    expect_refused(port, "LS_JOB_TOKEN=another LS_JOB=first", "its LS_JOB_TOKEN differs from the job's");
    start_rank(&ranks[1], 1, 2, port, own);
    for (int r = 0; r < 2; r++) {
        program_finish(&ranks[r]);
        if (ranks[r].status != 0 || ranks[r].err_text[0] != '\0')
            fail_msg("rank %d ended with %d: %s", r, ranks[r].status, ranks[r].err_text);
    }
    stop_attacker(self);
    program_read_hash(&ranks[0], hash);
    assert_string_equal(hash, expected);
}

TEST_IN(programs, test_strangers_of_the_same_user) { train_beside_strangers(false); }

TEST_IN(programs, test_strangers_of_another_user) {
    if (geteuid() != 0) { /* only root can become another user; the test above needs none */
        print_message("not root: no other user to be\n");
        skip();
    }
    train_beside_strangers(true);
}

/* Waits for the first of two programs to end. */
static program *await_either(program *left, program *right) {
    for (double until_us = ls_now_us() + 60e6; ls_now_us() < until_us; usleep(5000)) {
        siginfo_t end = {0};
        if (waitid(P_PID, (id_t)left->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid) return left;
        if (waitid(P_PID, (id_t)right->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid) return right;
    }
    fail_msg("both ranks go on");
    return NULL;
}

/* Ranks without a token or a name are still distinguished by their numbers. The job needs a third rank, which is
 * started when one of two ranks 1 has been refused. */
TEST_IN(programs, test_a_second_rank_1) {
    static program ranks[3], twin;
    int port = free_port();
    start_rank(&ranks[0], 0, 3, port, "A=0");
    start_rank(&ranks[1], 1, 3, port, "A=1");
    start_rank(&twin, 1, 3, port, "A=1");
    program *refused = await_either(&ranks[1], &twin), *taken = refused == &twin ? &ranks[1] : &twin;
    expect_refusal(refused, "already has a rank 1: the same was started twice, or belongs to another job");
    start_rank(&ranks[2], 2, 3, port, "A=2");
    assert_int_equal(program_finish(taken), 0);
    assert_int_equal(program_finish(&ranks[2]), 0);
    assert_int_equal(program_finish(&ranks[0]), 0);
    if (count_lines(ranks[0].err_text) != 1 ||
        !strstr(ranks[0].err_text, "any user of this machine can reach this job"))
        fail_msg("rank 0 does not say that it has no secret: %s", ranks[0].err_text);
}
