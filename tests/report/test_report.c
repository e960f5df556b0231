/* The report on a run's devices: shares and memory from rows of numbers, as a table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes_text.h"
#include "common/report/device_table.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/report/device_rows.h"

/* --- bytes ---------------------------------------------------------------------------------------------------------- */

TEST(bytes_are_told_in_units_of_1024) {
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

TEST(shares_are_of_all_time) {
    struct ls_device_row row = make_device_row(0, 0), nothing = {0};
    expect_share(ls_device_row_busy(&row), 0.67);
    expect_share(ls_device_row_communication(&row), 0.27);
    expect_share(ls_device_row_loader(&row), 0.23);
    expect_share(ls_device_row_busy(&nothing), 0);
}

TEST(a_later_row_tells_what_came_since) {
    struct ls_device_row earlier = make_device_row(0, 0), later = make_device_row(0, 0);
    later.us[LS_PHASE_FORWARD] += 100;
    later.bytes[LS_PHASE_ALL_REDUCE] += 5;
    later.current_bytes = 7;
    struct ls_device_row since = ls_device_row_since(&later, &earlier);
    expect_share(ls_device_row_busy(&since), 1);
    assert_true(since.bytes[LS_PHASE_ALL_REDUCE] == 5 && since.current_bytes == 7);
    later.begun_us = 3; /* its clock was reset in between, so all its times are new, however large */
    since = ls_device_row_since(&later, &earlier);
    assert_true(since.us[LS_PHASE_FORWARD] == 140 && since.us[LS_PHASE_LOADER] == 23);
}

TEST(a_row_is_read_from_clock_and_device) {
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

TEST(the_table_has_a_line_per_device) {
    struct ls_device_row rows[] = {make_device_row(0, 0), make_device_row(1, 0), make_device_row(2, 1)};
    char *text = print_table(rows, 3, 2);
    assert_string_equal(text, "rank  device  busy  communication   memory     peak\n"
                              "   0       0  67 %           27 %  1.0 MiB  2.0 MiB\n"
                              "   1       0  67 %           27 %  1.0 MiB  2.0 MiB\n"
                              "and 1 more device\n");
    free(text);
    rows[1] = make_device_row(0, 7); /* a single process needs no rank column */
    text = print_table(rows, 2, 2);
    assert_string_equal(text, "device  busy  communication   memory     peak\n"
                              "     0  67 %           27 %  1.0 MiB  2.0 MiB\n"
                              "     7  67 %           27 %  1.0 MiB  2.0 MiB\n");
    free(text);
}

TEST(the_heading_says_which_times_are_of_enqueueing) {
    struct ls_device_row row = make_device_row(0, 0);
    row.runs_behind = 1;
    char *text = print_table(&row, 1, 1);
    assert_string_equal(text, "                busy  communication\n"
                              "device  (enqueueing)   (enqueueing)   memory     peak\n"
                              "     0          67 %           27 %  1.0 MiB  2.0 MiB\n");
    free(text);
}
