/* The contents of pictures, read from the SVG that each script writes beside its PNG. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define ON "replay --node=pcie3-4gpu --workload=resnet50 --batch=64 --quiet"

static program p;

/* The SVG that a script of plots/ creates from a CSV in the test's folder; the caller frees it. */
static char *draw(const char *script, const char *csv, const char *svg) {
    int status = program_run(&p, "LC_ALL=C.UTF-8 /usr/bin/env gnuplot -c plots/%s.gp %s %s", script, scratch_path(csv),
                             scratch_folder());
    if (status != 0 || strstr(p.err_text, "warning")) fail_msg("%s: status %d, %s", script, status, p.err_text);
    return scratch_read_text(svg);
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) count++;
    return count;
}

static void expect_text(const char *svg, const char *text) {
    if (!strstr(svg, text)) fail_msg("the picture does not say '%s'", text);
}

static void expect_no_text(const char *svg, const char *text) {
    if (strstr(svg, text)) fail_msg("the picture says '%s'", text);
}

/* --- fit_tn --------------------------------------------------------------------------------------------------------- */

static char *fit(const char *points) {
    assert_int_equal(program_run(&p, "fit_tn --points=%s --plot=%s", points, scratch_path("fit.png")), 0);
    return scratch_read_text("fit.svg");
}

/* The picture and its data show the same objections to the chosen law as the text. */
TEST_IN(programs, test_doubts_about_a_law) {
    static const char no_law[] = "No law fits well: the best one misses points that are left out by";
    char *svg = fit("1:100,2:300,4:20,8:90,16:5");
    program_expect_text(&p, no_law);
    expect_text(svg, no_law);
    expect_text(svg, "(best of the laws)");
    expect_no_text(svg, "chosen");
    free(svg);
    char *csv = scratch_read_text("fit.csv");
    expect_text(csv, no_law);
    free(csv);

    svg = fit("1:100,2:52,4:28");
    expect_text(svg, "Only 3 different N: too few to tell the laws apart");
    expect_no_text(svg, "chosen");
    free(svg);

    svg = fit("1:100,2:52,4:28,8:15");
    expect_text(svg, "(chosen)");
    expect_no_text(svg, "No law fits well");
    expect_no_text(svg, "Only ");
    free(svg);
}

/* Both panels have their ticks at N. */
TEST_IN(programs, test_ticks_at_n) {
    char *svg = fit("1:1000,2:520,4:280,8:150,16:90");
    const char *const numbers[] = {">1<", ">2<", ">4<", ">8<", ">16<"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) assert_true(count_of(svg, numbers[i]) >= 2);
    expect_text(svg, ">1e+03<"); /* each point's time */
    expect_text(svg, ">280<");
    free(svg);
}

/* --- replay --------------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_gantt_has_totals_and_no_empty_lanes) {
    assert_int_equal(program_run(&p, ON " --n=4 --gantt=%s", scratch_path("gantt.csv")), 0);
    char *svg = draw("gantt", "gantt.csv", "gantt.svg");
    expect_text(svg, ">DP: 180 ms<");
    expect_text(svg, ">DDP: 132 ms<");
    assert_int_equal(count_of(svg, ">busy [ms]<"), 2);
    assert_int_equal(count_of(svg, ">129<"), 5);  /* compute of DP's device 0 and of DDP's four */
    assert_int_equal(count_of(svg, " host<"), 4); /* DDP's are busy for 6 us of 132 ms */
    assert_int_equal(count_of(svg, " comm<"), 4); /* DP has none */
    assert_int_equal(count_of(svg, ">31.6<"), 4); /* their time */
    free(svg);
}

TEST_IN(programs, test_memory_has_totals) {
    assert_int_equal(program_run(&p, ON " --n=1,4 --out=%s", scratch_folder()), 0);
    char *svg = draw("memory", "replay_devices.csv", "memory.svg");
    expect_text(svg, "memory that a device holds [MiB]");
    expect_text(svg, "N, devices");
    char *csv = scratch_read_text("replay_devices.csv");
    assert_non_null(strstr(csv, "memory_bytes"));
    free(csv);
    assert_int_equal(count_of(svg, ">DP 0: "), 2);
    assert_int_equal(count_of(svg, ">DDP 1+: "), 1);
    free(svg);
}

/* One panel per network, with its greatest N, and one bar per technique, with its total. */
TEST_IN(programs, test_techniques_have_bars) {
    assert_int_equal(program_run(&p,
                                 "bench_memory --models=wide,deep --n=4,8 --node=dgx1-v100 --batch=64 --quiet --out=%s",
                                 scratch_folder()),
                     0);
    char *svg = draw("memory_techniques", "memory.csv", "memory_techniques.svg");
    expect_text(svg, "Memory of each of 8 devices");
    expect_text(svg, "replayed on dgx1-v100");
    assert_int_equal(count_of(svg, ">wide<"), 1);
    assert_int_equal(count_of(svg, ">ZeRO-1<"), 2);
    assert_true(count_of(svg, "; 1.00x<") >= 2); /* plain DDP's */
    expect_text(svg, ">1026; 1.00x<");
    free(svg);
}

