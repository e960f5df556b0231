/* run — the product's DistributedDataParallel with the student's shards. The probe is linked with --wrap, to record
 * enqueued operations and to replace the optimizer. */
#include "labs/18-zero/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/seam/step.h"
#include "ddp_procs/sharded_internal.h"
#include "kernels/kernels.h"

static _Thread_local struct rank *mine; /* NULL: nothing is recorded */
static _Thread_local bool steps;        /* within a step */

static struct step *now(void) { return &mine->step[mine->now]; }

/* --- the record ----------------------------------------------------------------------------------------------------- */

/* Records an operation, unless it equals the one before. */
static void note(const char *what) {
    char *order = now()->order;
    size_t length = strlen(order), last = strlen(what);
    if (length >= last && strcmp(order + length - last, what) == 0) return;
    snprintf(order + length, sizeof now()->order - length, "%s%s", length ? " " : "", what);
}

static void note_phase(char *to, const ls_parallel *p) { snprintf(to, 16, "%s", ls_phase_name(p->clocks->phase)); }

static _Thread_local const ls_parallel *stepping;

ls_status __real_ls_comm_reduce_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                        ls_dtype dtype, ls_reduce_op op);
ls_status __wrap_ls_comm_reduce_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                        ls_dtype dtype, ls_reduce_op op);
ls_status __real_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype);
ls_status __wrap_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype);
ls_status __real_ls_parallel_update(ls_parallel *p, const bool *skip);
ls_status __wrap_ls_parallel_update(ls_parallel *p, const bool *skip);
ls_status __real_ls_optimizer_create_of(ls_optimizer **out, ls_device *device, const ls_optimizer_range *ranges,
                                        size_t count, ls_comm *group, const ls_optimizer_options *options);
ls_status __wrap_ls_optimizer_create_of(ls_optimizer **out, ls_device *device, const ls_optimizer_range *ranges,
                                        size_t count, ls_comm *group, const ls_optimizer_options *options);

ls_status __wrap_ls_comm_reduce_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                        ls_dtype dtype, ls_reduce_op op) {
    if (mine && steps && comm == mine->comm) {
        note("sum");
        note_phase(now()->phase_of_sum, stepping);
        bool right = stream == ls_device_stream(stepping->devices[0], LS_STREAM_COMM);
        snprintf(now()->stream, sizeof now()->stream, "%s", right ? "comm" : "another");
    }
    return __real_ls_comm_reduce_scatter(comm, stream, send, receive, count, dtype, op);
}

ls_status __wrap_ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                    ls_dtype dtype) {
    if (mine && steps && comm == mine->comm) {
        note("gather");
        note_phase(now()->phase_of_gather, stepping);
    }
    return __real_ls_comm_all_gather(comm, stream, send, receive, count, dtype);
}

/* In place of the update, all parameters get values, different ones on each rank. */
ls_status __wrap_ls_parallel_update(ls_parallel *p, const bool *skip) {
    if (!mine) return __real_ls_parallel_update(p, skip);
    note("update");
    note_phase(now()->phase_of_update, p);
    if (mine->job->trains) return __real_ls_parallel_update(p, skip);
    if (mine->now == mine->job->fails_at) return ls_fail(LS_ERR_SYSTEM, "this update was to fail");
    float *parameters;
    size_t count;
    ls_model_parameters(p->model, &parameters, &count);
    if (count > MOST_FLOATS) return ls_fail(LS_ERR_NO_MEMORY, "the network has too many parameters");
    p->accumulates = false;
    ls_copy(ls_device_stream(p->devices[0], LS_STREAM_COMPUTE), parameters, mine->update[mine->now],
            count * sizeof(float));
    ls_model_parameters_changed(p->model);
    return LS_OK;
}

ls_status __wrap_ls_optimizer_create_of(ls_optimizer **out, ls_device *device, const ls_optimizer_range *ranges,
                                        size_t count, ls_comm *group, const ls_optimizer_options *options) {
    if (!mine) return __real_ls_optimizer_create_of(out, device, ranges, count, group, options);
    struct created *created = &mine->created;
    created->ranges = count;
    for (size_t i = 0; i < count && i < MOST_PARAMETERS; i++) {
        struct owned *owned = &created->range[i];
        if (ranges[i].tensor) {
            snprintf(owned->name, sizeof owned->name, "%s", ranges[i].tensor->name);
            owned->data = ranges[i].tensor->data;
            owned->elements = ranges[i].tensor->count;
        }
        owned->first = ranges[i].first;
        owned->count = ranges[i].count;
        created->elsewhere = created->elsewhere || (ranges[i].count > 0 && (ranges[i].values || ranges[i].gradient));
    }
    created->norm = !group                  ? "this rank alone"
                    : group == mine->shards ? "the ranks of options->shards"
                    : group == mine->comm   ? "the ranks of options->comm, whose operations are on another stream"
                                            : "another group";
    bool trains = mine->job && mine->job->trains;
    return __real_ls_optimizer_create_of(out, device, ranges, trains ? count : 0, group, options);
}

