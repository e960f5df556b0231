/* The program bench_launch; ddprun, which accepts torchrun's options, replaces torchrun. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

static program p;

static char *measure(const char *torchrun, const char *more, int status) {
    program_run(&p, "PYTHON_EXEC=/bin/true bench_launch --n 4,1 --rounds 2 --pytorch-most 1 --torchrun %s --out %s %s",
                torchrun, scratch_folder(), more);
    if (p.status != status) fail_msg("status %d: %s", p.status, p.err_text);
    return scratch_read_text("launch.csv");
}

TEST_IN(programs, test_all_launchers) {
    char torchrun[600];
    snprintf(torchrun, sizeof torchrun, "%s/ddprun", build_folder());
    char *csv = measure(torchrun, "--quiet", 0);
    assert_int_equal(count_lines(csv), 1 + 5); /* PyTorch's rows with one rank only */
    assert_non_null(strstr(csv, "\nlaunch,\"ddprun\",1,2,"));
    assert_non_null(strstr(csv, "\nlaunch,\"torchrun\",1,2,"));
    assert_non_null(strstr(csv, "\nlaunch,\"torchrun, PyTorch\",1,2,"));
    assert_non_null(strstr(csv, "\nlaunch,\"ddprun\",4,2,"));
    assert_non_null(strstr(csv, "\nlaunch,\"torchrun\",4,2,"));
    double median_s, least_s, most_s;
    assert_int_equal(sscanf(strstr(csv, "\"ddprun\",4,2,"), "\"ddprun\",4,2,%lf,%lf,%lf", &median_s, &least_s, &most_s),
                     3);
    assert_true(0 < least_s && least_s <= median_s && median_s <= most_s && most_s < 150);
    free(csv);
    program_expect_text(&p, "2 runs of each row in turn");
    assert_string_equal(p.err_text, "");
    assert_int_equal(program_run(&p, "LC_ALL=C.UTF-8 /usr/bin/env gnuplot -c plots/launch.gp %s %s",
                                 scratch_path("launch.csv"), scratch_folder()),
                     0);
    char *svg = scratch_read_text("launch.svg");
    assert_non_null(strstr(svg, "<title>ddprun</title>"));
    assert_non_null(strstr(svg, "gloo</title>"));
    assert_non_null(strstr(svg, "medians of 2 runs"));
    free(svg);
}

TEST_IN(programs, test_without_torchrun) {
    char *csv = measure("/no/such/torchrun", "", 0);
    assert_int_equal(count_lines(csv), 1 + 2);
    assert_non_null(strstr(p.err_text, "bench_launch: /no/such/torchrun is not here: ddprun is measured alone\n"));
    free(csv);
    free(measure("none", "", 0));
    assert_null(strstr(p.err_text, "not here"));
}

/* Its row is missing, and the others are measured. */
TEST_IN(programs, test_a_launcher_that_fails) {
    static const char failing[] = "#!/bin/sh\nexit 1\n";
    char torchrun[600];
    snprintf(torchrun, sizeof torchrun, "%s", scratch_path("torchrun"));
    scratch_write("torchrun", failing, sizeof failing - 1);
    assert_int_equal(chmod(torchrun, 0700), 0);
    char *csv = measure(torchrun, "--quiet", 1);
    assert_int_equal(count_text(csv, ",\"failed\","), 3);
    assert_non_null(strstr(csv, "\nlaunch,\"torchrun\",4,0,,,,\"failed\","));
    assert_non_null(strstr(csv, "\nlaunch,\"ddprun\",4,2,"));
    free(csv);
}
