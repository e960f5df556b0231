/* ranks — the times of collective operations among processes, as in DDP: an all-reduce, and its two halves.
 *   idea  : ranks are forked and find each other over DDP's store, which this process serves. Each has a CPU device,
 *           bound to its core, and a buffer in memory that the ranks share, which is where DDP's buckets are. Before
 *           each run a rank writes its buffer, as backward and the bucket's filling do, so that the buffer is in its
 *           cache and not in the others'; before an all-gather only its own part, as an update of that part does
 *   order : rounds, in which sizes and operations alternate; large sizes skip some, evenly. So a moment at which the
 *           machine is busy affects all of them, not one
 *   time  : of a run, from the moment when the last rank has begun to that when the last rank has its result; the clock
 *           is the same in all processes
 *   fails : a rank's exit status shows it; ranks that wait for it fail by themselves (comm.h), and SIGKILL ends all if
 *           this process dies */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/flag.h"
#include "common/base/log.h"
#include "common/comm/comm.h"
#include "ddp_procs/launch/store.h"
#include "labs/replay/calibrate/calibrate.h"

#define TIMEOUT_S 30.0

enum { SIZES_MAX = 9, WARM_UP = 2 };

/* In memory that all ranks share. */
struct board {
    ls_flag served; /* the store is served */
    char store[DDP_HOST_CAPACITY];
    double begin_us[LS_COMM_MAX_RANKS], end_us[LS_COMM_MAX_RANKS]; /* of the last run */
    calibrate_spread spreads[LS_NODE_OPERATIONS][SIZES_MAX];
};

struct plan {
    int ranks, sizes;
    bool quick;
};

/* 1 KiB, then four times as much for each further size. */
static uint64_t size_bytes(int size) { return (uint64_t)1024 << (2 * size); }

/* The bytes of a rank's part: whole floats, equally many for each rank. */
static uint64_t part_bytes(const struct plan *plan, int size) {
    return size_bytes(size) / sizeof(float) / (uint64_t)plan->ranks * sizeof(float);
}

static int runs_for(const struct plan *plan, int size) {
    int runs = size < 8 ? CALIBRATE_RUNS_MAX : 41; /* below 64 MiB */
    return plan->quick ? (runs + 9) / 10 : runs;
}

/* --- a rank ------------------------------------------------------------------------------------------------------- */

struct rank {
    const struct plan *plan;
    struct board *board;
    int rank;
    ls_device *device;
    ls_stream *stream;
    ls_comm *comm;
    float *buffer;
};

static ls_status barrier(struct rank *self) {
    ls_status status = ls_comm_barrier(self->comm, self->stream);
    return status == LS_OK ? ls_stream_synchronize(self->stream) : status;
}

static ls_status enqueue(struct rank *self, enum ls_node_operation operation, size_t part) {
    float *all = self->buffer, *own = all + (size_t)self->rank * part;
    if (operation == LS_NODE_ALL_GATHER) return ls_comm_all_gather(self->comm, self->stream, own, all, part, LS_FP32);
    if (operation == LS_NODE_REDUCE_SCATTER)
        return ls_comm_reduce_scatter(self->comm, self->stream, all, own, part, LS_FP32, LS_REDUCE_SUM);
    size_t count = part * (size_t)self->plan->ranks;
    return ls_comm_all_reduce(self->comm, self->stream, all, count, LS_FP32, LS_REDUCE_SUM);
}

static ls_status time_run(struct rank *self, enum ls_node_operation operation, size_t part) {
    size_t own = (size_t)self->rank * part, all = part * (size_t)self->plan->ranks;
    size_t begin = operation == LS_NODE_ALL_GATHER ? own : 0, end = operation == LS_NODE_ALL_GATHER ? own + part : all;
    for (size_t i = begin; i < end; i++) self->buffer[i] = (float)self->rank;
    ls_status status = barrier(self);
    double begin_us = ls_now_us();
    if (status == LS_OK) status = enqueue(self, operation, part);
    if (status == LS_OK) status = ls_stream_synchronize(self->stream);
    self->board->begin_us[self->rank] = begin_us;
    self->board->end_us[self->rank] = ls_now_us();
    return status == LS_OK ? barrier(self) : status;
}

