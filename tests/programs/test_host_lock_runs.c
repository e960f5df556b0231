/* --host-lock: the same weights, and the turns in the trace: DataParallel's threads share one lock, DDP's ranks have
 *              one each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/trace/chrome.h"
#include "labs/replay/engine/engine.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"
#include "tests/trace/happens_before.h"

#define RUN " --device-kind cpu --model mlp:784,16,10 --steps 13 --drop-last --no-evaluate --quiet"
#define CLOSE_US 0.01 /* a file's times have three decimals */

enum { TURNS_MOST = 4096 };

static program p;

static void expect_run(const char *line) {
    if (program_run(&p, "%s", line) != 0) fail_msg("%s: status %d, stderr: %s", line, p.status, p.err_text);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

TEST_IN(programs, the_same_weights) {
    static const char *const runs[] = {"dp_train --single", "dp_train --devices 2",
                                       "ddp_train --spawn 2 --shard contiguous"};
    char line[400], plain[PROGRAM_HASH + 1], hash[PROGRAM_HASH + 1], first[PROGRAM_HASH + 1] = "";
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        snprintf(line, sizeof line, "%s" RUN, runs[i]);
        expect_run(line);
        program_read_hash(&p, plain);
        snprintf(line, sizeof line, "%s" RUN " --host-lock 5", runs[i]);
        expect_run(line);
        program_read_hash(&p, hash);
        assert_string_equal(hash, plain);
        if (i == 1) memcpy(first, hash, sizeof first);
    }
    assert_string_equal(hash, first); /* and DP and DDP have the same */
}

TEST_IN(programs, the_summary_says_so) {
    expect_run("dp_train --devices 2" RUN " --host-lock 2.5 --summary -");
    program_expect_text(&p, "\"host_lock_us\":2.5,");
    expect_run("ddp_train --spawn 2" RUN " --summary -");
    program_expect_text(&p, "\"host_lock_us\":0,");
}

TEST_IN(programs, meta_devices_have_no_time_for_it) {
    static const char *const lines[] = {"dp_train --device-kind meta --devices 2 --host-lock 10 --quiet",
                                        "ddp_train --device-kind meta --spawn 2 --host-lock 10 --quiet"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        program_run(&p, "%s", lines[i]);
        if (p.status != 2 || !strstr(p.err_text, "build/replay --host-lock") || count_lines(p.err_text) != 1)
            fail_msg("%s: status %d, stderr: %s", lines[i], p.status, p.err_text);
    }
}

/* --- traces ------------------------------------------------------------------------------------------------------- */

static bool is_named(const ls_trace *trace, int task, const char *begin) {
    return strncmp(ls_trace_task(trace, task)->name, begin, strlen(begin)) == 0;
}

static int rank_of(const ls_trace *trace, int task) {
    return ls_trace_lane(trace, ls_trace_task(trace, task)->lane)->rank;
}

/* Each launch of a host thread has a turn, in which the host's own time is at least `us`. */
static void expect_turns(const ls_trace *trace, double us) {
    int turns = 0, launches = 0, waits = 0;
    for (int t = 0; t < ls_trace_task_count(trace); t++) {
        const struct ls_task *task = ls_trace_task(trace, t);
        launches += is_named(trace, t, "launch ");
        waits += is_named(trace, t, "lock host lock");
        if (task->lock == LS_NONE) continue;
        assert_true(is_named(trace, t, "unlock host lock"));
        assert_int_equal(task->kind, LS_TASK_HOST);
        assert_true(task->us >= us - CLOSE_US);
        turns++;
    }
    assert_true(launches > 50);
    assert_int_equal(turns, launches);
    assert_int_equal(waits, launches);
}

/* Counts edges from a turn of one thread to a wait of another. */
static int count_hand_overs(const ls_trace *trace) {
    int hand_overs = 0;
    for (int t = 0; t < ls_trace_task_count(trace); t++) {
        if (!is_named(trace, t, "lock host lock")) continue;
        int count;
        const int *before = ls_trace_before(trace, t, &count);
        for (int i = 0; i < count; i++) {
            if (!is_named(trace, before[i], "unlock host lock")) continue;
            assert_int_equal(rank_of(trace, before[i]), rank_of(trace, t)); /* a lock belongs to one process */
            hand_overs += ls_trace_task(trace, before[i])->lane != ls_trace_task(trace, t)->lane;
        }
    }
    return hand_overs;
}

