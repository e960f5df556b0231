/* Programs under a limit on address space (ulimit -v), from too little to start to enough: they end with a line, never by
 * a signal. hwloc and oneDNN crash if their own allocations fail, so they are not called near the limit. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static const char script[] = "ulimit -v $1; shift; exec \"$@\"\n";

static const char *const lines[] = {"dp_train --device-kind cpu --steps 1 --no-evaluate --quiet",
                                    "fit_tn --points 1:100,2:52,4:28,8:15"};

static const char *const versions[] = {"dp_train --version", "fit_tn --version"};

static int run_limited(program *p, int kib, const char *line) {
    return program_run(p, "/bin/sh %s %d %s/%s", scratch_path("limited"), kib, build_folder(), line);
}

TEST_IN(programs, without_a_limit_programs_run) {
    static program p;
    for (size_t i = 0; i < 2; i++) {
        program_run(&p, "%s", lines[i]);
        if (p.status != 0) fail_msg("%s: status %d: %s", lines[i], p.status, p.err_text);
    }
}

TEST_IN(programs, no_limit_ends_a_program_by_a_signal) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* a sanitizer maps terabytes, and aborts under any such limit */
#endif
    static program p;
    scratch_write("limited", script, sizeof script - 1);
    for (size_t i = 0; i < 2; i++) {
        bool begins = false; /* oneDNN 3 throws before main, if the loader had just enough */
        for (int kib = 52000; kib < 110000; kib += 700) {
            if (!begins) begins = run_limited(&p, kib, versions[i]) == 0;
            if (!begins) continue;
            run_limited(&p, kib, lines[i]);
            if (p.status >= 128 || (p.status != 0 && p.err_text[0] == '\0'))
                fail_msg("%d KiB, %s: status %d: %s", kib, lines[i], p.status, p.err_text);
        }
        assert_true(begins);
    }
}

/* If memory is scarce, oneDNN starts an OpenMP thread in the process that checks first and then launches. That thread
 * must not receive the signal of a rank's end. */
TEST_IN(programs, a_launcher_hears_of_its_ranks_under_any_limit) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip();
#endif
    static program p;
    scratch_write("limited", script, sizeof script - 1);
    for (int kib = 140000; kib < 152000; kib += 1000) {
        program_start(&p, "/bin/sh %s %d %s/ddp_train --spawn 2 --device-kind cpu --steps 1 --no-evaluate --quiet",
                      scratch_path("limited"), kib, build_folder());
        program_finish_within(&p, 60);
        if (p.status >= 128 || (p.status != 0 && p.err_text[0] == '\0'))
            fail_msg("%d KiB: status %d: %s", kib, p.status, p.err_text);
    }
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
