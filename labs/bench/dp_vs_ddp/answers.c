/* answers: the first lines, one sentence each, from the numbers of this run.
 *   idea : a reader wants to know which mode is faster, by how much, and whether that exceeds the spread of the runs;
 *          then whether the weights are the same, what the gap consists of, and what GPUs and Python would change
 *   which: the greatest N that has a core (or a GPU) for each device is described in full; if there is none, the
 *          greatest in virtual time. The others follow in brief. Measured times of more devices than cores are never
 *          compared: they only show time-slicing
 *   when : "faster" is printed only if the difference exceeds the spread. A difference of NAN never does */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/bench/dp_vs_ddp/bench.h"

/* --- who is faster ----------------------------------------------------------------------------------------------- */

/* An N at which DP and DDP are compared. */
struct match {
    int n; /* 0: there is none */
    bool is_virtual;
    bench_pair pair;
};

/* The match at n: measured, if there is a core for each device; else virtual. */
static struct match match_at(const bench_model *model, int n) {
    const bench_row *dp = bench_find(model, BENCH_DP, n), *ddp = bench_find(model, BENCH_DDP, n);
    if (dp && ddp && !dp->oversubscribed) return (struct match){n, false, bench_compare(dp, ddp)};
    dp = bench_find_virtual(model, BENCH_DP, n);
    ddp = bench_find_virtual(model, BENCH_DDP, n);
    if (dp && ddp) return (struct match){n, true, bench_compare(dp, ddp)};
    return (struct match){.n = 0};
}

static int greatest_n(const bench_model *model) {
    int most = 1;
    for (int i = 0; i < model->row_count; i++)
        if (model->rows[i].n > most) most = model->rows[i].n;
    for (int i = 0; i < model->virtual_count; i++)
        if (model->virtual_rows[i].n > most) most = model->virtual_rows[i].n;
    return most;
}

/* The match that is described in full: measured before virtual, N > 1 before N = 1, and a greater N before a smaller
 * one. */
static struct match main_match(const bench_model *model) {
    struct match best = {.n = 0};
    for (int n = 1; n <= greatest_n(model); n++) {
        struct match match = match_at(model, n);
        bool is_better = best.n <= 1 || !match.is_virtual || best.is_virtual;
        if (match.n > 0 && is_better) best = match;
    }
    return best;
}

static const char *name_of(const bench_row *row) { return bench_mode_name(row->mode); }

static void put_failed(FILE *file, const bench_pair *pair) {
    bool both = pair->dp->failed && pair->ddp->failed;
    fprintf(file, "%s failed", both ? "DP and DDP" : pair->dp->failed ? "DP" : "DDP");
}

static void put_in_full(FILE *file, const bench_model *model, const struct match *match) {
    const bench_pair *pair = &match->pair;
    fprintf(file, "%s, N = %d, %s: ", model->plan->model, match->n, match->is_virtual ? "virtual" : "measured");
    if (pair->failed) {
        put_failed(file, pair);
        fprintf(file, ", so nothing is compared");
        return;
    }
    const char *fast = name_of(pair->fast), *slow = name_of(pair->slow);
    double fast_ms = pair->fast->step_ms, slow_ms = pair->slow->step_ms;
    if (isnan(pair->spread)) {
        fprintf(file, "%s %.3f ms, %s %.3f ms (%.2fx); one run each, so the spread is not known", fast, fast_ms, slow,
                slow_ms, pair->ratio);
    } else if (pair->is_more_than_spread) {
        fprintf(file, "%s is %.2fx faster than %s (%.3f against %.3f ms; spread %.1f %%)", fast, pair->ratio, slow,
                fast_ms, slow_ms, 100 * pair->spread);
    } else {
        fprintf(file, "no difference beyond the spread (%s %.3f, %s %.3f ms: +%.1f %%; spread %.1f %%)", fast, fast_ms,
                slow, slow_ms, 100 * (pair->ratio - 1), 100 * pair->spread);
    }
}

