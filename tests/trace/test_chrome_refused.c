/* Traces as files: invalid files are rejected, and files of other programs are not deleted. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/trace/chrome.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/trace/small_trace.h"

/* --- damaged files ------------------------------------------------------------------------------------------------ */

/* `text` with the first `what` in it replaced. Sets *line to its line. */
static char *replaced(const char *text, const char *what, const char *with, int *line) {
    const char *at = strstr(text, what);
    assert_non_null(at);
    *line = 1;
    for (const char *c = text; c < at; c++) *line += *c == '\n';
    char *result = malloc(strlen(text) + strlen(with) + 1);
    assert_non_null(result);
    sprintf(result, "%.*s%s%s", (int)(at - text), text, with, at + strlen(what));
    return result;
}

static const struct damage {
    const char *what, *with, *said;
} damages[] = {
    {"\"format\": 1", "\"format\": 2", "format is not 1"},
    {"\"mode\": \"ddp\", ", "", "mode is missing"},
    {"\"world_size\": 2, \"rec", "\"world_size\": -1, \"rec", "world_size must lie between"},
    {"\"world_size\": 2, \"rec", "\"world_size\": 0, \"rec", "world_size must lie between 1"},
    {"\"devices\": 2", "\"devices\": 0", "devices must lie between 1"},
    {"\"recorded_ranks\": 2", "\"recorded_ranks\": 0", "recorded_ranks must lie between 1"},
    {"\"recorded_ranks\": 2", "\"recorded_ranks\": 3", "3 ranks were recorded, but world_size is 2"},
    {"\"first_step\": 0", "\"first_step\": -1", "first_step must lie between 0"},
    {"\"steps\": 1", "\"steps\": 0", "steps must lie between 1"},
    {"\"steps\": 1", "\"steps\": 6", "the header announces 6 steps, but the file has only 5 tasks"},
    {"\"rank\": 0", "\"rank\": 2", "rank must lie between 0 and 1"},
    {"\"steps\": 1", "\"steps\": 1, \"stepps\": 1", "stepps is not a known key"},
    {"[\"fc1.bias\", 256]", "[\"fc1.bias\", -1]", "a parameter must be [name, count]"},
    {"[\"fc1.bias\", 256]", "[\"fc1.bias\"]", "a parameter must be [name, count]"},
    {"\"origin_us\": 5000.125", "\"origin_us\": 1e300", "origin_us must lie between"},
    {"\"distributedInfo\"", "\"otherInfo\"", "distributedInfo is missing"},
    {"\"kind\": \"compute\"", "\"kind\": \"comput\"", "the unknown value \"comput\""},
    {"\"device\": 0}", "\"device\": -2}", "device must lie between"},
    {"\"device\": 0}", "\"device\": 2}", "device must lie between -1 and 1"},
    {"\"pid\": 1, \"tid\": 1, \"name\": \"thread_name\"", "\"pid\": 3, \"tid\": 1, \"name\": \"thread_name\"",
     "pid must lie between 1 and 2"},
    {"\"tid\": 2, \"name\": \"thread_name\"", "\"tid\": 3, \"name\": \"thread_name\"", "tid 3; expected that of tid 2"},
    {"\"pid\": 1, \"tid\": 2, \"name\": \"gemm\"", "\"pid\": 1, \"tid\": 5, \"name\": \"gemm\"",
     "tid 5 is not a lane; there are 4 lanes"},
    {"\"pid\": 1, \"tid\": 2, \"name\": \"gemm\"", "\"pid\": 2, \"tid\": 2, \"name\": \"gemm\"",
     "in the file of rank 0"},
    {"\"id\": 1,", "\"id\": 0,", "found task 0; expected task 1"},
    {"\"id\": 1, ", "", "id is missing"},
    {"\"kind\": \"kernel\"", "\"kind\": \"kern\"", "the unknown value \"kern\""},
    {"\"after\": [0, 2]", "\"after\": [0, 1]", "after must hold ids of other tasks"},
    {"\"after\": [0, 2]", "\"after\": [0, 5]", "waits for task 5, but there are only 5 tasks"},
    {"\"after\": [0, 2]", "\"after\": [0, 1.5]", "after must hold ids"},
    {"\"after\": [0, 2]", "\"after\": [-1, 2]", "after must hold ids"},
    {"\"after\": [0, 2]", "\"after\": 0", "after must be an array"},
    {"\"after\": [0, 2]", "\"aftr\": [0, 2]", "aftr is not a known key"},
    {"\"us\": 12.345", "\"us\": -2", "us must lie between"},
    {"\"us\": 12.345", "\"us\": -0.5", "us is -0.5; expected -1 (not known) or at least 0"},
    {"\"us\": 12.345", "\"us\": 1e16", "us must lie between"},
    {"\"us\": 12.345", "\"us\": \"12\"", "us must be a number"},
    {"\"us\": 12.345, ", "", "us is missing"},
    {"\"bytes\": 123456789012", "\"bytes\": -1", "bytes must lie between"},
    {"\"flops\": 3000000000000", "\"flops\": 1e300", "flops must lie between"},
    {"\"fixed_bytes\": 1000000000", "\"fixed_bytes\": -1", "fixed_bytes must lie between"},
    {"\"step\": 7", "\"step\": -7", "step must lie between"},
    {"\"virtual\": true", "\"virtual\": 1", "virtual must be true or false"},
    {"\"ts\": 2.000", "\"ts\": -2.000", "ts must lie between"},
    {"\"dur\": 12.345", "\"dur\": null", "dur must be a number"},
    {"\"from\": -1", "\"from\": -2", "from must lie between"},
    {"\"from\": -1", "\"from\": 2", "from must lie between -1 and 1"},
    {"\"to\": 0", "\"to\": 2", "to must lie between -1 and 1"},
    {"Memcpy HtoD copy", "copy", "must begin with \"Memcpy HtoD \""},
    {"ncclDevKernel all", "all", "must begin with \"ncclDevKernel \""},
    {"\"Group size\": 2", "\"Group size\": 0", "Group size must lie between"},
    {"\"Seq\": 5, ", "", "Seq is missing"},
    {"\"after\": 1}", "\"after\": 5}", "a mark follows task 5"},
    {"\"after\": 1}", "\"after\": 0}", "another lane"},
    {"\"ph\": \"i\"", "\"ph\": \"C\"", "phase \"C\""},
    {"\"ph\": \"X\"", "\"PH\": \"X\"", "ph is missing"},
    {"\"args\": {\"id\": 1", "\"arg\": {\"id\": 1", "args is missing"},
    {"\"name\": \"gemm\", ", "\"name\": \"gemm\" ", "cannot parse JSON"},
    {"}},\n{\"ph\": \"X\", \"cat\": \"kernel\"", "}}\n{\"ph\": \"X\", \"cat\": \"kernel\"",
     "expected a comma before this event"},
    {"\n]\n}", "\n]\n", "the file ends too early"},
    {"\n]\n}", "\n]\n}\n{}", "nothing but the trace may be in its file"},
    {"\n]\n}", "\n", "the file ends within its events"},
    {"\n]\n}", ",\n]\n}", "cannot parse JSON"},
    {"\n]\n}", "\n],\n\"traceEvents\": []}", "traceEvents"},
    {"\n]\n}", "\n] 1}", "a comma is expected here"},
    {"\"traceEvents\": [", "\"events\": [", "not a trace of this program"},
    {"\"traceEvents\": [", "\"traceEvents\": {}, \"events\": [", "not a trace of this program"},
};

