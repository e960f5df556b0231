#define _GNU_SOURCE
#include "tests/parallel/plan.h"
#include "tests/ddp_procs/inside.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/data/text.h"
#include "common/seam/options.h"
#include "ddp_procs/distributed.h"
#include "kernels/cpu/cpu.h"

/* --- data -------------------------------------------------------------------------------------------------------- */

static ls_status open_text(ls_dataset **out, const char *file, const ls_model *model) {
    ls_dataset *test = NULL;
    ls_status status = ls_dataset_open_text(out, &test, file, (int)ls_shape_rows(ls_model_input(model)));
    ls_dataset_close(test);
    return status;
}

/* Unzipped once: forked ranks inherit it from a process that has opened it. */
static ls_dataset *digits;

static ls_status open_digits(void) {
    if (digits) return LS_OK;
    return ls_dataset_open_idx(&digits, "data/digits", LS_SPLIT_TRAIN, 10, LS_NORMALIZE_MNIST);
}

static ls_status open_dataset(ls_dataset **out, const struct plan *plan, const ls_model *model) {
    if (plan->text) return open_text(out, plan->text, model);
    if (plan->samples == 0) {
        ls_status status = open_digits();
        *out = digits;
        return status;
    }
    ls_sample_spec spec = ls_train_sample_spec(model);
    return ls_dataset_random(out, 42, plan->samples, &spec);
}

static bool read_batches(struct samples *samples, const struct plan *plan, const ls_dataset *dataset,
                         ls_batches *batches) {
    const ls_sample_spec *spec = ls_dataset_spec(dataset);
    size_t input = ls_sample_input_count(spec), labels = ls_sample_label_count(spec);
    size_t room = ls_batches_max_local_count(batches) * plan->steps + 1;
    bool halves = plan->precision != LS_FP32 && !spec->tokens;
    samples->inputs = calloc(room * input, sizeof *samples->inputs);
    samples->labels = calloc(room * labels + 1, sizeof *samples->labels);
    samples->targets = calloc(room * spec->target_count + 1, sizeof *samples->targets);
    samples->halves = calloc(halves ? room * input : 1, sizeof *samples->halves);
    if (!samples->inputs || !samples->halves || !samples->labels || !samples->targets) return false;
    size_t at = 0;
    for (size_t k = 0; k < plan->steps; k++) {
        struct ls_batch_indices picked;
        ls_batches_get(batches, (int64_t)(k + plan->first_step) % ls_batches_per_epoch(batches), &picked);
        ls_batch *batch = &samples->batches[k];
        float *inputs = samples->inputs + at * input;
        *batch = (ls_batch){.inputs = inputs,
                            .labels = samples->labels + at * labels,
                            .targets = samples->targets + at * spec->target_count,
                            .count = picked.local_count,
                            .global_count = picked.global_count};
        ls_dataset_read(dataset, picked.indices, picked.local_count, inputs, samples->labels + at * labels,
                        samples->targets + at * spec->target_count);
        if (halves) {
            batch->inputs = samples->halves + at * input;
            ls_cast_now(plan->precision, samples->halves + at * input, inputs, picked.local_count * input);
        }
        at += picked.local_count;
    }
    return true;
}

bool samples_make(struct samples *samples, const struct plan *plan, const ls_model *model, int rank, int world_size) {
    memset(samples, 0, sizeof *samples);
    ls_dataset *dataset = NULL;
    ls_batches *batches = NULL;
    bool good = open_dataset(&dataset, plan, model) == LS_OK;
    if (good) {
        ls_batches_options options = {.dataset_count = (int64_t)ls_dataset_count(dataset),
                                      .global_batch = (int64_t)plan->batch,
                                      .world_size = world_size,
                                      .rank = rank,
                                      .shard = plan->strided ? LS_SHARD_STRIDED : LS_SHARD_CONTIGUOUS,
                                      .drop_last = plan->samples == 0};
        good = ls_batches_create(&batches, &options) == LS_OK && ls_batches_per_epoch(batches) > 0;
    }
    if (good) good = read_batches(samples, plan, dataset, batches);
    if (!good) samples_free(samples);
    ls_batches_destroy(batches);
    if (dataset != digits) ls_dataset_close(dataset);
    return good;
}

void samples_free(struct samples *samples) {
    free(samples->inputs);
    free(samples->halves);
    free(samples->labels);
    free(samples->targets);
    memset(samples, 0, sizeof *samples);
}

/* --- shared memory ----------------------------------------------------------------------------------------------- */

