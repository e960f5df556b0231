/* trial — one operation on one back-end.
 *   idea  : no list says which operations a back-end has, so no list can be out of date: each operation is tried, with
 *           the bench's own table of operations (comm/operations.c), which also has the expected results. Ranks are
 *           children of this process, or threads of one child: a trial that fails or hangs leaves no process behind
 *   fails : a child that passes its deadline is ended by its own alarm */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "labs/bench/backends/backends.h"

#define TIMEOUT_S 10.0 /* of an operation */
#define DEADLINE_S 60  /* of a child */

enum { COUNT = 1000 }; /* elements of a part */

const backends_backend backends_all[] = {
    {"threads", "threads of one process, CPU devices", LS_DEVICE_CPU, false, false, LS_COMM_STAGED},
    {"shm", "processes, CPU devices", LS_DEVICE_CPU, true, false, LS_COMM_STAGED},
    {"staged", "threads that share GPU 0, through the host's memory", LS_DEVICE_CUDA, false, true, LS_COMM_STAGED},
    {"nccl", "threads with a GPU each, by NCCL", LS_DEVICE_CUDA, false, true, LS_COMM_NCCL},
    {"meta", "one rank that stands for all, meta devices: nothing moves", LS_DEVICE_META, false, false, LS_COMM_STAGED},
    {NULL, NULL, LS_DEVICE_CPU, false, false, LS_COMM_STAGED},
};

/* In memory that the children share with this process. */
struct board {
    backends_answer answers[BACKENDS_RANKS];
    /* rank 0's message to rank 1, if they are processes */
    char value[BACKENDS_TEXT];
    size_t nbytes;
    _Atomic int ready;
};

struct rank {
    const backends_backend *backend;
    const comm_operation *operation;
    int rank;
    ls_device *device;
    ls_comm *comm;
    backends_answer *answer;
};

/* --- how processes find each other -------------------------------------------------------------------------------- */

static ls_status set_value(void *context, const char *key, const void *value, size_t nbytes) {
    struct board *board = context;
    if (nbytes > sizeof board->value) return ls_fail(LS_ERR_INVALID, "the value of %s is too long", key);
    memcpy(board->value, value, nbytes);
    board->nbytes = nbytes;
    atomic_store(&board->ready, 1);
    return LS_OK;
}

