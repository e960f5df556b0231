/* The program plan: predicted memory equals the devices' memory, to the byte; the limit is exact to the byte; the
 * fastest plan comes first; refusals are the programs' own lines; and wrong options are reported in one line. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define TEXT "plan gpt:1,2,16,8 --data sums:0 --devices 2 --batch 16 --precision fp32"
#define IMAGES "plan mlp:20,32,32,32,5 --devices 2 --batch 32 --precision fp32"
#define NODE_FILE "node.json"

static program p;

/* The course's machine with CPU devices that run in the launching threads, as here: they have room for one batch. */
static const char *cpu_node(void) {
    size_t nbytes;
    char *text = scratch_read("labs/replay/nodes/course.json", &nbytes);
    char *word = strstr(text, "\"runs_compute\": false");
    assert_non_null(word);
    memcpy(word, "\"runs_compute\": true ", strlen("\"runs_compute\": true "));
    scratch_write(NODE_FILE, text, nbytes);
    free(text);
    return scratch_path(NODE_FILE);
}

static double number(const cJSON *object, const char *name) {
    const cJSON *value = cJSON_GetObjectItem(object, name);
    return cJSON_IsNumber(value) ? value->valuedouble : NAN;
}

static const char *word(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
    if (!text) fail_msg("%s is no text", name);
    return text;
}

/* Runs the line with a limit and --json, and parses the output; the caller frees it (cJSON_Delete). */
static cJSON *plan(const char *line, double limit_bytes) {
    size_t nbytes;
    int status = program_run(&p, "%s --memory %.0f --node %s --json %s", line, limit_bytes, cpu_node(),
                             scratch_path("plan.json"));
    if (status != 0) fail_msg("%s: %s", line, p.err_text);
    char *text = scratch_read(scratch_path("plan.json"), &nbytes);
    cJSON *object = cJSON_Parse(text);
    free(text);
    assert_non_null(object);
    return object;
}

static const cJSON *find_row(const cJSON *result, const char *name, const char *options) {
    const cJSON *row;
    cJSON_ArrayForEach(row,
                       cJSON_GetObjectItem(result, "rows")) if (strcmp(word(row, "program"), name) == 0 &&
                                                                strcmp(word(row, "options"), options) == 0) return row;
    fail_msg("there is no row of %s %s", name, options);
    return NULL;
}

/* --- memory of devices -------------------------------------------------------------------------------------------- */

/* The peak of the device that holds the most, in a run on CPU devices. */
static double measured_peak(const char *line) {
    size_t nbytes;
    double most = 0;
    if (program_run(&p, "%s --device-kind cpu --steps 3 --no-evaluate --quiet --summary %s", line,
                    scratch_path("run")) != 0)
        fail_msg("%s: %s", line, p.err_text);
    char *text = scratch_read(scratch_path("run"), &nbytes);
    cJSON *wrapper = cJSON_Parse(text);
    const cJSON *device;
    cJSON_ArrayForEach(device, cJSON_GetObjectItem(cJSON_GetObjectItem(wrapper, "summary"), "device_table")) most =
        fmax(most, number(cJSON_GetObjectItem(device, "peak_bytes"), "total"));
    cJSON_Delete(wrapper);
    free(text);
    return most;
}

static void expect_exact(const cJSON *result, const char *run, const char *name, const char *options) {
    char line[400];
    snprintf(line, sizeof line, "%s %s %s", name, run, options);
    double peak = measured_peak(line), planned = number(find_row(result, name, options), "memory_bytes");
    if (planned != peak) fail_msg("%s: holds %.0f bytes, planned %.0f", line, peak, planned);
}

TEST_IN(programs, what_is_planned_is_held_to_the_byte) {
    static const char images[] = "--spawn 2 --model mlp:20,32,32,32,5 --data random:0 --batch-size 32";
    static const char text[] = "--spawn 2 --model gpt:1,2,16,8 --data sums:0 --batch-size 16";
    cJSON *result = plan(IMAGES, 1e9);
    expect_exact(result, "--devices 2 --model mlp:20,32,32,32,5 --data random:0 --batch-size 32", "dp_train", "");
    expect_exact(result, images, "ddp_train", "--pipeline 2 --accumulate 8");
    expect_exact(result, images, "ddp_train", "--shard-state 3 --checkpoint-activations sqrt");
    cJSON_Delete(result);
    result = plan(TEXT, 1e9);
    expect_exact(result, text, "ddp_train", "--tensor 2 --sequence-parallel --accumulate 4");
    expect_exact(result, text, "ddp_train", "--shard-state 1"); /* rank 1 has more slices than rank 0 */
    cJSON_Delete(result);
}

static void expect_verdict(double limit_bytes, const char *options, const char *verdict, double over_bytes) {
    cJSON *result = plan(IMAGES, limit_bytes);
    const cJSON *row = find_row(result, "ddp_train", options);
    assert_string_equal(word(row, "verdict"), verdict);
    assert_true(number(row, "over_bytes") == over_bytes);
    assert_true(isnan(number(row, "step_ms")) == (over_bytes > 0));
    cJSON_Delete(result);
}

