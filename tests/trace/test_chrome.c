/* Traces as files: reading gives the trace that was written, ranks are merged, and a folder is cleared. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/json.h"
#include "common/trace/chrome.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/trace/happens_before.h"
#include "tests/trace/small_trace.h"

static void expect_same_files(const char *left, const char *right) {
    char *a = scratch_read_text(left), *b = scratch_read_text(right);
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
        assert_true(a->bytes == b->bytes && a->flops == b->flops && a->probes_us == b->probes_us);
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

TEST_IN(scratch, test_what_is_read_is_what_was_written) {
    small_trace_write("run", true);
    ls_trace *written = small_trace_sealed(true), *read;
    assert_int_equal(ls_trace_read(&read, scratch_path("run")), LS_OK);
    expect_same_trace(written, read, 5000.125); /* the earliest task begins at 0 */
    const struct ls_trace_about *about = ls_trace_what(read);
    assert_string_equal(about->model, "mlp:784,\"10\"");
    assert_true(about->run == 77 && about->median_step_ms == 0.1 + 0.2 && about->overlap &&
                about->bucket_bytes == 26214400);
    assert_string_equal(ls_trace_parameter(read, 1)->name, "fc1.bias");
    assert_int_equal(ls_trace_parameter(read, 0)->count, 200704);
    int count;
    const int *before = ls_trace_before(read, 6, &count);
    assert_int_equal(count, 2); /* each edge once */
    assert_true(before[0] == 5 && before[1] == 7);
    assert_true(happens_before(read, 1, 9));
    ls_trace_destroy(written);
    ls_trace_destroy(read);
}

TEST_IN(scratch, test_what_is_written_again_is_the_same) {
    for (int timed = 0; timed < 2; timed++) {
        small_trace_write("run", timed);
        ls_trace *read;
        assert_int_equal(ls_trace_read(&read, scratch_path("run")), LS_OK);
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(ls_trace_write_rank(read, scratch_path("again"), rank), LS_OK);
        expect_same_files("run/rank_0.pt.trace.json", "again/rank_0.pt.trace.json");
        expect_same_files("run/rank_1.pt.trace.json", "again/rank_1.pt.trace.json");
        ls_trace_destroy(read);
    }
}

/* --- as other JSON libraries write it ------------------------------------------------------------------------------ */

/* A file written again: in one line without blanks, or with members in reverse, blanks and newlines everywhere, and
 * exponents; all texts are escapes. */
static void put_escaped(FILE *file, const char *text) {
    fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        unsigned code = *at;
        if (code >= 0xC0) { /* two bytes of UTF-8; small_trace has no longer characters */
            code = (code & 0x1F) << 6 | (at[1] & 0x3F);
            at++;
        }
        fprintf(file, "\\u%04x", code);
    }
    fputc('"', file);
}

static void put_again(FILE *file, const cJSON *value, bool strange) {
    const cJSON *item;
    if (cJSON_IsString(value)) {
        put_escaped(file, value->valuestring);
    } else if (cJSON_IsNumber(value)) {
        fprintf(file, strange ? "%.16E" : "%.17g", value->valuedouble);
    } else if (cJSON_IsBool(value)) {
        fputs(cJSON_IsTrue(value) ? "true" : "false", file);
    } else if (cJSON_IsArray(value)) {
        fputs(strange ? "\r\n[ " : "[", file);
        cJSON_ArrayForEach(item, value) {
            fputs(item == value->child ? "" : strange ? "\n,\t" : ",", file);
            put_again(file, item, strange);
        }
        fputs(strange ? "\n]" : "]", file);
    } else {
        fputs("{", file);
        const cJSON *first = value->child, *last = first ? first->prev : NULL; /* in cJSON, first->prev is the last */
        const cJSON *begin = strange ? last : first, *end = strange ? first : last;
        for (item = begin; item; item = item == end ? NULL : strange ? item->prev : item->next) {
            fprintf(file, strange ? "%s\"%s\" :\n" : "%s\"%s\":", item == begin ? "" : ",", item->string);
            put_again(file, item, strange);
        }
        fputs(strange ? "} " : "}", file);
    }
}

static void write_again(const char *name, bool strange) {
    char *text = scratch_read_text(name), *again = NULL;
    size_t nbytes;
    cJSON *root = cJSON_Parse(text);
    FILE *file = open_memstream(&again, &nbytes);
    assert_true(root && file);
    if (strange) fputs("\xEF\xBB\xBF\n", file);
    put_again(file, root, strange);
    fclose(file);
    scratch_write(name, again, nbytes);
    cJSON_Delete(root);
    free(again);
    free(text);
}

TEST_IN(scratch, test_any_layout_is_read) {
    static const char *const names[] = {"run/rank_0.pt.trace.json", "run/rank_1.pt.trace.json"};
    for (int strange = 0; strange < 2; strange++) {
        small_trace_write("run", true);
        for (int rank = 0; rank < 2; rank++) write_again(names[rank], strange);
        ls_trace *read;
        assert_int_equal(ls_trace_read(&read, scratch_path("run")), LS_OK);
        small_trace_write("run", true);
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(ls_trace_write_rank(read, scratch_path("again"), rank), LS_OK);
        expect_same_files(names[0], "again/rank_0.pt.trace.json");
        expect_same_files(names[1], "again/rank_1.pt.trace.json");
        ls_trace_destroy(read);
    }
}

