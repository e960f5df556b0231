#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/json.h"
#include "common/trace/chrome.h"
#include "tests/base/scratch.h"
#include "tests/base/text.h"
#include "tests/trace/small_trace.h"

static ls_trace *sealed(bool timed) {
    ls_trace *trace = small_trace(timed);
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    return trace;
}

/* Writes both ranks of the small trace into FOLDER/name. */
static void write_ranks(const char *name, bool timed) {
    ls_trace *trace = sealed(timed);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(ls_trace_write_rank(trace, scratch_path(name), rank), LS_OK);
    ls_trace_destroy(trace);
}

static char *read_whole(const char *name) {
    size_t nbytes;
    return scratch_read(scratch_path(name), &nbytes);
}

static void expect_same_files(const char *left, const char *right) {
    char *a = read_whole(left), *b = read_whole(right);
    assert_string_equal(a, b);
    free(a);
    free(b);
}

static void expect_same_moment(double left, double right) {
    assert_true(isnan(left) ? isnan(right) : fabs(left - right) < 1e-6);
}

static void expect_same_tasks(const ls_trace *left, const ls_trace *right, double shift_us) {
    assert_int_equal(ls_trace_task_count(left), ls_trace_task_count(right));
    for (int i = 0; i < ls_trace_task_count(left); i++) {
        const struct ls_task *a = ls_trace_task(left, i), *b = ls_trace_task(right, i);
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->phase, b->phase);
        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->lane, b->lane);
        assert_int_equal(a->step, b->step);
        assert_true(fabs(a->us - b->us) < 1e-3 && a->fixed_bytes == b->fixed_bytes);
        assert_true(a->bytes == b->bytes && a->flops == b->flops);
        assert_int_equal(a->from, b->from);
        assert_int_equal(a->to, b->to);
        assert_int_equal(a->meeting, b->meeting);
        assert_int_equal(a->lock, b->lock);
        assert_int_equal(a->virtual_time, b->virtual_time);
        expect_same_moment(a->start_us - shift_us, b->start_us);
        expect_same_moment(a->end_us - shift_us, b->end_us);
        expect_same_moment(a->launched_us - shift_us, b->launched_us);
    }
}

static void expect_same_trace(const ls_trace *left, const ls_trace *right, double shift_us) {
    expect_same_tasks(left, right, shift_us);
    assert_int_equal(ls_trace_lane_count(left), ls_trace_lane_count(right));
    for (int i = 0; i < ls_trace_lane_count(left); i++) {
        assert_string_equal(ls_trace_lane(left, i)->name, ls_trace_lane(right, i)->name);
        assert_int_equal(ls_trace_lane(left, i)->kind, ls_trace_lane(right, i)->kind);
        assert_int_equal(ls_trace_lane(left, i)->rank, ls_trace_lane(right, i)->rank);
        assert_int_equal(ls_trace_lane(left, i)->device, ls_trace_lane(right, i)->device);
    }
    assert_int_equal(ls_trace_mark_count(left), ls_trace_mark_count(right));
    for (int i = 0; i < ls_trace_mark_count(left); i++) {
        const struct ls_mark *a = ls_trace_mark(left, i), *b = ls_trace_mark(right, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->lane == b->lane && a->step == b->step && a->number == b->number && a->after == b->after);
        expect_same_moment(a->at_us - shift_us, b->at_us);
    }
    const struct ls_meeting *a = ls_trace_meeting(left, 0), *b = ls_trace_meeting(right, 0);
    assert_int_equal(ls_trace_meeting_count(left), ls_trace_meeting_count(right));
    assert_string_equal(a->algorithm, b->algorithm);
    assert_string_equal(a->dtype, b->dtype);
    assert_true(a->number == b->number && a->ranks == b->ranks && a->tasks == b->tasks && a->elements == b->elements);
}