void *shared_alloc(size_t nbytes) {
    void *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void shared_free(void *memory, size_t nbytes) { munmap(memory, nbytes); }

/* --- running ----------------------------------------------------------------------------------------------------- */

struct assignment {
    const struct plan *plan;
    struct outcome *outcomes;
    void (*look)(struct session *s, struct outcome *o);
};

static ls_status run_steps(struct session *s, const struct assignment *a, const struct samples *samples,
                           struct outcome *o) {
    ls_status status = LS_OK;
    for (size_t k = 0; status == LS_OK && k < a->plan->steps; k++) {
        status = ls_step_gradients(s->parallel, &samples->batches[k]);
        if (status == LS_OK && a->look && k + 1 == a->plan->steps) {
            status = session_synchronize(s);
            a->look(s, o);
        }
        if (status == LS_OK) status = ls_step_update(s->parallel);
        bool look = !a->plan->rush || k + 1 == a->plan->steps;
        if (status == LS_OK && look) status = session_loss(s, k, &o->losses[k]);
        if (s->parallel->loss_elsewhere) o->losses[k] = 0;
        if (status == LS_OK && look && !a->plan->losses_only) status = session_hash(s, &o->weights[k], &o->state[k]);
        struct ls_scaler_state scaler = {0};
        if (status == LS_OK && look) status = session_scaler(s, &scaler);
        o->scales[k] = scaler.scale;
        o->skipped = scaler.skipped;
        s->parallel->step++;
    }
    for (int i = 0; i < s->device_count; i++) {
        for (int phase = 0; phase < LS_PHASE_COUNT; phase++) o->bytes[phase] += s->parallel->clocks[i].bytes[phase];
    }
    return status;
}

static void run_assignment(struct rank *rank) {
    const struct assignment *a = rank->argument;
    struct plan plan = *a->plan;
    plan.bootstrap = &rank->bootstrap;
    struct outcome *o = &a->outcomes[rank->rank];
    struct session session;
    struct samples samples;
    ls_set_wait_timeout_s(PLAN_TIMEOUT_S);
    ls_status status = plan_groups_open(&plan, rank, NULL);
    ls_comm *comm = plan.groups.job;
    if (status == LS_OK) status = session_open(&session, &plan, comm);
    if (status == LS_OK) {
        const ls_parallel *p = session.parallel;
        bool read = samples_make(&samples, &plan, session.model, p->data_rank, p->data_size);
        status = read ? run_steps(&session, a, &samples, o) : LS_ERR_IO;
        if (status != LS_OK && comm) ls_comm_abort(comm, "a step failed");
        if (ls_model_batchnorm_count(session.model) > 0)
            o->batches_tracked = *ls_model_batches_tracked(session.model, 0);
        if (plan_has_buckets(&plan)) o->buckets = bucket_count(reducer_of(session.parallel));
        session_close(&session);
        samples_free(&samples);
    }
    if (plan.gpus == 0) plan_groups_close(&plan.groups);
    snprintf(o->message, sizeof o->message, "%s", rank->message);
    o->status = status;
}

/* oneDNN generates its machine code at a process's first matrix multiplies (some 30 ms), which takes longer than all
 * multiplies of a small run: this process does it once, and forked ranks inherit the code. The multiplies are so small
 * that they start no threads, which a fork would lose; a single row, a few rows times a transposed matrix, and other
 * matrices need different code. */
static void prepare_products(void) {
    enum { SIDE = 16 };
    static const size_t sides[] = {1, 2, SIDE};
    static float ones[SIDE * SIDE], c[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) ones[i] = 1;
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
        size_t side = sides[s];
        ls_status status = ls_cpu_gemm(&(struct ls_gemm_arguments){.dtype = LS_FP32,
                                                                   .c_dtype = LS_FP32,
                                                                   .m = side,
                                                                   .n = side,
                                                                   .k = side,
                                                                   .transpose_b = side < SIDE,
                                                                   .a = ones,
                                                                   .b = ones,
                                                                   .c = c});
        if (status == LS_OK && c[0] == (float)side) continue;
        fprintf(stderr, "a product of %zu x %zu fails\n", side, side);
        abort();
    }
}

/* The first device that a process binds to a core reads the machine's topology (some milliseconds): this process does
 * it once, in a thread, so that it keeps all its cores. */
static void *read_topology(void *unused) {
    ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = 1};
    ls_device *device;
    (void)unused;
    if (ls_device_open(&device, &options) != LS_OK || ls_device_bind_thread(device) != LS_OK) abort();
    ls_device_close(device);
    return NULL;
}

void prepare_training(void) {
    static bool prepared;
    pthread_t thread;
    if (prepared) return;
    prepare_products();
    if (pthread_create(&thread, NULL, read_topology, NULL) != 0 || pthread_join(thread, NULL) != 0) abort();
    prepared = true;
}

void run_training_ranks(int world_size, void (*body)(struct rank *rank), const void *argument) {
    prepare_training();
    run_good_ranks(world_size, body, argument);
}

void run_plan(const struct plan *plan, struct outcome *outcomes, void (*look)(struct session *s, struct outcome *o)) {
    struct assignment assignment = {plan, outcomes, look};
    int ranks = plan_ranks(plan);
    if (plan->samples == 0 && !plan->text) (void)open_digits(); /* ranks report failures */
    for (int r = 0; r < ranks; r++) outcomes[r] = (struct outcome){.status = LS_ERR_SYSTEM};
    run_training_ranks(ranks, run_assignment, &assignment);
}

double global_loss(const struct plan *plan, const struct outcome *outcomes, size_t step) {
    if (plan_ranks(plan) == 1) return outcomes[0].losses[step];
    double sum = 0;
    for (int r = 0; r < plan->devices; r++) sum += outcomes[r].losses[step];
    return sum / plan_replicas(plan);
}

int first_difference(const struct outcome *left, const struct outcome *right, size_t steps) {
    for (size_t k = 0; k < steps; k++)
        if (left->weights[k] != right->weights[k]) return (int)k;
    return -1;
}
