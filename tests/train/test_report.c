/* What is said of a run's devices: shares and memory from rows of numbers, as a table, as JSON, and as advice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes_text.h"
#include "common/train/live_view.h"
#include "common/train/report.h"
#include "common/train/summary.h"
#include "tests/base/scratch.h"
#include "tests/nn/models.h"

/* --- bytes ---------------------------------------------------------------------------------------------------------- */

static void bytes_are_told_in_units_of_1024(void **state) {
    (void)state;
    static const struct {
        double nbytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {1048524, "1023.9 KiB"},
                 {1048575, "1.0 MiB"},
                 {13002342, "12.4 MiB"},
                 {3221225472, "3.0 GiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[LS_BYTES_TEXT_CAPACITY];
        assert_string_equal(ls_bytes_text(text, cases[i].nbytes), cases[i].text);
    }
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

/* 100 us: 10 other, 23 loader, 40 forward, 27 all-reduce. */
static struct ls_device_row make_row(int rank, int device) {
    struct ls_device_row row = {.rank = rank, .device = device, .current_bytes = 1048576, .peak_total_bytes = 2097152};
    row.us[LS_PHASE_OTHER] = 10;
    row.us[LS_PHASE_LOADER] = 23;
    row.us[LS_PHASE_FORWARD] = 40;
    row.us[LS_PHASE_ALL_REDUCE] = 27;
    row.bytes[LS_PHASE_ALL_REDUCE] = 4000;
    row.peak_bytes[LS_MEMORY_BUCKET] = 1000;
    return row;
}

static void expect_share(double share, double expected) { assert_true(fabs(share - expected) <= 1e-12); }

static void shares_are_of_all_time(void **state) {
    (void)state;
    struct ls_device_row row = make_row(0, 0), nothing = {0};
    expect_share(ls_device_row_busy(&row), 0.67);
    expect_share(ls_device_row_communication(&row), 0.27);
    expect_share(ls_device_row_loader(&row), 0.23);
    expect_share(ls_device_row_busy(&nothing), 0);
}

static void a_later_row_tells_what_came_since(void **state) {
    (void)state;
    struct ls_device_row earlier = make_row(0, 0), later = make_row(0, 0);
    later.us[LS_PHASE_FORWARD] += 100;
    later.bytes[LS_PHASE_ALL_REDUCE] += 5;
    later.current_bytes = 7;
    struct ls_device_row since = ls_device_row_since(&later, &earlier);
    expect_share(ls_device_row_busy(&since), 1);
    assert_true(since.bytes[LS_PHASE_ALL_REDUCE] == 5 && since.current_bytes == 7);
    later.begun_us = 3; /* its clock was reset in between, so its times are all new, however large */
    since = ls_device_row_since(&later, &earlier);
    assert_true(since.us[LS_PHASE_FORWARD] == 140 && since.us[LS_PHASE_LOADER] == 23);
}

static void a_row_is_read_from_clock_and_device(void **state) {
    (void)state;
    ls_device *device = open_device(5);
    void *memory;
    struct ls_device_row row;
    ls_parallel p = {.rank = 3, .devices = {device}};
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_INPUT, 1000, "test", &memory), LS_OK);
    ls_device_free(device, memory);
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_BUCKET, 400, "test", &memory), LS_OK);
    ls_phase_reset(&p.clocks[0]);
    p.clocks[0].us[LS_PHASE_GATHER] = 12;
    p.clocks[0].bytes[LS_PHASE_GATHER] = 34;
    ls_device_row_read(&row, &p, 0);
    assert_true(row.rank == 3 && row.device == 5 && row.begun_us == p.clocks[0].begun_us);
    assert_true(row.us[LS_PHASE_GATHER] == 12 && row.bytes[LS_PHASE_GATHER] == 34);
    assert_true(row.current_bytes == 400 && row.peak_total_bytes == 1000);
    assert_true(row.peak_bytes[LS_MEMORY_INPUT] == 1000 && row.peak_bytes[LS_MEMORY_BUCKET] == 400);
    ls_device_free(device, memory);
    close_empty_device(device);
}

/* --- the table ------------------------------------------------------------------------------------------------------ */

static char *print_table(const struct ls_device_row *rows, int count, int shown) {
    char *text = NULL;
    size_t nbytes;
    FILE *file = open_memstream(&text, &nbytes);
    assert_non_null(file);
    assert_int_equal(ls_device_table_print(file, rows, count, shown), LS_OK);
    fclose(file);
    return text;
}

static void the_table_has_a_line_per_device(void **state) {
    (void)state;
    struct ls_device_row rows[] = {make_row(0, 0), make_row(1, 0), make_row(2, 1)};
    char *text = print_table(rows, 3, 2);
    assert_string_equal(text, "rank  device  busy  communication   memory     peak\n"
                              "   0       0  67 %           27 %  1.0 MiB  2.0 MiB\n"
                              "   1       0  67 %           27 %  1.0 MiB  2.0 MiB\n"
                              "and 1 more device\n");
    free(text);
    rows[1] = make_row(0, 7); /* one process has no ranks to tell apart */
    text = print_table(rows, 2, 2);
    assert_string_equal(text, "device  busy  communication   memory     peak\n"
                              "     0  67 %           27 %  1.0 MiB  2.0 MiB\n"
                              "     7  67 %           27 %  1.0 MiB  2.0 MiB\n");
    free(text);
}