/* --- a rank's thread ------------------------------------------------------------------------------------------------ */

static ddp_options options_of(const struct job *job, ls_comm *comm, ls_comm *shards) {
    return (ddp_options){.comm = comm,
                         .shards = shards,
                         .max_batch = MOST_ROWS,
                         .compare_each_step = job->compares,
                         .optimizer = job->optimizer,
                         .reducer = {.bucket_cap_mb = job->bucket_cap_mb,
                                     .overlap = true,
                                     .find_unused = job->find_unused,
                                     .compress = job->compress}};
}

static void read_sums(struct step *step, const struct sharded *s) {
    size_t at = 0;
    step->bucket_count = s->ddp.reducer->bucket_count;
    for (size_t b = 0; b < step->bucket_count && b < MOST_BUCKETS; b++) {
        const struct bucket *bucket = &s->ddp.reducer->buckets[b];
        size_t slice = slice_of(s, bucket->count);
        if (at + slice > MOST_FLOATS) break;
        memcpy(step->sums + at, bucket->data + slice_begin(s, bucket->count), slice * sizeof(float));
        step->slices[b] = slice;
        at += slice;
    }
}

static ls_status read_parameters(struct step *step, const ls_model *model) {
    size_t count = 0;
    for (size_t i = 0; i < ls_model_parameter_count(model); i++) count += ls_model_parameter(model, i)->count;
    step->parameters = malloc((count + 1) * sizeof(float));
    if (!step->parameters) return LS_ERR_NO_MEMORY;
    for (size_t i = 0; i < ls_model_parameter_count(model); i++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, i);
        memcpy(step->parameters + step->parameter_count, tensor->data, tensor->count * sizeof(float));
        step->parameter_count += tensor->count;
    }
    return LS_OK;
}

static ls_status read_step(struct step *step, ls_parallel *p, const ls_comm_traffic *before) {
    ls_comm_traffic traffic;
    ls_status status = ls_device_synchronize(p->devices[0]);
    if (status != LS_OK) return status;
    ls_comm_traffic_read(mine->comm, &traffic);
    step->sent_bytes = traffic.sent_bytes - before->sent_bytes;
    step->reduced_bytes = p->clocks->bytes[LS_PHASE_REDUCE];
    step->gathered_bytes = p->clocks->bytes[LS_PHASE_GATHER];
    note_phase(step->phase_of_end, p);
    return read_parameters(step, p->model);
}

static size_t rows_of_step(const struct job *job, int step) {
    size_t rows = 0;
    for (int r = 0; r < job->ranks; r++) rows += job->rank[r].rows[step];
    return rows;
}

static ls_status run_step(ls_parallel *p, const struct job *job, int s) {
    struct step *step = &mine->step[s];
    ls_comm_traffic before;
    ls_batch batch = {.inputs = mine->x[s],
                      .labels = mine->labels[s],
                      .targets = mine->y[s],
                      .count = mine->rows[s],
                      .global_count = rows_of_step(job, s)};
    mine->now = s;
    p->step = (uint64_t)s;
    ls_phase_reset(p->clocks);
    ls_comm_traffic_read(mine->comm, &before);
    ls_status status = ls_step_gradients(p, &batch);
    if (status == LS_OK && job->looks) {
        status = ls_device_synchronize(p->devices[0]);
        if (status == LS_OK) read_sums(step, sharded_of(p));
    }
    if (status != LS_OK || job->gradients_only) return status;
    status = step->status = ls_step_update(p);
    return status == LS_OK && (job->looks || s == job->steps - 1) ? read_step(step, p, &before) : status;
}

static void read_norms(struct rank *rank, const ls_parallel *p, const struct job *job) {
    struct ls_update_state records[MOST_STEPS];
    if (job->optimizer.record_count == 0 || ls_optimizer_read_records(p->optimizer, records) != LS_OK) return;
    for (int s = 0; s < job->steps; s++) rank->step[s].norm = records[s].norm;
}

static ls_status run_steps(ls_parallel *p, const struct job *job) {
    ls_status status = LS_OK;
    stepping = p;
    steps = true;
    p->micro_batches = job->micro_batches > 0 ? job->micro_batches : 1;
    for (int s = 0; status == LS_OK && s < job->steps; s++) {
        status = run_step(p, job, s);
        if (status == LS_OK && job->optimizer.record_count > 0) ls_optimizer_record(p->optimizer, (size_t)s);
    }
    steps = false;
    ls_status done = ls_device_synchronize(p->devices[0]);
    if (status == LS_OK) status = done;
    if (status != LS_OK) return status;
    read_norms(mine, p, job);
    memcpy(mine->losses, p->losses, sizeof mine->losses);
    return LS_OK;
}

