/* Ranks of a group, on every back-end, are out of step, leave, arrive late or give up: every rank ends in time with a
 * message that names the culprit. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "tests/base/test.h"
#include "tests/comm/ranks.h"

#define TIMEOUT_S 30.0
#define GRACE_S 25.0 /* slack for detection on a loaded machine, or under a sanitizer */
#define SHORT_S 0.5
#define RANKS 3

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Waits until a rank has given up. */
static void await_failure(const struct rank *rank) {
    while (atomic_load(&rank->comm->segment->broken.state) != LS_BROKEN) sleep_ms(5);
}

/* --- ranks that are out of step ----------------------------------------------------------------------------------- */

struct mismatch {
    const char *name, *first, *second;
};

static ls_status run_mismatched(struct rank *rank, const char *name, float *x) {
    bool odd = rank->rank == 1;
    if (strcmp(name, "count") == 0)
        return ls_comm_all_reduce(rank->comm, rank->stream, x, odd ? 10 : 11, LS_FP32, LS_REDUCE_SUM);
    if (strcmp(name, "dtype") == 0)
        return ls_comm_all_reduce(rank->comm, rank->stream, x, 10, odd ? LS_INT32 : LS_FP32, LS_REDUCE_SUM);
    if (strcmp(name, "op") == 0)
        return ls_comm_all_reduce(rank->comm, rank->stream, x, 70000, LS_FP32, odd ? LS_REDUCE_MAX : LS_REDUCE_SUM);
    if (strcmp(name, "root") == 0) return ls_comm_broadcast(rank->comm, rank->stream, x, 10, LS_FP32, odd ? 2 : 0);
    if (odd) return ls_comm_all_reduce(rank->comm, rank->stream, x, 10, LS_FP32, LS_REDUCE_SUM);
    if (strcmp(name, "kind alone") == 0) return ls_comm_all_gather(rank->comm, rank->stream, x, x + 10, 10, LS_FP32);
    return ls_comm_broadcast(rank->comm, rank->stream, x, 70000, LS_FP32, 0);
}

static void mismatch_body(struct rank *rank) {
    const struct mismatch *mismatch = rank->argument;
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    float *x = calloc(70000, sizeof *x);
    CHECK(x && ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    double begin_us = ls_now_us();
    CHECK(run_mismatched(rank, mismatch->name, x) == LS_ERR_INVALID);
    CHECK(ls_now_us() - begin_us < GRACE_S * 1e6);
    CHECK(rank_says(rank, mismatch->first) && rank_says(rank, mismatch->second) && rank_says(rank, "operation 2"));
    (void)ls_device_synchronize(rank->device);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_ERR_INVALID);
    (void)ls_device_synchronize(rank->device);
    free(x);
    rank_close(rank);
}

TEST(test_mismatch) {
    const struct mismatch rows[] = {
        {"kind alone", "rank 1 runs all_reduce (sum) of 10 fp32", "rank 0 runs all_gather of 10 fp32"},
        {"kind", "rank 1 runs all_reduce (sum) of 10 fp32 elements",
         "rank 0 runs broadcast of 70000 fp32 elements from rank 0"},
        {"count", "rank 1 runs all_reduce (sum) of 10 fp32", "rank 0 runs all_reduce (sum) of 11 fp32"},
        {"dtype", "rank 1 runs all_reduce (sum) of 10 int32", "rank 0 runs all_reduce (sum) of 10 fp32"},
        {"op", "rank 1 runs all_reduce (max)", "rank 0 runs all_reduce (sum)"},
        {"root", "rank 1 runs broadcast of 10 fp32 elements from rank 2",
         "rank 0 runs broadcast of 10 fp32 elements from rank 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) run_good_ranks_on_all(RANKS, mismatch_body, &rows[i]);
}

static void unmatched_pair_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    float x[4] = {0};
    if (rank->rank == 0) CHECK(ls_comm_send(rank->comm, rank->stream, x, 3, LS_FP32, 1) == LS_ERR_INVALID);
    if (rank->rank == 1) CHECK(ls_comm_recv(rank->comm, rank->stream, x, 4, LS_FP32, 0) == LS_ERR_INVALID);
    if (rank->rank == 2) CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_ERR_INVALID);
    CHECK(rank_says(rank, "rank 0 runs send of 3 fp32 elements to rank 1"));
    CHECK(rank_says(rank, "rank 1 runs recv of 4 fp32 elements from rank 0"));
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

static void unequal_sharing_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    void *memory;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, rank->rank == 2 ? 100 : 200, &memory) == LS_ERR_INVALID);
    CHECK(rank_says(rank, "rank 2 runs alloc_shared of 100 bytes") &&
          rank_says(rank, "rank 0 runs alloc_shared of 200 bytes"));
    rank_close(rank);
}