static void put_in_short(FILE *file, const struct match *match) {
    const bench_pair *pair = &match->pair;
    fprintf(file, "N = %d ", match->n);
    if (pair->failed) {
        put_failed(file, pair);
    } else if (isnan(pair->spread) || pair->is_more_than_spread) {
        fprintf(file, "%s %.2fx", name_of(pair->fast), pair->ratio);
    } else {
        fprintf(file, "within spread");
    }
}

static void put_who_is_faster(FILE *file, const bench_model *model, const bench_settings *settings) {
    struct match told = main_match(model);
    if (told.n > 0) put_in_full(file, model, &told);
    if (told.n == 0) fprintf(file, "%s: nothing can be compared", model->plan->model);
    bool any_virtual = told.is_virtual;
    for (int n = 2; n <= greatest_n(model); n++) {
        struct match match = match_at(model, n);
        if (match.n == 0 || n == told.n) continue;
        bool is_first_virtual = match.is_virtual && !any_virtual;
        any_virtual = any_virtual || match.is_virtual;
        fprintf(file, is_first_virtual ? "; virtual " : "; ");
        put_in_short(file, &match);
    }
    if (told.n == 0 || (told.is_virtual && settings->n.values[settings->n.count - 1] > settings->processors)) {
        fprintf(file, "; with more devices than %s, measured times only show time-slicing",
                settings->gpus ? "GPUs" : "cores");
    }
    fputc('\n', file);
}

/* --- same weights ------------------------------------------------------------------------------------------------ */

static const char *why_not(const bench_model *model, int n) {
    const bench_row *dp = bench_find(model, BENCH_DP, n), *ddp = bench_find(model, BENCH_DDP, n);
    if (!bench_have_weights(model, n)) return "unknown, a run failed";
    if (!dp->repeats || !ddp->repeats) return "NO: runs of one mode differ";
    if (bench_must_agree(model, n)) return "NO, but they must agree";
    if (strcmp(ddp->backend, "nccl") == 0) return "no, NCCL adds in its own order";
    return "no, and need not (N is no power of two)";
}

static void put_n_list(FILE *file, const ls_int_list *n) {
    fprintf(file, "N = ");
    for (int i = 0; i < n->count; i++) fprintf(file, i ? ", %d" : "%d", n->values[i]);
}

static void put_same_weights(FILE *file, const bench_results *results) {
    const ls_int_list *n = &results->settings->n;
    int same = 0, others = 0;
    fprintf(file, "Same weights: ");
    for (int m = 0; m < results->model_count; m++) {
        for (int i = 0; i < n->count; i++) {
            const bench_model *model = &results->models[m];
            bool is_same = bench_same_weights(model, n->values[i]);
            same += is_same;
            if (is_same) continue;
            fprintf(file, "%s%s, N = %d: %s", others++ ? "; " : "", model->plan->model, n->values[i],
                    why_not(model, n->values[i]));
        }
    }
    if (others > 0) {
        fprintf(file, same ? "; all others: yes, bit for bit\n" : "\n");
        return;
    }
    fprintf(file, "yes, bit for bit, at ");
    put_n_list(file, n);
    fprintf(file, ", in every run (both modes get the same chunks: --shard contiguous)\n");
}

/* --- what the gap is made of ------------------------------------------------------------------------------------- */

/* A virtual difference beyond the spread, at the greatest N that has one. */
static struct match virtual_gap(const bench_model *model) {
    for (int n = greatest_n(model); n > 1; n--) {
        struct match match = match_at(model, n);
        if (match.n > 0 && match.is_virtual && match.pair.is_more_than_spread) return match;
    }
    return (struct match){.n = 0};
}

