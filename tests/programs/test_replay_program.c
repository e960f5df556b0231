/* The program replay: sums that its figures must satisfy, whatever their values, and a real run's trace. */
#define _GNU_SOURCE
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define ON "replay --node=course --workload=course --precision=fp16 --replicate=copies"

static program p;

static void expect_near(double got, double wanted, double tolerance) {
    if (!(fabs(got - wanted) <= tolerance)) fail_msg("%.17g is not %.17g", got, wanted);
}

static double number(const cJSON *object, const char *name) {
    const cJSON *value = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(value)) fail_msg("%s is no number", name);
    return value->valuedouble;
}

/* Runs the line with --json, and parses the output; the caller frees it (cJSON_Delete). */
static cJSON *replay(const char *line) {
    size_t nbytes;
    if (program_run(&p, "%s --json=%s", line, scratch_path("replay.json")) != 0) fail_msg("%s: %s", line, p.err_text);
    char *text = scratch_read(scratch_path("replay.json"), &nbytes);
    cJSON *object = cJSON_Parse(text);
    free(text);
    assert_non_null(object);
    return object;
}

/* The row of a mode on n devices; `index` selects one of several. */
static const cJSON *find_row(const cJSON *result, const char *mode, int n, int index) {
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(result, "rows")) {
        if (strcmp(cJSON_GetObjectItem(row, "mode")->valuestring, mode) != 0 || number(row, "n") != n) continue;
        if (index-- == 0) return row;
    }
    fail_msg("there is no row of %s on %d", mode, n);
    return NULL;
}

static double step_ms(const char *line, const char *mode, int n) {
    cJSON *result = replay(line);
    double ms = number(find_row(result, mode, n, 0), "step_ms");
    cJSON_Delete(result);
    return ms;
}

/* --- figures ----------------------------------------------------------------------------------------------------- */

static void expect_device_adds_up(const cJSON *device, double ms) {
    static const char *const parts[] = {"compute_ms", "exposed_ms", "host_ms", "idle_ms"};
    double sum = 0;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        assert_true(number(device, parts[i]) >= 0);
        sum += number(device, parts[i]);
    }
    expect_near(sum, ms, 1e-9 * ms);
    const cJSON *phase, *phases = cJSON_GetObjectItem(device, "phase_ms");
    sum = 0;
    cJSON_ArrayForEach(phase, phases) {
        assert_true(phase->valuedouble >= -1e-9 * ms);
        sum += phase->valuedouble;
    }
    expect_near(sum, ms, 1e-9 * ms);
    expect_near(number(phases, "waiting"), number(device, "idle_ms"), 1e-9 * ms);
    if (number(phases, "reduce") > 0) return;
    /* kernels come first in both, and every kernel except DP's sums has one of these phases */
    double kernels =
        number(phases, "forward") + number(phases, "loss") + number(phases, "backward") + number(phases, "optimizer");
    assert_true(kernels >= number(device, "compute_ms") * 0.999);
}

static void expect_row_adds_up(const cJSON *row, double t1_ms, bool weak) {
    double n = number(row, "n"), ms = number(row, "step_ms"), ideal_ms = weak ? t1_ms : t1_ms / n;
    expect_near(number(row, "ideal_ms"), ideal_ms, 1e-9 * t1_ms);
    expect_near(number(row, "over_ms"), ms - ideal_ms, 1e-9 * t1_ms);
    expect_near(number(row, "efficiency"), ideal_ms / ms, 1e-12);
    expect_near(number(row, "speedup"), n * ideal_ms / ms, 1e-9);
    const cJSON *mean = cJSON_GetObjectItem(row, "mean"), *first = cJSON_GetObjectItem(row, "device_0");
    expect_device_adds_up(mean, ms);
    expect_device_adds_up(first, ms);
    expect_near(number(row, "busy_share"), number(mean, "compute_ms") / ms, 1e-9);
    expect_near(number(row, "communication_share"), number(mean, "communication_ms") / ms, 1e-9);
    assert_true(number(row, "overlap") >= 0 && number(row, "overlap") <= 1);
    double busiest = 0;
    const cJSON *link, *links = cJSON_GetObjectItem(row, "links");
    cJSON_ArrayForEach(link, links) busiest = fmax(busiest, link->valuedouble);
    expect_near(number(row, "link_use"), busiest, 0);
    assert_true(busiest > 0 && busiest <= 1);
    expect_near(number(links, cJSON_GetObjectItem(row, "busiest_link")->valuestring), busiest, 0);
    if (n == 1) return;
    const cJSON *others = cJSON_GetObjectItem(row, "other_devices");
    expect_device_adds_up(others, ms);
    static const char *const figures[] = {"compute_ms", "communication_ms", "sent_bytes", "received_bytes"};
    for (size_t i = 0; i < COUNT_OF(figures); i++)
        expect_near(number(mean, figures[i]), (number(first, figures[i]) + (n - 1) * number(others, figures[i])) / n,
                    1e-9 * (1 + number(mean, figures[i])));
}

