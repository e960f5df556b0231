/* bench_launch — the time of a job of N ranks that only form a group: from the start of the launcher until it has
 * exited, with all ranks. ddprun is compared with torchrun, if that is installed.
 *
 *     build/bench_launch --n 1,2,4,8
 *
 * A rank is this program again (--as-rank): it joins a process group, waits for all others, and leaves. Under torchrun,
 * one row runs this program, and another PyTorch's own group (labs/bench/peers/join_gloo.py), whose import takes
 * seconds. Each round runs all rows in turn. If a run fails, its row is left out. gnuplot draws from the CSV
 * (plots/launch.gp). */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/results.h"
#include "common/base/statistics.h"
#include "common/comm/comm.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/launch/store.h"
#include "labs/bench/shared/command.h"
#include "labs/bench/shared/machine.h"
#include "labs/bench/shared/output.h"
#include "labs/bench/shared/settings.h"

enum { ROUNDS_MAX = 1000, COUNTS_MAX = 16 };

typedef enum launcher { DDPRUN, TORCHRUN, TORCHRUN_PYTORCH, LAUNCHERS } launcher;

static const char *const launcher_names[LAUNCHERS] = {"ddprun", "torchrun", "torchrun, PyTorch"};

typedef struct settings {
    ls_int_list counts;
    int rounds, pytorch_most;
    const char *torchrun, *folder;
    double timeout_s;
    bool as_rank, quiet;
} settings;

typedef struct launch_row {
    launcher launcher;
    int n, runs;
    bool failed;
    double s[ROUNDS_MAX], median_s, least_s, most_s;
} launch_row;

typedef struct results {
    const settings *settings;
    bench_machine machine;
    launch_row rows[COUNTS_MAX * LAUNCHERS];
    int row_count;
} results;

/* --- a rank ----------------------------------------------------------------------------------------------------------- */

static ls_status be_rank(const settings *s) {
    ddp_rank self;
    ddp_store *store = NULL;
    ls_comm *comm = NULL;
    ls_status status = ddp_rank_discover(&self);
    if (status != LS_OK || !self.launched) return status;
    status = ddp_store_open(&store, &self, s->timeout_s);
    if (status != LS_OK) return status;
    ls_bootstrap bootstrap = ddp_store_bootstrap(store);
    const ls_comm_options options = {
        .rank = self.rank, .world_size = self.world_size, .timeout_s = s->timeout_s, .bootstrap = &bootstrap};
    status = ls_comm_create_shm(&comm, &options);
    ls_comm_destroy(comm);
    ddp_store_close(store);
    return status;
}

/* --- measuring -------------------------------------------------------------------------------------------------------- */

static const char script[] = "labs/bench/peers/join_gloo.py";

static ls_status make_command(bench_command *command, const launch_row *row, const settings *s) {
    char self[BENCH_PATH_CAPACITY];
    ls_status status = bench_find_program(self, "bench_launch");
    if (status == LS_OK && row->launcher == DDPRUN) status = bench_command_begin(command, "ddprun");
    if (status != LS_OK) return status;
    if (row->launcher != DDPRUN && !bench_command_begin_tool(command, s->torchrun))
        return ls_fail(LS_ERR_IO, "%s is gone", s->torchrun);
    if (row->launcher == TORCHRUN) bench_command_add(command, "--no-python");
    bench_command_add(command, "--standalone");
    bench_command_add(command, "--nproc-per-node=%d", row->n);
    if (row->launcher == TORCHRUN_PYTORCH) {
        bench_command_add(command, "%s", script);
        return LS_OK;
    }
    bench_command_add(command, "%s", self);
    bench_command_add(command, "--as-rank");
    bench_command_add(command, "--timeout=%g", s->timeout_s);
    return LS_OK;
}

