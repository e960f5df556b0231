/* The output of the benches and the programs of replays, to the byte, for synthetic results and for replays, which are
 * computed from files: tests/golden/results_*.txt, one for each case. Numbers with different digits must agree in the
 * first nine, since libraries may round the last ones differently.
 *
 *     build/tests/test_results --write        rewrites the golden files */
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "labs/bench/comm/bench_comm.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

#define TOLERANCE 3e-9

static bool writes; /* writes the golden files instead of comparing with them */

/* --- the output of a case ------------------------------------------------------------------------------------------ */

static char *said;
static size_t said_nbytes;
static FILE *saying;

static void begin(void) {
    saying = open_memstream(&said, &said_nbytes);
    assert_non_null(saying);
}

/* The scratch folder's name differs each time. */
static void put(const char *text) {
    const char *folder = scratch_folder();
    for (const char *next; (next = strstr(text, folder)); text = next + strlen(folder))
        fprintf(saying, "%.*sHERE", (int)(next - text), text);
    fputs(text, saying);
}

static void say(const char *name, const char *text) {
    fputs("=== ", saying);
    put(name);
    fputs(" ===\n", saying);
    put(text);
}

static void say_file(const char *name) {
    char *text = scratch_read_text(name);
    say(name, text);
    free(text);
}

static void say_files(const char *const *names) {
    for (; *names; names++) say_file(*names);
}

/* Redirects stdout to a file; returns the old stdout. */
static int take_stdout(void) {
    scratch_write("stdout", "", 0);
    fflush(stdout);
    int before = dup(STDOUT_FILENO), file = open(scratch_path("stdout"), O_WRONLY);
    assert_true(before >= 0 && file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    close(file);
    return before;
}

static void say_stdout(int before) {
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    say_file("stdout");
}

static void say_run(const char *line) {
    static program p;
    if (program_run(&p, "%s", line) != 0) fail_msg("%s: status %d, %s", line, p.status, p.err_text);
    say(line, p.out_text);
    put(p.err_text);
}

/* --- the golden files ---------------------------------------------------------------------------------------------- */

static bool is_number(const char *text, const char **end, double *value) {
    if (!isdigit((unsigned char)*text) && !(*text == '-' && isdigit((unsigned char)text[1]))) return false;
    char *behind;
    *value = strtod(text, &behind);
    *end = behind;
    return true;
}

/* Advances both as long as they agree; false if they differ. */
static bool agree(const char **wanted, const char **got) {
    while (**wanted || **got) {
        const char *wanted_end, *got_end;
        double a, b;
        bool numbers = is_number(*wanted, &wanted_end, &a) && is_number(*got, &got_end, &b);
        if (numbers && fabs(a - b) <= TOLERANCE * fmax(1, fabs(a))) {
            *wanted = wanted_end;
            *got = got_end;
        } else if (numbers || *(*wanted)++ != *(*got)++) {
            return false;
        }
    }
    return true;
}

static void finish(const char *name) {
    char path[100];
    assert_int_equal(fclose(saying), 0);
    snprintf(path, sizeof path, "tests/golden/results_%s.txt", name);
    if (writes) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(said, file);
        assert_int_equal(fclose(file), 0);
    } else {
        char *golden = scratch_read(path, &(size_t){0});
        const char *wanted = golden, *got = said;
        if (!agree(&wanted, &got))
            fail_msg("%s, from byte %zd on: '%.200s' is not '%.200s'", path, wanted - golden, got, wanted);
        free(golden);
    }
    free(said);
}

/* --- bench_dp_vs_ddp ------------------------------------------------------------------------------------------------ */

static bench_settings settings;
static bench_model models[2];

/* Adds three runs, at and around a time that differs for each row. */
static void add_runs(bench_row *row, int index, double spread_ms, const char *backend) {
    for (int i = 0; i < 3; i++) {
        bench_run run = {.step_ms = 8.0 / row->n + 0.375 * index + (i - 1) * spread_ms,
                         .exposed_ms = row->mode == BENCH_SINGLE ? 0 : 0.25 + 0.0625 * i,
                         .busy = 0.5 + 0.125 * i,
                         .final_loss = 0.25 + index,
                         .weights = "00ff"};
        snprintf(run.backend, sizeof run.backend, "%s", row->mode == BENCH_SINGLE ? "" : backend);
        bench_add_run(row, &run);
    }
}