static void put_parts(FILE *file, const struct match *match) {
    const bench_pair *pair = &match->pair;
    double gap_ms = pair->slow->step_ms - pair->fast->step_ms,
           waiting_ms = pair->slow->exposed_ms - pair->fast->exposed_ms;
    fprintf(file, " %.3f ms", gap_ms);
    if (isnan(waiting_ms)) {
        fprintf(file, " (communication and fixed work are not told apart)");
    } else {
        fprintf(file, " = %.3f exposed communication %c %.3f %s", waiting_ms, gap_ms < waiting_ms ? '-' : '+',
                fabs(gap_ms - waiting_ms), match->is_virtual ? "others" : "fixed work");
    }
}

static void put_gap(FILE *file, const bench_model *model) {
    struct match match = main_match(model);
    const bench_pair *pair = &match.pair;
    fprintf(file, "%s", model->plan->model);
    if (match.n == 0 || pair->failed) {
        fprintf(file, " unknown");
    } else if (isnan(pair->spread)) {
        fprintf(file, " unknown (one run each)");
    } else if (pair->is_more_than_spread) {
        put_parts(file, &match);
    } else {
        fprintf(file, " none beyond the spread");
        match = virtual_gap(model);
        if (match.n == 0) return;
        fprintf(file, ", virtual N = %d", match.n);
        put_parts(file, &match);
    }
}

static void put_gaps(FILE *file, const bench_results *results) {
    fprintf(file, "The gap: ");
    for (int m = 0; m < results->model_count; m++) {
        if (m > 0) fprintf(file, "; ");
        put_gap(file, &results->models[m]);
    }
    fputc('\n', file);
}

/* --- GPUs and Python --------------------------------------------------------------------------------------------- */

enum { FROM_C, FROM_PYTHON };

static int greatest_replayed(const bench_model *model) {
    int most = 0;
    for (int i = 0; i < model->replayed_count; i++) {
        const struct bench_replayed *row = &model->replayed[i];
        if (row->mode == BENCH_DDP && row->n > most) most = row->n;
    }
    return most;
}

/* "DDP 1.19x"; a replay has no spread. */
static void put_replayed(FILE *file, const bench_model *model, int n, int way) {
    const struct bench_replayed *dp = bench_find_replayed(model, BENCH_DP, n, way),
                                *ddp = bench_find_replayed(model, BENCH_DDP, n, way);
    double ratio = dp && ddp ? dp->step.step_ms / ddp->step.step_ms : NAN;
    if (isnan(ratio)) {
        fprintf(file, "unknown");
    } else if (fabs(ratio - 1) < 0.005) {
        fprintf(file, "both alike");
    } else {
        fprintf(file, "%s %.2fx", ratio > 1 ? "DDP" : "DP", ratio > 1 ? ratio : 1 / ratio);
    }
}

static void put_gpus(FILE *file, const bench_results *results) {
    bool waits_for_lock = false;
    int told = 0;
    for (int m = 0; m < results->model_count; m++) {
        const bench_model *model = &results->models[m];
        int n = greatest_replayed(model);
        if (n == 0) continue;
        if (told++ == 0) fprintf(file, "Faster on %d GPUs (replayed, " BENCH_REPLAYED_NODE "): ", n);
        fprintf(file, told > 1 ? "; %s " : "%s ", model->plan->model);
        put_replayed(file, model, n, FROM_C);
        fprintf(file, ", in Python at worst ");
        put_replayed(file, model, n, FROM_PYTHON);
        const struct bench_replayed *dp = bench_find_replayed(model, BENCH_DP, n, FROM_PYTHON);
        waits_for_lock = waits_for_lock || (dp && dp->step.lock_ms > 0);
    }
    if (told == 0) fprintf(file, "On GPUs: nothing was replayed");
    fprintf(file, waits_for_lock ? " (one lock for DP's threads)\n" : "\n");
}

void bench_put_answers(FILE *file, const bench_results *results) {
    for (int m = 0; m < results->model_count; m++) put_who_is_faster(file, &results->models[m], results->settings);
    put_same_weights(file, results);
    put_gaps(file, results);
    put_gpus(file, results);
}