static void test_what_is_read_is_what_was_written(void **state) {
    (void)state;
    write_ranks("run", true);
    ls_trace *written = sealed(true), *read;
    assert_int_equal(ls_trace_read(&read, scratch_path("run")), LS_OK);
    expect_same_trace(written, read, 5000.125); /* the earliest task begins at 0, the other rank's where they had it */
    const struct ls_trace_about *about = ls_trace_what(read);
    assert_string_equal(about->model, "mlp:784,\"10\"");
    assert_true(about->median_step_ms == 0.1 + 0.2 && about->overlap && about->bucket_bytes == 26214400);
    assert_string_equal(ls_trace_parameter(read, 1)->name, "fc1.bias");
    assert_int_equal(ls_trace_parameter(read, 0)->count, 200704);
    int count;
    const int *before = ls_trace_before(read, 6, &count);
    assert_int_equal(count, 2); /* each once */
    assert_true(before[0] == 5 && before[1] == 7);
    assert_true(ls_trace_happens_before(read, 1, 9));
    ls_trace_destroy(written);
    ls_trace_destroy(read);
}

static void test_what_is_written_again_is_the_same(void **state) {
    (void)state;
    for (int timed = 0; timed < 2; timed++) {
        write_ranks("run", timed);
        ls_trace *read;
        assert_int_equal(ls_trace_read(&read, scratch_path("run")), LS_OK);
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(ls_trace_write_rank(read, scratch_path("again"), rank), LS_OK);
        expect_same_files("run/rank_0.json", "again/rank_0.json");
        expect_same_files("run/rank_1.json", "again/rank_1.json");
        ls_trace_destroy(read);
    }
}

static void test_a_trace_without_times_has_none_in_its_file(void **state) {
    (void)state;
    write_ranks("run", false);
    char *text = read_whole("run/rank_0.json");
    assert_int_equal(count_text(text, "\"ts\": 0.000"), 5 + 2);
    assert_int_equal(count_text(text, "\"timed\": false"), 5 + 2);
    assert_int_equal(count_text(text, "\"us\": -1"), 3);
    assert_int_equal(count_text(text, "\"ph\": \"s\""), 0);
    free(text);
    ls_trace *read;
    assert_int_equal(ls_trace_read(&read, scratch_path("run")), LS_OK);
    assert_true(isnan(ls_trace_task(read, 3)->start_us) && ls_trace_task(read, 3)->us < 0);
    assert_true(ls_trace_task(read, 1)->us == 12.345);
    ls_trace_destroy(read);
}

/* The file as JSON, as other programs see it. */
static void test_the_file_says_what_tools_look_for(void **state) {
    (void)state;
    write_ranks("run", true);
    ls_json *json;
    assert_int_equal(ls_json_open(&json, scratch_path("run/rank_1.json")), LS_OK);
    const cJSON *root = ls_json_root(json), *event;
    assert_int_equal(ls_json_whole(json, ls_json_object(json, root, "distributedInfo"), "rank", 0, 9), 1);
    int kernels = 0, arrows = 0, steps = 0;
    cJSON_ArrayForEach(event, ls_json_array(json, root, "traceEvents")) {
        const char *phase = ls_json_text(json, event, "ph"), *name = ls_json_text(json, event, "name");
        assert_int_equal(ls_json_whole(json, event, "pid", 0, 9), 2);
        arrows += strcmp(phase, "s") == 0;
        steps += strcmp(name, "ProfilerStep#7") == 0;
        if (strcmp(phase, "X") != 0 || strcmp(ls_json_text(json, event, "cat"), "user_annotation") == 0) continue;
        const cJSON *args = ls_json_object(json, event, "args");
        if (strcmp(name, "gemm") == 0) {
            kernels++;
            assert_string_equal(ls_json_text(json, event, "cat"), "kernel");
            assert_int_equal(ls_json_whole(json, args, "correlation", 1, 99), 2);
            assert_int_equal(ls_json_whole(json, args, "stream", 1, 99), 2);
            assert_int_equal(ls_json_whole(json, args, "device", 0, 99), 1);
            assert_true(fabs(ls_json_number(json, event, "ts", 0, 99) - 2) < 1e-9);
            assert_true(fabs(ls_json_number(json, event, "dur", 0, 99) - 12.345) < 1e-9);
        } else if (strcmp(name, "ncclDevKernel all_reduce") == 0) {
            kernels++;
            assert_string_equal(ls_json_text(json, args, "dtype"), "Float");
            assert_int_equal(ls_json_whole(json, args, "In msg nelems", 0, 1e6), 1024);
        } else if (strcmp(name, "Memcpy HtoD copy") == 0) {
            kernels++;
            assert_string_equal(ls_json_text(json, event, "cat"), "gpu_memcpy");
        } else if (strcmp(name, "wait for all_reduce") != 0) { /* the launch */
            assert_string_equal(ls_json_text(json, event, "cat"), "cuda_runtime");
            assert_int_equal(ls_json_whole(json, args, "correlation", 1, 99), 2);
        }
    }
    assert_false(ls_json_failed(json));
    assert_int_equal(kernels, 3);
    assert_int_equal(steps, 1);
    assert_int_equal(arrows, 3); /* not that from the launch of a kernel */
    ls_json_close(json);
}