TEST_IN(programs, test_figures_add_up) {
    cJSON *result = replay(ON " --batch=384 --n=4,1,2,2");
    const cJSON *t1 = find_row(result, "single", 1, 0);
    double t1_ms = number(t1, "step_ms");
    for (int n = 1; n <= 4; n *= 2) {
        expect_row_adds_up(find_row(result, "DP", n, 0), t1_ms, false);
        expect_row_adds_up(find_row(result, "DDP", n, 0), t1_ms, false);
        double alone_ms = number(find_row(result, "single", n, 0), "step_ms");
        expect_near(number(find_row(result, "DP", n, 0), "alone_ms"), alone_ms, 1e-9);
        expect_near(number(find_row(result, "single", n, 0), "batch"), 384.0 / n, 0);
        if (n > 1) assert_true(alone_ms < t1_ms && alone_ms > t1_ms / n);
    }
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(result, "rows")), 9); /* each N once */
    cJSON_Delete(result);
    program_expect_text(
        &p, "DP: replayed on course (figures from its file), workload course; 384 samples per step on every N, fp16");
    program_expect_text(&p, "DDP: replayed on course (figures from its file)");
}

TEST_IN(programs, test_weak_scaling) {
    cJSON *result = replay(ON " --per-device-batch=96 --n=1,4");
    double t1_ms = number(find_row(result, "single", 1, 0), "step_ms");
    expect_row_adds_up(find_row(result, "DP", 4, 0), t1_ms, true);
    expect_row_adds_up(find_row(result, "DDP", 4, 0), t1_ms, true);
    expect_near(number(find_row(result, "DDP", 4, 0), "batch"), 384, 0);
    expect_near(number(find_row(result, "DDP", 4, 0), "alone_ms"), t1_ms, 1e-9);
    cJSON_Delete(result);
    /* the same step as the one that strong scaling reaches with the same samples */
    expect_near(step_ms(ON " --per-device-batch=96 --n=4", "DDP", 4), step_ms(ON " --batch=384 --n=4", "DDP", 4), 1e-9);
}

/* --- options ----------------------------------------------------------------------------------------------------- */

/* Each option has its effect: the direction is known, whatever the node's figures. */
TEST_IN(programs, test_options_do_what_they_say) {
    double ddp = step_ms(ON " --batch=64 --n=8 --mode=ddp", "DDP", 8),
           dp = step_ms(ON " --batch=64 --n=8 --mode=dp", "DP", 8);
    assert_true(step_ms(ON " --batch=64 --n=8 --mode=ddp --no-overlap", "DDP", 8) > ddp);
    assert_true(step_ms(ON " --batch=64 --n=8 --mode=ddp --no-overlap --compress=fp16", "DDP", 8) <
                step_ms(ON " --batch=64 --n=8 --mode=ddp --no-overlap", "DDP", 8));
    assert_true(step_ms(ON " --batch=64 --n=8 --mode=ddp --precision=fp32", "DDP", 8) > ddp);
    double server =
        step_ms(ON " --batch=64 --n=8 --mode=ddp --no-overlap --collectives=messages --algorithm=server", "DDP", 8);
    double ring = step_ms(ON " --batch=64 --n=8 --mode=ddp --no-overlap --collectives=messages", "DDP", 8);
    assert_true(server > ring); /* N - 1 whole messages over device 0's link */
    assert_true(step_ms(ON " --batch=64 --n=8 --mode=dp --replicate=collectives", "DP", 8) < dp);
    assert_true(step_ms(ON " --batch=64 --n=8 --mode=dp --host-lock=100", "DP", 8) > 1.5 * dp);
    program_expect_text(&p, "a host lock of 100 us per launch");
    expect_near(step_ms(ON " --batch=64 --n=8 --mode=dp --host-lock=0", "DP", 8), dp, 1e-9);
    assert_true(step_ms(ON " --batch=8 --mode=single --host-lock=100", "single", 1) >
                step_ms(ON " --batch=8 --mode=single", "single", 1));
    double t1_ms = step_ms(ON " --batch=64 --mode=single --calibrate-t1=50", "single", 1);
    expect_near(t1_ms, 50, 0.5); /* calibration knows the kernels, but not how they overlap */
    program_expect_text(&p, "T1 = 50 ms was given: the node's rates are multiplied by");
    assert_null(strstr(p.out_text, "which is far from 1"));
    (void)step_ms(ON " --batch=64 --mode=single --calibrate-t1=2000", "single", 1);
    program_expect_text(&p, ", which is far from 1: is it a time of this node");
}