TEST_IN(scratch, test_damaged_files_are_refused_with_file_and_line) {
    small_trace_write("run", true);
    char *text = scratch_read_text("run/rank_0.pt.trace.json");
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        int line;
        char *damaged = replaced(text, damages[i].what, damages[i].with, &line), place[32];
        if (damages[i].with[0] == '}' || damages[i].what[0] == '\n') /* found further down */
            snprintf(place, sizeof place, "here.json:");
        else if (strstr(damages[i].said, "the header announces"))
            snprintf(place, sizeof place, "here.json:1:");
        else if (strncmp(damages[i].what, "\"traceEvents", 12) == 0)
            snprintf(place, sizeof place, "here.json ");
        else if (strstr(damages[i].what, "distributedInfo"))
            snprintf(place, sizeof place, "here.json:");
        else
            snprintf(place, sizeof place, "here.json:%d:", line);
        ls_trace *trace;
        assert_int_equal(ls_trace_create(&trace), LS_OK);
        if (ls_trace_read_text(trace, "here.json", damaged, strlen(damaged)) != LS_ERR_INVALID)
            fail_msg("taken: %s", damages[i].with);
        scratch_expect_error(damages[i].said, place);
        ls_trace_destroy(trace);
        free(damaged);
    }
    free(text);
}

