/* replay as a user runs it: what its figures have to add up to whatever they are, that it gives the same twice, what
 * its files hold, a real run's trace, and what it refuses. */
#define _GNU_SOURCE
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
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/programs/program.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])
#define ON "replay --node=course --workload=course --precision=fp16"

static program p;

static void expect_near(double got, double wanted, double tolerance) {
    if (!(fabs(got - wanted) <= tolerance)) fail_msg("%.17g is not %.17g", got, wanted);
}

static void expect_text(const char *text) {
    if (!strstr(p.out_text, text)) fail_msg("'%s' is not in\n%s%s", text, p.out_text, p.err_text);
}

static double number(const cJSON *object, const char *name) {
    const cJSON *value = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(value)) fail_msg("%s is no number", name);
    return value->valuedouble;
}

/* Runs the line with --json, and reads that; cJSON_Delete it. */
static cJSON *replay(const char *line) {
    size_t nbytes;
    if (program_run(&p, "%s --json=%s", line, scratch_path("replay.json")) != 0) fail_msg("%s: %s", line, p.err_text);
    char *text = scratch_read(scratch_path("replay.json"), &nbytes);
    cJSON *object = cJSON_Parse(text);
    free(text);
    assert_non_null(object);
    return object;
}

/* The row of a mode on n devices; index: which of several. */
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
    /* kernels come first in both, and beside DP's sums every kernel has one of these phases */
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

static void test_figures_add_up(void **state) {
    (void)state;
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
    expect_text(
        "DP: replayed on course (figures from its file), workload course; 384 samples per step on every N, fp16");
    expect_text("DDP: replayed on course (figures from its file)");
}