/* Filled circle, square, triangle. */
TEST_IN(programs, test_each_n_has_a_marker) {
    assert_int_equal(program_run(&p, ON " --mode=ddp --n=2,3,4 --bucket-cap-mb=1,25 --out=%s", scratch_folder()), 0);
    char *svg = draw("overlap_bucket", "replay.csv", "overlap_bucket.svg");
    const char *const markers[] = {"'#gpPt6'", "'#gpPt4'", "'#gpPt8'"};
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++) expect_text(svg, markers[i]);
    free(svg);
}

/* --- the benches ---------------------------------------------------------------------------------------------------- */

/* The position of the SVG's next marker of a kind, "translate(x,y)", without the white ones behind markers; NULL if
 * there is none. */
static const char *next_place(const char **at, const char *marker) {
    const char *place = NULL;
    while (!place && (*at = strstr(*at, marker))) {
        *at += 1;
        const char *end = strstr(*at, "/>");
        place = memmem(*at, (size_t)(end - *at), "#FFFFFF", 7) ? NULL : strstr(*at, "translate(");
    }
    return place;
}

/* DP and DDP that are equally fast are drawn side by side, and T1 as a line. */
TEST_IN(programs, test_modes_stand_side_by_side) {
    static const char csv[] =
        "model,mode,n,device,device_name,cpu,cores,date,oversubscribed,scaling,batch,per_device_batch,runs,steps,"
        "ideal_ms,step_ms,step_ms_min,step_ms_max,speedup,speedup_min,speedup_max\n"
        "mlp,DP,1,cpu,,a CPU,2,2026-01-01T00:00:00Z,no,strong,64,64,3,10,10,10,9,11,1,1,1\n"
        "mlp,DDP,1,cpu,,a CPU,2,2026-01-01T00:00:00Z,no,strong,64,64,3,10,10,10,9,11,1,1,1\n"
        "mlp,DP,2,cpu,,a CPU,2,2026-01-01T00:00:00Z,no,strong,64,32,3,10,5,6,6,7,1.7,1.6,1.7\n"
        "mlp,DDP,2,cpu,,a CPU,2,2026-01-01T00:00:00Z,no,strong,64,32,3,10,5,6,6,7,1.7,1.6,1.7\n";
    static const char answer[] = "mlp, N = 2: no difference\n";
    scratch_write("dp_vs_ddp.csv", csv, strlen(csv));
    scratch_write("dp_vs_ddp_virtual.csv", csv, strcspn(csv, "\n") + 1);
    scratch_write("dp_vs_ddp.txt", answer, strlen(answer));
    char *svg = draw("dp_vs_ddp", "dp_vs_ddp.csv", "dp_vs_ddp_mlp.svg");
    int count = 0;
    for (const char *dp = svg, *place; (place = next_place(&dp, "'#gpPt6'"));) {
        count++;
        size_t length = strcspn(place, ")");
        for (const char *ddp = svg, *other; (other = next_place(&ddp, "'#gpPt4'"));)
            if (strncmp(place, other, length + 1) == 0) fail_msg("both lie at %.*s", (int)length + 1, place);
    }
    assert_int_equal(count, 1 + 4); /* the legend, and two N in two panels */
    expect_text(svg, "<title>T1</title>");
    free(svg);
}

/* Ticks have units and are not powers of ten; each algorithm has a line. */
TEST_IN(programs, test_allreduce_ticks_and_lines) {
    FILE *file = fopen(scratch_path("comm.csv"), "w");
    assert_non_null(file);
    fputs("library,backend,buffers,op,algorithm,n,bytes,dtype,reduce,runs,how,time_us,p10_us,p90_us,busbw_GBps,cores,"
          "cpu,date\n",
          file);
    static const char *const algorithms[] = {"direct", "ring"};
    for (int a = 0; a < 2; a++) {
        for (int size = 0; size < 8; size++) {
            double bytes = 8 << (3 * size), us = 2 + bytes / 2000;
            fprintf(file,
                    "lockstep,shm,shared,all_reduce,%s,2,%.0f,fp32,sum,7,measured,%g,%g,%g,%g,2,a CPU,2026-01-01\n",
                    algorithms[a], bytes, us, us / 1.1, us * 1.1, bytes / us / 1e3);
        }
    }
    fclose(file);
    char *svg = draw("allreduce", "comm.csv", "allreduce_shm_shared_n2.svg");
    expect_text(svg, ">10 µs<");
    expect_text(svg, ">10 ms<");
    expect_text(svg, ">1 GB/s<");
    expect_no_text(svg, "10^");
    expect_no_text(svg, "baseline-shift"); /* of an exponent */
    for (int a = 0; a < 2; a++) {
        char title[40];
        snprintf(title, sizeof title, "<title>%s</title>", algorithms[a]);
        const char *line = strstr(svg, title);
        assert_non_null(line);
        assert_non_null(memmem(line, 600, "<path", 5));
    }
    free(svg);
}
