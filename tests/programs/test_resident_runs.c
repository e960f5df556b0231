/* --resident-batches: the first batches stay on the devices and are used in turn. */
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"
#include "tests/programs/resident_runs.h"

#define SMALL "--model mlp:784,16,10 --batch-size 500 --quiet"

static program p;

static void expect_run(const char *line, int status) {
    if (program_run(&p, "%s", line) != status) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

TEST_IN(programs, as_on_data_that_holds_only_these) {
    static const char *const lines[] = {"dp_train --single", "dp_train --devices 2", "ddp_train --spawn 2",
                                        "LS_CPU_STREAMS=shuffle:3 dp_train --devices 2 --output-device 1",
                                        "ddp_train --spawn 3 --shard contiguous"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        resident_expect_same(lines[i], 1);
        resident_expect_same(lines[i], 3);
    }
}

TEST_IN(programs, the_run_says_so) {
    expect_run("dp_train --single --model mlp:784,16,10 --batch-size 500 --steps 9 --resident-batches 1 --summary -",
               0);
    program_expect_text(&p,
                        "\nsamples: 1 resident batch, loaded in the first steps and used in turn; 9 steps in all\n");
    program_expect_text(&p, "\"resident_batches\":1,");
    program_expect_text(&p, "\"epochs\":1,"); /* which continues */
    expect_run("ddp_train --spawn 2 --model mlp:784,16,10 --batch-size 500 --steps 9 --resident-batches 4 --summary -",
               0);
    program_expect_text(&p, "\nsamples: 4 resident batches, loaded ");
    program_expect_text(&p, "\"resident_batches\":4,");
    program_expect_text(&p, "\"epochs\":2,"); /* the fourth batch is the second epoch's first */
    expect_run("dp_train --devices 2 " SMALL " --steps 2 --summary -", 0);
    program_expect_text(&p, "\"resident_batches\":0,");
}

/* Nothing is computed; the memory on the devices is counted. */
TEST_IN(programs, meta_devices_keep_them_too) {
    expect_run("dp_train --device-kind meta --devices 2 " SMALL " --steps 9 --resident-batches 2", 0);
    expect_run("ddp_train --device-kind meta --spawn 2 " SMALL " --steps 9 --resident-batches 2", 0);
}

TEST_IN(programs, what_does_not_go_together_is_refused) {
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"dp_train --resident-batches 0 --steps 9", "--resident-batches: 0 is out of range"},
        {"dp_train --resident-batches 65 --steps 9", "--resident-batches: 65 is out of range"},
        {"dp_train --resident-batches 2", "--resident-batches needs --steps"},
        {"dp_train --resident-batches 2 --steps 9 --accumulate 2", "cannot be combined with --accumulate"},
        {"dp_train --resident-batches 2 --steps 9 --data stream:data/digits", "cannot be combined with a stream"},
        {"dp_train --resident-batches 2 --steps 9 --save x", "cannot be combined with --save:"},
        {"dp_train --resident-batches 2 --steps 9 --save x --save-every 3", "cannot be combined with --save:"},
        {"dp_train --resident-batches 2 --steps 9 --resume x", "cannot be combined with --resume"},
        {"ddp_train --resident-batches 2", "--resident-batches needs --steps"},
        {"ddp_train --spawn 2 --resident-batches 2 --steps 9 --join", "cannot be combined with --join"},
        {"ddp_train --spawn 2 --resident-batches 2 --steps 9 --uneven", "cannot be combined with --uneven"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        expect_run(cases[i].line, 2);
        if (!strstr(p.err_text, cases[i].text) || count_lines(p.err_text) != 1 || p.out_text[0] != '\0')
            fail_msg("%s: stdout '%s', stderr '%s'", cases[i].line, p.out_text, p.err_text);
    }
}