static ls_status get_value(void *context, const char *key, void *value, size_t capacity, size_t *nbytes) {
    struct board *board = context;
    for (double until_us = ls_now_us() + TIMEOUT_S * 1e6; !atomic_load(&board->ready);) {
        if (ls_now_us() > until_us) return ls_fail(LS_ERR_TIMEOUT, "the other rank did not arrive for %s", key);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    if (board->nbytes > capacity) return ls_fail(LS_ERR_INVALID, "the value of %s is too long", key);
    memcpy(value, board->value, board->nbytes);
    *nbytes = board->nbytes;
    return LS_OK;
}

/* --- one rank ----------------------------------------------------------------------------------------------------- */

/* Runs the operation on device memory that the bench fills, and checks the results. */
static ls_status operate(const struct rank *rank, const comm_patterns *patterns, char *host, void *memory,
                         size_t nbytes) {
    const comm_operation *operation = rank->operation;
    size_t sent = comm_send_parts(operation, BACKENDS_RANKS) * COUNT * sizeof(float);
    ls_stream *stream = ls_device_stream(rank->device, LS_STREAM_COMM);
    comm_slot slot = {.operation = operation,
                      .n = BACKENDS_RANKS,
                      .rank = rank->rank,
                      .count = COUNT,
                      .send = host,
                      .receive = host + sent};
    bool computes = ls_device_computes(rank->device);
    comm_fill(patterns, &slot);
    ls_status status = computes ? ls_copy_now(stream, memory, host, nbytes) : LS_OK;
    char *receive = (char *)memory + sent;
    const comm_call call = {rank->comm, stream, sent > 0 ? memory : receive, receive, COUNT, LS_FP32, LS_REDUCE_SUM};
    if (status == LS_OK) status = ls_comm_settle(stream, operation->enqueue(&call));
    if (status == LS_OK && computes) status = ls_copy_now(stream, host, memory, nbytes);
    if (status != LS_OK || !computes || operation->latency_only) return status;
    return comm_check(patterns, &slot, operation->name);
}

static ls_status operate_with_memory(const struct rank *rank) {
    size_t parts =
        comm_send_parts(rank->operation, BACKENDS_RANKS) + comm_receive_parts(rank->operation, BACKENDS_RANKS);
    size_t nbytes = parts * COUNT * sizeof(float);
    comm_patterns *patterns = NULL;
    void *memory = NULL;
    char *host = malloc(nbytes);
    ls_status status = comm_patterns_create(&patterns, BACKENDS_RANKS, LS_FP32, LS_REDUCE_SUM);
    if (!host) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the trial");
    if (status == LS_OK) status = ls_device_alloc(rank->device, LS_MEMORY_WORKSPACE, nbytes, "a trial", &memory);
    if (status == LS_OK) status = operate(rank, patterns, host, memory, nbytes);
    ls_device_free(rank->device, memory);
    comm_patterns_destroy(patterns);
    free(host);
    return status;
}

static void *rank_main(void *argument) {
    struct rank *rank = argument;
    ls_log_sink before = ls_log_capture(rank->answer->why, sizeof rank->answer->why);
    ls_status status = operate_with_memory(rank);
    ls_log_restore(before);
    rank->answer->kind = status == LS_OK ? BACKENDS_YES : status == LS_ERR_UNSUPPORTED ? BACKENDS_NO : BACKENDS_WRONG;
    if (status != LS_OK) (void)ls_comm_abort(rank->comm, "its trial failed");
    return NULL;
}

/* --- both ranks --------------------------------------------------------------------------------------------------- */

static bool own_gpu(const backends_backend *backend) { return backend->attaches && backend->path == LS_COMM_NCCL; }

/* Whether this machine has the back-end's hardware and libraries; if not, `why` says what is missing. */
static bool is_here(const backends_backend *backend, char *why) {
    int gpus = 0;
    if (backend->kind != LS_DEVICE_CUDA) return true;
    ls_find_gpus(&gpus, why, BACKENDS_TEXT);
    if (gpus > 0 && gpus < BACKENDS_RANKS && own_gpu(backend)) snprintf(why, BACKENDS_TEXT, "there is only one GPU");
    return gpus >= (own_gpu(backend) ? BACKENDS_RANKS : 1);
}

static ls_status open_device(struct rank *rank) {
    ls_device_options options = {.kind = rank->backend->kind,
                                 .index =
                                     rank->backend->kind == LS_DEVICE_CUDA && !own_gpu(rank->backend) ? 0 : rank->rank,
                                 .devices_on_node = BACKENDS_RANKS,
                                 .place = rank->rank};
    return ls_device_open(&rank->device, &options);
}

static void close_rank(struct rank *rank) {
    ls_comm_destroy(rank->comm);
    ls_device_close(rank->device);
}

/* The group could not be created. A missing library is not a failure. */
static void note_failure(const struct rank *rank, ls_status status) {
    rank->answer->kind = status == LS_ERR_UNSUPPORTED ? BACKENDS_ABSENT : BACKENDS_WRONG;
}

static void run_process(struct rank *rank, struct board *board) {
    const ls_bootstrap bootstrap = {.context = board, .set = set_value, .get = get_value};
    const ls_comm_options options = {
        .rank = rank->rank, .world_size = BACKENDS_RANKS, .timeout_s = TIMEOUT_S, .bootstrap = &bootstrap};
    ls_log_sink before = ls_log_capture(rank->answer->why, sizeof rank->answer->why);
    ls_status status = open_device(rank);
    if (status == LS_OK) status = ls_comm_create_shm(&rank->comm, &options);
    ls_log_restore(before);
    if (status != LS_OK) note_failure(rank, status);
    if (status == LS_OK) (void)rank_main(rank);
    close_rank(rank);
}

static ls_status open_threads(struct rank *ranks, int count) {
    const ls_comm_options options = {.world_size = BACKENDS_RANKS, .timeout_s = TIMEOUT_S};
    const backends_backend *backend = ranks[0].backend;
    ls_comm *comms[BACKENDS_RANKS] = {NULL};
    ls_device *devices[BACKENDS_RANKS] = {NULL};
    ls_status status = LS_OK;
    for (int r = 0; status == LS_OK && r < count; r++) status = open_device(&ranks[r]);
    if (status != LS_OK) return status;
    bool meta = backend->kind == LS_DEVICE_META;
    status = meta ? ls_comm_create_meta(comms, &options, ranks[0].device) : ls_comm_create_threads(comms, &options);
    for (int r = 0; r < count; r++) ranks[r].comm = comms[r], devices[r] = ranks[r].device;
    return status == LS_OK && backend->attaches ? ls_comm_attach_devices(comms, devices, backend->path) : status;
}

static void run_threads(struct rank *ranks, int count) {
    pthread_t threads[BACKENDS_RANKS];
    ls_log_sink before = ls_log_capture(ranks[0].answer->why, sizeof ranks[0].answer->why);
    ls_status status = open_threads(ranks, count);
    ls_log_restore(before);
    if (status != LS_OK) note_failure(&ranks[0], status);
    int started = 0;
    while (status == LS_OK && started < count &&
           pthread_create(&threads[started], NULL, rank_main, &ranks[started]) == 0)
        started++;
    for (int r = started; status == LS_OK && r < count; r++)
        (void)ls_comm_abort(ranks[r].comm, "its thread could not be started");
    for (int r = 0; r < started; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < count; r++) close_rank(&ranks[r]);
}

/* --- children ----------------------------------------------------------------------------------------------------- */

/* Present in programs built with AddressSanitizer; _exit() would skip the leak check. */
void __lsan_do_leak_check(void) __attribute__((weak));

static void child_main(const backends_backend *backend, const comm_operation *operation, struct board *board, int first,
                       int count) {
    struct rank ranks[BACKENDS_RANKS];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(DEADLINE_S);
    for (int r = 0; r < BACKENDS_RANKS; r++)
        ranks[r] = (struct rank){.backend = backend, .operation = operation, .rank = r, .answer = &board->answers[r]};
    if (!is_here(backend, board->answers[0].why)) {
        board->answers[0].kind = BACKENDS_ABSENT;
    } else if (backend->processes) {
        run_process(&ranks[first], board);
    } else {
        run_threads(ranks, count);
    }
    if (__lsan_do_leak_check) __lsan_do_leak_check();
    _exit(0);
}

/* Sets the first answer that is not YES, or else YES. */
static void sum_up(backends_answer *answer, const struct board *board, int count) {
    *answer = board->answers[0];
    for (int r = 1; r < count && answer->kind != BACKENDS_ABSENT; r++)
        if (answer->kind == BACKENDS_YES) *answer = board->answers[r];
    answer->why[strcspn(answer->why, "\n")] = '\0';
}

ls_status backends_try(backends_answer *answer, const backends_backend *backend, const comm_operation *operation) {
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory shared by the ranks");
    int count = backend->kind == LS_DEVICE_META ? 1 : BACKENDS_RANKS, children = backend->processes ? count : 1;
    pid_t pids[BACKENDS_RANKS];
    for (int r = 0; r < count; r++)
        board->answers[r] = (backends_answer){.kind = BACKENDS_WRONG, .why = "the rank ended early"};
    fflush(NULL);
    ls_status status = LS_OK;
    for (int r = 0; r < children; r++) {
        pids[r] = fork();
        if (pids[r] == 0) child_main(backend, operation, board, r, count);
        if (pids[r] < 0) status = ls_fail(LS_ERR_SYSTEM, "cannot start rank %d: %s", r, strerror(errno));
    }
    for (int r = 0; r < children; r++) {
        int ended = 0;
        if (pids[r] <= 0) continue;
        while (waitpid(pids[r], &ended, 0) < 0 && errno == EINTR) continue;
        if (ended != 0) board->answers[r].kind = BACKENDS_WRONG;
    }
    sum_up(answer, board, count);
    munmap(board, sizeof *board);
    return status;
}
