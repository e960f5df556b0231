/* The option --trace: the files of both programs, read as replay reads them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/trace/chrome.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"
#include "tests/trace/happens_before.h"

#define SMALL "--model mlp:784,32,10 --no-evaluate"

static program p;

static void expect_success(int status) {
    if (status != 0) fail_msg("ended with %d: %s", status, p.err_text);
}

static ls_trace *read_trace(const char *name) {
    ls_trace *trace;
    assert_int_equal(ls_trace_read(&trace, scratch_path(name)), LS_OK);
    return trace;
}

static bool is_there(const char *name) { return access(scratch_path(name), R_OK) == 0; }

static int tasks_of_step(const ls_trace *trace, int step) {
    int count = 0;
    for (int t = 0; t < ls_trace_task_count(trace); t++) count += ls_trace_task(trace, t)->step == step;
    return count;
}

/* The trace has exactly the steps first .. first + count - 1. */
static void expect_steps(const ls_trace *trace, int first, int count) {
    const struct ls_trace_about *about = ls_trace_what(trace);
    assert_int_equal(about->first_step, first);
    assert_int_equal(about->steps, count);
    assert_true(about->median_step_ms > 0);
    int inside = tasks_of_step(trace, -1);
    for (int step = first; step < first + count; step++) {
        assert_true(tasks_of_step(trace, step) > 20);
        inside += tasks_of_step(trace, step);
    }
    assert_int_equal(inside, ls_trace_task_count(trace));
}

/* --- contents ----------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_data_parallel) {
    expect_success(program_run(&p,
                               "dp_train " SMALL " --devices 2 --steps 16 --optimizer sgd --trace %s --trace-steps 3",
                               scratch_path("dp")));
    assert_int_equal(count_text(p.out_text, "trace: "), 1);
    assert_non_null(strstr(p.out_text, "/dp/merged.json, 3 steps from step 10 on, "));
    assert_true(is_there("dp/merged.json"));
    ls_trace *trace = read_trace("dp");
    const struct ls_trace_about *about = ls_trace_what(trace);
    expect_steps(trace, 10, 3);
    assert_string_equal(about->mode, "dp");
    assert_string_equal(about->model, "mlp:784,32,10");
    assert_string_equal(about->precision, "fp32");
    assert_string_equal(about->optimizer, "sgd");
    assert_string_equal(about->device_kind, "cpu");
    assert_int_equal(about->devices, 2);
    assert_int_equal(about->world_size, 1);
    assert_int_equal(about->recorded_ranks, 1);
    assert_int_equal(about->batch_size, 64);
    assert_int_equal(about->input_bytes, 784 * 4);
    assert_int_equal(about->output_bytes, 10 * 4);
    assert_int_equal(about->answer_bytes, 8);
    assert_int_equal(ls_trace_parameter_count(trace), 4);
    assert_string_equal(ls_trace_parameter(trace, 0)->name, "fc1.weight");
    assert_int_equal(ls_trace_parameter(trace, 0)->count, 784 * 32);
    ls_trace_destroy(trace);
}

/* The all-reduces order the ranks' work: the optimizer's work on one rank comes after the other's gradients. */
TEST_IN(programs, test_ranks_meet) {
    expect_success(program_run(&p,
                               "ddp_train " SMALL
                               " --spawn 2 --steps 16 --bucket-cap-mb 0.001 --no-overlap --allreduce ring "
                               "--trace %s --trace-steps 2",
                               scratch_path("ddp")));
    ls_trace *trace = read_trace("ddp");
    const struct ls_trace_about *about = ls_trace_what(trace);
    expect_steps(trace, 10, 2);
    assert_string_equal(about->mode, "ddp");
    assert_string_equal(about->algorithm, "ring");
    assert_int_equal(about->world_size, 2);
    assert_int_equal(about->recorded_ranks, 2);
    assert_int_equal(about->bucket_bytes, (uint64_t)(0.001 * 1048576));
    assert_false(about->overlap);
    assert_true(ls_trace_meeting_count(trace) >= 4);
    for (int m = 0; m < ls_trace_meeting_count(trace); m++) {
        const struct ls_meeting *meeting = ls_trace_meeting(trace, m);
        int count;
        const int *tasks = ls_trace_meeting_tasks(trace, m, &count);
        assert_int_equal(meeting->ranks, 2);
        assert_int_equal(count, 2); /* both ranks' records have the same steps */
        const struct ls_task *left = ls_trace_task(trace, tasks[0]), *right = ls_trace_task(trace, tasks[1]);
        assert_int_not_equal(ls_trace_lane(trace, left->lane)->rank, ls_trace_lane(trace, right->lane)->rank);
        assert_int_equal(left->bytes, right->bytes);
        assert_int_equal(left->step, right->step);
    }
    int crossings = 0;
    for (int a = 0; a < ls_trace_task_count(trace); a++) {
        const struct ls_task *gradient = ls_trace_task(trace, a);
        const struct ls_lane *from = ls_trace_lane(trace, gradient->lane);
        if (from->rank != 1 || from->kind != LS_LANE_COMPUTE || strcmp(gradient->phase, "backward") != 0) continue;
        for (int b = 0; b < ls_trace_task_count(trace); b++) {
            const struct ls_task *update = ls_trace_task(trace, b);
            const struct ls_lane *to = ls_trace_lane(trace, update->lane);
            if (to->rank != 0 || to->kind != LS_LANE_COMPUTE || update->step != gradient->step ||
                strcmp(update->phase, "optimizer") != 0)
                continue;
            assert_true(happens_before(trace, a, b));
            crossings++;
        }
    }
    assert_true(crossings > 0);
    ls_trace_destroy(trace);
}