TEST_IN(scratch, test_a_file_that_was_cut_short_is_refused) {
    small_trace_write("run", true);
    char *text = scratch_read_text("run/rank_0.pt.trace.json");
    size_t whole = strlen(text) - 1; /* the last newline is optional */
    for (size_t length = 0; length < whole; length += length < 200 ? 1 : 37) {
        ls_trace *trace;
        assert_int_equal(ls_trace_create(&trace), LS_OK);
        assert_int_equal(ls_trace_read_text(trace, "cut.json", text, length), LS_ERR_INVALID);
        scratch_expect_error("cut.json", NULL);
        ls_trace_destroy(trace);
    }
    free(text);
}

/* --- folders ------------------------------------------------------------------------------------------------------ */

/* Writes FOLDER/name with a part of it replaced. */
static void damage_file(const char *name, const char *what, const char *with) {
    int line;
    char *text = scratch_read_text(name), *damaged = replaced(text, what, with, &line);
    scratch_write(name, damaged, strlen(damaged));
    free(damaged);
    free(text);
}

static void expect_folder_refused(ls_status status, const char *said, const char *where) {
    ls_trace *trace;
    assert_int_equal(ls_trace_read(&trace, scratch_path("run")), status);
    assert_null(trace);
    scratch_expect_error(said, where);
}

TEST_IN(scratch, test_folders_that_hold_no_whole_run_are_refused) {
    expect_folder_refused(LS_ERR_IO, "cannot read the folder", "run");
    small_trace_write("run", true);
    assert_int_equal(remove(scratch_path("run/rank_1.pt.trace.json")), 0);
    expect_folder_refused(LS_ERR_IO, "2 ranks of this run were recorded", "rank_1.pt.trace.json is missing");
    small_trace_write("run", true);
    assert_int_equal(remove(scratch_path("run/rank_0.pt.trace.json")), 0);
    expect_folder_refused(LS_ERR_IO, "rank_0.pt.trace.json is missing", NULL);
    assert_int_equal(remove(scratch_path("run/rank_1.pt.trace.json")), 0);
    expect_folder_refused(LS_ERR_IO, "holds no trace", NULL);
    small_trace_write("run", true);
    assert_int_equal(rename(scratch_path("run/rank_0.pt.trace.json"), scratch_path("run/rank_1.pt.trace.json")), 0);
    char *text = scratch_read_text("run/rank_1.pt.trace.json");
    scratch_write("run/rank_0.pt.trace.json", text, strlen(text));
    expect_folder_refused(LS_ERR_INVALID, "the file is of rank 0", "rank_1.pt.trace.json:1:");
    scratch_write("run/rank_2.pt.trace.json", text, strlen(text));
    free(text);
    small_trace_write("run", true);
    expect_folder_refused(LS_ERR_INVALID, "different runs", "rank_2.pt.trace.json");
}

