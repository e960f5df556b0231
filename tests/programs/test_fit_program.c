/* fit_tn as a user runs it: points from the command line and from a CSV, what it says of them, and what it refuses. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "labs/replay/engine/fit.h"
#include "tests/base/scratch.h"
#include "tests/programs/program.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static program p;

static void expect_no_text(const char *text) {
    if (strstr(p.out_text, text)) fail_msg("'%s' is in\n%s", text, p.out_text);
}

static void expect_near(double got, double wanted, double tolerance) {
    if (!(fabs(got - wanted) <= tolerance)) fail_msg("%.17g is not %.17g", got, wanted);
}

/* What the last run wrote with --json=fit.json; cJSON_Delete it. */
static cJSON *read_result(void) {
    size_t nbytes;
    char *text = scratch_read(scratch_path("fit.json"), &nbytes);
    cJSON *object = cJSON_Parse(text);
    free(text);
    assert_non_null(object);
    return object;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *value = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(value)) fail_msg("%s is no number", name);
    return value->valuedouble;
}

static const char *text_of(const cJSON *object, const char *name) {
    const cJSON *value = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsString(value)) fail_msg("%s is no text", name);
    return value->valuestring;
}

static const cJSON *item(const cJSON *object, const char *name, int index) {
    return cJSON_GetArrayItem(cJSON_GetObjectItem(object, name), index);
}

static int length(const cJSON *object, const char *name) {
    return cJSON_GetArraySize(cJSON_GetObjectItem(object, name));
}

/* --- the course's figures ---------------------------------------------------------------------------------------- */

static void test_the_courses_points(void **state) {
    (void)state;
    static const struct ls_fit_point points[] = {{1, 100}, {2, 52}, {4, 28}, {8, 15}};
    struct ls_fit fits[LS_LAW_COUNT];
    size_t count;
    assert_int_equal(ls_fit_all(fits, &count, points, 4), LS_OK);
    assert_int_equal(
        program_run(&p, "fit_tn --points=8:15,1:100,4:28,2:52 --predict=16 --json=%s", scratch_path("fit.json")), 0);
    program_expect_text(&p, "4 points, given; it is not said how they were found");
    program_expect_text(&p, "constant");
    program_expect_text(&p, "What the law 'constant' says of other N: a prediction, beyond N = 8 an extrapolation");
    program_expect_text(&p, "weak scaling: T1 ");
    expect_no_text("too few to tell the laws apart");
    cJSON *result = read_result();
    assert_string_equal(text_of(result, "scaling"), "strong");
    assert_int_equal(length(result, "laws"), LS_LAW_COUNT);
    for (int i = 0; i < LS_LAW_COUNT; i++) {
        const cJSON *law = item(result, "laws", i);
        assert_string_equal(text_of(law, "law"), ls_law_name(fits[i].law));
        expect_near(number(law, "t1_ms"), fits[i].t1_ms, 1e-9);
        expect_near(number(law, "left_out_ms"), fits[i].left_out_ms, 1e-9);
        expect_near(number(law, "degrees_of_freedom"), 4 - fits[i].coefficients, 0);
    }
    const cJSON *point = item(result, "points", 3); /* sorted by N */
    expect_near(number(point, "n"), 8, 0);
    expect_near(number(point, "speedup"), 100.0 / 15, 1e-9);
    expect_near(number(point, "efficiency"), 100.0 / 15 / 8, 1e-9);
    expect_near(number(item(result, "predictions", 0), "step_ms"), ls_fit_ms(&fits[0], 16), 1e-9);
    assert_string_equal(text_of(item(result, "predictions", 0), "beyond"), "extrapolated");
    cJSON_Delete(result);
}

static void test_too_few_points_are_named(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "fit_tn --points=1:100,2:52,2:53,4:28"), 0);
    program_expect_text(&p, "Only 3 different N: too few to tell the laws apart");
}

static void test_a_serial_share(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "fit_tn --points=1:100,2:60,4:40,8:30 --how=measured --on=GPUs --title=DP"), 0);
    program_expect_text(&p, "DP: 4 points, measured on GPUs");
    program_expect_text(&p, "chosen: T1 (s + (1 - s) / N)");
    program_expect_text(&p, "T1 = 100 ms, s = 20 %");
    program_expect_text(&p, "no: off by");
}

