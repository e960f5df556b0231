/* runs: one replay, and its row's figures of the devices. */
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/record/record.h"
#include "labs/replay/replay/replay.h"

#define MIB 1048576.0

struct ls_plan replay_options(const replay_settings *settings, const replay_inputs *inputs, const replay_row *row) {
    struct ls_plan options = ls_plan_defaults(row->mode, row->n, row->batch);
    options.steps = settings->steps;
    options.micro_batches = settings->accumulate;
    options.every = settings->every;
    if (row->mode == LS_PLAN_DDP) {
        options.tensor = settings->tensor;
        options.sequence = settings->sequence_parallel;
        options.shard_state = settings->shard_state;
    }
    options.prefetch_blocks = settings->prefetch_blocks;
    options.precision = settings->precision;
    options.replicate_by_collectives = row->by_collectives;
    options.gil = ls_node_host(inputs->node)->lock_us > 0;
    options.overlap = settings->overlap;
    options.vary = settings->vary;
    options.sync_bn = settings->sync_bn;
    options.join = settings->join;
    options.graph = settings->graph;
    options.spread = settings->spread_percent / 100;
    options.collectives = settings->collectives;
    options.pattern = settings->pattern;
    options.hierarchical = settings->hierarchical && row->mode == LS_PLAN_DDP;
    if (settings->compression.half != LS_FP32) options.gradient_element_bytes = 2;
    options.top_k = settings->compression.fraction;
    options.feedback = settings->compression.feedback;
    if (row->mode == LS_PLAN_DDP) {
        options.bucket_bytes = (uint64_t)fmax(1, row->cap_mb * MIB);
        if (options.first_bucket_bytes > options.bucket_bytes) options.first_bucket_bytes = options.bucket_bytes;
    }
    return options;
}

void replay_run_free(replay_run *run) {
    ls_account_free(run->account);
    ls_timeline_free(run->timeline);
    ls_trace_destroy(run->trace);
    *run = (replay_run){.trace = NULL};
}

/* --- devices ----------------------------------------------------------------------------------------------------- */

/* Adds a share of a device's account to a mean. */
static void add_account(struct ls_device_account *mean, const struct ls_device_account *device, double part) {
    mean->compute_us += part * device->compute_us;
    mean->exposed_us += part * device->exposed_us;
    mean->host_us += part * device->host_us;
    mean->idle_us += part * device->idle_us;
    mean->communication_us += part * device->communication_us;
    mean->lock_us += part * device->lock_us;
    mean->sent_bytes += part * device->sent_bytes;
    mean->received_bytes += part * device->received_bytes;
}

const char *replay_phase_name(int phase) {
    return phase == REPLAY_WAITING ? "waiting" : ls_phase_name((ls_phase)phase);
}

/* Every lane of a replayed program has phases by phase.h's names; a trace's other or missing names count as "other". */
static int phase_of(const char *name) {
    for (int phase = 0; phase < LS_PHASE_COUNT; phase++)
        if (strcmp(name, ls_phase_name((ls_phase)phase)) == 0) return phase;
    return LS_PHASE_OTHER;
}

/* Adds a share of the device's step by the phase at each moment: that of its kernel, or else of a copy or collective in
 * progress, or else of its host thread, or else waiting. */
static void add_phases(double phase_ms[REPLAY_PHASES], const struct ls_account *account, int place, double part) {
    const struct ls_device_account *device = &account->devices[place];
    for (int i = 0; i < account->phase_count; i++)
        phase_ms[phase_of(account->phases[i])] += part * device->phase_us[i] / 1e3;
    phase_ms[REPLAY_WAITING] += part * device->idle_us / 1e3;
}

static void add_device(replay_share *mean, const struct ls_account *account, int place, double part) {
    add_account(&mean->account, &account->devices[place], part);
    add_phases(mean->phase_ms, account, place, part);
}

static void share_accounts(replay_row *row, const struct ls_account *account) {
    int count = account->device_count;
    for (int i = 0; i < count; i++) {
        add_device(&row->mean, account, i, 1.0 / count);
        add_device(i == 0 ? &row->first : &row->others, account, i, i == 0 ? 1 : 1.0 / (count - 1));
    }
}

static void find_busiest_link(replay_row *row, const struct ls_account *account, const ls_node *node) {
    int busiest = -1;
    for (int i = 0; i < account->link_count; i++) {
        row->links[i] = account->link_use[i];
        if (account->link_use[i] > (busiest < 0 ? 0 : account->link_use[busiest])) busiest = i;
    }
    row->link_use = busiest < 0 ? NAN : account->link_use[busiest];
    snprintf(row->link, sizeof row->link, "%s", busiest < 0 ? "" : ls_node_link(node, busiest)->name);
}

static void share_memory(replay_share *share, const ls_memory_report *held) {
    for (int c = 0; c < LS_MEMORY_COUNT; c++) share->memory_bytes[c] = (double)held->peak_bytes[c];
    share->memory_total_bytes = (double)held->peak_total_bytes;
}

static ls_status count_memory(replay_row *row, const replay_inputs *inputs, const struct ls_plan *options) {
    struct record_memory memory;
    ls_status status = record_memory(&memory, inputs->workload, inputs->node, options);
    if (status != LS_OK) return status;
    share_memory(&row->first, &memory.first);
    share_memory(&row->others, &memory.last);
    row->memory_bytes = fmax(row->first.memory_total_bytes, row->others.memory_total_bytes);
    return LS_OK;
}

/* --- a row ------------------------------------------------------------------------------------------------------- */

static void fill_in(replay_row *row, const replay_run *run, const replay_inputs *inputs) {
    const struct ls_account *account = run->account;
    row->tasks = ls_trace_task_count(run->trace);
    row->per_node = ls_node_device_count(inputs->node);
    row->step_ms = account->step_us / 1e3;
    row->overlap = account->overlap;
    row->communication_share = account->communication_share;
    row->busy_share = account->busy_share;
    row->recorded_ms = NAN;
    find_busiest_link(row, account, inputs->node);
    share_accounts(row, account);
    uint64_t capacity = ls_node_device(inputs->node)->memory_bytes;
    row->device_memory_bytes = capacity > 0 ? (double)capacity : NAN;
}

ls_status replay_run_row(replay_row *row, replay_run *run, const replay_inputs *inputs,
                         const replay_settings *settings) {
    struct ls_plan options = replay_options(settings, inputs, row);
    *run = (replay_run){.trace = NULL};
    ls_status status = record_steps(&run->trace, inputs->workload, inputs->node, &options);
    if (status == LS_OK) status = ls_engine_run(&run->timeline, run->trace, inputs->node);
    if (status == LS_OK) status = ls_account_make(&run->account, run->trace, run->timeline, inputs->node);
    if (status == LS_OK) fill_in(row, run, inputs);
    if (status == LS_OK) status = count_memory(row, inputs, &options);
    if (status != LS_OK) replay_run_free(run);
    return status;
}