static void add_replayed(bench_model *model) {
    for (int way = 0; way < BENCH_WAYS; way++) {
        for (int mode = BENCH_SINGLE; mode <= BENCH_DDP; mode++) {
            int n = mode == BENCH_SINGLE ? 1 : 8;
            struct bench_replay step = {4.0 / n + mode + way, 0.5 / n, 0.125 * mode, way * (mode == BENCH_DP) * 0.5};
            model->replayed[model->replayed_count++] =
                (struct bench_replayed){(bench_mode)mode, n, way, 4.0 / step.step_ms, step};
        }
        model->replayed_launch_us[way] = 2.5 + 7.5 * way;
    }
}

static void make_model(bench_model *model, const bench_plan *plan) {
    double spread_ms = plan == settings.plans ? 0.125 : 1.5; /* less, and more than the difference of modes */
    memset(model, 0, sizeof *model);
    bench_plan_rows(model, plan, &settings);
    bench_plan_locked(model, &settings);
    bench_plan_virtual(model, &settings);
    for (int i = 0; i < model->row_count; i++) add_runs(&model->rows[i], i, spread_ms, settings.gpus ? "nccl" : "shm");
    for (int i = 0; i < model->locked_count; i++) add_runs(&model->locked_rows[i], 2 * i, spread_ms, "shm");
    for (int i = 0; i < model->virtual_count; i++) add_runs(&model->virtual_rows[i], i % 2, spread_ms, "shm");
    add_replayed(model);
}

/* The output of a bench of two models, one row of which has failed, and one has different weights. */
static void say_bench(const char *name, char *a, char *b, bool gpus) {
    static const char *const names[] = {"dp_vs_ddp.csv", "dp_vs_ddp_locked.csv", "dp_vs_ddp_virtual.csv",
                                        "dp_vs_ddp_replayed.csv", NULL};
    char mlp[] = "--models=mlp,convnet";
    assert_int_equal(bench_parse_words(&settings, mlp, a, b, NULL), LS_OK);
    settings.processors = 2;
    settings.gpus = gpus;
    settings.device = gpus ? "cuda" : "cpu";
    for (int m = 0; m < 2; m++) make_model(&models[m], &settings.plans[m]);
    models[1].rows[models[1].row_count - 1].failed = true;
    strcpy(models[0].rows[models[0].row_count - 1].weights, "ab");
    models[0].rows[models[0].row_count - 2].repeats = false;
    for (int m = 0; m < 2; m++) bench_assemble(&models[m]);
    const bench_results results = {&example_machine, &settings, gpus ? "NVIDIA H200" : "", 2, models};
    begin();
    assert_int_equal(bench_prepare_files(scratch_folder()), LS_OK);
    int before = take_stdout();
    assert_int_equal(bench_write_files(&results, scratch_folder()), LS_OK);
    assert_int_equal(bench_report(&results, scratch_folder()), LS_OK);
    say_stdout(before);
    say_files(names);
    if (gpus) say_file("dp_vs_ddp.json"); /* the smallest; the same members in all */
    finish(name);
}

TEST_CASE(test_dp_vs_ddp) {
    char n[] = "--n=1,2,4", all[] = "--all", share[] = "--per-device-batch=48", two[] = "--n=2";
    say_bench("dp_vs_ddp", n, NULL, false);
    say_bench("dp_vs_ddp_weak", share, all, false);
    say_bench("dp_vs_ddp_gpus", two, all, true);
}

/* --- bench_comm ----------------------------------------------------------------------------------------------------- */

static void make_row(comm_row *row, int index) {
    row->run_count = 3;
    row->iterations = 7;
    for (int i = 0; i < 3; i++) row->run_us[i] = (index % 4 == 3 ? 200 : 1) * (2.5 + index + 0.5 * i);
    row->checked = true;
    row->busiest_rank = index % 2;
    row->counted = row->formula = (struct ls_allreduce_cost){.sent_messages = 2, .sent_bytes = 64, .received_bytes = 9};
    row->agreement = (comm_agreement)(index % 3);
    comm_assemble(row);
}