TEST_IN(scratch, test_a_trace_without_times_has_none_in_its_file) {
    small_trace_write("run", false);
    char *text = scratch_read_text("run/rank_0.pt.trace.json");
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

/* Both ends of each arrow, by its id: in the order of the lanes' events, time never decreases. */
TEST_IN(scratch, test_arrows_end_after_they_begin) {
    small_trace_write("run", true);
    ls_json *json;
    double begin_us[100] = {0};
    int arrows = 0;
    assert_int_equal(ls_json_open(&json, scratch_path("run/rank_1.pt.trace.json")), LS_OK);
    const cJSON *root = ls_json_root(json), *event;
    cJSON_ArrayForEach(event, ls_json_array(json, root, "traceEvents")) {
        const char *phase = ls_json_text(json, event, "ph");
        if (strcmp(phase, "s") != 0 && strcmp(phase, "f") != 0) continue;
        int64_t id = ls_json_whole(json, event, "id", 1, 99);
        double at_us = ls_json_number(json, event, "ts", 0, 1e9);
        if (phase[0] == 's') begin_us[id] = at_us;
        if (phase[0] == 'f') assert_true(at_us >= begin_us[id]);
        arrows += phase[0] == 'f';
    }
    assert_int_equal(arrows, 3);
    ls_json_close(json);
}

/* The file as JSON, as other programs see it. */
TEST_IN(scratch, test_the_file_says_what_tools_look_for) {
    small_trace_write("run", true);
    ls_json *json;
    assert_int_equal(ls_json_open(&json, scratch_path("run/rank_1.pt.trace.json")), LS_OK);
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
            double us = ls_json_number(json, event, "dur", 0, 99), bytes = ls_json_number(json, args, "bytes", 1, 1e9);
            assert_true(fabs(ls_json_number(json, args, "memory bandwidth (GB/s)", 0, 1e9) - bytes / us / 1e3) < 1e-6);
        } else if (strcmp(name, "wait for all_reduce") != 0) { /* the launch */
            assert_string_equal(ls_json_text(json, event, "cat"), "cuda_runtime");
            assert_string_equal(name, "cudaLaunchKernel");
            assert_memory_equal(ls_json_text(json, args, "launch"), "launch \"gemm\"", 13);
            assert_int_equal(ls_json_whole(json, args, "correlation", 1, 99), 2);
        }
    }
    assert_false(ls_json_failed(json));
    assert_int_equal(kernels, 3);
    assert_int_equal(steps, 1);
    assert_int_equal(arrows, 3); /* none from the launch of a kernel */
    ls_json_close(json);
}

TEST_IN(scratch, test_merging_puts_ranks_side_by_side) {
    small_trace_write("run", true);
    assert_int_equal(ls_trace_merge(scratch_path("run")), LS_OK);
    char *text = scratch_read_text("run/merged.json");
    assert_int_equal(count_text(text, "\"name\": \"gemm\""), 2);
    assert_int_equal(count_text(text, "\"pid\": 2, \"tid\": 6, \"name\": \"gemm\", \"ts\": 3.000"), 1); /* a us later */
    assert_int_equal(count_text(text, "\"process_name\""), 2);
    ls_trace *read, *folder;
    assert_int_equal(ls_trace_create(&read), LS_OK);
    assert_int_equal(ls_trace_read_text(read, "merged.json", text, strlen(text)), LS_OK);
    assert_int_equal(ls_trace_seal(read), LS_OK);
    assert_int_equal(ls_trace_read(&folder, scratch_path("run")), LS_OK); /* the folder now contains merged.json */
    expect_same_trace(folder, read, 0);
    assert_int_equal(ls_trace_write_file(read, scratch_path("again.json")), LS_OK);
    expect_same_files("run/merged.json", "again.json");
    ls_trace_destroy(read);
    ls_trace_destroy(folder);
    free(text);
}

/* More tasks than the initial capacity of the reader of a second file. */
TEST_IN(scratch, test_files_can_be_read_into_one_trace) {
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
        char *text = scratch_read_text(rank == 0 ? "run/rank_0.pt.trace.json" : "run/rank_1.pt.trace.json");
        assert_int_equal(ls_trace_read_text(trace, "rank", text, strlen(text)), LS_OK);
        free(text);
    }
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    assert_int_equal(ls_trace_task_count(trace), 2 * TASKS);
    assert_int_equal(ls_trace_task(trace, TASKS)->lane, 1);
    ls_trace_destroy(trace);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, test_clearing_removes_the_files_of_a_trace_alone) {
    assert_int_equal(ls_trace_check_folder(scratch_path("run")), LS_OK); /* does not exist yet */
    assert_int_equal(ls_trace_clear(scratch_path("run")), LS_OK);
    small_trace_write("run", true);
    assert_int_equal(ls_trace_merge(scratch_path("run")), LS_OK);
    static const char *const others[] = {"run/rank_007.pt.trace.json", "run/rank_x.json",
                                         "run/rank_1.pt.trace.json.old", "run/my.json"};
    for (int i = 0; i < 4; i++) scratch_write(others[i], "mine", 4);
    assert_int_equal(ls_trace_check_folder(scratch_path("run")), LS_OK);
    assert_int_equal(access(scratch_path("run/merged.json"), F_OK), 0);
    assert_int_equal(ls_trace_clear(scratch_path("run")), LS_OK);
    static const char *const ours[] = {"run/rank_0.pt.trace.json", "run/rank_1.pt.trace.json", "run/merged.json"};
    for (int i = 0; i < 3; i++) assert_int_equal(access(scratch_path(ours[i]), F_OK), -1);
    for (int i = 0; i < 4; i++) assert_int_equal(access(scratch_path(others[i]), F_OK), 0);
}
