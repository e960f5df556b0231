/* who_hangs — a job in which one rank deviates in one step. The program of lab 25: its flight records show where.
 *
 *     LS_FLIGHT=DIR build/ddprun --nproc-per-node 4 build/who_hangs --way skipped --rank 2 */
#include <signal.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "ddp_procs/hosts.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/launch/store.h"
#include "labs/bench/shared/settings.h"

enum { BUCKETS = 3, MOST_ELEMENTS = 301, BUFFERS = 96, ACTIVATIONS = 80 };

enum way { NONE = -1, SKIPPED, EXTRA, ORDER, COUNT, STOPPED, BRANCHED, ALIKE, AHEAD };
static const char *const ways[] = {"skipped", "extra", "order", "count", "stopped", "branched", "alike", "ahead", NULL};

struct settings {
    int way, rank, step, steps;
    double timeout_s;
};

/* A rank that runs. */
struct run {
    const struct settings *settings;
    ls_comm *comm;
    ls_stream *stream;
    float values[MOST_ELEMENTS];
};

/* --- a step ---------------------------------------------------------------------------------------------------------- */

static ls_status broadcast_buffers(struct run *run) {
    ls_comm_label(run->comm, "buffers", -1);
    return ls_comm_broadcast(run->comm, run->stream, run->values, BUFFERS, LS_FP32, 0);
}

/* From rank to rank, 0 -> 1 -> ... */
static ls_status pass_activations(struct run *run) {
    int rank = ls_comm_rank(run->comm), last = ls_comm_world_size(run->comm) - 1;
    ls_status status = LS_OK;
    ls_comm_label(run->comm, "activations", -1);
    if (rank > 0) status = ls_comm_recv(run->comm, run->stream, run->values, ACTIVATIONS, LS_FP32, rank - 1);
    ls_comm_label(run->comm, "activations", -1);
    if (status != LS_OK || rank == last) return status;
    return ls_comm_send(run->comm, run->stream, run->values, ACTIVATIONS, LS_FP32, rank + 1);
}

static ls_status reduce_bucket(struct run *run, int bucket, int more) {
    int count = run->settings->way == ALIKE ? 100 : 100 * (bucket + 1);
    ls_comm_label(run->comm, "bucket", bucket);
    return ls_comm_all_reduce(run->comm, run->stream, run->values, (size_t)(count + more), LS_FP32, LS_REDUCE_SUM);
}

/* Stops after the operations that it has enqueued. */
static ls_status stop(struct run *run) {
    ls_status status = ls_comm_settle(run->stream, LS_OK);
    (void)raise(SIGSTOP);
    return status;
}

static ls_status reduce_buckets(struct run *run, enum way way) {
    static const int right[BUCKETS] = {0, 1, 2}, other[BUCKETS] = {0, 2, 1};
    ls_status status = LS_OK;
    for (int i = 0; i < BUCKETS && status == LS_OK; i++) {
        int bucket = way == ORDER ? other[i] : right[i];
        if (bucket == 1 && (way == STOPPED || way == AHEAD)) status = stop(run);
        if (bucket == 1 && (way == SKIPPED || way == ALIKE)) continue;
        if (bucket == 1 && way == EXTRA) status = ls_comm_barrier(run->comm, run->stream);
        if (status == LS_OK) status = reduce_bucket(run, bucket, bucket == 1 && way == COUNT);
    }
    return status;
}

/* From that step on ranks that run ahead of their streams do not wait. */
static ls_status run_step(struct run *run, int step) {
    const struct settings *s = run->settings;
    bool odd = ls_comm_rank(run->comm) == s->rank && step == s->step;
    enum way way = odd ? (enum way)s->way : NONE;
    bool buckets_only = s->way == ALIKE;
    ls_status status = buckets_only ? LS_OK : broadcast_buffers(run);
    if (status == LS_OK && way != BRANCHED && !buckets_only) status = pass_activations(run);
    if (status == LS_OK) status = reduce_buckets(run, way);
    return s->way == AHEAD && step >= s->step && status == LS_OK ? LS_OK : ls_comm_settle(run->stream, status);
}