/* Beyond one node, rows name the number of nodes; --devices-per-node makes nodes smaller. */
TEST_IN(programs, test_rows_name_their_nodes) {
    const char *line = "replay --node=dgx1-v100 --workload=resnet50 --per-device-batch=32 --mode=ddp --quiet";
    assert_int_equal(program_run(&p, "%s --n=4,12,16", line), 0);
    assert_non_null(strstr(p.out_text, "nodes x"));
    assert_non_null(strstr(p.out_text, "  1 x 4 "));
    assert_non_null(strstr(p.out_text, "1 x 8 + 4 "));
    assert_non_null(strstr(p.out_text, "  2 x 8 "));
    assert_int_equal(program_run(&p, "%s --n=4,8", line), 0);
    assert_null(strstr(p.out_text, "nodes x"));
    assert_int_equal(program_run(&p, "%s --n=8 --devices-per-node=2 --collectives=messages", line), 0);
    assert_non_null(strstr(p.out_text, " 4 x 2 "));
    assert_int_equal(program_run(&p, "%s --n=8 --devices-per-node=9", line), 1);
    assert_int_equal(program_run(&p, "%s --n=72 --collectives=messages", line), 1);
    assert_non_null(strstr(p.err_text, "messages between 9 nodes of dgx1-v100 are too many to model"));
    /* more ranks than a group can have: 16 replicas of 8 ranks */
    assert_int_equal(program_run(&p, "replay --node=dgx-a100 --workload=wide --batch=16 --mode=ddp --n=128 --tensor=8"),
                     0);
    assert_non_null(strstr(p.out_text, " 16 x 8 "));
    assert_int_equal(program_run(&p, "%s --n=12 --hierarchical", line), 1);
    assert_non_null(
        strstr(p.err_text, "a hierarchical all-reduce of 12 ranks needs the same number on each node; 8 fit"));
}

TEST_IN(programs, test_a_step_over_nodes) {
    const char *of = "replay --node=dgx1-v100 --workload=vgg16 --per-device-batch=4 --mode=ddp --n=16 --quiet";
    char line[300];
    double ring_ms = step_ms(of, "DDP", 16);
    snprintf(line, sizeof line, "%s --hierarchical", of);
    double hierarchical_ms = step_ms(line, "DDP", 16);
    snprintf(line, sizeof line, "%s --devices-per-node=2", of);
    double spread_ms = step_ms(line, "DDP", 16);
    assert_true(hierarchical_ms < ring_ms); /* 553 MB once over the network instead of 1.9 times */
    assert_true(spread_ms > ring_ms);       /* eight nodes' hops */
}

TEST_IN(programs, test_bucket_sizes_are_rows) {
    cJSON *result = replay(ON " --batch=64 --n=2,8 --mode=ddp --bucket-cap-mb=0.5,5,100");
    static const double caps[] = {0.5, 5, 100};
    for (int i = 0; i < 3; i++) expect_near(number(find_row(result, "DDP", 8, i), "bucket_cap_mb"), caps[i], 0);
    /* if all gradients except the first MiB are in one bucket, which is ready last, little is hidden */
    assert_true(number(find_row(result, "DDP", 8, 2), "overlap") < number(find_row(result, "DDP", 8, 1), "overlap"));
    assert_true(number(find_row(result, "DDP", 8, 2), "step_ms") > number(find_row(result, "DDP", 8, 1), "step_ms"));
    cJSON_Delete(result);
}

/* A device of the node has 16 GiB. */
TEST_IN(programs, test_memory_adds_up) {
    cJSON *result = replay("replay --node=course --workload=bert-large --batch=32 --n=1,8 --mode=ddp");
    const cJSON *row = find_row(result, "DDP", 1, 0), *part;
    double all = number(row, "memory_bytes"), most = 16.0 * (1 << 30), sum = 0;
    assert_true(all > 1e9 && all < most);
    expect_near(number(row, "device_memory_bytes"), most, 0);
    cJSON_ArrayForEach(part, cJSON_GetObjectItem(cJSON_GetObjectItem(row, "device_0"), "memory_bytes")) sum +=
        part->valuedouble;
    expect_near(sum, all, 1);
    cJSON_Delete(result);
    assert_null(strstr(p.out_text, "does not fit"));
}

/* --- traces ------------------------------------------------------------------------------------------------------- */

