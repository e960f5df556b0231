/* --device-kind meta: the programs' reports of a run without computation, and the options that they refuse. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/trace/chrome.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define HUGE_MODEL "mlp:784,27000,27000,27000,10"
/* (784 + 27000 + 27000) x 27000 + 27000 x 10 weights, and a bias for each output */
#define HUGE_BYTES (4.0 * ((784 + 2 * 27000.0) * 27000 + 270000 + 3 * 27000 + 10))

static program p;

/* The summary of a run; cJSON_Delete(*wrapper) frees it. */
static const cJSON *summary_of(const char *line, cJSON **wrapper) {
    size_t nbytes;
    if (program_run(&p, "%s --summary %s", line, scratch_path("summary")) != 0) fail_msg("%s: %s", line, p.err_text);
    char *text = scratch_read(scratch_path("summary"), &nbytes);
    *wrapper = cJSON_Parse(text);
    free(text);
    const cJSON *summary = cJSON_GetObjectItem(*wrapper, "summary");
    assert_non_null(summary);
    return summary;
}

static double peak(const cJSON *summary, int row, const char *category) {
    const cJSON *device = cJSON_GetArrayItem(cJSON_GetObjectItem(summary, "device_table"), row);
    return cJSON_GetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(device, "peak_bytes"), category));
}

static void expect_nothing_computed(const cJSON *summary) {
    static const char *const nulls[] = {"final_loss", "test_accuracy", "median_step_ms", "samples_per_s"};
    static const char *const unsaid[] = {"final loss", "accuracy", "step time", "weights",
                                         "\nepoch",    " nan",     "samples/s"};
    for (size_t i = 0; i < COUNT_OF(nulls); i++) {
        if (!cJSON_IsNull(cJSON_GetObjectItem(summary, nulls[i]))) fail_msg("there is a %s", nulls[i]);
    }
    assert_null(cJSON_GetObjectItem(summary, "parameter_hash"));
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(summary, "how")), "nothing was computed");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(summary, "device_kind")), "meta");
    for (size_t i = 0; i < COUNT_OF(unsaid); i++) {
        if (strstr(p.out_text, unsaid[i])) fail_msg("\"%s\" is said:\n%s", unsaid[i], p.out_text);
    }
}

TEST_IN(programs, a_model_that_fits_nowhere_here) {
    cJSON *wrapper;
    const cJSON *summary =
        summary_of("dp_train --device-kind meta --devices 8 --steps 3 --model " HUGE_MODEL, &wrapper);
    expect_nothing_computed(summary);
    assert_non_null(strstr(p.out_text, "DataParallel on 8 meta devices: "));
    assert_non_null(strstr(p.out_text, "nothing was computed: 3 steps were enqueued on meta devices"));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(summary, "device_table")), 8);
    for (int d = 0; d < 8; d++) {
        assert_true(peak(summary, d, "parameter") >= HUGE_BYTES);
        assert_true(peak(summary, d, "parameter") < HUGE_BYTES + 4096); /* whole cache lines */
        double gradients = peak(summary, d, "gradient") / peak(summary, d, "parameter");
        assert_true(gradients == (d == 0 ? 8 : 1)); /* device 0 gathers them */
    }
    cJSON_Delete(wrapper);
    summary = summary_of("ddp_train --device-kind meta --spawn 8 --steps 3 --model " HUGE_MODEL, &wrapper);
    expect_nothing_computed(summary);
    assert_non_null(strstr(p.err_text, "rank 0 of 8 is recorded, in this process"));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(summary, "device_table")), 1);
    assert_true(cJSON_GetNumberValue(cJSON_GetObjectItem(summary, "devices")) == 8);
    assert_true(peak(summary, 0, "bucket") == peak(summary, 0, "parameter"));
    assert_true(peak(summary, 0, "gradient") == 0);
    cJSON_Delete(wrapper);
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    assert_true(usage.ru_maxrss < 1 << 20); /* KiB; the devices have 60 GiB */
}

/* The trace of a run: rank 0 represents all ranks of its job, and no operation takes any time. */
TEST_IN(programs, its_trace_has_no_times) {
    static const char *const runs[] = {"dp_train --devices 8 --model " HUGE_MODEL,
                                       "ddp_train --spawn 8 --model " HUGE_MODEL};
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        ls_trace *trace;
        program_run(&p, "%s --device-kind meta --steps 3 --trace %s", runs[i], scratch_folder());
        if (p.status != 0) fail_msg("%s: %s", runs[i], p.err_text);
        assert_int_equal(ls_trace_read(&trace, scratch_folder()), LS_OK);
        const struct ls_trace_about *about = ls_trace_about(trace);
        assert_int_equal(about->devices, 8);
        assert_int_equal(about->recorded_ranks, 1);
        assert_int_equal(about->steps, 3);
        assert_string_equal(about->device_kind, "meta");
        int work = 0, meetings = ls_trace_meeting_count(trace);
        for (int t = 0; t < ls_trace_task_count(trace); t++) {
            const struct ls_task *task = ls_trace_task(trace, t);
            if (task->kind == LS_TASK_HOST) continue;
            work++;
            if (!(task->us < 0 && isnan(task->start_us))) fail_msg("%s took %g us", task->name, task->us);
        }
        assert_true(work > 100);
        assert_true(i == 0 ? meetings == 0 : meetings >= 3);
        for (int m = 0; m < meetings; m++) {
            assert_int_equal(ls_trace_meeting(trace, m)->ranks, 8);
            assert_int_equal(ls_trace_meeting(trace, m)->tasks, 1);
        }
        ls_trace_destroy(trace);
    }
}

