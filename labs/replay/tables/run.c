/* run — one row's step: replayed on a described machine, trained on this one, or published.
 *   calibrate: T1, one device's step, sets a node's rates; its other figures are from its sources
 *   hooks    : PyTorch's gradients are not in its buckets. For each tensor a hook runs, and the gradient is copied to
 *              the bucket and back, even on one GPU. If a time of one GPU with DDP is published, a tensor costs (T1
 *              with DDP - T1 without) / tensors. The baseline of free communication includes this cost, so it does not
 *              favour the prediction
 *   links    : NCCL's rings of N GPUs use the NVLinks from device 0 to the others, each in both directions
 *   variation: GPUs of one kind are not equally fast, and a step takes as long as the slowest. The published range is
 *              assumed to be that of a box plot, which is a guess
 *   lock     : DP's threads are those of one Python interpreter, which launches one operation at a time */
#include "labs/replay/tables/run.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "labs/replay/engine/account.h"
#include "labs/replay/record/record.h"
#include "labs/replay/tables/train.h"

#define WHISKERS 5.4 /* standard deviations between a box plot's ends: 4 x 1.349 of a normal distribution's */
#define MB 1e6
#define LATENCY_BYTES 8

/* --- a replayed step ---------------------------------------------------------------------------------------------- */

static void read_account(tables_replayed r, const struct ls_account *account) {
    int count = account->device_count, first_other = count > 1 ? 1 : 0;
    for (int i = 0; i <= TABLES_BUSY_OTHERS; i++) r[i] = 0;
    r[TABLES_STEP] = account->step_us * 1e-3;
    r[TABLES_MEDIAN] = account->median_step_us * 1e-3;
    for (int d = 0; d < count; d++) {
        const struct ls_device_account *device = &account->devices[d];
        double weight = 1 / (count * account->step_us);
        r[TABLES_COMMUNICATION] += weight * device->communication_us;
        r[TABLES_EXPOSED] += weight * device->exposed_us;
        r[TABLES_BUSY] += weight * device->compute_us;
        r[TABLES_HOST] += weight * device->host_us;
        r[TABLES_IDLE] += weight * device->idle_us;
        if (d == 0) r[TABLES_BUSY_FIRST] = device->compute_us / account->step_us;
        if (d >= first_other) r[TABLES_BUSY_OTHERS] += device->compute_us / ((count - first_other) * account->step_us);
    }
}

/* Collectives of one device follow one another on its stream, so their times add up. */
static double collectives_us(const ls_trace *trace, const ls_timeline *timeline) {
    double us = 0;
    for (int i = 0; i < ls_trace_task_count(trace); i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->kind == LS_TASK_COLLECTIVE && task->step > 0) us += timeline->end_us[i] - timeline->start_us[i];
    }
    return us;
}

ls_status tables_replay_trace(tables_replayed replayed, const ls_trace *trace, const ls_node *node) {
    ls_timeline *timeline = NULL;
    struct ls_account *account = NULL;
    ls_status status = ls_engine_run(&timeline, trace, node);
    if (status == LS_OK) status = ls_account_make(&account, trace, timeline, node);
    if (status == LS_OK) {
        read_account(replayed, account);
        double whole_us = account->step_us * account->steps * account->device_count;
        replayed[TABLES_COLLECTIVES] = collectives_us(trace, timeline) / whole_us;
    }
    ls_account_free(account);
    ls_timeline_free(timeline);
    return status;
}

ls_status tables_read_recorded(tables_replayed recorded, const ls_trace *trace) {
    struct ls_account *account = NULL;
    ls_status status = ls_account_recorded(&account, trace);
    if (status == LS_OK) read_account(recorded, account);
    ls_account_free(account);
    return status;
}

ls_status tables_replay(tables_replayed replayed, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options) {
    ls_trace *trace = NULL;
    ls_status status = record_steps(&trace, workload, node, options);
    if (status == LS_OK) status = tables_replay_trace(replayed, trace, node);
    ls_trace_destroy(trace);
    return status;
}

/* --- the machine of a run ----------------------------------------------------------------------------------------- */

struct machine {
    ls_workload *workload; /* NULL: the run has none */
    ls_node *node;
    struct ls_node_measured all_reduces[TABLES_ALL_REDUCES_MAX];
};

static ls_plan_mode mode_of(const struct tables_run *run) { return (ls_plan_mode)(run->plan - 1); }

/* Samples per device and micro-batch, in samples of the workload, for which T1 holds. */
static double samples_of(const struct tables_run *run) {
    if (run->micro_batch > 0) return run->micro_batch;
    return run->pictures > 0 ? run->pictures * (run->side * run->side) / (224 * 224) : run->samples;
}

static ls_dtype precision_of(const struct tables_run *run) { return run->fp16 ? LS_FP16 : LS_FP32; }

static double steps_of_epoch(const struct tables_run *run, int n) {
    return ceil(run->pictures_of_epoch / (run->pictures * n));
}