static cJSON *record_and_replay(const char *options) {
    char line[300];
    assert_int_equal(program_run(&p,
                                 "ddp_train %s --device-kind=cpu --batch-size=64 --steps=16 --trace-steps=4 --quiet "
                                 "--trace=%s/trace",
                                 options, scratch_folder()),
                     0);
    snprintf(line, sizeof line, "replay --trace=%s/trace --timeline=%s/timeline.json", scratch_folder(),
             scratch_folder());
    return replay(line);
}

static const cJSON *figure(const cJSON *result, const char *name) { return cJSON_GetObjectItem(result, name); }

/* Step times are simulated, and a busy machine may disturb the recorded ones: they have no bound. */
TEST_IN(programs, test_a_trace_as_it_was_recorded) {
    cJSON *result = record_and_replay("--spawn=2");
    double recorded = number(figure(result, "compute_ms"), "recorded");
    assert_true(recorded > 0 && number(figure(result, "step_ms"), "recorded") > recorded);
    expect_near(number(figure(result, "step_ms"), "error"),
                number(figure(result, "step_ms"), "replayed") / number(figure(result, "step_ms"), "recorded") - 1,
                1e-9);
    assert_true(number(figure(result, "step_ms"), "replayed") >= number(figure(result, "compute_ms"), "replayed"));
    cJSON_Delete(result);
    program_expect_text(&p, "ddp, mlp, 64 samples per step, fp32 on 2 devices");
    program_expect_text(&p, "recorded: measured, with the probes on");
    size_t nbytes;
    char *text = scratch_read(scratch_path("timeline.json"), &nbytes);
    cJSON *timeline = cJSON_Parse(text);
    free(text);
    assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(timeline, "traceEvents")) > 100);
    cJSON_Delete(timeline);
}

TEST_IN(programs, test_the_trace_of_one_device_on_a_node) {
    char line[300];
    cJSON *recorded = record_and_replay("");
    double kernels_ms = number(figure(recorded, "compute_ms"), "recorded"); /* an input: the same except for decimals */
    expect_near(number(figure(recorded, "compute_ms"), "replayed"), kernels_ms, 0.01 * kernels_ms);
    cJSON_Delete(recorded);
    snprintf(line, sizeof line, "replay --trace=%s/trace --node=course --n=1,2", scratch_folder());
    cJSON *result = replay(line);
    double t1_ms = number(find_row(result, "single", 1, 0), "step_ms");
    expect_row_adds_up(find_row(result, "DP", 2, 0), t1_ms, false);
    assert_true(number(find_row(result, "DDP", 1, 0), "recorded_ms") > 0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(find_row(result, "DDP", 2, 0), "recorded_ms")));
    cJSON_Delete(result);
    program_expect_text(&p, "workload mlp with the times of its trace; 64 samples per step");
    snprintf(line, sizeof line, "replay --trace=%s/trace --node=course --n=1 --batch=32", scratch_folder());
    result = replay(line); /* a different batch than the recorded one */
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(find_row(result, "DDP", 1, 0), "recorded_ms")));
    cJSON_Delete(result);
    /* kernels of recorded steps are not medians, and are reproduced exactly */
    snprintf(line, sizeof line, "replay --trace=%s/trace --node=course --n=2 --vary --steps=5", scratch_folder());
    double varied_ms = step_ms(line, "DDP", 2);
    assert_true(step_ms(line, "DDP", 2) == varied_ms);
    *strstr(line, "--vary") = '\0';
    assert_true(step_ms(line, "DDP", 2) != varied_ms);
    snprintf(line, sizeof line, "replay --trace=%s/trace --node=course --calibrate-t1=5", scratch_folder());
    assert_int_equal(program_run(&p, "%s", line), 2);
    assert_non_null(strstr(p.err_text, "have measured times already"));
}

/* --- defaults ---------------------------------------------------------------------------------------------------- */

/* The file's defaults; test_results.c tests the whole output without any option. */
TEST_IN(programs, test_options_go_before_the_files) {
    cJSON *result = replay("replay --node=course --workload=course --n=8");
    double collectives_ms = number(find_row(result, "DP by collectives", 8, 0), "step_ms"),
           ddp_ms = number(find_row(result, "DDP", 8, 0), "step_ms");
    cJSON_Delete(result);
    expect_near(step_ms("replay --node=course --workload=course --replicate=collectives --n=8", "DP", 8),
                collectives_ms, 0);
    assert_null(strstr(p.out_text, "gradients by copies"));
    assert_true(step_ms("replay --node=course --workload=course --batch=768 --precision=fp32 --n=8 --mode=ddp", "DDP",
                        8) > 2 * ddp_ms);
    assert_null(strstr(p.out_text, "A step with DP and with DDP")); /* with one mode there is nothing to compare */
}