static void the_heading_says_which_times_are_of_enqueueing(void **state) {
    (void)state;
    struct ls_device_row row = make_row(0, 0);
    row.runs_behind = 1;
    char *text = print_table(&row, 1, 1);
    assert_string_equal(text, "                busy  communication\n"
                              "device  (enqueueing)   (enqueueing)   memory     peak\n"
                              "     0          67 %           27 %  1.0 MiB  2.0 MiB\n");
    free(text);
}

/* --- the summary and the last lines --------------------------------------------------------------------------------- */

static double number(const cJSON *object, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

/* A run of two ranks, whose second one waited longer for its loader. */
struct made_run {
    ls_train_options options;
    ls_parallel parallel;
    struct ls_device_row rows[2];
    ls_train_result result;
};

static void made_run_open(struct made_run *run) {
    static const struct ls_parallel_ops ops = {.name = "a test"};
    *run = (struct made_run){.options = ls_train_defaults(), .rows = {make_row(0, 0), make_row(1, 1)}};
    run->options.summary = scratch_path("summary");
    run->parallel = (ls_parallel){.ops = &ops, .world_size = 2, .device_count = 2, .local_device_count = 1};
    run->parallel.backend = "shm";
    run->parallel.devices[0] = open_device(0);
    run->result =
        (ls_train_result){.timed_steps = 10, .clocked_steps = 10, .steps = 20, .median_step_ms = 1, .accuracy = NAN};
    run->rows[1].us[LS_PHASE_LOADER] = 123; /* of 200 us */
}

static void the_summary_tells_of_all_devices(void **state) {
    (void)state;
    static struct made_run run;
    made_run_open(&run);
    char *text = ls_summary_text(&run.options, &run.parallel, &run.result, run.rows);
    cJSON *wrapper = cJSON_Parse(text);
    const cJSON *summary = cJSON_GetObjectItem(wrapper, "summary"),
                *table = cJSON_GetObjectItem(summary, "device_table");
    expect_share(number(summary, "loader_wait_share"), 0.615);
    expect_share(number(summary, "loader_wait_ms"), 0.123);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(summary, "device_kind")), "cpu");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(summary, "backend")), "shm");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(summary, "phase_times")), "work");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(summary, "device_names")), 2);
    assert_int_equal(cJSON_GetArraySize(table), 2);
    const cJSON *second = cJSON_GetArrayItem(table, 1);
    assert_true(number(second, "rank") == 1 && number(second, "device") == 1);
    expect_share(number(second, "busy_share"), 67.0 / 200);
    expect_share(number(second, "communication_share"), 27.0 / 200);
    expect_share(number(cJSON_GetObjectItem(second, "ms_per_step_by_phase"), "forward"), 0.004);
    expect_share(number(cJSON_GetObjectItem(second, "bytes_per_step_by_phase"), "all-reduce"), 400);
    assert_true(number(second, "current_bytes") == 1048576);
    assert_true(number(cJSON_GetObjectItem(second, "peak_bytes"), "bucket") == 1000);
    assert_true(number(cJSON_GetObjectItem(second, "peak_bytes"), "total") == 2097152);
    cJSON_Delete(wrapper);
    free(text);
    close_empty_device(run.parallel.devices[0]);
}

/* What is printed at the end of the run. */
static char *last_lines(struct made_run *run) {
    char *text = NULL;
    size_t nbytes;
    FILE *real = stdout;
    ls_report *report;
    stdout = open_memstream(&text, &nbytes);
    assert_non_null(stdout);
    assert_int_equal(ls_report_open(&report, &run->options, &run->parallel), LS_OK);
    ls_status status = ls_report_close(report, &run->parallel, &run->result, run->rows);
    fclose(stdout);
    stdout = real;
    assert_int_equal(status, LS_OK);
    return text;
}

static void the_last_lines_say_what_to_do(void **state) {
    (void)state;
    static struct made_run run;
    made_run_open(&run);
    char *text = last_lines(&run);
    assert_non_null(strstr(
        text, "\nthe loader kept the devices waiting 62 % of the time: raise --workers (now 1) if cores are free\n"));
    assert_non_null(strstr(text, "\nrank  device  busy  communication   memory     peak\n"));
    free(text);
    run.rows[0].us[LS_PHASE_LOADER] = run.rows[1].us[LS_PHASE_LOADER] = 3; /* of 80 us */
    run.options.summary = NULL;
    text = last_lines(&run);
    assert_null(strstr(text, "loader"));
    assert_null(strstr(text, "communication")); /* nobody has asked */
    free(text);
    run.rows[0].us[LS_PHASE_LOADER] = 77;
    run.result.timed_steps = 0; /* nothing was measured */
    text = last_lines(&run);
    assert_null(strstr(text, "loader"));
    free(text);
    close_empty_device(run.parallel.devices[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_told_in_units_of_1024),
        cmocka_unit_test(shares_are_of_all_time),
        cmocka_unit_test(a_later_row_tells_what_came_since),
        cmocka_unit_test(a_row_is_read_from_clock_and_device),
        cmocka_unit_test(the_table_has_a_line_per_device),
        cmocka_unit_test(the_heading_says_which_times_are_of_enqueueing),
        cmocka_unit_test_setup_teardown(the_summary_tells_of_all_devices, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(the_last_lines_say_what_to_do, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