/* Called by rank 0 when all have written their times, which the next barrier keeps until rank 0 has read them. */
static double last_run_us(const struct rank *self) {
    double begin_us = 0, end_us = 0;
    for (int r = 0; r < self->plan->ranks; r++) {
        if (self->board->begin_us[r] > begin_us) begin_us = self->board->begin_us[r];
        if (self->board->end_us[r] > end_us) end_us = self->board->end_us[r];
    }
    return end_us - begin_us;
}

/* The first run warms up ranks and caches, and does not count. */
static ls_status time_twice(struct rank *self, enum ls_node_operation operation, int size, double *us) {
    size_t part = part_bytes(self->plan, size) / sizeof(float);
    ls_status status = time_run(self, operation, part);
    if (status == LS_OK) status = time_run(self, operation, part);
    *us = self->rank == 0 ? last_run_us(self) : 0;
    return status;
}

static ls_status time_sizes(struct rank *self) {
    static double us[SIZES_MAX][LS_NODE_OPERATIONS][CALIBRATE_RUNS_MAX];
    int done[SIZES_MAX] = {0}, rounds = runs_for(self->plan, 0);
    ls_status status = LS_OK;
    for (int round = 1 - WARM_UP; round <= rounds; round++) {
        for (int size = 0; size < self->plan->sizes; size++) {
            if (round > 0 && round * runs_for(self->plan, size) / rounds == done[size]) continue; /* not its turn */
            for (int o = 0; status == LS_OK && o < LS_NODE_OPERATIONS; o++)
                status = time_twice(self, (enum ls_node_operation)o, size, &us[size][o][done[size]]);
            done[size] += round > 0;
        }
    }
    for (int size = 0; status == LS_OK && self->rank == 0 && size < self->plan->sizes; size++)
        for (int o = 0; o < LS_NODE_OPERATIONS; o++)
            self->board->spreads[o][size] = calibrate_spread_of(us[size][o], done[size]);
    return status;
}

static ls_status open_rank(struct rank *self, ddp_store **store) {
    ls_device_options device = {
        .kind = LS_DEVICE_CPU, .index = self->rank, .place = self->rank, .devices_on_node = self->plan->ranks};
    if (!ls_flag_wait(&self->board->served, 1, 0, ls_now_us() + TIMEOUT_S * 1e6))
        return ls_fail(LS_ERR_TIMEOUT, "calibrate found no store through which ranks meet");
    ls_status status = ddp_store_connect(store, self->board->store, 0, TIMEOUT_S);
    if (status == LS_OK) status = ls_device_open(&self->device, &device);
    if (status == LS_OK) status = ls_device_bind_thread(self->device);
    if (status != LS_OK) return status;
    ls_bootstrap bootstrap = ddp_store_bootstrap(*store);
    ls_comm_options options = {
        .rank = self->rank, .world_size = self->plan->ranks, .timeout_s = TIMEOUT_S, .bootstrap = &bootstrap};
    self->stream = ls_device_stream(self->device, LS_STREAM_COMM);
    status = ls_comm_create_shm(&self->comm, &options);
    void *memory = NULL;
    if (status == LS_OK)
        status = ls_comm_alloc_shared(self->comm, self->device, size_bytes(self->plan->sizes - 1), &memory);
    self->buffer = memory;
    return status;
}