static ls_status run_row(launch_row *row, const settings *s) {
    static bench_output output;
    bench_command command;
    ls_status status = make_command(&command, row, s);
    double begin_us = ls_now_us();
    if (status == LS_OK) status = bench_command_run(&command, s->timeout_s, &output);
    if (status == LS_OK) row->s[row->runs++] = (ls_now_us() - begin_us) * 1e-6;
    return status;
}

/* torchrun only if it is installed, PyTorch's ranks up to --pytorch-most. */
static void plan_rows(results *r) {
    char path[BENCH_PATH_CAPACITY];
    const settings *s = r->settings;
    bool found = strcmp(s->torchrun, "none") != 0 && bench_find_tool(path, s->torchrun);
    if (!found && strcmp(s->torchrun, "none") != 0) ls_note("%s is not here: ddprun is measured alone", s->torchrun);
    bool has_script = access(script, R_OK) == 0;
    for (int i = 0; i < s->counts.count; i++)
        for (int l = 0; l < LAUNCHERS; l++) {
            int n = s->counts.values[i];
            bool wanted = l == DDPRUN || (found && (l == TORCHRUN || (has_script && n <= s->pytorch_most)));
            if (wanted) r->rows[r->row_count++] = (launch_row){.launcher = (launcher)l, .n = n};
        }
}

static ls_status run_rows(results *r) {
    const settings *s = r->settings;
    ls_progress progress = ls_progress_begin(s->quiet);
    ls_status first = LS_OK;
    for (int done = 0; done < s->rounds * r->row_count; done++) {
        launch_row *row = &r->rows[done % r->row_count];
        if (row->failed) continue;
        ls_progress_show(&progress, "run", done + 1, s->rounds * r->row_count);
        ls_status status = run_row(row, s);
        row->failed = status != LS_OK;
        if (first == LS_OK) first = status;
        if (status == LS_ERR_STOPPED) break;
    }
    ls_progress_end(&progress);
    for (launch_row *row = r->rows; row < r->rows + r->row_count; row++) {
        ls_sort(row->s, (size_t)row->runs);
        bool any = row->runs > 0;
        row->median_s = any ? ls_quantile(row->s, (size_t)row->runs, 0.5) : NAN;
        row->least_s = any ? row->s[0] : NAN;
        row->most_s = any ? row->s[row->runs - 1] : NAN;
    }
    return first;
}

/* --- what is written -------------------------------------------------------------------------------------------------- */

BENCH_TEXT_OF(launcher_of, launch_row, launcher_names[row->launcher])
BENCH_TEXT_OF(note_of, launch_row, row->failed ? "failed" : "")

static const bench_column columns[] = {
    {.name = "launcher", .text = launcher_of, .head = "launcher"},
    {.name = "n", BENCH_AT(BENCH_INT, launch_row, n), .head = "ranks"},
    {.name = "runs", BENCH_AT(BENCH_INT, launch_row, runs)},
    {.name = "s", BENCH_AT(BENCH_DOUBLE, launch_row, median_s), .head = "\ns", .decimals = 3},
    {.name = "s_min", BENCH_AT(BENCH_DOUBLE, launch_row, least_s), .head = "least\ns", .decimals = 3},
    {.name = "s_max", BENCH_AT(BENCH_DOUBLE, launch_row, most_s), .head = "most\ns", .decimals = 3},
    {.name = "note", .text = note_of, .head = ""},
    {.kind = BENCH_END},
};

static ls_status put_csv(FILE *file, const void *of) {
    const results *r = of;
    fputs("bench", file);
    bench_put_names(file, columns);
    bench_put_names(file, bench_machine_columns);
    fputc('\n', file);
    for (const launch_row *row = r->rows; row < r->rows + r->row_count; row++) {
        fputs("launch", file);
        bench_put_columns(file, columns, row);
        bench_put_columns(file, bench_machine_columns, &r->machine);
        fputc('\n', file);
    }
    return LS_OK;
}

static const bench_file outputs[] = {{"launch.csv", put_csv}, {NULL, NULL}};

