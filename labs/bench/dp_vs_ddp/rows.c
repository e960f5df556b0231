/* rows: assembles runs to rows, and splits the step time T_N of N devices into parts.
 *   idea : T1/N would be the time if the work divided evenly and nothing else took time. The difference has three parts:
 *              T_N - T1/N  =  [T1(b/N) - T1/N]  +  exposed communication  +  fixed work
 *          - smaller batch: the time of a batch of b/N on one device by itself, less 1/N of the time for b: weights are
 *            read and updated once per step however small the batch is, and small matrix multiplies use a processor
 *            less well;
 *          - exposed communication: runs.c says how it is measured;
 *          - fixed work: the rest. Hand-offs between threads, the loss on one device, copies to and from it, devices
 *            that share a core or the memory's bandwidth. It is a difference of measurements: noise may make it
 *            negative.
 *          On GPUs the last two are not distinguished. Weak scaling: T1 takes the place of T1/N, and no batch is
 *          smaller.
 *   how  : a step time is the median over rounds of the runs' medians, its spread the least and the greatest run. Every
 *          configuration runs once per round, so a drift of the machine's speed affects all of them equally. The spread
 *          of a speed-up is that of T_N alone, relative to the median of T1. Rows under the lock and virtual rows have
 *          a T1 of their own, which was measured in the same way; they have no T1(b/N), so the parts are unknown. */
#include <math.h>
#include <string.h>

#include "common/base/statistics.h"
#include "labs/bench/dp_vs_ddp/bench.h"

int64_t bench_device_batch(const bench_plan *plan, int n) { return plan->weak ? plan->batch : plan->batch / n; }
int64_t bench_global_batch(const bench_plan *plan, int n) { return plan->weak ? plan->batch * n : plan->batch; }

static void add_row(bench_model *model, const bench_settings *settings, bench_mode mode, int n, int parts) {
    bench_row *row = &model->rows[model->row_count++];
    *row = (bench_row){.mode = mode,
                       .n = n,
                       .per_device_batch = bench_device_batch(model->plan, parts),
                       .oversubscribed = n > settings->processors};
}

void bench_plan_rows(bench_model *model, const bench_plan *plan, const bench_settings *settings) {
    model->plan = plan;
    model->row_count = 0;
    add_row(model, settings, BENCH_SINGLE, 1, 1);
    for (int i = 0; !plan->weak && i < settings->n.count; i++) {
        if (settings->n.values[i] > 1) add_row(model, settings, BENCH_SINGLE, 1, settings->n.values[i]);
    }
    for (bench_mode mode = BENCH_DP; mode <= BENCH_DDP; mode++) {
        for (int i = 0; i < settings->n.count; i++) {
            add_row(model, settings, mode, settings->n.values[i], settings->n.values[i]);
        }
    }
}

void bench_add_run(bench_row *row, const bench_run *run) {
    if (row->run_count >= BENCH_ROUNDS_MAX) return;
    if (row->run_count == 0) {
        memcpy(row->weights, run->weights, sizeof row->weights);
        memcpy(row->backend, run->backend, sizeof row->backend);
        row->final_loss = run->final_loss;
        row->repeats = true;
    }
    row->repeats = row->repeats && strcmp(row->weights, run->weights) == 0;
    row->run_ms[row->run_count] = run->step_ms;
    row->run_busy[row->run_count] = run->busy;
    row->run_exposed_ms[row->run_count++] = run->exposed_ms;
}

const bench_row *bench_find(const bench_model *model, bench_mode mode, int n) {
    for (int i = 0; i < model->row_count; i++) {
        const bench_row *row = &model->rows[i];
        bool is_of_n = mode == BENCH_SINGLE ? row->per_device_batch == bench_device_batch(model->plan, n) : row->n == n;
        if (row->mode == mode && is_of_n) return row;
    }
    return NULL;
}

const bench_row *bench_find_virtual(const bench_model *model, bench_mode mode, int n) {
    for (int i = 0; i < model->virtual_count; i++) {
        const bench_row *row = &model->virtual_rows[i];
        if (row->mode == mode && row->n == n) return row;
    }
    return NULL;
}

/* The least, the median and the greatest of a row's values. */
static void spread_of(double spread[3], const double *values, int count) {
    double sorted[BENCH_ROUNDS_MAX];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    ls_sort(sorted, (size_t)count);
    for (int i = 0; i < 3; i++) spread[i] = ls_quantile(sorted, (size_t)count, i / 2.0);
}

static double median_of(const double *values, int count) {
    double spread[3];
    spread_of(spread, values, count);
    return spread[1];
}

