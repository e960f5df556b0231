/* The minutes of the labs follow the rule of labs/instructors.md, in every place that names them. */
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program p;

static int run_minutes(const char *labs) { return program_run(&p, "/bin/sh labs/course/minutes.sh check %s", labs); }

TEST_IN(programs, minutes_follow_from_sheets_and_bodies) {
    if (run_minutes("01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19") != 0)
        fail_msg("%s%s", p.out_text, p.err_text);
}

TEST_IN(programs, a_lab_that_is_not_there_is_no_pass) { assert_int_equal(run_minutes("99"), 2); }