static ls_status report(const results *r) {
    const settings *s = r->settings;
    bench_print_machine(stdout, &r->machine);
    printf("\nFrom the launcher's start to its end, of ranks that meet and leave: measured, %d run%s of each row in "
           "turn\n\n",
           s->rounds, s->rounds == 1 ? "" : "s");
    ls_status status = bench_print_rows(stdout, columns, r->rows, (size_t)r->row_count, sizeof r->rows[0]);
    printf("\nThe numbers: %s/launch.csv\n", s->folder);
    return status;
}

static ls_status bench(const settings *s) {
    results *r = calloc(1, sizeof *r);
    if (!r) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the results");
    r->settings = s;
    bench_describe_machine(&r->machine);
    ls_status status = bench_prepare_folder(&(ls_named_files){0}, s->folder, outputs), first = LS_OK;
    if (status == LS_OK) {
        bench_note_load(&r->machine);
        plan_rows(r);
        first = run_rows(r);
        status = bench_write_outputs(s->folder, outputs, r);
    }
    if (status == LS_OK) status = report(r);
    free(r);
    return status == LS_OK ? first : status;
}

/* --- the command line ------------------------------------------------------------------------------------------------- */

/* clang-format off */
static ls_status parse(settings *s, int argc, char **argv, bool *help) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "What is measured"},
        {.kind = LS_OPTION_INT_LIST, .name = "n", .to.list = &s->counts, .argument = "N,N,...", .limits = LS_BETWEEN(1, LS_COMM_MAX_RANKS),
         .help = "numbers of ranks, at most 16 of them"},
        {.kind = LS_OPTION_STRING, .name = "torchrun", .to.text = &s->torchrun, .argument = "PROGRAM",
         .help = "torchrun to compare with, if found; none: no comparison"},
        {.kind = LS_OPTION_INT, .name = "pytorch-most", .to.number = &s->pytorch_most, .argument = "N", .limits = LS_BETWEEN(0, LS_COMM_MAX_RANKS),
         .help = "ranks of PyTorch, which take seconds to import it, up to this number"},
        {.kind = LS_OPTION_HEADING, .help = "How it is measured"},
        {.kind = LS_OPTION_INT, .name = "rounds", .to.number = &s->rounds, .argument = "R", .limits = LS_BETWEEN(1, ROUNDS_MAX),
         .help = "runs of each row; every row runs once per round"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &s->timeout_s, .argument = "SECONDS", .limits = LS_BETWEEN(1, 1e6),
         .help = "end a run after this many seconds; its row counts as failed"},
        {.kind = LS_OPTION_FLAG, .name = "as-rank", .to.flag = &s->as_rank, .help = "run as a rank of a launcher: join and leave without measuring"},
        {.kind = LS_OPTION_HEADING, .help = "What is written"},
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->folder, .argument = "DIR", .help = "folder for the results: launch.csv"},
        {.kind = LS_OPTION_FLAG, .name = "quiet", .to.flag = &s->quiet, .help = "no progress, no notes"},
    };
    return BENCH_PARSE(table, "Measures how long jobs take to start, meet and end, over the number of ranks: ddprun beside torchrun.", argc, argv, help);
}
/* clang-format on */

int main(int argc, char **argv) {
    settings s = {.counts = {.values = {1, 2, 4, 8, 16, 32, 64}, .count = 7},
                  .rounds = 5,
                  .pytorch_most = 4,
                  .torchrun = "torchrun",
                  .folder = "build/results",
                  .timeout_s = 120};
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&s, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, s.quiet);
    if (s.as_rank) return ls_status_exit_code(ls_results_written(be_rank(&s)));
    bench_sort_numbers(&s.counts);
    status = s.counts.count <= COUNTS_MAX
                 ? ls_launcher_refuse_copies("start jobs of its own", "start the program once, without the launcher")
                 : ls_fail(LS_ERR_USAGE, "--n: too many numbers; expected at most %d", COUNTS_MAX);
    return ls_status_exit_code(ls_results_written(status == LS_OK ? bench(&s) : status));
}
