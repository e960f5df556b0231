/* thread_vs_process — the cost of a rank, and the effect of its crash on others, as a thread and as a process.
 *
 *     build/thread_vs_process --runs 200
 *
 * DataParallel has a thread for each device, DDP a process. Here both are measured without any work. */
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "common/base/statistics.h"
#include "common/base/table.h"
#include "labs/bench/shared/machine.h"
#include "labs/bench/shared/settings.h"
#include "labs/bench/thread_vs_process/workers.h"

enum { MOST_RUNS = 10000 };

struct settings {
    int runs, trips;
};

struct times {
    double us[MOST_RUNS];
};

struct results {
    struct times create[WORKER_KINDS], change[WORKER_KINDS];
    bool shares[WORKER_KINDS];
    worker_crash crash[WORKER_KINDS];
};

/* The kinds alternate, so that both run under the same load of the machine. */
static ls_status measure(struct results *results, const struct settings *s) {
    ls_status status = LS_OK;
    for (int run = 0; run < s->runs; run++) {
        for (int k = 0; status == LS_OK && k < WORKER_KINDS; k++) {
            status = worker_create(&results->create[k].us[run], (worker_kind)k);
            if (status == LS_OK) status = worker_switch(&results->change[k].us[run], (worker_kind)k, s->trips);
        }
    }
    for (int k = 0; status == LS_OK && k < WORKER_KINDS; k++) {
        status = worker_shares(&results->shares[k], (worker_kind)k);
        if (status == LS_OK) status = worker_let_crash(&results->crash[k], (worker_kind)k);
        ls_sort(results->create[k].us, (size_t)s->runs);
        ls_sort(results->change[k].us, (size_t)s->runs);
    }
    return status;
}

static void put_times(ls_table *table, const char *what, const struct times *times, int runs) {
    ls_table_cell(table, "%s", what);
    for (int k = 0; k < WORKER_KINDS; k++) {
        const double *us = times[k].us;
        size_t count = (size_t)runs;
        ls_table_cell(table, "%.1f us (%.1f to %.1f)", ls_quantile(us, count, 0.5), ls_quantile(us, count, 0.1),
                      ls_quantile(us, count, 0.9));
    }
}

static void put_crash(ls_table *table, const worker_crash *crash) {
    if (crash->survived) {
        ls_table_cell(table, "its starter goes on, and is told: signal %d", crash->worker_signal);
    } else if (crash->signal != 0) {
        ls_table_cell(table, "the whole process ends: signal %d", crash->signal);
    } else {
        ls_table_cell(table, "its starter ended without a word");
    }
}

static ls_status print_table(const struct results *results, const struct settings *s) {
    static const ls_column columns[] = {{"", LS_LEFT}, {"a thread", LS_LEFT}, {"a process", LS_LEFT}};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    put_times(table, "start it, and wait for its end", results->create, s->runs);
    put_times(table, "hand over to it, or back", results->change, s->runs);
    ls_table_cell(table, "it changes a variable");
    for (int k = 0; k < WORKER_KINDS; k++)
        ls_table_cell(table, "%s", results->shares[k] ? "its starter sees that" : "its starter does not see that");
    ls_table_cell(table, "it crashes");
    for (int k = 0; k < WORKER_KINDS; k++) put_crash(table, &results->crash[k]);
    return ls_table_finish(table, stdout);
}

static ls_status run(const struct settings *s) {
    static struct results results;
    bench_machine machine;
    bench_describe_machine(&machine);
    bench_note_load(&machine);
    ls_status status = measure(&results, s);
    if (status != LS_OK) return status;
    bench_print_machine(stdout, &machine);
    printf("\nMeasured over %d runs: median (10 %% to 90 %% of the runs). A run hands over %d times there and back, by "
           "pipes,\nboth on one core. The last two lines: one run each.\n\n",
           s->runs, s->trips);
    return print_table(&results, s);
}

int main(int argc, char **argv) {
    struct settings settings = {.runs = 200, .trips = 200};
    /* clang-format off */
    const ls_option options[] = {
        {.kind = LS_OPTION_INT, .name = "runs", .to.number = &settings.runs, .argument = "N",
         .limits = LS_BETWEEN(1, MOST_RUNS), .help = "how often each is measured"},
        {.kind = LS_OPTION_INT, .name = "trips", .to.number = &settings.trips, .argument = "N",
         .limits = LS_BETWEEN(1, 1e6), .help = "there and back, of a run"},
    };
    /* clang-format on */
    bool help;
    ls_log_init(argv[0], -1, false);
    ls_status status = BENCH_PARSE(
        options, "Measures a thread beside a process: to start, to hand over to, and to lose.", argc, argv, &help);
    if (status == LS_OK && !help) status = run(&settings);
    return ls_status_exit_code(ls_results_written(status));
}
