/* The minutes of the labs follow the rule of labs/instructors.md, in every place that says them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/programs/program.h"

static program p;

static int run_minutes(const char *labs) { return program_run(&p, "/bin/sh labs/course/minutes.sh check %s", labs); }

static void minutes_follow_from_sheets_and_bodies(void **state) {
    (void)state;
    if (run_minutes("01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16") != 0) fail_msg("%s%s", p.out_text, p.err_text);
}

static void a_lab_that_is_not_there_is_no_pass(void **state) {
    (void)state;
    assert_int_equal(run_minutes("99"), 2);
}

#define PROGRAM_TEST(name) cmocka_unit_test_setup_teardown(name, programs_setup, programs_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        PROGRAM_TEST(minutes_follow_from_sheets_and_bodies),
        PROGRAM_TEST(a_lab_that_is_not_there_is_no_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
