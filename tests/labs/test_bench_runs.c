#define _GNU_SOURCE
/* bench_dp_vs_ddp's child processes: their output and how they end. */
#include <cjson/cJSON.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/trace/chrome.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/bench/shared/command.h"
#include "labs/replay/engine/account.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"
#include "tests/programs/program.h"

static bench_output output;

static ls_status run_script(const char *script, double timeout_s) {
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};
    return bench_child_run(argv, timeout_s, &output);
}

TEST_IN(scratch, test_output_is_kept) {
    assert_int_equal(run_script("echo first; echo last; echo complaint >&2", 30), LS_OK);
    assert_string_equal(output.out, "first\nlast\n");
    assert_string_equal(output.err, "complaint\n");
    assert_string_equal(bench_last_line(output.out), "last");
    assert_int_equal(run_script("printf end", 30), LS_OK);
    assert_string_equal(bench_last_line(output.out), "end");
    assert_int_equal(run_script(":", 30), LS_OK);
    assert_string_equal(bench_last_line(output.out), "");
    /* more than there is room for */
    assert_int_equal(
        run_script(
            "i=0; while [ $i -lt 9000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; echo end",
            30),
        LS_OK);
    assert_true(output.out_nbytes > BENCH_CHILD_OUT_CAPACITY / 4 && output.out_nbytes < BENCH_CHILD_OUT_CAPACITY);
    assert_string_equal(bench_last_line(output.out), "end");
}

TEST_IN(scratch, test_failures_name_the_command_and_the_cause) {
    assert_int_equal(run_script("echo 'x: error: the cause' >&2; echo more >&2; exit 1", 30), LS_ERR_SYSTEM);
    scratch_expect_error("` ended with exit status 1: the cause", "/bin/sh -c");
    assert_int_equal(run_script("echo 'x: error: rank' >&2; echo 'y: error: launcher' >&2; exit 3", 30), LS_ERR_SYSTEM);
    scratch_expect_error("exit status 3: launcher", NULL);
    assert_int_equal(run_script("exit 2", 30), LS_ERR_USAGE);
    scratch_expect_error("exit status 2: it said nothing", NULL);
    assert_int_equal(run_script("echo words >&2; kill -ABRT $$", 30), LS_ERR_SYSTEM);
    scratch_expect_error("killed by signal 6", "words");
    char *argv[] = {"/no/such/program", NULL};
    assert_int_equal(bench_child_run(argv, 1, &output), LS_ERR_IO);
    scratch_expect_error("cannot run /no/such/program", "make");
}

static void *sleep_until_told(void *pipe_end) {
    char byte;
    return read(*(int *)pipe_end, &byte, 1) == 0 ? NULL : pipe_end;
}

/* Another thread may receive SIGCHLD, and the pipes may close long before the child ends, as for a program that uses a
 * GPU, started by one that has used CUDA. */
TEST_IN(scratch, test_an_end_that_no_signal_tells) {
    const double timeout_s = 40;
    int fds[2];
    pthread_t thread;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(pthread_create(&thread, NULL, sleep_until_told, &fds[0]), 0);
    double begin_us = ls_now_us();
    assert_int_equal(run_script("exec >&- 2>&-; sleep 0.3", timeout_s), LS_OK);
    assert_true(ls_now_us() - begin_us < 0.9 * timeout_s * 1e6); /* it did not wait for the deadline */
    close(fds[1]);
    pthread_join(thread, NULL);
    close(fds[0]);
}

/* A child that existed before is not killed. */
TEST_IN(scratch, test_a_run_that_takes_too_long) {
    double begin_us = ls_now_us();
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    assert_int_equal(run_script("exec sleep 50", 0.1), LS_ERR_TIMEOUT);
    scratch_expect_error("did not end within 0.1 s", "--timeout");
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_true(ls_now_us() - begin_us < 30e6);
}

/* --- the programs themselves ------------------------------------------------------------------------------------- */

TEST_IN(programs, test_a_small_bench) {
    static bench_settings settings;
    static bench_model model;
    char *argv[] = {"bench", "--models=mlp:784,16,10", "--n=1,2", "--rounds=1", "--steps=12", NULL};
    bool help;
    assert_int_equal(bench_parse(&settings, 5, argv, &help), LS_OK);
    bench_plan_rows(&model, &settings.plans[0], &settings);
    for (int i = 0; i < model.row_count; i++) {
        bench_row *row = &model.rows[i];
        bench_run run = {.mode = row->mode, .n = row->n};
        run.batch = row->mode == BENCH_SINGLE ? row->per_device_batch : model.plan->batch;
        assert_int_equal(bench_train(&run, model.plan, &settings), LS_OK);
        assert_true(run.step_ms > 0);
        bench_add_run(row, &run);
    }
    bench_assemble(&model);
    assert_true(bench_same_weights(&model, 1));
    assert_true(bench_same_weights(&model, 2));
    assert_string_not_equal(model.rows[0].weights, model.rows[1].weights); /* different batch, different weights */
}