static void test_merging_puts_ranks_side_by_side(void **state) {
    (void)state;
    write_ranks("run", true);
    assert_int_equal(ls_trace_merge(scratch_path("run")), LS_OK);
    char *text = read_whole("run/merged.json");
    assert_int_equal(count_text(text, "\"name\": \"gemm\""), 2);
    assert_int_equal(count_text(text, "\"pid\": 2, \"tid\": 6, \"name\": \"gemm\", \"ts\": 3.000"), 1); /* a us later */
    assert_int_equal(count_text(text, "\"process_name\""), 2);
    ls_trace *read, *folder;
    assert_int_equal(ls_trace_create(&read), LS_OK);
    assert_int_equal(ls_trace_read_text(read, "merged.json", text, strlen(text)), LS_OK);
    assert_int_equal(ls_trace_seal(read), LS_OK);
    assert_int_equal(ls_trace_read(&folder, scratch_path("run")), LS_OK); /* where merged.json lies now */
    expect_same_trace(folder, read, 0);
    assert_int_equal(ls_trace_write_file(read, scratch_path("again.json")), LS_OK);
    expect_same_files("run/merged.json", "again.json");
    ls_trace_destroy(read);
    ls_trace_destroy(folder);
    free(text);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

/* `text` with the first `what` in it replaced. *line: where that was. */
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
    {"\"format\": 1", "\"format\": 2", "another format"},
    {"\"mode\": \"ddp\", ", "", "mode is missing"},
    {"\"world_size\": 2, \"rec", "\"world_size\": -1, \"rec", "world_size must lie between"},
    {"\"world_size\": 2, \"rec", "\"world_size\": 0, \"rec", "world_size must lie between 1"},
    {"\"devices\": 2", "\"devices\": 0", "devices must lie between 1"},
    {"\"recorded_ranks\": 2", "\"recorded_ranks\": 0", "recorded_ranks must lie between 1"},
    {"\"recorded_ranks\": 2", "\"recorded_ranks\": 3", "3 ranks were recorded, and world_size is 2"},
    {"\"first_step\": 0", "\"first_step\": -1", "first_step must lie between 0"},
    {"\"steps\": 1", "\"steps\": 0", "steps must lie between 1"},
    {"\"steps\": 1", "\"steps\": 6", "its header says that there are 6 steps, and it has 5 tasks"},
    {"\"rank\": 0", "\"rank\": 2", "rank must lie between 0 and 1"},
    {"\"steps\": 1", "\"steps\": 1, \"stepps\": 1", "stepps is not known"},
    {"[\"fc1.bias\", 256]", "[\"fc1.bias\", -1]", "a parameter is [name, count]"},
    {"[\"fc1.bias\", 256]", "[\"fc1.bias\"]", "a parameter is [name, count]"},
    {"\"origin_us\": 5000.125", "\"origin_us\": 1e300", "origin_us must lie between"},
    {"\"distributedInfo\"", "\"otherInfo\"", "distributedInfo is missing"},
    {"\"kind\": \"compute\"", "\"kind\": \"comput\"", "\"comput\", which is not known"},
    {"\"device\": 0}", "\"device\": -2}", "device must lie between"},
    {"\"device\": 0}", "\"device\": 2}", "device must lie between -1 and 1"},
    {"\"pid\": 1, \"tid\": 1, \"name\": \"thread_name\"", "\"pid\": 3, \"tid\": 1, \"name\": \"thread_name\"",
     "pid must lie between 1 and 2"},
    {"\"tid\": 2, \"name\": \"thread_name\"", "\"tid\": 3, \"name\": \"thread_name\"",
     "tid 3 comes where that of tid 2"},
    {"\"pid\": 1, \"tid\": 2, \"name\": \"gemm\"", "\"pid\": 1, \"tid\": 5, \"name\": \"gemm\"",
     "tid 5 is no lane; there are 4"},
    {"\"pid\": 1, \"tid\": 2, \"name\": \"gemm\"", "\"pid\": 2, \"tid\": 2, \"name\": \"gemm\"",
     "in the file of rank 0"},
    {"\"id\": 1,", "\"id\": 0,", "task 0 comes where task 1 is due"},
    {"\"id\": 1, ", "", "id is missing"},
    {"\"kind\": \"kernel\"", "\"kind\": \"kern\"", "\"kern\", which is not known"},
    {"\"after\": [0, 2]", "\"after\": [0, 1]", "after must hold ids of other tasks"},
    {"\"after\": [0, 2]", "\"after\": [0, 5]", "waits for task 5, and there are 5"},
    {"\"after\": [0, 2]", "\"after\": [0, 1.5]", "after must hold ids"},
    {"\"after\": [0, 2]", "\"after\": [-1, 2]", "after must hold ids"},
    {"\"after\": [0, 2]", "\"after\": 0", "after must be an array"},
    {"\"after\": [0, 2]", "\"aftr\": [0, 2]", "aftr is not known"},
    {"\"us\": 12.345", "\"us\": -2", "us must lie between"},
    {"\"us\": 12.345", "\"us\": -0.5", "us is -0.5; it must be -1 (not known) or at least 0"},
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
    {"\"after\": 1}", "\"after\": 5}", "a mark behind task 5"},
    {"\"after\": 1}", "\"after\": 0}", "another lane"},
    {"\"ph\": \"i\"", "\"ph\": \"C\"", "phase \"C\""},
    {"\"ph\": \"X\"", "\"PH\": \"X\"", "ph is missing"},
    {"\"args\": {\"id\": 1", "\"arg\": {\"id\": 1", "args is missing"},
    {"\"name\": \"gemm\", ", "\"name\": \"gemm\" ", "this is not JSON"},
    {"}},\n{\"ph\": \"X\", \"cat\": \"kernel\"", "}}\n{\"ph\": \"X\", \"cat\": \"kernel\"",
     "no comma before this event"},
    {"\n]\n}", "\n]\n", "the file ends too early"},
    {"\n]\n}", "\n]\n}\n{}", "nothing but } follows"},
    {"\n]\n}", "\n", "the file ends within its events"},
    {"\"traceEvents\": [", "\"events\": [", "no trace of this program"},
};