static ls_status run_rank(struct rank *self) {
    ddp_store *store = NULL;
    ls_status status = open_rank(self, &store);
    if (status == LS_OK) status = time_sizes(self);
    ls_comm_destroy(self->comm);
    ls_device_close(self->device);
    ddp_store_close(store);
    return status;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

/* If a signal ends the parent, it closes its store before the kernel ends its ranks, whose errors would then be
 * misleading. So a rank that has failed waits this long before it reports. */
#define PARENT_ENDS_US 200000

static void child_main(const struct plan *plan, struct board *board, int rank, pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    ls_log_init("calibrate", rank, true);
    struct rank self = {.plan = plan, .board = board, .rank = rank};
    char said[512];
    ls_log_capture(said, sizeof said);
    ls_status status = run_rank(&self);
    ls_log_capture(NULL, 0);
    if (status != LS_OK) {
        usleep(PARENT_ENDS_US);
        (void)ls_fail(status, "%s", said);
    }
    _exit(ls_status_exit_code(status));
}

static ls_status await_ranks(const pid_t *pids, int count) {
    ls_status status = LS_OK;
    for (int r = 0; r < count; r++) {
        int end = 0;
        while (waitpid(pids[r], &end, 0) < 0 && errno == EINTR) continue;
        if (WIFEXITED(end) && WEXITSTATUS(end) == 0) continue;
        status = ls_fail(LS_ERR_PEER, "rank %d failed while measuring collectives", r);
    }
    return status;
}

static ls_status run_ranks(const struct plan *plan, struct board *board) {
    pid_t pids[LS_COMM_MAX_RANKS], parent = getpid();
    ls_status status = LS_OK;
    int started = 0;
    fflush(NULL);
    for (; started < plan->ranks && status == LS_OK; started += status == LS_OK) {
        pids[started] = fork();
        if (pids[started] == 0) child_main(plan, board, started, parent);
        if (pids[started] < 0) status = ls_fail(LS_ERR_SYSTEM, "cannot start rank %d: %s", started, strerror(errno));
    }
    ddp_store_server *server = NULL;
    if (status == LS_OK) status = ddp_store_serve(&server, "unix", 0);
    if (status == LS_OK) {
        snprintf(board->store, sizeof board->store, "%s", ddp_store_server_host(server));
        ls_flag_set(&board->served, 1);
    } else {
        for (int r = 0; r < started; r++) kill(pids[r], SIGKILL);
    }
    ls_status end = await_ranks(pids, started);
    ddp_store_server_stop(server, 0);
    return status != LS_OK ? status : end;
}

static ls_status measure_ranks(calibrate_figures *figures, const struct plan *plan) {
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory shared by the ranks");
    ls_status status = run_ranks(plan, board);
    for (int o = 0; status == LS_OK && o < LS_NODE_OPERATIONS; o++) {
        calibrate_table *table = &figures->tables[o];
        for (int size = 0; size < plan->sizes; size++)
            table->rows[table->row_count++] = (calibrate_row){.ranks = plan->ranks,
                                                              .bytes = part_bytes(plan, size) * (uint64_t)plan->ranks,
                                                              .us = board->spreads[o][size]};
    }
    munmap(board, sizeof *board);
    return status;
}

/* The next of 2, 4, 8, ..., and the number of devices; 0: there is no more. */
static int next_ranks(int ranks, int devices) {
    if (ranks == devices) return 0;
    return 2 * ranks < devices ? 2 * ranks : devices;
}

ls_status calibrate_collectives(calibrate_figures *figures, const calibrate_settings *settings) {
    ls_status status = LS_OK;
    figures->cores = ls_usable_cores();
    figures->cache_bytes = ls_cache_bytes(2);
    figures->devices = figures->cores < 2 ? 2 : figures->cores > 8 ? 8 : figures->cores;
    for (int ranks = 2; status == LS_OK && ranks > 0; ranks = next_ranks(ranks, figures->devices)) {
        struct plan plan = {.ranks = ranks, .sizes = settings->quick ? 6 : SIZES_MAX, .quick = settings->quick};
        ls_note("collectives of %d ranks", ranks);
        status = measure_ranks(figures, &plan);
    }
    for (int o = 0; o < LS_NODE_OPERATIONS; o++) {
        calibrate_table *table = &figures->tables[o];
        table->straightened = calibrate_straighten(table->rows, table->row_count);
    }
    return status;
}