TEST_CASE(test_comm) {
    static const char *const names[] = {"comm.csv", "other.json", NULL};
    static comm_settings wanted;
    char words[][40] = {"bench_comm",    "--op=all_reduce,barrier", "--allreduce=ring,direct", "--n=2",
                        "--sizes=8,64K", "--backend=all",           "--buffers=both",          "--cache=64K"},
         *argv[9] = {NULL};
    bool help;
    comm_results *results;
    for (int i = 0; i < 8; i++) argv[i] = words[i];
    assert_int_equal(comm_parse(&wanted, 8, argv, &help), LS_OK);
    wanted.cores = 2;
    wanted.variants[COMM_MPI] = false; /* not in every build */
    wanted.folder = scratch_folder();
    wanted.json = scratch_path("other.json");
    assert_int_equal(comm_results_create(&results, &wanted, &example_machine), LS_OK);
    for (int i = 0; i < results->row_count; i++) make_row(&results->rows[i], i);
    results->rows[5].run_count = 0; /* only checked */
    comm_assemble(&results->rows[5]);
    results->others[0] = (comm_row){.library = "Other, 1.0", .operation = &comm_operations[0], .n = 2, .nbytes = 8};
    make_row(&results->others[0], 4);
    results->other_count = 1;
    snprintf(results->absent, sizeof results->absent, "gloo (package python3-torch)");
    begin();
    int before = take_stdout();
    assert_int_equal(comm_prepare_files(&wanted), LS_OK);
    comm_print_heading(results);
    assert_int_equal(comm_print_rows(results), LS_OK);
    assert_int_equal(comm_write_files(results), LS_OK);
    say_stdout(before);
    say_files(names);
    finish("comm");
    comm_results_destroy(results);
}

/* --- calibrate ------------------------------------------------------------------------------------------------------ */

static void say_node(const calibrate_figures *figures, bool with_file) {
    int before = take_stdout();
    assert_int_equal(calibrate_print(figures, &example_machine), LS_OK);
    assert_int_equal(calibrate_write(figures, &example_machine, scratch_path("node.json")), LS_OK);
    say_stdout(before);
    if (with_file) say_file("node.json");
}

/* Factors are printed as they are written; those that were changed or are unreliable are marked. */
TEST_CASE(test_calibrate) {
    calibrate_figures f = example_figures();
    begin();
    say_node(&f, false);
    f.products_crowded = 0.19;
    f.tables[LS_NODE_ALL_REDUCE].straightened = 1;
    f.tables[LS_NODE_ALL_REDUCE].rows[0].written_us = 3; /* less than measured */
    f.copy_us.high *= 2;
    f.fp32_us[CALIBRATE_MAIN_BATCH].high *= 2;
    f.beyond_cache = true;
    f.taken_bytes = 0;
    say_node(&f, true);
    f.cores = 1;
    say_node(&f, false);
    finish("calibrate");
}

/* --- replay and fit_tn ---------------------------------------------------------------------------------------------- */

TEST_CASE(test_replay) {
    static const char *const names[] = {"replay.csv", "replay_devices.csv", NULL};
    static const char *const lines[] = {
        "replay --node=course --workload=course", /* batch, precision and both methods of DP are the file's */
        "replay --node=course --workload=course --per-device-batch=96 --n=1,4 --mode=dp --precision=fp32 "
        "--calibrate-t1=50 --spread=2",
        /* N = 1 does not fit */
        "replay --node=course --workload=bert-large --batch=128 --n=1,8 --mode=ddp --bucket-cap-mb=25,5 --no-overlap "
        "--compress=fp16 --collectives=messages --algorithm=server --accumulate=2 --sync-bn --join",
        "replay --node=dgx1-v100 --workload=resnet50 --batch=64 --mode=single --steps=1 --calibrate-t1=1000",
        /* launches cost the lock's time in every mode */
        "replay --node=course --workload=course --replicate=collectives --batch=64 --n=2 --host-lock=100"};
    begin();
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        char line[600];
        snprintf(line, sizeof line, "%s --quiet --out=%s --gantt=%s", lines[i], scratch_folder(),
                 scratch_path("gantt.csv"));
        say_run(line);
        say_files(names);
        if (i == 1) say_file("gantt.csv");
        if (i == 3) say_file("replay.json"); /* the shortest; the same members in all */
    }
    finish("replay");
}

