/* bench_gpt — how fast a small GPT trains here: a step beside its matrix multiplies and beside PyTorch's, both modes on two
 * devices, and attention tile by tile beside scores in memory.
 *
 * It runs build/dp_train, build/ddp_train and, if PyTorch is installed, labs/bench/peers/bench_pytorch_gpt.py, round by
 * round. gnuplot draws from the CSV (plots/gpt_attention.gp). If a run fails, its row is left out, and the bench
 * continues. Exit status 1 (or that of the first failure) if a run failed, or if DP and DDP end with different
 * weights. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/results.h"
#include "labs/bench/gpt/bench_gpt.h"

static void keep(ls_status *first, ls_status status) {
    if (*first == LS_OK) *first = status;
}

/* Runs a row once. For attention, the network's activations are counted once, on a meta device. */
static ls_status run_row(gpt_row *row, gpt_results *results) {
    ls_status status = LS_OK;
    switch (row->kind) {
    case GPT_PRODUCTS: return gpt_multiply(row, results);
    case GPT_EAGER:
    case GPT_COMPILED: return gpt_run_pytorch(row, results);
    case GPT_SCORES:
    case GPT_TILES:
        if (row->run_count == 0) status = gpt_train(row, results);
        return status == LS_OK ? gpt_attend(row, results) : status;
    default: return gpt_train(row, results);
    }
}

/* Returns the first failure. */
static ls_status run_rows(gpt_results *results) {
    const gpt_settings *s = results->settings;
    ls_progress progress = ls_progress_begin(s->quiet);
    ls_status first = LS_OK;
    char what[160];
    for (int done = 0; done < s->rounds * results->row_count; done++) {
        gpt_row *row = &results->rows[done % results->row_count];
        if (row->failed || row->missing) continue;
        snprintf(what, sizeof what, "round %d of %d: %s, %d tokens, run", done / results->row_count + 1, s->rounds,
                 gpt_name(row->kind), row->context);
        ls_progress_show(&progress, what, done + 1, s->rounds * results->row_count);
        ls_status status = run_row(row, results);
        row->failed = status != LS_OK;
        keep(&first, status);
    }
    ls_progress_end(&progress);
    return first;
}

static ls_status bench(gpt_results *results) {
    const gpt_settings *s = results->settings;
    ls_status status = gpt_prepare_files(s->folder);
    if (status == LS_OK) status = gpt_open_device(results);
    if (status != LS_OK) return status;
    bench_note_load(results->machine);
    gpt_plan_rows(results);
    ls_status first = run_rows(results);
    gpt_assemble(results);
    status = gpt_write_files(results, s->folder);
    if (status == LS_OK) status = gpt_report(results);
    if (gpt_have_weights(results) && !gpt_same_weights(results))
        keep(&first, ls_fail(LS_ERR_INVALID, "DP and DDP on %d devices ended with different weights; expected the same",
                             GPT_DEVICES));
    return status == LS_OK ? first : status;
}

int main(int argc, char **argv) {
    gpt_settings settings;
    bench_machine machine;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = gpt_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, settings.quiet);
    bench_describe_machine(&machine);
    gpt_results *results = calloc(1, sizeof *results);
    if (results) {
        results->machine = &machine;
        results->settings = &settings;
    }
    status = results ? bench(results) : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the results");
    if (results) ls_device_close(results->device);
    free(results);
    return ls_status_exit_code(ls_results_written(status));
}
