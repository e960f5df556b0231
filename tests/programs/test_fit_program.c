/* The program fit_tn: its refusals and the picture. test_results.c tests its output for points. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program p;

/* --- CSV --------------------------------------------------------------------------------------------------------- */

static const char head[] = "model,mode,n,batch,per_device_batch,how,step_ms,exposed_ms,oversubscribed,cpu,cores\n";

static void write_csv(const char *rows) {
    char *text;
    int nbytes = asprintf(&text, "%s%s", head, rows);
    assert_true(nbytes > 0);
    scratch_write("points.csv", text, (size_t)nbytes);
    free(text);
}

TEST_IN(programs, test_csvs_that_are_refused) {
    static const struct {
        const char *rows, *options, *error;
        int status;
    } cases[] = {
        {"a,DDP,1,8,8,measured,10,,,,\nb,DDP,2,8,4,measured,9,,,,\n", "",
         "has the models a, b, ...; choose one with --model", 2},
        {"a,DDP,1,8,8,measured,10,,,,\n", "--model=b", "has no rows of the model b", 1},
        {"a,DDP,1,8,8,measured,10,,,,\n", "--mode=dp", "has no rows of mode dp", 1},
        {"a,DDP,1,8,8,measured,10,,,\n", "", ":2: the row has 10 cells, but the head has 11", 1},
        {"a,DDP,1,8,8,measured,\"10,,,,\n", "", ":3: a quote is out of place", 1},
        {"a,DDP,1,8,8,measured,1\"0\",,,,\n", "", ":2: a quote is out of place", 1},
        {"a,DDP,1,8,8,measured,ten,,,,\n", "", ":2: step_ms is 'ten'; expected a number", 1},
        {"a,DDP,1,8,8,measured,nan,,,,\n", "", ":2: step_ms is 'nan'; expected a number", 1},
        {"a,DDP,1.5,8,8,measured,10,,,,\n", "", ":2: n is '1.5'; expected 1 to 1e6", 1},
        {"a,DDP,1e9,8,8,measured,10,,,,\n", "", "expected 1 to 1e6", 1},
        {"a,DDP,1,8,8,measured,-10,,,,\n", "", "the time of N = 1 is -10 ms", 1},
        {"a,DDP,1,8,8,measured,,,,,\n", "", "the time of N = 1 is nan ms", 1},
        {"a,DDP,1,8,8,measured,10,,,,\na,DDP,2,8,4,replayed,9,,,,\n", "",
         ":3: how is replayed, but line 2 has measured", 1},
        {"a,single,1,8,8,measured,10,,,,\na,DDP,2,8,4,measured,9,,,,\na,DDP,2,8,4,measured,9,,,,\n", "",
         ":4: N = 2 of ddp is already in line 3", 1},
        {"a,DDP,1,8,8,measured,10,,,,\n", "--how=virtual", "--how is virtual, but", 2},
        {"", "", "has no rows", 1},
        {"a,DDP,4,8,2,measured,10,,yes,,\n", "", "a fit takes 1 to 64 points, but there are 0", 1},
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
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0); /* without a writer */
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("pipe")), 1);
    assert_non_null(strstr(p.err_text, "not a regular file"));
    assert_int_equal(program_run(&p, "fit_tn --csv=%s", scratch_path("missing.csv")), 1);
    assert_non_null(strstr(p.err_text, "cannot open"));
}

/* --- the command line -------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_wrong_usage) {
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

TEST_IN(programs, test_what_cannot_be_written) {
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

TEST_IN(programs, test_the_picture) {
    assert_int_equal(
        program_run(&p, "fit_tn --points=1:100,2:52,4:28,8:15 --predict=16 --plot=%s", scratch_path("a_picture.png")),
        0);
    expect_picture("a_picture.png");
    assert_int_equal(access(scratch_path("a_picture.svg"), R_OK), 0);
    assert_int_equal(access(scratch_path("a_picture.csv"), R_OK), 0);
    assert_string_equal(p.err_text, "");
    /* without communication the picture has only the law itself; weak scaling has a different axis */
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