TEST_IN(programs, a_limit_decides_by_the_byte) {
    static const char options[] = "--tensor 2 --accumulate 4";
    cJSON *result = plan(IMAGES, 1e9);
    double peak = number(find_row(result, "ddp_train", options), "memory_bytes");
    cJSON_Delete(result);
    expect_verdict(peak, options, "fits", 0);
    expect_verdict(peak - 1, options, "does not fit", 1);
}

/* --- order and reasons --------------------------------------------------------------------------------------------- */

TEST_IN(programs, the_fastest_comes_first) {
    cJSON *result = plan(IMAGES, 50000);
    const cJSON *row;
    double before_ms = 0, before_over = 0;
    int fits = 0, too_large = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(result, "rows")) {
        if (strcmp(word(row, "verdict"), "fits") == 0) {
            assert_true(too_large == 0 && number(row, "step_ms") >= before_ms && number(row, "over_bytes") <= 0);
            before_ms = number(row, "step_ms");
            fits++;
        } else if (strcmp(word(row, "verdict"), "does not fit") == 0) {
            assert_true(number(row, "over_bytes") >= before_over);
            before_over = number(row, "over_bytes");
            too_large++;
        }
    }
    assert_true(fits > 3 && too_large > 3);
    char first[300];
    row = cJSON_GetArrayItem(cJSON_GetObjectItem(result, "rows"), 0);
    snprintf(first, sizeof first, "fits, fastest: %s --spawn 2 %s, ", word(row, "program"), word(row, "options"));
    assert_true(strncmp(p.out_text, first, strlen(first)) == 0);
    cJSON_Delete(result);
}

TEST_IN(programs, nothing_fits) {
    cJSON *result = plan(IMAGES, 1000);
    assert_true(strncmp(p.out_text, "does not fit: at least ", 23) == 0);
    assert_true(number(cJSON_GetArrayItem(cJSON_GetObjectItem(result, "rows"), 0), "over_bytes") > 0);
    cJSON_Delete(result);
}

/* The reason equals the message of ddp_train with those options. */
TEST_IN(programs, reasons_are_the_programs_own) {
    static const char options[] = "--pipeline 2 --accumulate 8 --checkpoint-activations sqrt";
    cJSON *result = plan(TEXT, 1e9);
    const char *reason = word(find_row(result, "ddp_train", options), "reason");
    assert_string_equal(word(find_row(result, "ddp_train", options), "verdict"), "cannot be combined");
    assert_int_equal(
        program_run(&p, "ddp_train --spawn 2 --model gpt:1,2,16,8 --data sums:0 --batch-size 16 %s", options), 2);
    if (strlen(reason) == 0 || !strstr(p.err_text, reason))
        fail_msg("\"%s\" is not what ddp_train says: %s", reason, p.err_text);
    cJSON_Delete(result);
}

/* --- unplanned options, and wrong usage ----------------------------------------------------------------------------- */

TEST_IN(programs, what_is_not_planned_is_said) {
    cJSON *result = plan("plan --workload wide --devices 2 --batch 64 --precision fp32", 4e9);
    const cJSON *row = find_row(result, "ddp_train", "--pipeline 2 --accumulate 8");
    assert_string_equal(word(row, "verdict"), "not planned");
    assert_true(isnan(number(row, "step_ms")) && isnan(number(row, "memory_bytes")));
    row = find_row(result, "ddp_train", "--tensor 2 --checkpoint-activations sqrt"); /* ddp_train accepts that */
    assert_string_equal(word(row, "verdict"), "not planned");
    program_expect_text(&p, "not planned: ddp_train --pipeline 2 --accumulate 8");
    program_expect_text(&p, "not planned: --offload optimizer: ");
    cJSON_Delete(result);
}

TEST_IN(programs, bad_use_is_one_line) {
    static const struct {
        const char *line, *expected;
    } cases[] = {
        {"plan", "no network is named"},
        {"plan deep", "give --devices N"},
        {"plan deep wide --devices 2", "more than one network is named"},
        {"plan nothing --devices 2 --memory 1G", "there is no network nothing"},
        {"plan deep --devices 0", "--devices"},
        {"plan deep --devices 2 --memory 1T", "is not a size"},
        {"plan deep --devices 2 --memory 1G --node nowhere", "nowhere"},
        {"plan deep --devices 4 --batch 3 --memory 1G", "3 samples"},
        {"plan deep --devices 2 --memory 1G --data text:none", "--data text:none"},
        {"plan resnet50 --devices 2 --memory 1G --optimizer adam", "--optimizer is a model's"},
        {"plan deep --devices 2 --memory 1G --json /nowhere/plan.json", "/nowhere"},
        {"plan deep --devices 64 --batch 64 --memory 1G --node course", "course has 8 devices, not 64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = program_run(&p, "%s", cases[i].line);
        bool right = strstr(p.err_text, cases[i].expected) && count_lines(p.err_text) == 1 && p.out_text[0] == '\0';
        if (status != (strstr(cases[i].line, "nowhere") ? 1 : 2) || !right)
            fail_msg("%s: status %d, %s%s", cases[i].line, status, p.err_text, p.out_text);
    }
}
