/* Programs under a limit on address space (ulimit -v), from too little to start to enough: they end with a line, never by
 * a signal. hwloc and oneDNN crash where their own allocations fail, so they are not called near the limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/programs/program.h"

static const char script[] = "ulimit -v $1; shift; exec \"$@\"\n";

static const char *const lines[] = {"dp_train --device-kind cpu --steps 1 --no-evaluate --quiet",
                                    "fit_tn --points 1:100,2:52,4:28,8:15"};

static void without_a_limit_programs_run(void **state) {
    (void)state;
    static program p;
    for (size_t i = 0; i < 2; i++) {
        program_run(&p, "%s", lines[i]);
        if (p.status != 0) fail_msg("%s: status %d: %s", lines[i], p.status, p.err_text);
    }
}

static void no_limit_ends_a_program_by_a_signal(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* a sanitizer maps terabytes, and aborts under any such limit */
#endif
    static program p;
    scratch_write("limited", script, sizeof script - 1);
    for (size_t i = 0; i < 2; i++) {
        for (int kib = 52000; kib < 110000; kib += 700) {
            program_run(&p, "/bin/sh %s %d %s/%s", scratch_path("limited"), kib, build_folder(), lines[i]);
            if (p.status >= 128 || (p.status != 0 && p.err_text[0] == '\0'))
                fail_msg("%d KiB, %s: status %d: %s", kib, lines[i], p.status, p.err_text);
        }
    }
}

int main(void) {
    alarm(230);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_limit_programs_run, programs_setup, programs_teardown),
        cmocka_unit_test_setup_teardown(no_limit_ends_a_program_by_a_signal, programs_setup, programs_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