static void test_weak_scaling(void **state) {
    (void)state;
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

/* Each option reaches what it is meant for: the direction is known, whatever the node's figures are. */
static void test_options_do_what_they_say(void **state) {
    (void)state;
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
    expect_text("a host lock of 100 us per launch");
    expect_near(step_ms(ON " --batch=64 --n=8 --mode=dp --host-lock=0", "DP", 8), dp, 1e-9);
    double t1_ms = step_ms(ON " --batch=64 --mode=single --calibrate-t1=50", "single", 1);
    expect_near(t1_ms, 50, 0.5); /* calibration knows the kernels, and not how they overlap */
    expect_text("T1 = 50 ms was given: the node's rates are multiplied by");
    assert_null(strstr(p.out_text, "which is far from 1"));
    (void)step_ms(ON " --batch=64 --mode=single --calibrate-t1=2000", "single", 1);
    expect_text(", which is far from 1: is it a time of this node");
}

static void test_bucket_sizes_are_rows(void **state) {
    (void)state;
    cJSON *result = replay(ON " --batch=64 --n=2,8 --mode=ddp --bucket-cap-mb=0.5,5,100");
    static const double caps[] = {0.5, 5, 100};
    for (int i = 0; i < 3; i++) expect_near(number(find_row(result, "DDP", 8, i), "bucket_cap_mb"), caps[i], 0);
    /* with all gradients but the first MiB in one bucket, which is ready last, little is hidden */
    assert_true(number(find_row(result, "DDP", 8, 2), "overlap") < number(find_row(result, "DDP", 8, 1), "overlap"));
    assert_true(number(find_row(result, "DDP", 8, 2), "step_ms") > number(find_row(result, "DDP", 8, 1), "step_ms"));
    cJSON_Delete(result);
}

static int count_texts(const char *text) {
    int count = 0;
    for (const char *at = p.out_text; (at = strstr(at, text)); at++) count++;
    return count;
}

/* A device of the node has 16 GiB: a rank of 8 holds its share of 128 samples, one device does not hold them all. */
static void test_what_does_not_fit_is_marked(void **state) {
    (void)state;
    size_t nbytes;
    cJSON *result = replay("replay --node=course --workload=bert-large --batch=32 --n=1,8 --mode=ddp");
    double one = number(find_row(result, "DDP", 1, 0), "memory_bytes"), most = 16.0 * (1 << 30);
    assert_true(one > 1e9 && one < most);
    expect_near(number(find_row(result, "DDP", 1, 0), "device_memory_bytes"), most, 0);
    const cJSON *part,
        *parts = cJSON_GetObjectItem(cJSON_GetObjectItem(find_row(result, "DDP", 1, 0), "device_0"), "memory_bytes");
    double sum = 0;
    cJSON_ArrayForEach(part, parts) sum += part->valuedouble;
    expect_near(sum, one, 1);
    cJSON_Delete(result);
    assert_int_equal(count_texts("does not fit"), 0);
    assert_int_equal(program_run(&p,
                                 "replay --node=course --workload=bert-large --batch=128 --n=1,8 --mode=ddp --out=%s",
                                 scratch_folder()),
                     0);
    assert_int_equal(count_texts("does not fit: "), 2); /* N = 1, of times and of memory */
    expect_text("T1's step does not fit on a device");
    expect_text(" of 16 GiB");
    char *text = scratch_read(scratch_path("replay_devices.csv"), &nbytes);
    int no = 0, yes = 0;
    for (const char *at = text; (at = strstr(at, ",no\n")); at++) no++;
    for (const char *at = text; (at = strstr(at, ",yes\n")); at++) yes++;
    free(text);
    assert_int_equal(no, 2);  /* T1 and DDP on one device */
    assert_int_equal(yes, 3); /* T1(b/8), and on 8 devices device 0 and the others */
}

/* Launches cost the lock's time in T1, too. */
static void test_a_lock_is_of_every_mode(void **state) {
    (void)state;
    size_t nbytes;
    assert_int_equal(program_run(&p, ON " --batch=64 --n=2 --host-lock=100 --out=%s", scratch_folder()), 0);
    assert_int_equal(count_texts("a host lock of 100 us per launch in every mode"), 2); /* DP's title and DDP's */
    char *text = scratch_read(scratch_path("replay.csv"), &nbytes);
    int locked = 0;
    for (const char *at = text; (at = strstr(at, ",\"course\",100,")); at++) locked++;
    free(text);
    assert_int_equal(locked, 4); /* T1, T1(b/2), DP, DDP */
    assert_true(step_ms(ON " --batch=8 --mode=single --host-lock=100", "single", 1) >
                step_ms(ON " --batch=8 --mode=single", "single", 1));
    assert_int_equal(program_run(&p, "replay --help"), 0);
    expect_text("in every mode and in T1");
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static void expect_same_files(const char *one, const char *other) {
    size_t nbytes, other_nbytes;
    char *text = scratch_read(one, &nbytes), *other_text = scratch_read(other, &other_nbytes);
    assert_true(nbytes > 0);
    assert_int_equal(nbytes, other_nbytes);
    assert_memory_equal(text, other_text, nbytes);
    free(text);
    free(other_text);
}

static void test_twice_gives_the_same_bytes(void **state) {
    (void)state;
    static const char *const names[] = {"replay.csv", "replay_devices.csv", "replay.json", "gantt.csv",
                                        "timeline.json"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(program_run(&p,
                                     ON " --batch=384 --n=2,4 --mode=dp --out=%s/%d --gantt=%s/%d.gantt.csv "
                                        "--timeline=%s/%d.timeline.json",
                                     scratch_folder(), i, scratch_folder(), i, scratch_folder(), i),
                         0);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char one[64], other[64];
        snprintf(one, sizeof one, i < 3 ? "0/%s" : "0.%s", names[i]);
        snprintf(other, sizeof other, i < 3 ? "1/%s" : "1.%s", names[i]);
        expect_same_files(scratch_path(one), scratch_path(other));
    }
}

/* fit_tn reads what replay writes: T1 from the row of one device, three points more, and the finer law. */
static void test_its_csv_is_fitted(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, ON " --batch=384 --out=%s", scratch_folder()), 0);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s --mode=dp", scratch_path("replay.csv")), 0);
    expect_text("DP, course, 384 samples per step on every N: 4 points, replayed on course");
    expect_text("finer: T1(b/N) + exposed + fixed");
    assert_int_equal(program_run(&p, ON " --per-device-batch=96 --out=%s", scratch_folder()), 0);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("replay.csv")), 0);
    expect_text("DDP, course, 96 samples per step on every device: 4 points, replayed on course");
}

