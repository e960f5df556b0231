/* hello — N ranks as threads of this process (--threads N), or one rank of several processes:
 *
 *     build/hello --threads 4
 *     build/ddprun --nproc-per-node 4 build/hello
 *
 * Without --threads or a launcher it is rank 0 of 1. */
#include <pthread.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/launch/store.h"
#include "labs/01-ranks/hello/hello.h"
#include "labs/bench/shared/settings.h"

struct settings {
    int threads, word, mismatch;
    double timeout_s;
};

static ls_status open_device(ls_device **out, int place, int count) {
    ls_device_options options = {.kind = LS_DEVICE_CPU, .index = place, .devices_on_node = count, .place = place};
    return ls_device_open(out, &options);
}

static ls_status talk(const struct settings *s, ls_comm *comm, ls_device *device) {
    hello_rank self = {.comm = comm,
                       .stream = ls_device_stream(device, LS_STREAM_COMPUTE),
                       .word = s->word,
                       .mismatch = (hello_mismatch)s->mismatch};
    return hello_talk(&self);
}

/* --- ranks that are threads ---------------------------------------------------------------------------------------- */

struct thread_rank {
    const struct settings *settings;
    ls_comm *comm;
    ls_device *device;
    pthread_t thread;
    ls_status status;
    char message[512]; /* the failure that it reported */
};

static void *thread_main(void *argument) {
    struct thread_rank *rank = argument;
    ls_log_sink before = ls_log_capture(rank->message, sizeof rank->message);
    rank->status = talk(rank->settings, rank->comm, rank->device);
    ls_log_restore(before);
    return NULL;
}

/* All ranks report a failure that concerns all; only the first report is printed. */
static ls_status tell_first_failure(const struct thread_rank *ranks, int count) {
    for (int r = 0; r < count; r++)
        if (ranks[r].status != LS_OK) return ls_fail(ranks[r].status, "rank %d: %s", r, ranks[r].message);
    return LS_OK;
}

static ls_status run_threads(struct thread_rank *ranks, int count) {
    int started = 0;
    while (started < count && pthread_create(&ranks[started].thread, NULL, thread_main, &ranks[started]) == 0)
        started++;
    for (int r = started; r < count; r++) (void)ls_comm_abort(ranks[r].comm, "there was no thread for it");
    for (int r = 0; r < started; r++) pthread_join(ranks[r].thread, NULL);
    if (started < count) return ls_fail(LS_ERR_SYSTEM, "cannot start a thread for rank %d", started);
    return tell_first_failure(ranks, count);
}

static ls_status be_threads(const struct settings *s) {
    ls_status status = ls_launcher_refuse_copies("be all ranks", "leave --threads or the launcher out");
    if (status != LS_OK) return status;
    struct thread_rank *ranks = calloc((size_t)s->threads, sizeof *ranks);
    if (!ranks) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %d ranks", s->threads);
    ls_comm *comms[LS_COMM_MAX_RANKS] = {NULL};
    ls_comm_options options = {.world_size = s->threads, .timeout_s = s->timeout_s};
    status = ls_comm_create_threads(comms, &options);
    for (int r = 0; r < s->threads; r++) {
        ranks[r] = (struct thread_rank){.settings = s, .comm = comms[r]};
        if (status == LS_OK) status = open_device(&ranks[r].device, r, s->threads);
    }
    if (status == LS_OK) status = run_threads(ranks, s->threads);
    for (int r = 0; r < s->threads; r++) {
        ls_comm_destroy(ranks[r].comm);
        ls_device_close(ranks[r].device);
    }
    free(ranks);
    return status;
}

/* --- a rank that is this process ------------------------------------------------------------------------------------ */

static ls_status join(ls_comm **out, ddp_store **store, const ddp_rank *self, double timeout_s) {
    ls_bootstrap bootstrap;
    ls_comm_options options = {.rank = self->rank, .world_size = self->world_size, .timeout_s = timeout_s};
    if (self->launched) {
        ls_status status = ddp_store_open(store, self, timeout_s);
        if (status != LS_OK) return status;
        bootstrap = ddp_store_bootstrap(*store);
        options.bootstrap = &bootstrap;
    }
    return ls_comm_create_shm(out, &options);
}

static ls_status be_process(const struct settings *s, const char *program) {
    ddp_rank self;
    ddp_store *store = NULL;
    ls_comm *comm = NULL;
    ls_device *device = NULL;
    ls_status status = ddp_rank_discover(&self);
    if (status != LS_OK) return status;
    if (self.launched) ls_log_init(program, self.rank, false);
    status = open_device(&device, self.local_rank, self.local_world_size);
    if (status == LS_OK) status = join(&comm, &store, &self, s->timeout_s);
    if (status == LS_OK) status = talk(s, comm, device);
    ls_comm_destroy(comm);
    ddp_store_close(store);
    ls_device_close(device);
    return status;
}

/* --- the program ---------------------------------------------------------------------------------------------------- */

static ls_status parse(struct settings *s, int argc, char **argv, bool *help) {
    static const char *const mismatches[] = {"collective", "count", NULL};
    /* clang-format off */
    const ls_option options[] = {
        {.kind = LS_OPTION_INT, .name = "threads", .to.number = &s->threads, .argument = "N",
         .limits = LS_BETWEEN(1, LS_COMM_MAX_RANKS), .empty = "this process is one rank",
         .help = "be N ranks, each a thread of this process"},
        {.kind = LS_OPTION_INT, .name = "word", .to.number = &s->word, .argument = "N",
         .help = "what rank 0 tells all"},
        {.kind = LS_OPTION_CHOICE, .name = "mismatch", .to.number = &s->mismatch, .choices = mismatches,
         .empty = "none",
         .help = "a mistake, made on purpose: the last rank calls another collective than all_reduce, or with another "
                 "count"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &s->timeout_s, .argument = "SECONDS",
         .limits = LS_BETWEEN(0.01, LS_COMM_LONGEST_TIMEOUT_S), .help = "deadline of every wait for another rank"},
    };
    /* clang-format on */
    return BENCH_PARSE(options, "Ranks that say who they are, and hear of each other in four ways.", argc, argv, help);
}

int main(int argc, char **argv) {
    struct settings settings = {.word = 42, .mismatch = HELLO_NO_MISMATCH, .timeout_s = 10};
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&settings, argc, argv, &help);
    if (status == LS_OK && !help)
        status = settings.threads > 0 ? be_threads(&settings) : be_process(&settings, argv[0]);
    return ls_status_exit_code(ls_results_written(status));
}