/* Faster than N times as fast, far away, and beyond all laws: each is said. */
static void test_what_is_doubtful_is_said(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "fit_tn --points=1:100,2:45,4:20,8:9 --predict=8,32,33"), 0);
    program_expect_text(&p, "(s outside of 0 .. 1: no share)");
    program_expect_text(&p, "no: s is no share, outside of 0 .. 1");
    expect_no_text("No law fits well");
    int far = 0;
    for (const char *at = p.out_text; (at = strstr(at, "extrapolated far")); at++) far++;
    assert_int_equal(far, 1); /* 33, and not 32 = 4 x 8 */
    assert_int_equal(program_run(&p, "fit_tn --points=1:100,2:300,4:20,8:90,16:5"), 0);
    program_expect_text(&p, "No law fits well: the best one misses points that are left out by");
    assert_int_equal(program_run(&p, "fit_tn --points=1:1e30,2:6e29,4:3e29,8:2e29"), 0);
    program_expect_text(&p, "1e+30");
    expect_no_text("000000000");
    assert_int_equal(program_run(&p, "fit_tn --points=1:100,2:60,4:40,8:30"), 0);
    expect_no_text("outside of 0 .. 1");
}

/* Weak scaling with a Tcomm below 0 would be the exact law of these points, and explain nothing. */
static void test_a_rival_has_no_negative_costs(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "fit_tn --points=1:100,2:30,4:35,8:40"), 0);
    program_expect_text(&p, "weak scaling: T1 ");
    expect_no_text("weak scaling: T1 +");
}

/* Each device with a batch of its own: T1 is not divided. */
static void test_weak_scaling(void **state) {
    (void)state;
    assert_int_equal(
        program_run(&p, "fit_tn --points=1:50,2:53,4:53,8:53 --scaling=weak --json=%s", scratch_path("fit.json")), 0);
    program_expect_text(&p, "T_N = T1 + Tcomm(N)");
    cJSON *result = read_result();
    assert_string_equal(text_of(result, "scaling"), "weak");
    assert_string_equal(text_of(item(result, "laws", 0), "law"), "constant");
    expect_near(number(item(result, "laws", 0), "a_ms"), 3, 1e-9);
    expect_near(number(item(result, "points", 3), "efficiency"), 50.0 / 53, 1e-9);
    expect_near(number(item(result, "points", 3), "speedup"), 8 * 50.0 / 53, 1e-9);
    program_expect_text(&p, "strong scaling: T1 / N");
    cJSON_Delete(result);
}

/* --- CSV --------------------------------------------------------------------------------------------------------- */

static const char head[] = "model,mode,n,batch,per_device_batch,how,step_ms,exposed_ms,oversubscribed,cpu,cores\n";

/* A machine of 4 cores; T_N - T1(b/N) - exposed is 1 ms throughout. */
static const char bench[] = "\"mlp:784,10\",single,1,64,64,measured,100,,no,\"a CPU, \"\"fast\"\"\",4\n"
                            "\"mlp:784,10\",single,1,32,32,measured,51,,no,,4\n"
                            "\"mlp:784,10\",single,1,16,16,measured,27,,no,,4\n"
                            "\"mlp:784,10\",single,1,8,8,measured,15,,yes,,4\n"
                            "\"mlp:784,10\",DP,1,64,64,measured,107,0,no,,4\n"
                            "\"mlp:784,10\",DDP,1,64,64,measured,108,0,no,\"a CPU, \"\"fast\"\"\",4\n"
                            "\"mlp:784,10\",DDP,2,64,32,measured,54,2,no,\"a CPU, \"\"fast\"\"\",4\n"
                            "\"mlp:784,10\",DDP,4,64,16,measured,31,3,no,,4\n"
                            "\"mlp:784,10\",DDP,8,64,8,measured,70,4,yes,,4\n";

static void write_csv(const char *rows) {
    char *text;
    int nbytes = asprintf(&text, "%s%s", head, rows);
    assert_true(nbytes > 0);
    scratch_write("points.csv", text, (size_t)nbytes);
    free(text);
}

static void test_a_benchs_csv(void **state) {
    (void)state;
    write_csv(bench);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s --json=%s", scratch_path("points.csv"), scratch_path("fit.json")),
                     0);
    program_expect_text(
        &p, "DDP, mlp:784,10, 64 samples per step on every N: 3 points, measured on a CPU, \"fast\", 4 cores");
    assert_non_null(strstr(p.err_text, "1 row is left out, with more devices than cores"));
    cJSON *result = read_result();
    assert_int_equal(length(result, "points"), 3);
    expect_near(number(item(result, "points", 0), "step_ms"), 100, 0); /* the plain path, not DDP on one device */
    expect_near(number(result, "t1_ms"), 100, 0);
    const cJSON *finer = item(result, "explanations", length(result, "explanations") - 1);
    assert_string_equal(text_of(finer, "law"), "finer: T1(b/N) + exposed + fixed");
    assert_string_equal(text_of(finer, "coefficients"), "fixed = 1 ms");
    expect_near(number(finer, "rms_ms"), 0, 1e-9);
    cJSON_Delete(result);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s --json=%s --oversubscribed", scratch_path("points.csv"),
                                 scratch_path("fit.json")),
                     0);
    assert_string_equal(p.err_text, "");
    result = read_result();
    assert_int_equal(length(result, "points"), 4);
    cJSON_Delete(result);
}