static const struct bench_replayed *replayed(const bench_model *model, bench_mode mode, int n, int way) {
    for (int i = 0; i < model->replayed_count; i++) {
        const struct bench_replayed *row = &model->replayed[i];
        if (row->mode == mode && row->n == n && row->way == way) return row;
    }
    fail_msg("no replay of %s on %d devices", bench_mode_name(mode), n);
    return NULL;
}

/* Why GPUs and Python differ from threads that share memory: on a node with given figures, so the result does not
 * depend on this machine. */
TEST_IN(scratch, test_the_same_step_on_gpus) {
    static bench_settings settings;
    static bench_model model, again;
    char out[1200];
    snprintf(out, sizeof out, "--out=%s", scratch_folder());
    char *argv[] = {"bench", "--models=convnet", "--quiet", out, NULL};
    bool help;
    assert_int_equal(bench_parse(&settings, 4, argv, &help), LS_OK);
    model.plan = again.plan = &settings.plans[0];
    assert_int_equal(bench_replay_model(&model, &settings), LS_OK);
    assert_int_equal(bench_replay_model(&again, &settings), LS_OK);
    assert_int_equal(model.replayed_count, 7 * BENCH_WAYS);
    assert_memory_equal(model.replayed, again.replayed, sizeof model.replayed);
    for (int way = 0; way < BENCH_WAYS; way++) {
        assert_true(replayed(&model, BENCH_SINGLE, 1, way)->speedup == 1);
        assert_true(replayed(&model, BENCH_DDP, 8, way)->step.step_ms <
                    replayed(&model, BENCH_DP, 8, way)->step.step_ms);
        assert_true(replayed(&model, BENCH_DDP, 8, way)->step.lock_ms == 0); /* each process has a lock of its own */
    }
    assert_true(replayed(&model, BENCH_DP, 8, 0)->step.lock_ms == 0);
    assert_true(replayed(&model, BENCH_DP, 8, 1)->step.lock_ms > replayed(&model, BENCH_DP, 2, 1)->step.lock_ms);
    assert_true(replayed(&model, BENCH_DP, 8, 1)->speedup < 1); /* small kernels, and serialised launches */
    bench_results results = {.settings = &settings, .model_count = 1, .models = &model};
    char *text = bench_text_of(bench_put_replayed, &results);
    assert_non_null(strstr(text, "\"convnet\",DP,8,100,Python,10,"));
    free(text);
}

static void expect_trace(const bench_settings *settings, const char *name, int devices) {
    char folder[BENCH_PATH_CAPACITY];
    ls_trace *trace;
    assert_int_equal(bench_trace_folder(folder, settings, "virtual", name), LS_OK);
    assert_int_equal(ls_trace_read(&trace, folder), LS_OK);
    const struct ls_trace_about *about = ls_trace_what(trace);
    assert_true(about->virtual_time);
    assert_int_equal(about->devices > about->world_size ? about->devices : about->world_size, devices);
    assert_int_equal(about->steps, 2);
    ls_trace_destroy(trace);
}

static void expect_exposed(const ls_trace *trace, double exposed_ms) {
    ls_timeline *timeline;
    struct ls_account *account;
    double all_ms = 0;
    assert_int_equal(ls_engine_run(&timeline, trace, NULL), LS_OK);
    assert_int_equal(ls_account_make(&account, trace, timeline, NULL), LS_OK);
    assert_int_equal(account->device_count, 4);
    for (int d = 0; d < 4; d++) all_ms += account->devices[d].exposed_us / 1e3;
    assert_true(all_ms > 0);
    expect_near(4 * exposed_ms, all_ms); /* a mean of devices */
    ls_account_free(account);
    ls_timeline_free(timeline);
}