static void settle_times(bench_row *rows, int count) {
    for (bench_row *row = rows; row < rows + count; row++) {
        double spread[3];
        if (row->failed) {
            row->step_ms = row->step_ms_min = row->step_ms_max = row->busy = row->final_loss = NAN;
            continue;
        }
        spread_of(spread, row->run_ms, row->run_count);
        row->step_ms_min = spread[0];
        row->step_ms = spread[1];
        row->step_ms_max = spread[2];
        row->busy = median_of(row->run_busy, row->run_count);
    }
}

/* t1_ms NAN: nothing is compared with T1. Does not set the parts of the difference. */
static void compare(bench_row *row, double t1_ms, const bench_plan *plan) {
    double work_ms = plan->weak ? row->n * t1_ms : t1_ms; /* the time of one device for the same samples */
    row->speedup = work_ms / row->step_ms;
    row->speedup_min = work_ms / row->step_ms_max;
    row->speedup_max = work_ms / row->step_ms_min;
    row->efficiency = row->speedup / row->n;
    row->ideal_ms = work_ms / row->n;
    row->over_ms = row->step_ms - row->ideal_ms;
    row->smaller_batch_ms = row->exposed_ms = row->fixed_ms = NAN;
}

static void derive(const bench_model *model, bench_row *row) {
    const bench_row *t1 = &model->rows[0];
    bool is_part = row->mode == BENCH_SINGLE && row != t1; /* T1(b/N): another amount of work */
    compare(row, is_part ? NAN : t1->step_ms, model->plan);
    const bench_row *part = row->mode == BENCH_SINGLE ? NULL : bench_find(model, BENCH_SINGLE, row->n);
    if (!part) return;
    row->smaller_batch_ms = part->step_ms - row->ideal_ms;
    if (row->failed || isnan(row->run_exposed_ms[0])) return;
    row->exposed_ms = median_of(row->run_exposed_ms, row->run_count);
    row->fixed_ms = row->over_ms - row->smaller_batch_ms - row->exposed_ms;
}

void bench_assemble(bench_model *model) {
    settle_times(model->rows, model->row_count);
    for (int i = 0; i < model->row_count; i++) derive(model, &model->rows[i]);
    settle_times(model->locked_rows, model->locked_count);
    for (int i = 0; i < model->locked_count; i++)
        compare(&model->locked_rows[i], model->locked_rows[0].step_ms, model->plan);
    settle_times(model->virtual_rows, model->virtual_count);
    for (int i = 0; i < model->virtual_count; i++) {
        bench_row *row = &model->virtual_rows[i];
        compare(row, model->virtual_rows[0].step_ms, model->plan);
        if (!row->failed) row->exposed_ms = median_of(row->run_exposed_ms, row->run_count);
    }
}

bool bench_have_weights(const bench_model *model, int n) {
    const bench_row *dp = bench_find(model, BENCH_DP, n), *ddp = bench_find(model, BENCH_DDP, n);
    return dp && ddp && !dp->failed && !ddp->failed;
}

bool bench_same_weights(const bench_model *model, int n) {
    const bench_row *dp = bench_find(model, BENCH_DP, n), *ddp = bench_find(model, BENCH_DDP, n);
    return bench_have_weights(model, n) && dp->repeats && ddp->repeats && strcmp(dp->weights, ddp->weights) == 0;
}

bool bench_must_agree(const bench_model *model, int n) {
    const bench_row *ddp = bench_find(model, BENCH_DDP, n);
    bool own_order = n > 1 && ddp && strcmp(ddp->backend, "nccl") == 0;
    return (n & (n - 1)) == 0 && bench_global_batch(model->plan, n) % n == 0 && !own_order;
}

bench_pair bench_compare(const bench_row *dp, const bench_row *ddp) {
    bench_pair pair = {.dp = dp, .ddp = ddp, .failed = dp->failed || ddp->failed, .ratio = NAN, .spread = NAN};
    if (pair.failed) return pair;
    pair.fast = ddp->step_ms < dp->step_ms ? ddp : dp;
    pair.slow = pair.fast == ddp ? dp : ddp;
    pair.ratio = pair.slow->step_ms / pair.fast->step_ms;
    double dp_ms = dp->step_ms_max - dp->step_ms_min, ddp_ms = ddp->step_ms_max - ddp->step_ms_min,
           difference_ms = pair.slow->step_ms - pair.fast->step_ms;
    if (dp->run_count < 2 || ddp->run_count < 2) return pair;
    pair.spread = (dp_ms > ddp_ms ? dp_ms : ddp_ms) / pair.fast->step_ms;
    pair.is_more_than_spread = difference_ms > dp_ms && difference_ms > ddp_ms; /* false for NAN */
    return pair;
}