/* A bar a line: of one lane they follow one another. Of several bucket sizes the first is drawn. */
static void test_bars_of_a_lane_do_not_overlap(void **state) {
    (void)state;
    assert_int_equal(
        program_run(&p, ON " --batch=384 --n=4 --bucket-cap-mb=25,5 --gantt=%s", scratch_path("gantt.csv")), 0);
    size_t nbytes;
    char *text = scratch_read(scratch_path("gantt.csv"), &nbytes), *rest = NULL;
    double end_of[2][4][4] = {{{0}}};
    int tasks = 0, own[2] = {0}, ahead[2] = {0}; /* bars: of streams, of hosts */
    for (char *line = strtok_r(strchr(text, '\n'), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char mode[8], lane[16], phase[16];
        int n, device, step, shown, count;
        double start_ms, end_ms;
        static const char *const lanes[] = {"host", "compute", "copy", "comm"};
        assert_int_equal(sscanf(line, "%7[^,],%d,%d,%15[^,],%15[^,],%d,%d,%d,%lf,%lf", mode, &n, &device, lane, phase,
                                &step, &shown, &count, &start_ms, &end_ms),
                         10);
        assert_true(shown == 1 && step >= 0 && step < 4); /* of four */
        (step == shown ? own : ahead)[strcmp(lane, "host") == 0]++;
        tasks += count;
        int at = 0;
        while (at < 3 && strcmp(lanes[at], lane) != 0) at++;
        double *end = &end_of[strcmp(mode, "DDP") == 0][device][at];
        assert_true(start_ms >= *end - 1e-6 && end_ms > start_ms && n == 4);
        *end = end_ms;
    }
    free(text);
    assert_true(tasks > 1000);
    assert_true(ahead[1] > 0 && own[0] > ahead[0]); /* hosts launch what devices do in the next step */
    for (int mode = 0; mode < 2; mode++)
        for (int device = 0; device < 4; device++) assert_true(end_of[mode][device][1] > 0);
}

/* Each script draws from what replay wrote, and has nothing to say but the names of its files. */
static void test_pictures_are_drawn(void **state) {
    (void)state;
    static const struct {
        const char *script, *data;
    } pictures[] = {{"replay_phases", "replay_devices.csv"},
                    {"memory", "replay_devices.csv"},
                    {"speedup", "replay.csv"},
                    {"overlap_bucket", "replay.csv"},
                    {"gantt", "gantt.csv"}};
    assert_int_equal(program_run(&p, ON " --batch=384 --bucket-cap-mb=25,5,1 --n=1,4 --out=%s --gantt=%s",
                                 scratch_folder(), scratch_path("gantt.csv")),
                     0);
    for (size_t i = 0; i < COUNT_OF(pictures); i++) {
        char name[40];
        size_t nbytes;
        snprintf(name, sizeof name, "%s.png", pictures[i].script);
        int status = program_run(&p, "LC_ALL=C.UTF-8 /usr/bin/env gnuplot -c plots/%s.gp %s %s", pictures[i].script,
                                 scratch_path(pictures[i].data), scratch_folder());
        if (status != 0 || count_lines(p.err_text) != 2 || !strstr(p.err_text, name))
            fail_msg("%s: status %d, and it said: %s", name, status, p.err_text);
        char *png = scratch_read(scratch_path(name), &nbytes);
        assert_true(nbytes > 10000);
        assert_memory_equal(png, "\x89PNG", 4);
        free(png);
    }
    assert_int_equal(
        program_run(&p, "/usr/bin/env gnuplot -c plots/gantt.gp %s/none.csv %s", scratch_folder(), scratch_folder()),
        1);
    assert_non_null(strstr(p.err_text, "there is no"));
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

/* Step times are what the simulation finds, and a busy machine may disturb those that were recorded: no bound on
 * them. */
static void test_a_trace_as_it_was_recorded(void **state) {
    (void)state;
    cJSON *result = record_and_replay("--spawn=2");
    double recorded = number(figure(result, "compute_ms"), "recorded");
    assert_true(recorded > 0 && number(figure(result, "step_ms"), "recorded") > recorded);
    expect_near(number(figure(result, "step_ms"), "error"),
                number(figure(result, "step_ms"), "replayed") / number(figure(result, "step_ms"), "recorded") - 1,
                1e-9);
    assert_true(number(figure(result, "step_ms"), "replayed") >= number(figure(result, "compute_ms"), "replayed"));
    cJSON_Delete(result);
    expect_text("ddp, mlp, 64 samples per step, fp32 on 2 devices");
    expect_text("recorded: measured, with the probes on");
    size_t nbytes;
    char *text = scratch_read(scratch_path("timeline.json"), &nbytes);
    cJSON *timeline = cJSON_Parse(text);
    free(text);
    assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(timeline, "traceEvents")) > 100);
    cJSON_Delete(timeline);
}