static const cJSON *bytes_of(const cJSON *summary, int row) {
    const cJSON *device = cJSON_GetArrayItem(cJSON_GetObjectItem(summary, "device_table"), row);
    return cJSON_GetObjectItem(device, "bytes_per_step_by_phase");
}

TEST_IN(programs, its_memory_and_bytes_are_those_of_the_cpu_run) {
    static const char *const runs[] = {
        "dp_train --devices 2 --model convnet --precision fp16 --sync-bn",
        "dp_train --devices 3 --output-device 2 --clip-norm 1 --optimizer sgd --momentum 0.9",
        "dp_train --single",
        "ddp_train --spawn 2 --model convnet --sync-bn --accumulate 2 --compress fp16",
        "ddp_train --spawn 2 --model convnet --compress topk:0.05 --accumulate 2 --bucket-cap-mb 0.02",
        "ddp_train --spawn 2 --model convnet --shard-state 1 --sync-bn --clip-norm 1",
        "ddp_train --spawn 2 --model convnet --shard-state 2 --accumulate 2 --bucket-cap-mb 0.02",
        "ddp_train --spawn 2 --model convnet --tensor 2 --clip-norm 1",
        "ddp_train --spawn 4 --model gpt:2,4,32,16,13 --data random:1 --tensor 2",
        "ddp_train --spawn 4 --model gpt:2,4,32,16,13 --data random:1 --tensor 2 --sequence-parallel --shard-state 1",
        "ddp_train --spawn 2 --model convnet --shard-state 3 --precision bf16 --checkpoint-activations 1",
    };
    static const char *const categories[] = {"parameter",       "gradient", "optimizer", "activation", "input",
                                             "gathered output", "bucket",   "workspace", "total"};
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        char line[256];
        cJSON *of_cpu, *of_meta;
        snprintf(line, sizeof line, "%s --steps 3 --quiet --no-evaluate --device-kind cpu", runs[i]);
        const cJSON *cpu = summary_of(line, &of_cpu);
        snprintf(line, sizeof line, "%s --steps 3 --quiet --no-evaluate --device-kind meta", runs[i]);
        const cJSON *meta = summary_of(line, &of_meta);
        int rows = cJSON_GetArraySize(cJSON_GetObjectItem(meta, "device_table"));
        assert_true(rows > 0);
        for (int row = 0; row < rows; row++) {
            if (!cJSON_Compare(bytes_of(meta, row), bytes_of(cpu, row), true))
                fail_msg("%s: row %d moves other bytes on meta than on CPU", runs[i], row);
            for (size_t c = 0; c < COUNT_OF(categories); c++) {
                double here = peak(meta, row, categories[c]), there = peak(cpu, row, categories[c]);
                if (!(here == there))
                    fail_msg("%s: %s of row %d: %.0f on CPU, %.0f on meta", runs[i], categories[c], row, there, here);
            }
        }
        cJSON_Delete(of_cpu);
        cJSON_Delete(of_meta);
    }
}

static void expect_refusal(const char *line, int status, const char *text) {
    program_run(&p, "%s", line);
    if (p.status != status || !strstr(p.err_text, text) || count_lines(p.err_text) != 1)
        fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

TEST_IN(programs, what_needs_numbers_is_refused) {
    static const char *const options[] = {"--save=x",        "--resume=x",  "--init=x",    "--save-weights=x",
                                          "--dump-losses=x", "--metrics=x", "--cuda-graph"};
    char line[200], text[100];
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        snprintf(line, sizeof line, "dp_train --device-kind meta --devices 2 %s", options[i]);
        snprintf(text, sizeof text, "%.*s cannot be combined with --device-kind meta", (int)strcspn(options[i], "="),
                 options[i]);
        expect_refusal(line, 2, text);
    }
    expect_refusal("ddp_train --quiet --device-kind meta --spawn 2 --join", 2, "--join cannot be combined with");
    expect_refusal("ddp_train --device-kind meta --spawn 2 --debug-ranks", 2, "leave --debug-ranks out");
    expect_refusal("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=1 ddp_train "
                   "--device-kind meta",
                   2, "give the number of ranks with --spawn N");
    expect_refusal("dp_train --device-kind meta", 2, "meta devices have no default number: give --devices N");
    expect_refusal("dp_train --device-kind meta --device-ids 1,1", 2, "the devices are meta");
    expect_refusal("dp_train --device-kind meta --devices 8 --device-memory 50G --steps 1 --model " HUGE_MODEL, 1,
                   "device 0 is out of memory");
}