TEST_IN(programs, test_streams_of_their_own) {
    const char *const modes[] = {"threads", "shuffle:3"};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        expect_success(program_run(&p, "LS_CPU_STREAMS=%s dp_train " SMALL " --devices 2 --steps 13 --trace %s",
                                   modes[m], scratch_path("streams")));
        ls_trace *trace = read_trace("streams");
        assert_int_equal(ls_trace_what(trace)->steps, 3);
        assert_string_equal(ls_trace_what(trace)->stream_mode, m == 0 ? "threads" : "shuffle");
        ls_trace_destroy(trace);
    }
}

/* --- which steps ------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_short_run_is_recorded_from_its_beginning) {
    expect_success(program_run(&p, "dp_train --single " SMALL " --steps 4 --trace %s", scratch_path("short")));
    assert_non_null(strstr(p.out_text, "4 steps from step 0 on"));
    ls_trace *trace = read_trace("short");
    expect_steps(trace, 0, 4);
    assert_string_equal(ls_trace_what(trace)->mode, "single");
    assert_true(tasks_of_step(trace, -1) > 0); /* the host reads the first step's loss after that step */
    ls_trace_destroy(trace);
}

/* An epoch of 24 steps ends within the trace, and is evaluated there, outside any step. */
TEST_IN(programs, test_what_lies_between_steps) {
    expect_success(program_run(&p, "ddp_train --spawn 2 --model mlp:784,16,10 --steps 60 --trace %s --trace-steps 40",
                               scratch_path("epochs")));
    ls_trace *trace = read_trace("epochs");
    expect_steps(trace, 10, 40);
    assert_true(tasks_of_step(trace, -1) > 0);
    ls_trace_destroy(trace);
}

static const char *weights_of(char *text) {
    char *weights = strstr(text, "weights ");
    assert_non_null(weights);
    weights[strlen("weights ") + 16] = '\0';
    return weights;
}