/* --- the rank -------------------------------------------------------------------------------------------------------- */

static ls_status run_steps(const struct settings *s, ls_comm *comm, ls_device *device) {
    struct run run = {.settings = s, .comm = comm, .stream = ls_device_stream(device, LS_STREAM_COMM)};
    ls_status status = LS_OK;
    for (int step = 1; step <= s->steps && status == LS_OK; step++) status = run_step(&run, step);
    return ls_comm_settle(run.stream, status);
}

static ls_status be_rank(const struct settings *s, const char *program) {
    ddp_rank self;
    ddp_hosts hosts;
    ddp_store *store = NULL;
    ls_comm *comm = NULL;
    ls_device *device = NULL;
    ls_status status = ddp_rank_discover(&self);
    if (status != LS_OK) return status;
    if (!self.launched)
        return ls_fail(LS_ERR_USAGE, "who_hangs needs several ranks: start it with ddprun --nproc-per-node N");
    ls_log_init(program, self.rank, false);
    ls_device_options device_options = {.kind = LS_DEVICE_CPU,
                                        .index = self.local_rank,
                                        .devices_on_node = self.local_world_size,
                                        .place = self.local_rank};
    ls_comm_options options = {.rank = self.rank, .world_size = self.world_size, .timeout_s = s->timeout_s};
    status = ls_device_open(&device, &device_options);
    if (status == LS_OK) status = ddp_store_open(&store, &self, s->timeout_s);
    ls_bootstrap bootstrap = store ? ddp_store_bootstrap(store) : (ls_bootstrap){0};
    options.bootstrap = &bootstrap;
    if (status == LS_OK) status = ddp_hosts_find(&hosts, store, &self, 0);
    if (status == LS_OK && hosts.count > 1) {
        options.host = hosts.of;
        options.address = hosts.address;
    }
    if (status == LS_OK) status = ls_comm_create_hosts(&comm, &options, NULL);
    if (status == LS_OK) status = run_steps(s, comm, device);
    ls_comm_destroy(comm);
    ddp_store_close(store);
    ls_device_close(device);
    return status;
}

static ls_status parse(struct settings *s, int argc, char **argv, bool *help) {
    /* clang-format off */
    const ls_option options[] = {
        {.kind = LS_OPTION_CHOICE, .name = "way", .to.number = &s->way, .choices = ways, .empty = "none",
         .help = "one rank's mistake at bucket 1's all_reduce: skip; a barrier before; swapped with the next; another count; stop before; skip "
                 "messages; skip with equal buckets; stop while others run ahead"},
        {.kind = LS_OPTION_INT, .name = "rank", .to.number = &s->rank, .argument = "R",
         .limits = LS_BETWEEN(0, LS_COMM_MAX_RANKS - 1), .help = "the rank with the mistake"},
        {.kind = LS_OPTION_INT, .name = "step", .to.number = &s->step, .argument = "N", .limits = LS_AT_LEAST(1),
         .help = "the step of the mistake"},
        {.kind = LS_OPTION_INT, .name = "steps", .to.number = &s->steps, .argument = "N", .limits = LS_AT_LEAST(1),
         .help = "steps of the job"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &s->timeout_s, .argument = "SECONDS",
         .limits = LS_BETWEEN(0.01, LS_COMM_LONGEST_TIMEOUT_S), .help = "deadline of every wait for another rank"},
    };
    /* clang-format on */
    return BENCH_PARSE(options, "A job of which one rank does something else in one step: it hangs, or fails.", argc,
                       argv, help);
}

int main(int argc, char **argv) {
    struct settings settings = {.way = NONE, .rank = 2, .step = 30, .steps = 40, .timeout_s = 1};
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&settings, argc, argv, &help);
    if (status == LS_OK && !help) status = be_rank(&settings, argv[0]);
    return ls_status_exit_code(ls_results_written(status));
}
