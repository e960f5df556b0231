/* The output of --show-schedule. */
#include "ddp_procs/schedule_show.h"

#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"

static char *shown(ddp_schedule_kind kind, int stages, int micro_batches) {
    char *text = NULL;
    size_t nbytes = 0;
    FILE *file = open_memstream(&text, &nbytes);
    assert_non_null(file);
    assert_int_equal(ddp_schedule_show(&(ddp_schedule){kind, stages, micro_batches}, file), LS_OK);
    fclose(file);
    return text;
}

TEST(lists_and_picture_behind_the_answers) {
    char *text = shown(DDP_1F1B, 3, 5);
    assert_string_equal(
        text, "bubble: stages are idle for 28.6 % of a step (simulated: equal stages, a backward pass takes two "
              "forward passes); (P-1)/(M+P-1) = 28.6 %\n"
              "in flight at most, stage by stage: 3 2 1 (1f1b, 3 stages, 5 micro-batches)\n"
              "sends that block until they are received (simulated): every stage ends\n"
              "\n"
              "F: forward pass of a micro-batch, B: backward pass\n"
              "stage 0: F0 F1 F2 B0 F3 B1 F4 B2 B3 B4\n"
              "stage 1: F0 F1 B0 F2 B1 F3 B2 F4 B3 B4\n"
              "stage 2: F0 B0 F1 B1 F2 B2 F3 B3 F4 B4\n"
              "\n"
              "time goes right; 4: forward pass of micro-batch 4, b4: backward pass, .: idle\n"
              "stage 0: 012....b03b14b2.b3.b4\n"
              "stage 1: .01..b02b13b24b3.b4..\n"
              "stage 2: ..0b01b12b23b34b4....\n");
    free(text);
}

TEST(one_stage_is_never_idle) {
    char *text = shown(DDP_GPIPE, 1, 1);
    assert_non_null(strstr(text, "idle for 0.0 % of a step "));
    assert_non_null(strstr(text, ": 1 (gpipe, 1 stage, 1 micro-batch)\n"));
    assert_non_null(strstr(text, "\nstage 0: 0b0\n"));
    free(text);
}

/* 34 passes of a stage, 3 columns each, and the first passes of the others. */
TEST(a_long_picture_is_cut) {
    char *text = shown(DDP_GPIPE, 12, 34);
    assert_non_null(strstr(text, "(or 14, 24, ...)"));
    assert_non_null(strstr(text, "; the first 100 of 135 columns\n"));
    const char *row = strstr(text, "stage 9:  ...");
    assert_non_null(row);
    assert_int_equal(strcspn(row, "\n"), strlen("stage 9:  ") + 100);
    assert_non_null(strstr(text, "stage 10: ..........01234567890123"));
    free(text);
}