/* A batch that grows with N is weak scaling, without being told. */
/* The bench names the kind of its devices. */
static void test_a_column_device_may_be_there(void **state) {
    (void)state;
    static const char rows[] = "mode,n,step_ms,device\nsingle,1,9,cpu\nDDP,2,5,cpu\nDDP,4,3,cpu\n";
    scratch_write("points.csv", rows, sizeof rows - 1);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("points.csv")), 0);
}

static void test_a_csv_of_weak_scaling(void **state) {
    (void)state;
    write_csv("net,single,1,8,8,replayed,10,,,,\n"
              "net,DP,1,8,8,replayed,10,,,,\n"
              "net,DP,2,16,8,replayed,12,,,,\n"
              "net,DP,4,32,8,replayed,14,,,,\n"
              "net,DP,8,64,8,replayed,16,,,,\n");
    assert_int_equal(program_run(&p, "fit_tn --csv=%s --mode=dp", scratch_path("points.csv")), 0);
    program_expect_text(&p, "DP, net, 8 samples per step on every device: 4 points, replayed");
    program_expect_text(&p, "logarithm  a + b log2 N"); /* 10 + 2 log2 N exactly */
    expect_no_text("finer:");                           /* what communication is exposed is not said */
}

static void test_csvs_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *rows, *options, *error;
        int status;
    } cases[] = {
        {"a,DDP,1,8,8,measured,10,,,,\nb,DDP,2,8,4,measured,9,,,,\n", "",
         "has the models a, b, ...; choose one with --model", 2},
        {"a,DDP,1,8,8,measured,10,,,,\n", "--model=b", "has no rows of the model b", 1},
        {"a,DDP,1,8,8,measured,10,,,,\n", "--mode=dp", "has no rows of mode dp", 1},
        {"a,DDP,1,8,8,measured,10,,,\n", "", ":2: 10 cells, and the head has 11", 1},
        {"a,DDP,1,8,8,measured,\"10,,,,\n", "", ":3: a quote is out of place", 1},
        {"a,DDP,1,8,8,measured,1\"0\",,,,\n", "", ":2: a quote is out of place", 1},
        {"a,DDP,1,8,8,measured,ten,,,,\n", "", ":2: step_ms is 'ten', which is no number", 1},
        {"a,DDP,1,8,8,measured,nan,,,,\n", "", ":2: step_ms is 'nan', which is no number", 1},
        {"a,DDP,1.5,8,8,measured,10,,,,\n", "", ":2: n is '1.5', which is not within", 1},
        {"a,DDP,1e9,8,8,measured,10,,,,\n", "", "which is not within 1 .. 1e6", 1},
        {"a,DDP,1,8,8,measured,-10,,,,\n", "", "the time of N = 1 is -10 ms", 1},
        {"a,DDP,1,8,8,measured,,,,,\n", "", "the time of N = 1 is nan ms", 1},
        {"a,DDP,1,8,8,measured,10,,,,\na,DDP,2,8,4,replayed,9,,,,\n", "",
         ":3: how is replayed, and in line 2 it was measured", 1},
        {"a,single,1,8,8,measured,10,,,,\na,DDP,2,8,4,measured,9,,,,\na,DDP,2,8,4,measured,9,,,,\n", "",
         ":4: N = 2 of ddp stands in line 3 already", 1},
        {"a,DDP,1,8,8,measured,10,,,,\n", "--how=virtual", "--how=virtual, but", 2},
        {"", "", "there are no rows in it", 1},
        {"a,DDP,4,8,2,measured,10,,yes,,\n", "", "a fit takes 1 to 64 points, and there are 0", 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        write_csv(cases[i].rows);
        int status = program_run(&p, "fit_tn --csv=%s %s", scratch_path("points.csv"), cases[i].options);
        bool one_line = count_lines(p.err_text) == 1 || strstr(p.err_text, "left out");
        if (status != cases[i].status || !strstr(p.err_text, cases[i].error) || !one_line)
            fail_msg("case %zu: status %d, and it said: %s", i, status, p.err_text);
    }
    scratch_write("points.csv", "mode,n\nDDP,1\n", 13);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("points.csv")), 1);
    assert_non_null(strstr(p.err_text, "points.csv:1: there is no column step_ms"));
    static const char devices[] = "mode,n,step_ms,device,parameters_bytes\nDDP,1,9,0,8\n";
    scratch_write("points.csv", devices, sizeof devices - 1);
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("points.csv")), 1);
    assert_non_null(strstr(p.err_text, "has rows for each device; fit replay.csv"));
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0); /* which nobody writes to */
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("pipe")), 1);
    assert_non_null(strstr(p.err_text, "it is not a regular file"));
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("missing.csv")), 1);
    assert_non_null(strstr(p.err_text, "cannot open"));
}