/* The rows exist, the traces name them, and only the times differ: the weights are the same. */
TEST_IN(programs, test_a_small_bench_in_virtual_time) {
    static bench_settings settings;
    static bench_model model;
    char out[1200];
    snprintf(out, sizeof out, "--out=%s", scratch_folder());
    char *argv[] = {"bench", "--models=mlp:784,16,10", "--n=1,4", "--rounds=1", "--steps=12", out, NULL};
    bool help;
    assert_int_equal(bench_parse(&settings, 6, argv, &help), LS_OK);
    settings.processors = 2;
    model.plan = &settings.plans[0];
    bench_plan_virtual(&model, &settings);
    assert_int_equal(model.virtual_count, 3);
    for (int i = 0; i < model.virtual_count; i++) {
        bench_row *row = &model.virtual_rows[i];
        bench_run run = {.mode = row->mode, .n = row->n, .batch = 64};
        assert_int_equal(bench_train_virtual(&run, &model.virtual_plan, &settings), LS_OK);
        assert_null(run.trace);
        assert_true(run.busy > 0 && run.busy <= 1);
        assert_true(run.exposed_ms >= 0 && run.exposed_ms < run.step_ms);
        bench_add_run(row, &run);
    }
    bench_assemble(&model);
    assert_true(model.virtual_rows[0].speedup == 1);
    assert_true(model.virtual_rows[1].speedup > 0 && model.virtual_rows[2].speedup > 0);
    expect_trace(&settings, "mlp:784,16,10 single 1", 1);
    expect_trace(&settings, "mlp:784,16,10 DP 4", 4);
    expect_trace(&settings, "mlp:784,16,10 DDP 4", 4);
    bench_run measured = {.mode = BENCH_DP, .n = 4, .batch = 64};
    assert_int_equal(bench_train(&measured, &model.virtual_plan, &settings), LS_OK);
    for (int i = 1; i < 3; i++) assert_string_equal(model.virtual_rows[i].weights, measured.weights);
    /* the row has the replayed time, not the time of devices in turn */
    char folder[BENCH_PATH_CAPACITY];
    ls_trace *trace;
    struct bench_replay step;
    assert_int_equal(bench_trace_folder(folder, &settings, "virtual", "mlp:784,16,10 DDP 4"), LS_OK);
    assert_int_equal(ls_trace_read(&trace, folder), LS_OK);
    assert_int_equal(bench_replay_trace(&step, trace, NULL), LS_OK);
    assert_true(step.step_ms == model.virtual_rows[2].step_ms && step.busy == model.virtual_rows[2].busy);
    expect_exposed(trace, step.exposed_ms);
    ls_trace_destroy(trace);
}

/* A command with a missing word is not run. */
TEST_IN(scratch, test_a_command_without_room) {
    static bench_command command;
    for (int way = 0; way < 2; way++) {
        assert_int_equal(bench_command_begin(&command, "hello"), LS_OK);
        for (int word = 1; word < BENCH_COMMAND_WORDS; word++) bench_command_add(&command, "--word=%d", word);
        assert_string_equal(command.argv[BENCH_COMMAND_WORDS - 1], "--word=63");
        assert_null(command.argv[BENCH_COMMAND_WORDS]);
        if (way) assert_int_equal(bench_command_begin(&command, "hello"), LS_OK);
        bench_command_add(&command, "%*d", way ? BENCH_COMMAND_CAPACITY : 1, 7);
        assert_int_equal(bench_command_run(&command, 10, &output), LS_ERR_INVALID);
        scratch_expect_error("hello has more than 64 words or 16384 bytes", NULL);
    }
}

TEST_IN(scratch, test_a_model_that_does_not_exist) {
    bench_settings settings;
    char *argv[] = {"bench", "--models=nothing", NULL};
    bool help;
    assert_int_equal(bench_parse(&settings, 2, argv, &help), LS_OK);
    bench_run run = {.mode = BENCH_DDP, .n = 2, .batch = 64};
    assert_int_not_equal(bench_train(&run, &settings.plans[0], &settings), LS_OK);
    scratch_expect_error("unknown model \"nothing\"", "ddp_train --spawn=2");
}

/* The phases leave out the warm-up, as the step times do; checked with the bytes, which are exact. */
TEST_IN(programs, test_phases_are_those_of_the_timed_steps) {
    char path[1100];
    snprintf(path, sizeof path, "%s/dp_train", build_folder());
    char *argv[] = {path,          "--devices=2",   "--model=mlp:784,16,16", "--steps=12",
                    "--drop-last", "--no-evaluate", "--summary=-",           NULL};
    assert_int_equal(bench_child_run(argv, 60, &output), LS_OK);
    cJSON *all = cJSON_Parse(bench_last_line(output.out));
    const cJSON *summary = cJSON_GetObjectItem(all, "summary");
    const cJSON *second = cJSON_GetArrayItem(cJSON_GetObjectItem(summary, "device_table"), 1);
    const cJSON *replicate = cJSON_GetObjectItem(cJSON_GetObjectItem(second, "bytes_per_step_by_phase"), "replicate");
    assert_non_null(replicate);
    assert_int_equal(cJSON_GetObjectItem(summary, "timed_steps")->valueint, 2);
    assert_int_equal(replicate->valueint, 4 * (784 * 16 + 16 + 16 * 16 + 16)); /* each parameter once per step */
    cJSON_Delete(all);
}

