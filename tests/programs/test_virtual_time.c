/* --virtual-time: devices that take turns on one core reach the same weights, and their trace has the time of each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/trace/chrome.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

enum { DEVICES = 3 };

static program p;

static void expect_run(const char *line) {
    if (program_run(&p, "%s", line) != 0) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

/* Sums the kernel times of each device over all steps, from the trace of the run before. */
static void add_up_kernels(double us[DEVICES]) {
    ls_trace *trace;
    assert_int_equal(ls_trace_read(&trace, scratch_folder()), LS_OK);
    assert_true(ls_trace_about(trace)->virtual_time);
    for (int d = 0; d < DEVICES; d++) us[d] = 0;
    for (int t = 0; t < ls_trace_task_count(trace); t++) {
        const struct ls_task *task = ls_trace_task(trace, t);
        if (task->kind != LS_TASK_KERNEL || task->step < 0) continue;
        assert_true(task->virtual_time);
        int device = ls_trace_lane(trace, task->lane)->device;
        assert_true(device >= 0 && device < DEVICES);
        us[device] += task->us;
    }
    ls_trace_destroy(trace);
}

#define RUN " --device-kind cpu --model convnet --steps 14 --no-evaluate --quiet"

TEST_IN(programs, the_same_weights_and_each_devices_own_time) {
    static const char *const runs[] = {"dp_train --devices 3 --batch-size 24" RUN,
                                       "ddp_train --spawn 3 --batch-size 24 --no-overlap" RUN,
                                       "ddp_train --spawn 3 --batch-size 24" RUN};
    char line[256], plain[PROGRAM_HASH + 1], hash[PROGRAM_HASH + 1];
    double alone_us[DEVICES], us[DEVICES];
    snprintf(line, sizeof line, "dp_train --single --batch-size 8" RUN " --virtual-time --trace %s", scratch_folder());
    expect_run(line);
    add_up_kernels(alone_us);
    assert_true(alone_us[0] > 0);
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        expect_run(runs[i]);
        assert_null(strstr(p.out_text, "--virtual-time"));
        program_read_hash(&p, plain);
        snprintf(line, sizeof line, "%s --virtual-time --trace %s", runs[i], scratch_folder());
        expect_run(line);
        program_read_hash(&p, hash);
        assert_string_equal(hash, plain);
        assert_non_null(
            strstr(p.out_text, "these times only show time-slicing: all devices shared one core (--virtual-time)"));
        add_up_kernels(us);
        for (int d = 0; d < DEVICES; d++) {
            /* as much work as alone, within an order of magnitude, since the machine may be busy */
            assert_true(us[d] > alone_us[0] / 5 && us[d] < alone_us[0] * 5);
        }
    }
}

TEST_IN(programs, all_ranks_share_one_core) {
    char line[256];
    snprintf(line, sizeof line,
             "ddp_train --spawn 2 --device-kind cpu --steps 2 --no-evaluate --debug-ranks --virtual-time --trace %s",
             scratch_folder());
    expect_run(line);
    int core[2] = {-1, -2};
    for (int r = 0; r < 2; r++) {
        char rank[40];
        snprintf(rank, sizeof rank, "rank %d of 2: pid", r);
        const char *at = strstr(p.err_text, rank), *of = at ? strstr(at, ", core ") : NULL;
        if (!of || sscanf(of, ", core %d;", &core[r]) != 1) fail_msg("no core of rank %d: %s", r, p.err_text);
    }
    assert_int_equal(core[0], core[1]);
}

TEST_IN(programs, the_summary_says_so) {
    char line[256];
    snprintf(line, sizeof line, "dp_train --devices 2 --steps 12 --summary - --virtual-time --trace %s",
             scratch_folder());
    expect_run(line);
    assert_non_null(strstr(p.out_text, "\"how\":\"measured, all devices in turn on one core\""));
    assert_non_null(strstr(p.out_text, "\"streams\":\"inline\""));
}

/* With a core for each stream. In stage 3 nothing is gathered or reduced during a block, unless units are
 * prefetched. */
static double overlap_percent(int prefetch) {
    static const char share[] = "overlap, % of communication";
    double recorded, replayed = -1;
    char line[400];
    snprintf(line, sizeof line,
             "LS_CPU_STREAMS=threads ddp_train --spawn 2 --model mlp:784,256,256,256,256,256,10 --steps 13 "
             "--no-evaluate --quiet "
             "--trace-steps 3 --shard-state 3 --prefetch-blocks %d --virtual-time --trace %s",
             prefetch, scratch_folder());
    expect_run(line);
    snprintf(line, sizeof line, "replay --as-recorded --trace %s", scratch_folder());
    expect_run(line);
    const char *at = strstr(p.out_text, share);
    if (!at || sscanf(at + strlen(share), "%lf %lf", &recorded, &replayed) != 2) fail_msg("no overlap: %s", p.out_text);
    return replayed;
}

TEST_IN(programs, blocks_that_are_gathered_ahead_travel_beside_others) {
    double behind = overlap_percent(0), ahead = overlap_percent(1);
    if (!(behind < 1 && ahead > 10)) fail_msg("overlap %g %% without prefetching, %g %% with it", behind, ahead);
}

TEST_IN(programs, what_does_not_go_with_it_is_refused) {
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"dp_train --devices 2 --virtual-time", "--virtual-time needs a trace to be recorded: give --trace DIR"},
        {"dp_train --device-kind meta --devices 2 --trace t --virtual-time", "--virtual-time needs CPU devices"},
        {"ddp_train --device-kind cuda --trace t --virtual-time", "--virtual-time needs CPU devices"},
        {"LS_CPU_STREAMS=shuffle:1 dp_train --trace t --virtual-time", "LS_CPU_STREAMS is \"shuffle:1\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        program_run(&p, "%s", cases[i].line);
        if (p.status != 2 || !strstr(p.err_text, cases[i].text) || count_lines(p.err_text) != 1)
            fail_msg("%s: status %d, stderr: %s", cases[i].line, p.status, p.err_text);
    }
}