/* --- the command line -------------------------------------------------------------------------------------------- */

static void test_wrong_usage(void **state) {
    (void)state;
    static const char *const lines[] = {"",
                                        "--points=1:100 --csv=x.csv",
                                        "--points=",
                                        "--points=1",
                                        "--points=1:",
                                        "--points=1:ten",
                                        "--points=0:100",
                                        "--points=-1:100",
                                        "--points=1:100,",
                                        "--points=1:100;2:50",
                                        "--points=1:-100",
                                        "--points=1:nan",
                                        "--points=1:inf",
                                        "--points=1:100x",
                                        "--points=1:100,2:50 --model=mlp",
                                        "--points=1:100,2:50 --plot=fit.svg",
                                        "--points=1:100,2:50 --plot=.png",
                                        "--points=1:100,2:50 --predict=0",
                                        "--points=1:100,2:50 --scaling=odd",
                                        "--points=1:100,2:50 operand"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        int status = program_run(&p, "fit_tn %s", lines[i]);
        if (status != 2 || count_lines(p.err_text) != 1 || p.out_text[0])
            fail_msg("fit_tn %s: status %d, and it said: %s%s", lines[i], status, p.out_text, p.err_text);
    }
    assert_int_equal(program_run(&p, "fit_tn --help"), 0);
    program_expect_text(&p, "--points=N:MS,...");
}

static void test_what_cannot_be_written(void **state) {
    (void)state;
    assert_int_equal(program_run(&p, "STREAMS=full fit_tn --points=1:100,2:52"), 1);
    assert_non_null(strstr(p.err_text, "cannot write all of the results to standard output"));
    assert_int_equal(program_run(&p, "fit_tn --points=1:100,2:52 --json=%s/none/fit.json", scratch_folder()), 1);
    assert_int_equal(count_lines(p.err_text), 1);
}

/* --- the picture ------------------------------------------------------------------------------------------------- */

static void expect_picture(const char *name) {
    size_t nbytes;
    char *png = scratch_read(scratch_path(name), &nbytes);
    assert_true(nbytes > 10000);
    assert_memory_equal(png, "\x89PNG", 4);
    free(png);
}

static void test_the_picture(void **state) {
    (void)state;
    assert_int_equal(
        program_run(&p, "fit_tn --points=1:100,2:52,4:28,8:15 --predict=16 --plot=%s", scratch_path("a_picture.png")),
        0);
    expect_picture("a_picture.png");
    assert_int_equal(access(scratch_path("a_picture.svg"), R_OK), 0);
    assert_int_equal(access(scratch_path("a_picture.csv"), R_OK), 0);
    assert_string_equal(p.err_text, "");
    /* without communication there is nothing to see but the law itself; weak scaling has another axis */
    assert_int_equal(
        program_run(&p, "fit_tn --points=1:50,2:50,4:50 --scaling=weak --plot=%s", scratch_path("weak.png")), 0);
    expect_picture("weak.png");
    assert_string_equal(p.err_text, "");
    /* in any folder */
    assert_int_equal(program_run(&p, "/usr/bin/env -C %s %s/fit_tn --points=1:100,2:52,4:28 --plot=there.png",
                                 scratch_folder(), build_folder()),
                     0);
    expect_picture("there.png");
}

#define WITH_PROGRAMS(test) cmocka_unit_test_setup_teardown(test, programs_setup, programs_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_PROGRAMS(test_the_courses_points),
        WITH_PROGRAMS(test_too_few_points_are_named),
        WITH_PROGRAMS(test_a_serial_share),
        WITH_PROGRAMS(test_a_rival_has_no_negative_costs),
        WITH_PROGRAMS(test_what_is_doubtful_is_said),
        WITH_PROGRAMS(test_weak_scaling),
        WITH_PROGRAMS(test_a_benchs_csv),
        WITH_PROGRAMS(test_a_column_device_may_be_there),
        WITH_PROGRAMS(test_a_csv_of_weak_scaling),
        WITH_PROGRAMS(test_csvs_that_are_refused),
        WITH_PROGRAMS(test_wrong_usage),
        WITH_PROGRAMS(test_what_cannot_be_written),
        WITH_PROGRAMS(test_the_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
