/* What a run prints and writes: its summary and last lines, the lines of --metrics. */
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/report.h"
#include "common/report/summary.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/report/device_rows.h"

/* --- the summary and the last lines ------------------------------------------------------------------------------- */

static double number(const cJSON *object, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

/* A run of two ranks; the second waited longer for its loader. */
struct made_run {
    ls_train_options options;
    ls_parallel parallel;
    struct ls_device_row rows[2];
    ls_train_result result;
};

static void made_run_open(struct made_run *run) {
    static const struct ls_mode mode = {.name = "a test"};
    *run = (struct made_run){.options = ls_train_defaults(), .rows = {make_device_row(0, 0), make_device_row(1, 1)}};
    run->options.summary = scratch_path("summary");
    run->parallel =
        (ls_parallel){.mode = &mode, .world_size = 2, .data_size = 2, .device_count = 2, .local_device_count = 1};
    run->parallel.backend = "shm";
    run->parallel.devices[0] = open_device(0);
    run->result =
        (ls_train_result){.timed_steps = 10, .clocked_steps = 10, .steps = 20, .median_step_ms = 1, .accuracy = NAN};
    run->rows[1].us[LS_PHASE_LOADER] = 123; /* of 200 us */
}

TEST_IN(scratch, the_summary_tells_of_all_devices) {
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

/* The output at the end of the run. */
static char *last_lines(struct made_run *run) {
    char *text = NULL;
    size_t nbytes;
    FILE *real = stdout;
    ls_report *report;
    stdout = open_memstream(&text, &nbytes);
    assert_non_null(stdout);
    assert_int_equal(ls_report_open(&report, &run->options, &run->parallel, 0, NAN), LS_OK);
    ls_status status = ls_report_close(report, &run->parallel, &run->result, run->rows);
    fclose(stdout);
    stdout = real;
    assert_int_equal(status, LS_OK);
    return text;
}

TEST_IN(scratch, the_last_lines_say_what_to_do) {
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
    assert_null(strstr(text, "communication")); /* --summary was not given */
    free(text);
    run.rows[0].us[LS_PHASE_LOADER] = 77;
    run.result.timed_steps = 0; /* nothing was measured */
    text = last_lines(&run);
    assert_null(strstr(text, "loader"));
    free(text);
    close_empty_device(run.parallel.devices[0]);
}

/* --- the recipe --------------------------------------------------------------------------------------------------- */

static const cJSON *field(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item) fail_msg("there is no %s", name);
    return item;
}

/* A run with loss scaling, one of whose updates was skipped. */
static void use_scaler(struct made_run *run, ls_model **model) {
    *model = make_model(run->parallel.devices[0], "mlp:1,1", 1, 0);
    ls_optimizer_options o = ls_train_optimizer(&run->options);
    assert_int_equal(ls_optimizer_create(&run->parallel.optimizer, *model, &o), LS_OK);
    ls_model_parameter(*model, 0)->gradient[0] = INFINITY;
    assert_int_equal(ls_optimizer_step(run->parallel.optimizer, NULL), LS_OK);
}

static cJSON *summary_of(struct made_run *run) {
    char *text = ls_summary_text(&run->options, &run->parallel, &run->result, run->rows);
    cJSON *wrapper = cJSON_Parse(text);
    assert_non_null(wrapper);
    free(text);
    return wrapper;
}

TEST_IN(scratch, the_summary_tells_the_recipe) {
    static struct made_run run;
    made_run_open(&run);
    run.options.clip_norm = 0;
    cJSON *wrapper = summary_of(&run);
    const cJSON *summary = field(wrapper, "summary");
    assert_true(number(summary, "lr") == 1e-3 && number(summary, "lr_effective") == 1e-3);
    assert_true(number(summary, "accumulate") == 1 && number(summary, "warmup_steps") == 0);
    assert_string_equal(cJSON_GetStringValue(field(summary, "schedule")), "constant");
    assert_string_equal(cJSON_GetStringValue(field(summary, "precision")), "fp32");
    assert_string_equal(cJSON_GetStringValue(field(summary, "compress")), "none");
    assert_true(cJSON_IsNull(field(summary, "clip_norm")) && cJSON_IsNull(field(summary, "loss_scale")));
    assert_true(number(summary, "skipped_steps") == 0);
    cJSON_Delete(wrapper);

    ls_model *model;
    run.options.precision = LS_FP16;
    run.options.init_scale = 4096;
    run.options.lr_scale = LS_RATE_LINEAR;
    run.options.lr_schedule = LS_SCHEDULE_COSINE;
    run.options.warmup_steps = 3;
    run.options.accumulate = 4;
    run.options.clip_norm = 0.5;
    run.parallel.sent_as = LS_BF16;
    use_scaler(&run, &model);
    wrapper = summary_of(&run);
    summary = field(wrapper, "summary");
    assert_true(number(summary, "lr") == 1e-3 && number(summary, "lr_effective") == 2e-3);
    assert_true(number(summary, "accumulate") == 4 && number(summary, "warmup_steps") == 3);
    assert_string_equal(cJSON_GetStringValue(field(summary, "schedule")), "cosine");
    assert_string_equal(cJSON_GetStringValue(field(summary, "precision")), "fp16");
    assert_string_equal(cJSON_GetStringValue(field(summary, "compress")), "bf16");
    assert_true(number(summary, "clip_norm") == 0.5);
    assert_true(number(summary, "loss_scale") == 2048 && number(summary, "skipped_steps") == 1);
    cJSON_Delete(wrapper);
    char *text = last_lines(&run);
    assert_non_null(strstr(text, "\nloss scale 2048 at the end; 1 of 20 steps skipped for infinite gradients\n"));
    free(text);
    ls_optimizer_destroy(run.parallel.optimizer);
    ls_model_destroy(model);
    run.parallel.optimizer = NULL;
    text = last_lines(&run);
    assert_null(strstr(text, "loss scale"));
    free(text);
    close_empty_device(run.parallel.devices[0]);
}

/* The lines of --metrics are JSON in any case, and have the optimizer's record of each step. */
TEST_IN(scratch, a_line_has_what_the_optimizer_says) {
    static const struct ls_update_state updates[] = {
        {.learning_rate = 0.25, .norm = 1.5F, .scale = 8},
        {.learning_rate = 0.5, .norm = INFINITY, .scale = 4, .found_inf = 1},
        {.learning_rate = 0.5, .norm = NAN, .scale = 2, .found_inf = 1}};
    static struct made_run run;
    ls_report *report;
    size_t nbytes;
    made_run_open(&run);
    run.options.summary = NULL;
    run.options.metrics = scratch_path("metrics");
    run.options.precision = LS_FP16;
    FILE *real = stdout;
    stdout = fopen("/dev/null", "w");
    assert_int_equal(ls_report_open(&report, &run.options, &run.parallel, 0, NAN), LS_OK);
    fclose(stdout);
    stdout = real;
    for (int i = 0; i < 5; i++) {
        struct ls_report_line line = {.step = i, .epoch = 3, .loss = 0.75, .step_ms = 2, .loader_wait_ms = 0.5};
        if (i < 3) line.update = &updates[i];
        if (i == 4) run.options.precision = LS_BF16, line.update = &updates[0];
        ls_report_step(report, &line);
    }
    assert_int_equal(ls_report_close(report, &run.parallel, NULL, NULL), LS_OK);
    char *text = scratch_read(run.options.metrics, &nbytes), *rest = text;
    for (int i = 0; i < 5; i++) {
        cJSON *line = cJSON_Parse(strsep(&rest, "\n"));
        assert_non_null(line);
        assert_true(number(line, "step") == i && number(line, "epoch") == 3 && number(line, "loss") == 0.75);
        assert_true(number(line, "step_ms") == 2 && number(line, "samples_per_s") == 32000);
        if (i == 3) {
            assert_true(cJSON_IsNull(field(line, "lr")) && cJSON_IsNull(field(line, "loss_scale")));
            assert_true(cJSON_IsNull(field(line, "grad_norm")) && cJSON_IsFalse(field(line, "skipped")));
        } else {
            const struct ls_update_state *u = &updates[i % 4];
            assert_true(number(line, "lr") == u->learning_rate);
            assert_true(i == 4 ? cJSON_IsNull(field(line, "loss_scale"))
                               : number(line, "loss_scale") == (double)u->scale);
            assert_true(isfinite(u->norm) ? number(line, "grad_norm") == 1.5 : cJSON_IsNull(field(line, "grad_norm")));
            assert_true(cJSON_IsTrue(field(line, "skipped")) == (u->found_inf != 0));
        }
        cJSON_Delete(line);
    }
    assert_string_equal(rest, "");
    free(text);
    close_empty_device(run.parallel.devices[0]);
}