static void test_damaged_files_are_refused_with_file_and_line(void **state) {
    (void)state;
    write_ranks("run", true);
    char *text = read_whole("run/rank_0.json");
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        int line;
        char *damaged = replaced(text, damages[i].what, damages[i].with, &line), place[32];
        if (damages[i].with[0] == '}' || damages[i].what[0] == '\n') /* seen further down */
            snprintf(place, sizeof place, "here.json:");
        else if (strstr(damages[i].said, "its header says"))
            snprintf(place, sizeof place, "here.json:1:");
        else if (strncmp(damages[i].what, "\"traceEvents", 12) == 0 || strstr(damages[i].what, "distributedInfo"))
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

static void test_a_file_that_was_cut_short_is_refused(void **state) {
    (void)state;
    write_ranks("run", true);
    char *text = read_whole("run/rank_0.json");
    size_t whole = strlen(text) - 1; /* without the last line's end it is the same */
    for (size_t length = 0; length < whole; length += length < 200 ? 1 : 37) {
        ls_trace *trace;
        assert_int_equal(ls_trace_create(&trace), LS_OK);
        assert_int_equal(ls_trace_read_text(trace, "cut.json", text, length), LS_ERR_INVALID);
        scratch_expect_error("cut.json", NULL);
        ls_trace_destroy(trace);
    }
    free(text);
}

/* Writes FOLDER/name with something replaced in it. */
static void damage_file(const char *name, const char *what, const char *with) {
    int line;
    char *text = read_whole(name), *damaged = replaced(text, what, with, &line);
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

static void test_folders_that_hold_no_whole_run_are_refused(void **state) {
    (void)state;
    expect_folder_refused(LS_ERR_IO, "cannot read the folder", "run");
    write_ranks("run", true);
    assert_int_equal(remove(scratch_path("run/rank_1.json")), 0);
    expect_folder_refused(LS_ERR_IO, "2 ranks of this run were recorded", "rank_1.json is missing");
    write_ranks("run", true);
    assert_int_equal(remove(scratch_path("run/rank_0.json")), 0);
    expect_folder_refused(LS_ERR_IO, "rank_0.json is missing", NULL);
    assert_int_equal(remove(scratch_path("run/rank_1.json")), 0);
    expect_folder_refused(LS_ERR_IO, "holds no trace", NULL);
    write_ranks("run", true);
    assert_int_equal(rename(scratch_path("run/rank_0.json"), scratch_path("run/rank_1.json")), 0);
    char *text = read_whole("run/rank_1.json");
    scratch_write("run/rank_0.json", text, strlen(text));
    expect_folder_refused(LS_ERR_INVALID, "this is the file of rank 0", "rank_1.json:1:");
    scratch_write("run/rank_2.json", text, strlen(text));
    free(text);
    write_ranks("run", true);
    expect_folder_refused(LS_ERR_INVALID, "different runs", "rank_2.json");
}

static void test_files_of_different_runs_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *what, *with, *said;
    } rows[] = {
        {"\"batch_size\": 64", "\"batch_size\": 32", "batch_size is another one"},
        {"\"model\": \"mlp", "\"model\": \"cnn", "model is another one"},
        {"\"overlap\": true", "\"overlap\": false", "overlap is another one"},
        {"[\"fc1.bias\", 256]", "[\"fc1.bias\", 255]", "parameter 1 is another one"},
        {", [\"fc1.bias\", 256]", "", "1 parameters, and 2 in the other files"},
        {"\"Seq\": 5", "\"Seq\": 6", "1 tasks for 2 ranks"},
        {"\"Group size\": 2", "\"Group size\": 3", "of 3 ranks here"},
        {"\"Collective name\": \"all_reduce\"", "\"Collective name\": \"broadcast\"", "\"all_reduce\" of 2 elsewhere"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_ranks("run", true);
        damage_file("run/rank_1.json", rows[i].what, rows[i].with);
        expect_folder_refused(LS_ERR_INVALID, rows[i].said, ".json:");
    }
    write_ranks("run", true);
    damage_file("run/rank_1.json", "\"device_name\": \"\"",
                "\"device_name\": \"another\""); /* a rank may have its own */
    ls_trace *trace;
    assert_int_equal(ls_trace_read(&trace, scratch_path("run")), LS_OK);
    ls_trace_destroy(trace);
}

static void test_a_cycle_is_refused_where_it_lies(void **state) {
    (void)state;
    write_ranks("run", true);
    damage_file("run/rank_1.json", "\"id\": 2, \"kind\": \"copy\"", "\"id\": 2, \"kind\": \"copy\", \"after\": [1]");
    expect_folder_refused(LS_ERR_INVALID, "which waits for it", "rank_1.json:19:");
    assert_int_equal(ls_trace_merge(scratch_path("run")), LS_ERR_INVALID);
    scratch_expect_error("which waits for it", NULL);
    assert_int_equal(remove(scratch_path("run/merged.json")), -1); /* nothing was written */
}

/* More tasks than the reader of a second file first makes room for. */
static void test_files_can_be_read_into_one_trace(void **state) {
    (void)state;
    enum { TASKS = 100 };
    ls_trace *trace;
    assert_int_equal(ls_trace_create(&trace), LS_OK);
    struct ls_trace_about *about = ls_trace_about(trace);
    about->devices = about->world_size = about->recorded_ranks = 2;
    about->steps = 1;
    for (int rank = 0; rank < 2; rank++) {
        int lane = small_lane(trace, LS_LANE_HOST, rank, rank);
        for (int i = 0; i < TASKS; i++) (void)small_task(trace, LS_TASK_HOST, "work", lane);
    }
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(ls_trace_write_rank(trace, scratch_path("run"), rank), LS_OK);
    ls_trace_destroy(trace);
    assert_int_equal(ls_trace_create(&trace), LS_OK);
    for (int rank = 0; rank < 2; rank++) {
        char *text = read_whole(rank == 0 ? "run/rank_0.json" : "run/rank_1.json");
        assert_int_equal(ls_trace_read_text(trace, "rank", text, strlen(text)), LS_OK);
        free(text);
    }
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    assert_int_equal(ls_trace_task_count(trace), 2 * TASKS);
    assert_int_equal(ls_trace_task(trace, TASKS)->lane, 1);
    ls_trace_destroy(trace);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

static void test_clearing_removes_the_files_of_a_trace_alone(void **state) {
    (void)state;
    assert_int_equal(ls_trace_check_folder(scratch_path("run")), LS_OK); /* not there yet */
    assert_int_equal(ls_trace_clear(scratch_path("run")), LS_OK);
    write_ranks("run", true);
    assert_int_equal(ls_trace_merge(scratch_path("run")), LS_OK);
    static const char *const others[] = {"run/rank_007.json", "run/rank_x.json", "run/rank_1.json.old", "run/my.json"};
    for (int i = 0; i < 4; i++) scratch_write(others[i], "mine", 4);
    assert_int_equal(ls_trace_check_folder(scratch_path("run")), LS_OK);
    assert_int_equal(access(scratch_path("run/merged.json"), F_OK), 0);
    assert_int_equal(ls_trace_clear(scratch_path("run")), LS_OK);
    static const char *const ours[] = {"run/rank_0.json", "run/rank_1.json", "run/merged.json"};
    for (int i = 0; i < 3; i++) assert_int_equal(access(scratch_path(ours[i]), F_OK), -1);
    for (int i = 0; i < 4; i++) assert_int_equal(access(scratch_path(others[i]), F_OK), 0);
}

static void expect_not_cleared(const char *file) {
    assert_int_equal(ls_trace_check_folder(scratch_path("run")), LS_ERR_INVALID);
    scratch_expect_error(file, "move it away");
    assert_int_equal(ls_trace_clear(scratch_path("run")), LS_ERR_INVALID);
    scratch_expect_error(file, "move it away");
    assert_int_equal(access(scratch_path("run/rank_1.json"), F_OK), 0);
}

static void test_files_of_others_keep_a_folder_from_being_cleared(void **state) {
    (void)state;
    static const char *const texts[] = {"", "{}", "{\"traceEvents\": []}\n", "{\n\"lockstep\": 1, \"rank\": 2}\n"};
    static const char *const names[] = {"run/merged.json", "run/rank_0.json", "run/rank_12.json"};
    for (int i = 0; i < 4 * 3; i++) {
        write_ranks("run", true);
        scratch_write(names[i % 3], texts[i / 3], strlen(texts[i / 3]));
        expect_not_cleared(names[i % 3]);
        assert_int_equal(remove(scratch_path(names[i % 3])), 0);
    }
    write_ranks("run", true);
    alarm(20); /* rather die than wait for a writer */
    assert_int_equal(remove(scratch_path("run/rank_1.json")), 0);
    assert_int_equal(mkfifo(scratch_path("run/rank_1.json"), 0600), 0);
    expect_not_cleared("rank_1.json");
    expect_folder_refused(LS_ERR_IO, "rank_1.json", "not a regular file");
    alarm(0);
    assert_int_equal(remove(scratch_path("run/rank_1.json")), 0);
    write_ranks("run", true);
    assert_int_equal(symlink("rank_1.json", scratch_path("run/rank_2.json")), 0);
    expect_not_cleared("rank_2.json");
    assert_int_equal(remove(scratch_path("run/rank_2.json")), 0);
    assert_int_equal(ls_trace_clear(scratch_path("run")), LS_OK);
    assert_int_equal(ls_trace_check_folder(scratch_path("run/../none/x")), LS_OK);
    scratch_write("file", "x", 1);
    assert_int_equal(ls_trace_check_folder(scratch_path("file")), LS_ERR_IO);
    scratch_expect_error("cannot read the folder", "Not a directory");
}

static void test_edges_between_ranks_need_one_file(void **state) {
    (void)state;
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

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_read_is_what_was_written),
        TEST(what_is_written_again_is_the_same),
        TEST(a_trace_without_times_has_none_in_its_file),
        TEST(the_file_says_what_tools_look_for),
        TEST(merging_puts_ranks_side_by_side),
        TEST(damaged_files_are_refused_with_file_and_line),
        TEST(a_file_that_was_cut_short_is_refused),
        TEST(folders_that_hold_no_whole_run_are_refused),
        TEST(files_of_different_runs_are_refused),
        TEST(a_cycle_is_refused_where_it_lies),
        TEST(edges_between_ranks_need_one_file),
        TEST(files_can_be_read_into_one_trace),
        TEST(clearing_removes_the_files_of_a_trace_alone),
        TEST(files_of_others_keep_a_folder_from_being_cleared),
    };
    return cmocka_run_group_tests_name("chrome", tests, NULL, NULL);
}
