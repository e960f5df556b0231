/* An output must be neither an input nor another output: for every program and every spelling of a path. It is refused
 * in one line before anything is written, so that all files are unchanged. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

#define FEW " --steps 13 --no-evaluate --quiet"

static program p;
static char home[PATH_MAX];

static void shell(const char *command) {
    if (system(command) != 0) fail_msg("failed: %s", command);
}

static void expect_run(const char *line) {
    if (program_run(&p, "%s", line) != 0) fail_msg("%s: status %d: %s", line, p.status, p.err_text);
}

/* Every kind of input, and other paths to some of them. */
static int make_files(void **state) {
    programs_setup(state);
    assert_non_null(getcwd(home, sizeof home));
    char copy[2 * PATH_MAX];
    snprintf(copy, sizeof copy,
             "cp -r data/digits '%s/data' && cp labs/replay/nodes/course.json '%s/node.json' && "
             "cp labs/replay/workloads/course.json '%s/workload.json'",
             scratch_folder(), scratch_folder(), scratch_folder());
    shell(copy);
    assert_int_equal(chdir(scratch_folder()), 0);
    expect_run("dp_train --single --data data --steps 12 --no-evaluate --quiet --trace trace --save r.st "
               "--save-weights w.st");
    scratch_write("t.csv", "n\n1\n", 4);
    shell("mkdir -p lab links && echo x >lab/lab.conf && echo x "
          ">probe && echo x "
          ">gpu.jsonl && echo x >peers.py && "
          "ln -s ../t.csv links/csv && ln t.csv hard.csv && ln -s ../data/train-labels-idx1-ubyte.gz links/labels && "
          "ln -s new.json later.json && mkdir -p linked && ln -s ../node.json linked/replay.csv && ln -s comm.json "
          "linked/comm.csv && ln -s tables.md linked/tables.csv && ln -s dp_vs_ddp.json linked/dp_vs_ddp.csv && "
          "ln -s ../peers.py linked/gpu_check.json");
    return 0;
}

static int remove_files(void **state) {
    assert_int_equal(chdir(home), 0);
    return programs_teardown(state);
}

/* Files: names, links, inodes, sizes, and when each was last written. */
static char *list_files(void) {
    shell("find . ! -type d ! -name listing -printf '%p %l %i %s %T@\\n' | LC_ALL=C sort >listing");
    return scratch_read_text("listing");
}

static const char *const refused[] = {
    "fit_tn --csv t.csv --json t.csv",
    "fit_tn --csv t.csv --json ./lab/../t.csv",
    "fit_tn --csv t.csv --json links/csv",
    "fit_tn --csv links/csv --json hard.csv",
    "fit_tn --csv t.csv --plot t.png",
    "fit_tn --points 1:100,2:52,4:28,8:15 --json new.svg --plot new.png",
    "fit_tn --points 1:100,2:52,4:28,8:15 --json later.json --plot new.json.png --json new.json.svg",
    "replay --trace trace --timeline trace/rank_0.pt.trace.json",
    "replay --trace trace --json trace/rank_0.pt.trace.json",
    "replay --trace trace --json trace/rank_7.pt.trace.json",
    "replay --trace trace --json trace/merged.json",
    "replay --trace trace --node node.json --json node.json",
    "replay --node node.json --workload workload.json --gantt workload.json",
    "replay --node node.json --workload workload.json --json new.json --gantt later.json",
    "replay --node node.json --workload workload.json --out new --json new/./replay.json",
    "replay --node node.json --workload workload.json --json none/../x --mode dp --timeline x",
    "replay --node node.json --workload workload.json --out linked",
    "dp_train --single --data data --metrics data/train-labels-idx1-ubyte.gz" FEW,
    "dp_train --single --data data --metrics data/train-labels-idx1-ubyte" FEW,
    "dp_train --single --data data --save-weights links/labels" FEW,
    "dp_train --single --data stream:data --dump-losses data/t10k-images.idx3-ubyte" FEW,
    "dp_train --single --data data --resume r.st --save-weights r.st" FEW,
    "dp_train --single --data data --resume-if-present r.st --save-weights ./r.st" FEW,
    "dp_train --single --data data --init w.st --save-weights w.st" FEW,
    "dp_train --single --data data --init w.st --save w.st" FEW,
    "dp_train --single --data data --trace new --metrics new/rank_0.pt.trace.json" FEW,
    "dp_train --single --data data --trace trace --summary trace/merged.json" FEW,
    "dp_train --single --data data --trace ./new --metrics new" FEW,
    "dp_train --single --data data --metrics new.json --summary later.json" FEW,
    "ddp_train --spawn 2 --data data --metrics data/t10k-labels-idx1-ubyte" FEW,
    "ddp_train --spawn 2 --data data --resume r.st --save-weights r.st" FEW,
    "ddp_train --data data --init w.st --save w.st" FEW,
    "mkdigits data --force --source data --count 10 --test-count 10 --quiet",
    "mkdigits new --source data --list new/README.md --count 10 --test-count 10 --quiet",
    "mkdigits new --source data --list data/README.md --count 10 --test-count 10 --quiet",
    "bench_comm --op all_reduce --sizes 8 --n 2 --runs 1 --out new --json new/comm.csv --quiet",
    "bench_comm --op all_reduce --sizes 8 --n 2 --runs 1 --out linked --quiet",
    "bench_dp_vs_ddp --out linked --quiet",
    "tables --tables 2 --out linked",
    "gpu_check --pytorch peers.py --out linked",
    "gpu_check --summary gpu.jsonl --reference gpu.jsonl",
    "grade --lab lab --student probe --reference probe --json probe",
    "grade --lab lab --student probe --reference probe --json lab/lab.conf",
};

TEST_WITH(make_files, remove_files, no_output_takes_the_place_of_an_input_or_another_output) {
    char *before = list_files();
    int wrong = 0;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        program_run(&p, "%s", refused[i]);
        bool one_line = count_lines(p.err_text) == 1 && strstr(p.err_text, "name the same file");
        char *after = list_files();
        bool unchanged = strcmp(before, after) == 0;
        if (p.status != 2 || !one_line || !unchanged) {
            print_error("%s: status %d%s\n%s", refused[i], p.status, unchanged ? "" : ", and files are changed",
                        p.err_text);
            wrong++;
        }
        free(after);
    }
    free(before);
    assert_int_equal(wrong, 0);
}

/* Paths that are read and written, but have no content that could be lost; and the one exception: resuming a
 * checkpoint. */
TEST_WITH(make_files, remove_files, what_loses_nothing_is_allowed) {
    static const char *const allowed[] = {
        "dp_train --single --data data --steps 13 --no-evaluate --quiet --resume r.st --save r.st",
        "dp_train --single --data data --steps 14 --no-evaluate --quiet --resume-if-present ./r.st "
        "--save r.st",
        "dp_train --single --data data --metrics /dev/null --dump-losses /dev/null" FEW,
        "dp_train --single --data data --metrics /dev/stdout --summary -" FEW,
        "dp_train --single --data data --trace data --metrics data/metrics" FEW,
        "dp_train --single --data data --metrics train-labels-idx1-ubyte" FEW,
        "fit_tn --points 1:100,2:52,4:28,8:15 --json t.json",
        "replay --trace trace --json trace/replay.json",
        "replay --trace trace --node node.json --mode ddp --n 2 --out trace --json again.json --quiet",
    };
    for (size_t i = 0; i < COUNT_OF(allowed); i++) expect_run(allowed[i]);
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