TEST(test_unmatched_calls) {
    run_good_ranks_on_all(RANKS, unmatched_pair_body, NULL);
    run_good_ranks_on_all(RANKS, unequal_sharing_body, NULL);
}

/* --- leaving and staying away ------------------------------------------------------------------------------------- */

/* Any wait of the other ranks: for a collective operation, a message, an allocation. */
static ls_status wait_for_rank_0(struct rank *rank, const char *how, float *x) {
    if (strcmp(how, "recv") == 0) return ls_comm_recv(rank->comm, rank->stream, x, 4, LS_FP32, 0);
    if (strcmp(how, "send") == 0) return ls_comm_send(rank->comm, rank->stream, x, 4, LS_FP32, 0);
    if (strcmp(how, "reduce") == 0)
        return ls_comm_all_reduce(rank->comm, rank->stream, x, 70000, LS_FP32, LS_REDUCE_SUM);
    void *memory = x;
    ls_status status = ls_comm_alloc_shared(rank->comm, NULL, 64, &memory);
    CHECK(memory == NULL);
    return status;
}

static void leaves_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    float *x = calloc(70000, sizeof *x);
    CHECK(x && ls_comm_all_reduce(rank->comm, rank->stream, x, 70000, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    if (rank->rank == 0) {
        sleep_ms(20); /* the others usually wait by now; the test does not depend on it */
    } else {
        double begin_us = ls_now_us();
        CHECK(wait_for_rank_0(rank, rank->argument, x) == LS_ERR_PEER);
        CHECK(ls_now_us() - begin_us < GRACE_S * 1e6);
        CHECK(rank_says(rank, "rank 0 left the group without taking part"));
        (void)ls_device_synchronize(rank->device);
        CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_ERR_PEER);
        (void)ls_device_synchronize(rank->device);
    }
    rank_close(rank);
    free(x);
}

static void late_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, SHORT_S) == LS_OK);
    float *x = calloc(70000, sizeof *x);
    CHECK(x);
    if (rank->rank == 0) {
        await_failure(rank);
    } else {
        double begin_us = ls_now_us();
        CHECK(wait_for_rank_0(rank, rank->argument, x) == LS_ERR_TIMEOUT);
        CHECK(ls_now_us() - begin_us < (SHORT_S + GRACE_S) * 1e6);
        CHECK(rank_says(rank, "rank 0 did not arrive within 0.5 s"));
    }
    (void)ls_device_synchronize(rank->device);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_ERR_TIMEOUT);
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
    free(x);
}

TEST(test_missing) {
    const char *const waits[] = {"reduce", "recv", "send", "alloc"};
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        run_good_ranks_on_all(RANKS, leaves_body, waits[i]);
        run_good_ranks_on_all(RANKS, late_body, waits[i]);
    }
}

/* --- giving up ---------------------------------------------------------------------------------------------------- */

static void abort_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, 30) == LS_OK);
    double begin_us = ls_now_us();
    if (rank->rank == 1) {
        sleep_ms(100);
        CHECK(ls_comm_abort(rank->comm, "its data ran out"));
        CHECK(!ls_comm_abort(rank->comm, "and again")); /* the first reason is kept */
        CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_ERR_PEER);
    } else {
        CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_ERR_PEER);
        CHECK(rank_says(rank, "barrier (operation 1, 0 bytes): rank 1 has given up: its data ran out"));
    }
    CHECK(ls_now_us() - begin_us < GRACE_S * 1e6);
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

static void abort_alone_body(struct rank *rank) {
    if (rank->rank > 0) return;
    rank->world_size = 1;
    CHECK(rank_open(rank, "inline", NULL, 30) == LS_OK);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    ls_comm_abort(rank->comm, "enough");
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_ERR_PEER);
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