/* --- the program ------------------------------------------------------------------------------------------------------------ */

static int line_count(const char *text) {
    int count = 0;
    for (; *text; text++) count += *text == '\n';
    return count;
}

/* Stdout has the answers and a table, the file has everything; with --all stdout does, too. */
TEST_IN(programs, test_the_program) {
    static program p;
    for (int all = 0; all < 2; all++) {
        program_start(&p, "%s/bench_dp_vs_ddp --models=mlp:784,16,10 --n=1,2 --rounds=%d --steps=12 --quiet%s --out=%s",
                      build_folder(), 2 - all, all ? " --all" : "", scratch_folder());
        assert_int_equal(program_finish_within(&p, 200), 0);
        program_expect_text(&p, "mlp:784,16,10, N = ");
        program_expect_text(&p, "\nSame weights: yes, bit for bit, at N = 1, 2, in every run");
        program_expect_text(&p, "\nmlp:784,16,10: strong scaling, 64 samples per step on every N");
        program_expect_text(&p, "dp_vs_ddp.txt");
        bool has_details = strstr(p.out_text, "What T_N - T1/N is made of") != NULL;
        assert_true(has_details == (all == 1));
        if (!all) assert_true(line_count(p.out_text) < 32);
        char *text = scratch_read_text("dp_vs_ddp.txt");
        assert_true(strncmp(text, p.out_text, strcspn(p.out_text, "\n")) == 0);
        assert_non_null(strstr(text, "What T_N - T1/N is made of"));
        assert_non_null(strstr(text, "--shard contiguous; and where N is a power of two"));
        free(text);
    }
}

static void expect_picture(program *p) {
    int status = program_run(p, "LC_ALL=C.UTF-8 /usr/bin/env gnuplot -c plots/dp_vs_ddp.gp %s %s",
                             scratch_path("dp_vs_ddp.csv"), scratch_folder());
    if (status != 0 || line_count(p->err_text) != 1) fail_msg("status %d: %s", status, p->err_text);
    char *svg = scratch_read_text("dp_vs_ddp_mlp_784_16_10.svg");
    const char *const entries[] = {"DP", "DDP", "hollow: virtual", "ideal: T1", "T1"};
    int count = 0;
    for (const char *at = svg; (at = strstr(at, "<title>")); at++) count += strncmp(at + 7, "gnuplot_plot", 12) != 0;
    assert_int_equal(count, 1 + 5); /* the document's own title, and the legend */
    for (int i = 0; i < 5; i++) {
        char title[60];
        snprintf(title, sizeof title, "<title>%s</title>", entries[i]);
        if (!strstr(svg, title)) fail_msg("%s is not in the legend", entries[i]);
    }
    if (!strstr(svg, ">mlp:784,16,10, N = ")) fail_msg("the headline is not the answer");
    free(svg);
}

/* A row whose trace cannot be written fails; the others are reported and plotted. */
TEST_IN(programs, test_a_row_that_fails) {
    static program p;
    scratch_write("dp_vs_ddp_virtual_mlp_784_16_10_DP_8", "", 0);
    program_start(
        &p,
        "%s/bench_dp_vs_ddp --models=mlp:784,16,10 --n=1,8 --per-device-batch=100 --rounds=2 --steps=12 --quiet "
        "--out=%s",
        build_folder(), scratch_folder());
    assert_int_equal(program_finish_within(&p, 200), 1); /* 18 short runs, possibly under a sanitizer */
    assert_int_equal(line_count(p.err_text), 1);         /* it is not run again in the second round */
    program_expect_text(&p, "DP failed");                /* in the first line */
    program_expect_text(&p, "virtual failed\n");
    program_expect_text(&p, "mlp:784,16,10: weak scaling, 100 samples per step on every device");
    char *text = scratch_read_text("dp_vs_ddp_virtual.csv");
    assert_non_null(strstr(text, ",per_device_batch,scaling\n"));
    assert_non_null(strstr(text, ",DP,8,800,0,"));
    assert_non_null(strstr(text, ",DDP,8,800,2,"));
    assert_non_null(strstr(text, ",100,weak\n"));
    free(text);
    expect_picture(&p);
}

int main(void) {
    alarm(500);
    return run_added_tests();
}