/* A bench's file: a machine of 4 cores; T_N - T1(b/N) - exposed is 1 ms throughout. T1 is the run without a mode, not
 * DDP on one device. Then a file whose batch grows with N, which is weak scaling, and one with few columns. */
static const char bench_csv[] = "model,mode,n,batch,per_device_batch,how,step_ms,exposed_ms,oversubscribed,cpu,cores\n"
                                "\"mlp:784,10\",single,1,64,64,measured,100,,no,\"a CPU, \"\"fast\"\"\",4\n"
                                "\"mlp:784,10\",single,1,32,32,measured,51,,no,,4\n"
                                "\"mlp:784,10\",single,1,16,16,measured,27,,no,,4\n"
                                "\"mlp:784,10\",single,1,8,8,measured,15,,yes,,4\n"
                                "\"mlp:784,10\",DP,1,64,64,measured,107,0,no,,4\n"
                                "\"mlp:784,10\",DDP,1,64,64,measured,108,0,no,\"a CPU, \"\"fast\"\"\",4\n"
                                "\"mlp:784,10\",DDP,2,64,32,measured,54,2,no,\"a CPU, \"\"fast\"\"\",4\n"
                                "\"mlp:784,10\",DDP,4,64,16,measured,31,3,no,,4\n"
                                "\"mlp:784,10\",DDP,8,64,8,measured,70,4,yes,,4\n";
static const char weak_csv[] = "model,mode,n,batch,per_device_batch,how,step_ms\n"
                               "net,single,1,8,8,replayed,10\nnet,DP,1,8,8,replayed,10\n"
                               "net,DP,2,16,8,replayed,12\nnet,DP,4,32,8,replayed,14\nnet,DP,8,64,8,replayed,16\n";
static const char short_csv[] = "mode,n,step_ms,device\nsingle,1,9,cpu\nDDP,2,5,cpu\nDDP,4,3,cpu\n";

TEST_CASE(test_fit) {
    static const char *const lines[] = {
        "--points=8:15,1:100,4:28,2:52 --predict=16",
        "--points=1:100,2:52,2:53,4:28", /* too few different N */
        "--points=1:100,2:60,4:40,8:30 --how=measured --on=GPUs --title=DP",
        "--points=1:100,2:45,4:20,8:9 --predict=8,32,33", /* speed-up above N; 33 is far away */
        "--points=1:100,2:300,4:20,8:90,16:5",            /* fits no law */
        "--points=1:1e30,2:6e29,4:3e29,8:2e29",
        "--points=1:100,2:30,4:35,8:40", /* weak scaling with a Tcomm below 0 would explain nothing */
        "--points=1:50,2:53,4:53,8:53 --scaling=weak --predict=3",
        "--csv=HERE/bench.csv",
        "--csv=HERE/bench.csv --oversubscribed",
        "--csv=HERE/weak.csv --mode=dp", /* 10 + 2 log2 N exactly */
        "--csv=HERE/short.csv"};
    scratch_write("bench.csv", bench_csv, sizeof bench_csv - 1);
    scratch_write("weak.csv", weak_csv, sizeof weak_csv - 1);
    scratch_write("short.csv", short_csv, sizeof short_csv - 1);
    begin();
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        char line[600];
        const char *here = strstr(lines[i], "HERE"), *behind = here ? here + 4 : "";
        snprintf(line, sizeof line, "fit_tn %.*s%s%s --json=%s", here ? (int)(here - lines[i]) : 200, lines[i],
                 here ? scratch_folder() : "", behind, scratch_path("fit.json"));
        say_run(line);
        if (i == 8) say_file("fit.json");
    }
    finish("fit_tn");
}

int main(int argc, char **argv) {
#define ROW(name) cmocka_unit_test_setup_teardown(name, programs_setup, programs_teardown)
    const struct CMUnitTest tests[] = {ROW(test_dp_vs_ddp), ROW(test_comm), ROW(test_calibrate), ROW(test_replay),
                                       ROW(test_fit)};
    writes = argc == 2 && strcmp(argv[1], "--write") == 0;
    return cmocka_run_group_tests_name("golden results", tests, NULL, NULL);
}