static void *abort_main(void *argument) {
    const struct rank *rank = argument;
    ls_comm_traffic traffic;
    sleep_ms(20);
    ls_comm_traffic_read(rank->comm, &traffic); /* any thread may call this */
    ls_comm_abort(rank->comm, traffic.operations == 1 ? "somebody else says so" : "miscounted");
    return NULL;
}

/* Another thread gives up for a rank that is waiting. */
static void abort_from_outside_body(struct rank *rank) {
    CHECK(rank_open(rank, "threads", NULL, TIMEOUT_S) == LS_OK);
    pthread_t thread;
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    if (rank->rank == 1) {
        CHECK(pthread_create(&thread, NULL, abort_main, rank) == 0);
        (void)ls_comm_barrier(rank->comm, rank->stream);
        CHECK(ls_stream_synchronize(rank->stream) == LS_ERR_PEER);
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        void *memory;
        CHECK(ls_comm_alloc_shared(rank->comm, NULL, 64, &memory) == LS_ERR_PEER);
        CHECK(rank_says(rank, "rank 1 has given up: somebody else says so"));
    }
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

TEST(test_abort) {
    run_good_ranks_on_all(RANKS, abort_body, NULL);
    run_good_ranks_on_all(RANKS, abort_from_outside_body, NULL);
    run_good_ranks_on_all(RANKS, abort_alone_body, NULL);
}

/* --- buffers that others still read ------------------------------------------------------------------------------- */

static _Atomic bool has_left;

/* Rank 0 uses rank 1's buffers in an operation that takes longer than rank 1's timeout. */
static void slow_reader_body(struct rank *rank) {
    float x = 1;
    CHECK(rank_open(rank, "inline", NULL, SHORT_S) == LS_OK);
    _Atomic int32_t *inside = &rank->comm->segment->slot[0].inside;
    if (rank->rank == 0) {
        atomic_store(inside, 1);
        await_failure(rank);
        sleep_ms((long)(SHORT_S * 3e3));
        atomic_store(&has_left, true);
        atomic_store(inside, 0);
    } else {
        while (!atomic_load(inside)) sleep_ms(1);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, &x, 1, LS_FP32, LS_REDUCE_SUM) == LS_ERR_TIMEOUT);
        CHECK(atomic_load(&has_left)); /* x may be freed only now */
    }
    rank_close(rank);
}

TEST(test_failed_operations_outlast_their_readers) {
    for (const struct rank_backend *backend = rank_backends; backend->name; backend++) {
        if (strcmp(backend->name, "threads") == 0) run_good_ranks_on(backend, 2, slow_reader_body, NULL);
    }
}

/* --- foreign connections while the group forms -------------------------------------------------------------------- */

struct stranger {
    uid_t user;
    uint32_t magic;
};

/* The first message of a rank (shm_handshake.c). A rank with this algorithm would end the group. */
struct greeting {
    uint32_t magic, segment_nbytes;
    int32_t rank, world_size;
    char allreduce[32];
};

/* In a process of its own; returns 0 if it reached the socket, and got no answer. */
static int call_on_rank_0(const struct stranger *stranger, const char *name) {
    const struct greeting greeting = {stranger->magic, (uint32_t)sizeof(ls_segment), 1, 2, "a stranger's"};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char answer[256];
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "lockstep-%s", name);
    socklen_t nbytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (stranger->user != geteuid() && setuid(stranger->user) != 0) return 1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, nbytes) != 0) return 2;
    (void)!send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL);
    return recv(fd, answer, sizeof answer, 0) > 0 ? 3 : 0;
}

static void stranger_body(struct rank *rank) {
    char name[64];
    size_t nbytes;
    if (rank->rank == 1) {
        CHECK(rank->bootstrap.get(rank->bootstrap.context, "group/shm/rank0", name, sizeof name, &nbytes) == LS_OK);
        pid_t child = fork();
        if (child == 0) _exit(call_on_rank_0(rank->argument, name));
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    rank_close(rank);
}

TEST(test_stranger) {
    const struct stranger nonsense = {geteuid(), 0x12345678u};
    run_good_ranks(2, stranger_body, &nonsense);
}

TEST(test_stranger_of_another_user) {
    const struct stranger stranger = {65534, 0x6c73636fu};
    if (geteuid() != 0) { /* only root can change its user */
        print_message("not root: no other user to be\n");
        skip();
    }
    run_good_ranks(2, stranger_body, &stranger);
}