static void test_the_trace_of_one_device_on_a_node(void **state) {
    (void)state;
    char line[300];
    cJSON *recorded = record_and_replay("");
    double kernels_ms = number(figure(recorded, "compute_ms"), "recorded"); /* an input: the same but for decimals */
    expect_near(number(figure(recorded, "compute_ms"), "replayed"), kernels_ms, 0.01 * kernels_ms);
    cJSON_Delete(recorded);
    snprintf(line, sizeof line, "replay --trace=%s/trace --node=course --n=1,2", scratch_folder());
    cJSON *result = replay(line);
    double t1_ms = number(find_row(result, "single", 1, 0), "step_ms");
    expect_row_adds_up(find_row(result, "DP", 2, 0), t1_ms, false);
    assert_true(number(find_row(result, "DDP", 1, 0), "recorded_ms") > 0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(find_row(result, "DDP", 2, 0), "recorded_ms")));
    cJSON_Delete(result);
    expect_text("workload mlp with the times of its trace; 64 samples per step");
    snprintf(line, sizeof line, "replay --trace=%s/trace --node=course --n=1 --batch=32", scratch_folder());
    result = replay(line); /* another batch than the recorded one */
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(find_row(result, "DDP", 1, 0), "recorded_ms")));
    cJSON_Delete(result);
    snprintf(line, sizeof line, "replay --trace=%s/trace --node=course --calibrate-t1=5", scratch_folder());
    assert_int_equal(program_run(&p, "%s", line), 2);
    assert_non_null(strstr(p.err_text, "have measured times already"));
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void test_wrong_usage(void **state) {
    (void)state;
    static const char *const lines[] = {"replay",
                                        "replay --node=course",
                                        "replay --workload=course --batch=8",
                                        "replay --node=course --workload=course --trace=x --batch=8",
                                        "replay --node=course --workload=course",
                                        ON " --batch=8 --per-device-batch=8",
                                        ON " --batch=4 --n=8",
                                        ON " --batch=0",
                                        ON " --per-device-batch=0",
                                        ON " --batch=8 --calibrate-t1=0",
                                        ON " --batch=8 --n=0",
                                        ON " --batch=8 --n=two",
                                        ON " --batch=-8",
                                        ON " --batch=nan",
                                        ON " --batch=8 --mode=single --n=2",
                                        ON " --batch=8 --bucket-cap-mb=0",
                                        ON " --batch=8 --bucket-cap-mb=1,",
                                        ON " --batch=8 --bucket-cap-mb=1;2",
                                        ON " --batch=8 --bucket-cap-mb=nan",
                                        ON " --batch=8 --host-lock=-2",
                                        ON " --batch=8 --host-lock=-0.5",
                                        ON " --batch=8 --steps=0",
                                        ON " --batch=8 --precision=int32",
                                        ON " --batch=8 --algorithm=carrier-pigeon",
                                        ON " --batch=8 --timeline=both.json",
                                        "replay --as-recorded --workload=course",
                                        "replay --as-recorded --trace=x --out=y",
                                        "replay --as-recorded --trace=x --gantt=y.csv"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        int status = program_run(&p, "%s", lines[i]);
        if (status != 2 || count_lines(p.err_text) != 1 || p.out_text[0])
            fail_msg("%s: status %d, and it said: %s%s", lines[i], status, p.out_text, p.err_text);
    }
    assert_int_equal(program_run(&p, "replay --help"), 0);
    expect_text("--calibrate-t1=MS");
}