TEST_IN(scratch, test_files_of_different_runs_are_refused) {
    static const struct {
        const char *what, *with, *said;
    } rows[] = {
        {"\"batch_size\": 64", "\"batch_size\": 32", "batch_size differs"},
        {"\"model\": \"mlp", "\"model\": \"cnn", "model differs"},
        {"\"run\": 77", "\"run\": 78", "run differs"},
        {"\"overlap\": true", "\"overlap\": false", "overlap differs"},
        {"[\"fc1.bias\", 256]", "[\"fc1.bias\", 255]", "parameter 1 differs"},
        {", [\"fc1.bias\", 256]", "", "1 parameters, but 2 in the other files"},
        {"\"Seq\": 5", "\"Seq\": 6", "1 tasks for 2 ranks"},
        {"\"Group size\": 2", "\"Group size\": 3", "of 3 ranks here"},
        {"\"Collective name\": \"all_reduce\"", "\"Collective name\": \"broadcast\"", "\"all_reduce\" of 2 elsewhere"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        small_trace_write("run", true);
        damage_file("run/rank_1.pt.trace.json", rows[i].what, rows[i].with);
        expect_folder_refused(LS_ERR_INVALID, rows[i].said, ".json:");
    }
    small_trace_write("run", true);
    damage_file("run/rank_1.pt.trace.json", "\"device_name\": \"\"",
                "\"device_name\": \"another\""); /* ranks may differ in it */
    ls_trace *trace;
    assert_int_equal(ls_trace_read(&trace, scratch_path("run")), LS_OK);
    ls_trace_destroy(trace);
}

TEST_IN(scratch, test_a_cycle_is_refused_where_it_lies) {
    small_trace_write("run", true);
    damage_file("run/rank_1.pt.trace.json", "\"id\": 2, \"kind\": \"copy\"",
                "\"id\": 2, \"kind\": \"copy\", \"after\": [1]");
    expect_folder_refused(LS_ERR_INVALID, "which waits for it", "rank_1.pt.trace.json:19:");
    assert_int_equal(ls_trace_merge(scratch_path("run")), LS_ERR_INVALID);
    scratch_expect_error("which waits for it", NULL);
    assert_int_equal(remove(scratch_path("run/merged.json")), -1); /* nothing was written */
}

static void expect_not_cleared(const char *file) {
    assert_int_equal(ls_trace_check_folder(scratch_path("run")), LS_ERR_INVALID);
    scratch_expect_error(file, "move the file away");
    assert_int_equal(ls_trace_clear(scratch_path("run")), LS_ERR_INVALID);
    scratch_expect_error(file, "move the file away");
    assert_int_equal(access(scratch_path("run/rank_1.pt.trace.json"), F_OK), 0);
}

TEST_IN(scratch, test_files_of_others_keep_a_folder_from_being_cleared) {
    static const char *const texts[] = {"", "{}", "{\"traceEvents\": []}\n", "{\n\"lockstep\": 1, \"rank\": 2}\n"};
    static const char *const names[] = {"run/merged.json", "run/rank_0.pt.trace.json", "run/rank_12.pt.trace.json"};
    for (int i = 0; i < 4 * 3; i++) {
        small_trace_write("run", true);
        scratch_write(names[i % 3], texts[i / 3], strlen(texts[i / 3]));
        expect_not_cleared(names[i % 3]);
        assert_int_equal(remove(scratch_path(names[i % 3])), 0);
    }
    small_trace_write("run", true);
    alarm(20); /* ends the test instead of waiting for a writer */
    assert_int_equal(remove(scratch_path("run/rank_1.pt.trace.json")), 0);
    assert_int_equal(mkfifo(scratch_path("run/rank_1.pt.trace.json"), 0600), 0);
    expect_not_cleared("rank_1.pt.trace.json");
    expect_folder_refused(LS_ERR_IO, "rank_1.pt.trace.json", "not a regular file");
    alarm(0);
    assert_int_equal(remove(scratch_path("run/rank_1.pt.trace.json")), 0);
    small_trace_write("run", true);
    assert_int_equal(symlink("rank_1.pt.trace.json", scratch_path("run/rank_2.pt.trace.json")), 0);
    expect_not_cleared("rank_2.pt.trace.json");
    assert_int_equal(remove(scratch_path("run/rank_2.pt.trace.json")), 0);
    assert_int_equal(ls_trace_clear(scratch_path("run")), LS_OK);
    assert_int_equal(ls_trace_check_folder(scratch_path("run/../none/x")), LS_OK);
    scratch_write("file", "x", 1);
    assert_int_equal(ls_trace_check_folder(scratch_path("file")), LS_ERR_IO);
    scratch_expect_error("cannot read the folder", "Not a directory");
}

/* Found before the steps are recorded: in a sticky folder a user cannot replace another user's files. */
TEST_IN(scratch, test_another_users_trace_in_a_sticky_folder) {
    small_trace_write("run", true);
    assert_int_equal(chmod(scratch_folder(), 0755), 0);
    assert_int_equal(chmod(scratch_path("run"), 01777), 0);
    if (geteuid() != 0) {
        print_message("skip: this user cannot make files of another\n");
        skip();
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (setresuid(65534, 65534, 65534) != 0) _exit(100);
        assert_int_equal(ls_trace_check_folder(scratch_path("run")), LS_ERR_IO);
        scratch_expect_error("this user may not replace files in its folder", NULL);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ls_trace_check_folder(scratch_path("run")), LS_OK);
}

TEST_IN(scratch, test_edges_between_ranks_need_one_file) {
    ls_trace *trace = small_trace(true);
    ls_trace_add_edge(trace, 0, 6);
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    assert_int_equal(ls_trace_write_rank(trace, scratch_path("run"), 1), LS_ERR_INVALID);
    scratch_expect_error("waits for a task of another rank", NULL);
    assert_int_equal(ls_trace_write_file(trace, scratch_path("one.json")), LS_OK);
    assert_int_equal(ls_trace_write_file(trace, scratch_path("none/one.json")), LS_ERR_IO);
    scratch_expect_error("none", NULL);
    ls_trace_destroy(trace);
}