TEST_IN(programs, test_recording_changes_nothing) {
    static char without[PROGRAM_TEXT_CAPACITY];
    expect_success(program_run(&p, "ddp_train " SMALL " --spawn 2 --steps 20"));
    strcpy(without, weights_of(p.out_text));
    expect_success(program_run(&p, "ddp_train " SMALL " --spawn 2 --steps 20 --trace %s", scratch_path("same")));
    assert_string_equal(weights_of(p.out_text), without);
    expect_success(
        program_run(&p, "dp_train " SMALL " --devices 2 --steps 12 --quiet --trace %s", scratch_path("quiet")));
    assert_int_equal(count_text(p.out_text, "trace"), 0);
    assert_true(is_there("quiet/rank_0.pt.trace.json") && is_there("quiet/merged.json"));
}

/* --- the folder -------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_an_earlier_trace_is_replaced) {
    const char *folder = scratch_path("again");
    expect_success(program_run(&p, "ddp_train " SMALL " --spawn 3 --batch-size 66 --steps 3 --trace %s", folder));
    assert_true(is_there("again/rank_2.pt.trace.json"));
    scratch_write("again/notes.txt", "mine", 4);
    expect_success(program_run(&p, "ddp_train " SMALL " --spawn 2 --steps 3 --trace %s", scratch_path("again")));
    assert_false(is_there("again/rank_2.pt.trace.json"));
    assert_true(is_there("again/notes.txt"));
    ls_trace *trace = read_trace("again");
    assert_int_equal(ls_trace_what(trace)->world_size, 2);
    ls_trace_destroy(trace);
}

static void expect_refusal(const char *what) {
    assert_int_equal(count_lines(p.err_text), 1);
    if (!strstr(p.err_text, what)) fail_msg("it said: %s", p.err_text);
    assert_null(strstr(p.out_text, "final loss"));
}

TEST_IN(programs, test_a_folder_that_cannot_be) {
    scratch_write("file", "x", 1);
    const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        assert_int_equal(program_run(&p, "%s " SMALL " --steps 3 --trace %s", programs[i], scratch_path("no/folder")),
                         1);
        expect_refusal("No such file or directory");
        assert_int_equal(program_run(&p, "%s " SMALL " --steps 3 --trace %s", programs[i], scratch_path("file")), 1);
        expect_refusal("Not a directory");
        assert_int_equal(
            program_run(&p, "%s " SMALL " --steps 3 --trace-steps 0 --trace %s", programs[i], scratch_path("zero")), 2);
        expect_refusal("--trace-steps");
        assert_false(is_there("zero"));
    }
}

TEST_IN(programs, test_files_of_others_stay) {
    assert_int_equal(mkdir(scratch_path("theirs"), 0777), 0);
    scratch_write("theirs/merged.json", "{\"traceEvents\": []}\n", 20);
    assert_int_equal(program_run(&p, "ddp_train --spawn 2 " SMALL " --steps 3 --trace %s", scratch_path("theirs")), 1);
    expect_refusal("theirs/merged.json");
    char *text = scratch_read(scratch_path("theirs/merged.json"), &(size_t){0});
    assert_string_equal(text, "{\"traceEvents\": []}\n");
    free(text);
}

/* An old trace is removed only when there is a new one. */
TEST_IN(programs, test_an_earlier_trace_stays_where_none_follows) {
    const char *train = "dp_train " SMALL " --devices 2 --steps 12";
    expect_success(program_run(&p, "%s --trace %s", train, scratch_path("kept")));
    expect_success(program_run(&p, "%s --save %s", train, scratch_path("run.st")));
    expect_success(program_run(&p, "%s --resume %s --trace %s", train, scratch_path("run.st"), scratch_path("kept")));
    assert_non_null(strstr(p.err_text, "there is no trace"));
    ls_trace_destroy(read_trace("kept"));
}

TEST_IN(programs, test_the_summary_stays_the_last_line) {
    expect_success(
        program_run(&p, "dp_train " SMALL " --devices 2 --steps 12 --summary - --trace %s", scratch_path("summary")));
    p.out_text[strlen(p.out_text) - 1] = '\0';
    assert_non_null(strstr(strrchr(p.out_text, '\n'), "{\"summary\":"));
    assert_non_null(strstr(p.out_text, "trace: "));
}
