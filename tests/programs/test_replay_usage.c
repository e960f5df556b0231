/* replay refuses what it cannot replay: in one line, before it has written anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/programs/program.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])
#define ON "replay --node=course --workload=course --precision=fp16 --replicate=copies"

static program p;

static void test_wrong_usage(void **state) {
    (void)state;
    static const char *const lines[] = {"replay",
                                        "replay --node=course",
                                        "replay --workload=course --batch=8",
                                        "replay --node=course --workload=course --trace=x --batch=8",
                                        "replay --node=course --workload=resnet50",
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
                                        ON " --batch=8 --vary",
                                        "replay --as-recorded --workload=course",
                                        "replay --as-recorded --trace=x --vary",
                                        "replay --trace=x --n=2",
                                        "replay --trace=x --batch=7",
                                        "replay --as-recorded --trace=x --out=y",
                                        "replay --as-recorded --trace=x --gantt=y.csv"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        int status = program_run(&p, "%s", lines[i]);
        if (status != 2 || count_lines(p.err_text) != 1 || p.out_text[0])
            fail_msg("%s: status %d, and it said: %s%s", lines[i], status, p.out_text, p.err_text);
    }
    assert_int_equal(program_run(&p, "replay --help"), 0);
    program_expect_text(&p, "--calibrate-t1=MS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_wrong_usage, programs_setup, programs_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