static ls_status run_rank(crew_rank *c) {
    struct job *job = c->argument;
    ls_model *model = NULL;
    ls_parallel *parallel = NULL;
    mine = &job->rank[c->rank];
    mine->comm = c->comm;
    ddp_options options = options_of(job, c->comm, mine->shards);
    ls_status status = ls_device_bind_thread(c->device);
    if (status == LS_OK) status = ls_model_create(&model, c->device, job->model, MOST_ROWS, job->precision);
    if (status == LS_OK) status = ls_model_init(model, 7);
    if (status == LS_OK) status = ddp_create_zero1(&parallel, model, &options);
    if (status == LS_OK) status = run_steps(parallel, job);
    if (parallel) parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    bool was_to_fail = job->fails_at >= 0 && mine->step[job->fails_at].status != LS_OK;
    mine = NULL;
    return was_to_fail ? LS_OK : status;
}

/* --- setup of the ranks --------------------------------------------------------------------------------------------- */

static void *halves_of(float *values, size_t count, ls_dtype dtype) {
    uint16_t *halves = malloc((count + 1) * sizeof *halves);
    if (halves) ls_cast_now(dtype, halves, values, count);
    free(values);
    return halves;
}

static void draw_rank(probe *p, const struct job *job, struct rank *rank, size_t inputs, size_t outputs) {
    rank->job = job;
    for (int s = 0; s < job->steps; s++) {
        rank->rows[s] = 1 + (size_t)probe_draw(p, MOST_ROWS);
        rank->x[s] = malloc((MOST_ROWS * inputs + 1) * sizeof(float));
        probe_must(p, "memory", rank->x[s] ? LS_OK : LS_ERR_NO_MEMORY);
        probe_draw_floats(p, rank->x[s], MOST_ROWS * inputs);
        if (job->precision != LS_FP32) rank->x[s] = halves_of(rank->x[s], MOST_ROWS * inputs, job->precision);
        for (int i = 0; i < MOST_ROWS; i++) rank->labels[s][i] = (int64_t)probe_draw(p, outputs);
        if (!job->trains) probe_draw_floats(p, rank->update[s], MOST_FLOATS);
    }
}

static void draw(probe *p, struct job *job) {
    ls_network *network;
    probe_must(p, "a network", ls_network_create(&network, job->model));
    size_t inputs = ls_shape_count(ls_network_block_input(network, 0));
    size_t outputs = ls_shape_count(ls_network_output(network));
    ls_network_destroy(network);
    job->rank = calloc((size_t)job->ranks, sizeof *job->rank);
    probe_must(p, "memory", job->rank ? LS_OK : LS_ERR_NO_MEMORY);
    for (int r = 0; job->rank && r < job->ranks; r++) draw_rank(p, job, &job->rank[r], inputs, outputs);
}

void run_all(probe *p, struct job *job) {
    ls_comm *shards[LS_COMM_MAX_RANKS] = {0};
    ls_comm_options options = {.world_size = job->ranks, .timeout_s = CREW_TIMEOUT_S, .allreduce = "direct"};
    draw(p, job);
    ls_set_wait_timeout_s(CREW_TIMEOUT_S);
    probe_must(p, "a second group", ls_comm_create_threads(shards, &options));
    for (int r = 0; r < job->ranks; r++) job->rank[r].shards = shards[r];
    ls_status status = crew_run(job->ranks, "direct", job->streams ? job->streams : "inline", run_rank, job);
    for (int r = 0; r < job->ranks; r++) ls_comm_destroy(shards[r]);
    probe_must(p, "the ranks", status);
}

void run_release(struct job *job) {
    for (int r = 0; r < job->ranks; r++)
        for (int s = 0; s < job->steps; s++) {
            free(job->rank[r].x[s]);
            free(job->rank[r].step[s].parameters);
        }
    free(job->rank);
}

void run_created(probe *p, const char *model_name, double bucket_cap_mb, int ranks, int r, struct created *created) {
    struct job job = {.model = model_name, .bucket_cap_mb = bucket_cap_mb, .optimizer = ls_optimizer_defaults(LS_ADAM)};
    struct rank *rank = calloc(1, sizeof *rank);
    ls_device *device;
    ls_model *model;
    ls_parallel *parallel;
    ls_device_options device_options = {.kind = LS_DEVICE_META, .devices_on_node = 1};
    ls_comm_options group = {.rank = r, .world_size = ranks, .timeout_s = CREW_TIMEOUT_S, .allreduce = "direct"};
    probe_must(p, "memory", rank ? LS_OK : LS_ERR_NO_MEMORY);
    probe_must(p, "a device", ls_device_open(&device, &device_options));
    probe_must(p, "a group", ls_comm_create_meta(&rank->comm, &group, device));
    probe_must(p, "a second group", ls_comm_create_meta(&rank->shards, &group, device));
    probe_must(p, "a model", ls_model_create(&model, device, model_name, MOST_ROWS, LS_FP32));
    ddp_options options = options_of(&job, rank->comm, rank->shards);
    mine = rank;
    ls_status status = ddp_create_zero1(&parallel, model, &options);
    mine = NULL;
    probe_must(p, "ZeRO-1", status);
    *created = rank->created;
    parallel->ops->destroy(parallel);
    ls_model_destroy(model);
    ls_comm_destroy(rank->comm);
    ls_comm_destroy(rank->shards);
    ls_device_close(device);
    free(rank);
}