static ls_status calibrate(const struct machine *machine, const struct tables_run *run) {
    bool without_update = run->calibrated_by == 2; /* the update is the last operation */
    double factor = 1, t1_ms = run->t1_epoch_s > 0 ? run->t1_epoch_s / steps_of_epoch(run, 1) * 1e3 : run->t1_ms;
    machine->workload->work_count -= without_update;
    ls_status status =
        ls_cost_calibrate(&factor, machine->node, machine->workload, samples_of(run), precision_of(run), t1_ms * 1e3);
    machine->workload->work_count += without_update;
    struct ls_node_device *device = ls_node_change_device(machine->node);
    device->fp32_GFLOPs *= factor;
    device->fp16_GFLOPs *= factor;
    device->memory_GBps *= factor;
    return status;
}

/* Scales the tensors to that many parameters in all. */
static void scale_parameters(ls_workload *workload, double parameters) {
    double part = parameters / (double)ls_workload_parameters(workload);
    for (int i = 0; i < workload->parameter_count; i++)
        workload->parameter_counts[i] = (uint64_t)fmax(1, (double)workload->parameter_counts[i] * part);
}

static double links_of_device_0(const ls_node *node, int n) {
    double GBps = 0;
    for (int d = 1; d < n && d < ls_node_device_count(node); d++) {
        const struct ls_route *route = ls_node_route(node, 0, d);
        if (route->count == 1) GBps += ls_node_link(node, route->link[0])->GBps;
    }
    return GBps;
}

static double number_at(const cJSON *array, int index) {
    return cJSON_GetNumberValue(cJSON_GetArrayItem(array, index));
}

static void change_collectives(struct machine *machine, const struct tables_run *run, int n) {
    struct ls_node_collectives *collectives = ls_node_change_collectives(machine->node);
    if (run->links_of_device_0 && n > 1) collectives->bus_GBps = links_of_device_0(machine->node, n);
    if (run->latencies_us) {
        collectives->hop_us = (number_at(run->latencies_us, 1) - number_at(run->latencies_us, 0)) / 2;
        collectives->base_us = number_at(run->latencies_us, 0) - 2 * collectives->hop_us;
    }
    if (run->network) {
        collectives->network_hop_us = number_at(run->network, 0);
        collectives->network_GBps = number_at(run->network, 1);
    }
    if (!run->all_reduce_ms) return;
    struct ls_node_table *table = &collectives->tables[LS_NODE_ALL_REDUCE];
    table->rows = machine->all_reduces;
    for (int i = 0; i < cJSON_GetArraySize(run->all_reduce_ms); i++) {
        const cJSON *pair = cJSON_GetArrayItem(run->all_reduce_ms, i);
        machine->all_reduces[i] =
            (struct ls_node_measured){2, (uint64_t)(number_at(pair, 0) * MB), number_at(pair, 1) * 1e3};
        table->count = i + 1;
    }
}

static void close_machine(struct machine *machine) {
    ls_workload_close(machine->workload);
    ls_node_close(machine->node);
}

/* On failure nothing needs to be closed. */
static ls_status open_machine(struct machine *machine, const struct tables_run *run, int n) {
    *machine = (struct machine){.node = NULL};
    ls_status status = ls_node_open(&machine->node, run->node);
    if (status == LS_OK && run->workload) status = ls_workload_open(&machine->workload, run->workload);
    if (status == LS_OK && run->parameters > 0) scale_parameters(machine->workload, run->parameters);
    if (status == LS_OK && run->calibrated_by) status = calibrate(machine, run);
    if (status == LS_OK) change_collectives(machine, run, n);
    if (status != LS_OK) close_machine(machine);
    return status;
}