static void expect_failure(const char *text, const char *line) {
    int status = program_run(&p, "%s", line);
    if (status != 1 || count_lines(p.err_text) != 1 || p.out_text[0] || !strstr(p.err_text, text))
        fail_msg("%s: status %d, and it said: %s%s", line, status, p.out_text, p.err_text);
}

static void test_bad_files(void **state) {
    (void)state;
    char line[400];
    expect_failure("no-such-node", "replay --node=no-such-node --workload=course --batch=8");
    expect_failure("no-such-network", "replay --node=course --workload=no-such-network --batch=8");
    scratch_write("node.json", "{\n\"devices\": ,\n}\n", 17);
    snprintf(line, sizeof line, "replay --node=%s --workload=course --batch=8", scratch_path("node.json"));
    expect_failure("node.json:2", line);
    snprintf(line, sizeof line, "replay --node=course --workload=%s --batch=8", scratch_path("node.json"));
    expect_failure("node.json:2", line);
    snprintf(line, sizeof line, "replay --trace=%s", scratch_folder());
    expect_failure(scratch_folder(), line);
    expect_failure("leaves 1 of 4 ranks without any", ON " --batch=9 --n=4 --mode=ddp");
    expect_failure("and not 5: launches under the host's lock",
                   ON " --batch=8 --mode=single --calibrate-t1=5 --host-lock=100");
    /* before anything is built or written */
    snprintf(line, sizeof line,
             "replay --node=dgx1-v100 --workload=resnet50 --batch=65536 --n=1,65536 --mode=ddp --out=%s/never",
             scratch_folder());
    expect_failure("tasks, and at most", line);
    assert_int_equal(access(scratch_path("never"), F_OK), -1);
    expect_failure("16", "replay --node=course --workload=course --batch=64 --n=16 --mode=dp"); /* it has 8 */
    snprintf(line, sizeof line, ON " --batch=8 --json=%s/none/replay.json", scratch_folder());
    expect_failure("none", line);
    scratch_write("file", "", 0);
    snprintf(line, sizeof line, ON " --batch=8 --out=%s", scratch_path("file"));
    expect_failure("file", line);
    assert_int_equal(program_run(&p, "STREAMS=full " ON " --batch=8"), 1);
    assert_non_null(strstr(p.err_text, "cannot write all of the tables"));
}

#define WITH_PROGRAMS(test) cmocka_unit_test_setup_teardown(test, programs_setup, programs_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_PROGRAMS(test_figures_add_up),
        WITH_PROGRAMS(test_weak_scaling),
        WITH_PROGRAMS(test_options_do_what_they_say),
        WITH_PROGRAMS(test_bucket_sizes_are_rows),
        WITH_PROGRAMS(test_what_does_not_fit_is_marked),
        WITH_PROGRAMS(test_a_lock_is_of_every_mode),
        WITH_PROGRAMS(test_twice_gives_the_same_bytes),
        WITH_PROGRAMS(test_its_csv_is_fitted),
        WITH_PROGRAMS(test_bars_of_a_lane_do_not_overlap),
        WITH_PROGRAMS(test_pictures_are_drawn),
        WITH_PROGRAMS(test_a_trace_as_it_was_recorded),
        WITH_PROGRAMS(test_the_trace_of_one_device_on_a_node),
        WITH_PROGRAMS(test_wrong_usage),
        WITH_PROGRAMS(test_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
