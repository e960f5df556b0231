/* real — steps of real networks, recorded on meta devices.
 *   idea  : the programs' own functions open model, data and groups and build the mode; record.c runs its steps. So
 *           options are accepted, memory is allocated and operations are enqueued exactly as in the program
 *   cost  : the host's share of six steps for each rank that is recorded: a hundredth of a second
 *   fails : as the program does, with its message */
#include "labs/replay/record/real.h"

#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "ddp_procs/setup.h"
#include "labs/replay/record/record.h"

#define MIB 1048576.0

enum { WORDS_MAX = 64 };

/* --- options ------------------------------------------------------------------------------------------------------ */

ls_status record_program_parse(struct record_program *program, ls_plan_mode mode, int devices, char *const *words,
                               int count) {
    char *argv[WORDS_MAX + 2] = {mode == LS_PLAN_DP ? "dp_train" : "ddp_train"};
    bool help = false;
    *program = (struct record_program){.mode = mode, .devices = devices};
    if (count > WORDS_MAX)
        return ls_fail(LS_ERR_INVALID, "a program is given %d words; expected at most %d", count, WORDS_MAX);
    memcpy(argv + 1, words, (size_t)count * sizeof *argv);
    program->dp = dp_settings_defaults();
    program->ddp = ddp_settings_defaults();
    ls_status status = mode == LS_PLAN_DP ? dp_settings_parse(&program->dp, count + 1, argv, &help)
                                          : ddp_settings_parse(&program->ddp, count + 1, argv, &help);
    ls_train_options *train = mode == LS_PLAN_DP ? &program->dp.train : &program->ddp.train;
    train->device_kind = LS_TRAIN_DEVICES_META;
    train->evaluate = false;
    train->unread = true;
    program->dp.devices = devices;
    program->ddp.spawn = devices;
    return status;
}

static struct ls_plan plan_of(const struct record_program *program, const ls_train_options *train) {
    const ddp_settings *ddp = &program->ddp;
    struct ls_plan plan = ls_plan_defaults(program->mode, program->devices, (double)train->batch_size);
    plan.micro_batches = train->accumulate;
    plan.precision = (ls_dtype)train->precision;
    plan.sync_bn = train->sync_bn;
    if (program->mode == LS_PLAN_DP) {
        plan.replicate_by_collectives = program->dp.replicate != 0;
        return plan;
    }
    plan.tensor = ddp->tensor;
    plan.sequence = ddp->sequence_parallel;
    plan.pipeline = ddp->pipeline;
    plan.shard_state = ddp->shard_state;
    plan.prefetch_blocks = ddp->prefetch_blocks;
    plan.overlap = ddp->overlap;
    plan.bucket_bytes = (uint64_t)fmax(1, ddp->bucket_cap_mb * MIB);
    if (plan.first_bucket_bytes > plan.bucket_bytes) plan.first_bucket_bytes = plan.bucket_bytes;
    if (ddp->compression.half != LS_FP32) plan.gradient_element_bytes = 2;
    plan.top_k = ddp->compression.fraction;
    plan.feedback = ddp->compression.feedback;
    return plan;
}

ls_status record_program_plan(struct ls_plan *plan, const struct record_program *program) {
    struct record_program checked = *program; /* the check fills in defaults, once */
    ls_train_options *train = program->mode == LS_PLAN_DP ? &checked.dp.train : &checked.ddp.train;
    ddp_setup setup = {.self = {.world_size = program->devices, .local_world_size = program->devices}};
    ls_status status = program->mode == LS_PLAN_DP ? ls_train_options_check(train, program->devices)
                                                   : ddp_setup_check(&setup, &checked.ddp);
    *plan = plan_of(&checked, train);
    return status == LS_OK ? ls_parse_every(train->checkpoint_activations, &plan->every) : status;
}

/* --- recordings --------------------------------------------------------------------------------------------------- */

struct recording {
    const struct record_program *program;
    struct ls_plan *plan;
    bool behind;
    ls_trace *trace;
    struct record_held *held;
};

static void hold(struct recording *r, const ls_device *device, int number) {
    ls_memory_report report;
    ls_device_memory(device, &report);
    if (report.peak_total_bytes <= r->held->report.peak_total_bytes) return;
    *r->held = (struct record_held){number, report};
}

/* Adds steps of the mode to `trace` (NULL: only counts bytes), with that many samples in this process and on each
 * device; `place`: the number of its first device. */