static struct ls_plan plan_of(const struct tables_run *run, const ls_workload *workload, int n) {
    struct ls_plan plan = ls_plan_defaults(mode_of(run), n, run->batch > 0 ? run->batch : samples_of(run) * n);
    plan.precision = precision_of(run);
    if (run->micro_batch > 0) plan.micro_batches = (int)(plan.batch / n / run->micro_batch);
    plan.shard_state = (int)run->shard_state;
    if (run->half_gradients) plan.gradient_element_bytes = 2;
    plan.gil = run->lock;
    plan.replicate_by_collectives = run->by_collectives;
    plan.overlap = !run->after_backward;
    plan.spread = run->variation / WHISKERS;
    if (run->t1_ddp_ms > 0) plan.tensor_us = (run->t1_ddp_ms - run->t1_ms) * 1e3 / workload->parameter_count;
    if (!isnan(run->bucket_MB))
        plan.first_bucket_bytes = plan.bucket_bytes = run->bucket_MB > 0 ? (uint64_t)(run->bucket_MB * MB) : 1;
    return plan;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* For two devices or more; the summary's busy share includes communication. */
static ls_status train(tables_replayed r, const struct tables_run *run, int n, double timeout_s) {
    const struct tables_training training = {.mode = mode_of(run), .devices = n, .arguments = run->train};
    cJSON *summary;
    ls_status status = tables_train(&summary, &training, timeout_s);
    for (int d = 0; status == LS_OK && d < n; d++) {
        double exposed = tables_device_number(summary, d, NULL, "communication_share");
        double compute = tables_device_number(summary, d, NULL, "busy_share") - exposed;
        r[TABLES_EXPOSED] += exposed / n;
        r[TABLES_BUSY] += compute / n;
        if (d == 0) r[TABLES_BUSY_FIRST] = compute;
        if (d > 0) r[TABLES_BUSY_OTHERS] += compute / (n - 1);
    }
    cJSON_Delete(summary);
    return status;
}

/* NAN: none is published. */
static double published_ms(const cJSON *times_ms, int n) {
    const cJSON *pair;
    cJSON_ArrayForEach(pair, times_ms) if (number_at(pair, 0) == n) return number_at(pair, 1);
    return NAN;
}

/* `to` is all zero. */
static ls_status make(tables_replayed to, const struct tables_run *run, int n, double timeout_s) {
    struct machine machine;
    if (run->train) return train(to, run, n, timeout_s);
    if (run->times_ms) to[TABLES_STEP] = published_ms(run->times_ms, n);
    if (run->times_ms) return LS_OK;
    ls_status status = open_machine(&machine, run, n);
    if (status != LS_OK) return status;
    const struct ls_plan plan = plan_of(run, machine.workload, n);
    status = tables_replay(to, machine.workload, machine.node, &plan);
    close_machine(&machine);
    return status;
}

enum { RUNS_MAX = 256 };

struct tables_runs {
    double timeout_s;
    int count;
    struct made {
        struct tables_run run;
        int n;
        tables_replayed replayed;
    } made[RUNS_MAX];
};

ls_status tables_runs_create(tables_runs **out, double timeout_s) {
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a table's runs");
    (*out)->timeout_s = timeout_s;
    return LS_OK;
}

void tables_runs_destroy(tables_runs *runs) { free(runs); }

static ls_status make_once(const double **to, tables_runs *runs, const struct tables_run *run, int n) {
    struct made *made = runs->made;
    ls_status status = LS_OK;
    while (made < runs->made + runs->count &&
           (made->n != n || made->run.number != run->number || made->run.plan != run->plan))
        made++;
    if (made == runs->made + RUNS_MAX)
        return ls_fail(LS_ERR_INVALID, "a table has too many runs; expected at most %d", RUNS_MAX);
    if (made == runs->made + runs->count) {
        made->run = *run;
        made->n = n;
        status = make(made->replayed, run, n, runs->timeout_s);
        runs->count += status == LS_OK;
    }
    *to = made->replayed;
    return status;
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

static ls_status all_reduce_us(double *us, const struct tables_run *run, int n) {
    struct machine machine;
    ls_status status = open_machine(&machine, run, n);
    if (status != LS_OK) return status;
    *us = ls_cost_collective_us(machine.node, LS_COLLECTIVE_ALL_REDUCE, n, LATENCY_BYTES);
    close_machine(&machine);
    return LS_OK;
}

ls_status tables_column(double *value, tables_runs *runs, const struct tables_run *run, enum tables_column column,
                        int n) {
    const double *this, *other;
    bool ddp = column == TABLES_DP_OVER_DDP;
    struct tables_run other_run = *run; /* on one device alone, or with DDP */
    *value = run->t1_ddp_ms;
    if (column == TABLES_T1_DDP) return LS_OK;
    if (column == TABLES_ALL_REDUCE_US) return all_reduce_us(value, run, n);
    ls_status status = make_once(&this, runs, run, n);
    if (status != LS_OK) return status;
    *value = column <= TABLES_BUSY_OTHERS ? this[column] : this[TABLES_STEP] * steps_of_epoch(run, n) * 1e-3;
    if (column <= TABLES_EPOCH) return LS_OK;
    other_run.plan = 1 + (ddp ? LS_PLAN_DDP : LS_PLAN_SINGLE);
    status = make_once(&other, runs, &other_run, ddp ? n : 1);
    if (status != LS_OK) return status;
    double ms = this[TABLES_STEP], other_ms = other[TABLES_STEP];
    if (column == TABLES_SPEED_UP) *value = other_ms / ms;
    if (column == TABLES_BEYOND_IDEAL) *value = 1 - other_ms / n / ms;
    if (column == TABLES_GROWN_T1) *value = run->t1_ms * (ms / other_ms);
    if (column == TABLES_DP_OVER_DDP) *value = ms / other_ms;
    return LS_OK;
}

ls_status tables_free_column(double *value, tables_runs *runs, const struct tables_run *run, enum tables_column column,
                             enum tables_free free, int n) {
    struct tables_run one = *run;
    *value = run->t1_epoch_s / n;
    if (free == TABLES_FREE_T1_BY_N) return LS_OK;
    if (free == TABLES_FREE_SINGLE) one.plan = 1 + LS_PLAN_SINGLE;
    return tables_column(value, runs, &one, column, 1);
}