struct turn {
    double from_us, to_us;
    int task;
};

static int by_time(const void *left, const void *right) {
    const struct turn *a = left, *b = right;
    return (a->from_us > b->from_us) - (a->from_us < b->from_us);
}

/* A rank's turns in the order of a timeline, or as recorded. */
static int turns_of(const ls_trace *trace, int rank, const ls_timeline *timeline, struct turn turns[TURNS_MOST]) {
    int count = 0;
    for (int t = 0; t < ls_trace_task_count(trace); t++) {
        const struct ls_task *task = ls_trace_task(trace, t);
        if (task->lock == LS_NONE || rank_of(trace, t) != rank) continue;
        assert_true(count < TURNS_MOST);
        turns[count++] = timeline ? (struct turn){timeline->start_us[t], timeline->end_us[t], t}
                                  : (struct turn){task->start_us, task->end_us, t};
    }
    qsort(turns, (size_t)count, sizeof turns[0], by_time);
    return count;
}

/* Edges, not only times, determine the order of turns. */
static void expect_order(const ls_trace *trace, int ranks) {
    static struct turn turns[TURNS_MOST];
    for (int rank = 0; rank < ranks; rank++) {
        int count = turns_of(trace, rank, NULL, turns);
        assert_true(count > 50);
        for (int i = 1; i < count; i++) assert_true(happens_before(trace, turns[i - 1].task, turns[i].task));
    }
}

static void expect_replay(const ls_trace *trace, int ranks) {
    static struct turn turns[TURNS_MOST];
    ls_timeline *timeline;
    assert_int_equal(ls_engine_run(&timeline, trace, NULL), LS_OK);
    for (int rank = 0; rank < ranks; rank++) {
        int count = turns_of(trace, rank, timeline, turns);
        assert_true(count > 50);
        for (int i = 1; i < count; i++) assert_true(turns[i - 1].to_us <= turns[i].from_us + CLOSE_US);
    }
    ls_timeline_free(timeline);
}

static ls_trace *record(const char *line_begin, double us, const char *options) {
    ls_trace *trace;
    char line[2000];
    snprintf(line, sizeof line, "%s" RUN " --host-lock %g --trace %s --trace-steps 3 %s", line_begin, us,
             scratch_folder(), options);
    expect_run(line);
    assert_int_equal(ls_trace_read(&trace, scratch_folder()), LS_OK);
    expect_turns(trace, us);
    return trace;
}

/* If two devices have no core each, threads' times are virtual, and no edge determines the order of turns. */
TEST_IN(programs, threads_of_a_process_queue) {
    ls_trace *trace = record("dp_train --devices 2", 20, "");
    bool has_order = !ls_trace_what(trace)->virtual_time;
    assert_int_equal(count_hand_overs(trace) > 0, has_order);
    if (has_order) expect_order(trace, 1);
    expect_replay(trace, 1);
    ls_trace_destroy(trace);
}

TEST_IN(programs, ranks_do_not_wait_for_one_anothers_locks) {
    ls_trace *trace = record("ddp_train --spawn 2", 20, "");
    assert_int_equal(count_hand_overs(trace), 0);
    expect_order(trace, 2); /* one thread's launches are in order anyway */
    expect_replay(trace, 2);
    ls_trace_destroy(trace);
}

/* A replay has enough cores: it assigns the lock itself. */
TEST_IN(programs, virtual_time_has_turns_too) {
    ls_trace *trace = record("dp_train --devices 3", 20, "--virtual-time");
    assert_true(ls_trace_what(trace)->virtual_time);
    assert_int_equal(count_hand_overs(trace), 0);
    expect_replay(trace, 1);
    ls_trace_destroy(trace);
}

/* The ranks' turns are longer than either's time slice on the core: the other's time in between does not count. */
TEST_IN(programs, a_turn_on_a_shared_core) {
    ls_trace *trace = record("ddp_train --spawn 2", 3000, "--virtual-time --steps 3");
    assert_int_equal(count_hand_overs(trace), 0);
    ls_trace_destroy(trace);
}