static ls_status take(struct recording *r, ls_trace *trace, ls_parallel *parallel, size_t samples, size_t of_device,
                      int place) {
    size_t tokens = ls_train_sample_tokens(parallel->model);
    r->plan->whole_rows = (double)(of_device * (tokens > 0 ? tokens : 1));
    ls_status status = record_rank(trace, parallel, r->plan, samples, place);
    for (int d = 0; d < parallel->local_device_count; d++) hold(r, parallel->devices[d], place + d);
    return status;
}

static ls_status record_dp(struct recording *r) {
    struct dp_settings settings = r->program->dp;
    struct dp_session session = {0};
    size_t devices = (size_t)r->program->devices;
    settings.train.meta_behind = r->behind;
    ls_status status = dp_session_open(&session, &settings);
    size_t samples = ls_micro_batch_rows((size_t)settings.train.batch_size, settings.train.accumulate);
    if (status == LS_OK) status = take(r, r->trace, session.parallel, samples, (samples + devices - 1) / devices, 0);
    dp_session_close(&session);
    return status;
}

static ls_status record_ddp(struct recording *r, ls_trace *trace, int rank) {
    ddp_settings settings = r->program->ddp;
    int devices = r->program->devices;
    ddp_setup setup = {.self = {.rank = rank, .world_size = devices, .local_world_size = devices}};
    settings.train.meta_behind = r->behind;
    ls_status status = ddp_setup_begin(&setup, &settings);
    if (status == LS_OK) status = ddp_setup_join_groups(&setup, &settings);
    if (status == LS_OK) status = ddp_setup_form_parallel(&setup, &settings);
    if (status == LS_OK) {
        size_t replicas = (size_t)ls_plan_replicas(r->plan);
        size_t samples = ls_micro_batch_rows(((size_t)settings.train.batch_size + replicas - 1) / replicas,
                                             settings.train.accumulate);
        status = take(r, trace, setup.parallel, samples, samples, rank);
    }
    ddp_setup_end(&setup, status);
    return status;
}

/* Records the first rank of a stage, which does the same as the others. Shards differ by the rounding of slices of
 * tensors, so each replica's bytes are counted. */
static ls_status record_stage(struct recording *r, int stage) {
    int ranks = r->plan->devices / r->plan->pipeline, first = stage * ranks;
    ls_status status = record_ddp(r, r->trace, first);
    for (int rank = r->plan->tensor; status == LS_OK && r->plan->shard_state > 0 && rank < ranks;
         rank += r->plan->tensor)
        status = record_ddp(r, NULL, first + rank);
    return status;
}

static ls_status check_node(const ls_node *node, const struct ls_plan *plan) {
    int devices = ls_node_device_count(node);
    bool several = ls_node_collectives(node)->network_GBps > 0 && plan->mode == LS_PLAN_DDP;
    if (plan->devices <= devices || several) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s has %d devices, not %d", ls_node_name(node), devices, plan->devices);
}

ls_status record_real(ls_trace **recorded, struct record_held *held, struct ls_plan *plan,
                      const struct record_program *program, const ls_node *node) {
    struct recording r = {.program = program, .plan = plan, .behind = !ls_node_host(node)->runs_compute, .held = held};
    *held = (struct record_held){0};
    plan->gil = ls_node_host(node)->lock_us > 0;
    ls_status status = check_node(node, plan);
    if (status == LS_OK) status = ls_trace_create(&r.trace);
    if (status == LS_OK && plan->mode == LS_PLAN_DP) status = record_dp(&r);
    for (int stage = 0; status == LS_OK && plan->mode == LS_PLAN_DDP && stage < plan->pipeline; stage++)
        status = record_stage(&r, stage);
    if (status == LS_OK) status = ls_trace_seal(r.trace);
    if (status != LS_OK) {
        ls_trace_destroy(r.trace);
        r.trace = NULL;
    }
    *recorded = r.trace;
    return status;
}

ls_workload record_real_workload(const char *name, const struct record_program *program, const struct ls_plan *plan) {
    const ls_train_options *train = program->mode == LS_PLAN_DP ? &program->dp.train : &program->ddp.train;
    ls_optimizer_options optimizer = ls_train_optimizer(train);
    return (ls_workload){.name = name,
                         .source = "",
                         .samples = 1,
                         .element_bytes = (double)ls_dtype_nbytes(plan->precision),
                         .optimizer_states = optimizer.kind == LS_SGD ? optimizer.momentum > 0 : 2};
}
