/* Ranks and programs that are killed, stopped, leave early or never arrive: the remaining ones end by themselves, name
 * the missing one, and leave nothing behind.
 *
 * Ranks are started without a launcher, but with its variables: no launcher helps them to detect the loss. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

enum { RANKS_MAX = 8 };

/* Small enough that an epoch is short under a sanitizer; each step has 60 samples, which 1, 2 and 3 ranks share
 * evenly. */
static const char *const endless = "--model mlp:784,32,10 --batch-size 60 --epochs 100000 --no-evaluate --quiet";

#define SHALLOW "mlp:784,32,10"
#define DEEP "mlp:784,32,32,32,32,32,32,32,32,10" /* many blocks */

enum { INTO_TRAINING_US = 10000 }; /* after the line before the first step: by now a rank is somewhere in a step */

typedef struct job {
    program ranks[RANKS_MAX];
    int world_size, port;
    const char *streams; /* LS_CPU_STREAMS of the ranks */
} job;

static job make_job(int world_size) {
    return (job){.world_size = world_size, .port = free_port(), .streams = "inline"};
}

static void start_rank(job *j, int rank, const char *options) {
    program_start(&j->ranks[rank],
                  "RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                  "LS_JOB_TOKEN=secret LS_CPU_STREAMS=%s ddp_train %s",
                  rank, j->world_size, rank, j->world_size, j->port, j->streams, options);
}

/* Starts all ranks except `missing` (-1: all). */
static void start_ranks(job *j, int missing, const char *options) {
    for (int r = 0; r < j->world_size; r++)
        if (r != missing) start_rank(j, r, options);
}

/* All ranks except the lost one end with status 3 and one error, which names it and has the verdict; `tables`: the
 * number of ranks that print the table of all ranks' operations. */
static void expect_survivors(job *j, int lost, const char *verdict, int tables) {
    char wanted[64];
    int shown = 0;
    snprintf(wanted, sizeof wanted, "rank %d%s", lost, verdict);
    for (int r = 0; r < j->world_size; r++) {
        if (r == lost) continue;
        const program *p = &j->ranks[r];
        program_finish(&j->ranks[r]);
        shown += count_lines(p->err_text) > 1;
        if (p->status != 3 || count_text(p->err_text, ": error: ") != 1)
            fail_msg("rank %d of %d ended with %d: %s", r, j->world_size, p->status, p->err_text);
        if (!strstr(p->err_text, wanted))
            fail_msg("rank %d of %d does not say '%s': %s", r, j->world_size, wanted, p->err_text);
    }
    assert_int_equal(shown, tables);
}

/* --- ranks without a launcher ----------------------------------------------------------------------------------------- */

/* `how`: more options. */
static void kill_one(int world_size, int lost, const char *streams, const char *model, const char *how) {
    static job j;
    char options[256];
    snprintf(options, sizeof options, "%s --model %s %s --save %s", endless, model, how, scratch_path("weights"));
    j = make_job(world_size);
    j.streams = streams;
    start_ranks(&j, -1, options);
    program_await(&j.ranks[0], "\n"); /* the line before the first step */
    usleep(INTO_TRAINING_US);
    for (int r = 0; r < world_size; r++) program_expect_no_named_files(j.ranks[r].pid);
    kill(j.ranks[lost].pid, SIGKILL);
    assert_int_equal(program_finish(&j.ranks[lost]), 128 + SIGKILL);
    expect_survivors(&j, lost, " died", 1);
    assert_int_equal(scratch_file_count(), 0);
}

TEST_IN(programs, test_a_rank_is_killed) {
    kill_one(2, 1, "inline", SHALLOW, "--allreduce naive");
    kill_one(2, 0, "threads", SHALLOW, "--allreduce direct");
    kill_one(2, 1, "threads", DEEP, "--allreduce direct --bucket-cap-mb 0.01");
    kill_one(3, 0, "inline", SHALLOW, "--allreduce naive");
    kill_one(3, 1, "threads", "convnet", "--allreduce naive");
    kill_one(3, 2, "inline", SHALLOW, "--allreduce direct");
    kill_one(3, 1, "threads", SHALLOW, "--compress topk:0.1"); /* lists, in a gather */
}

TEST_IN(programs, test_an_owner_of_shards_is_killed) {
    kill_one(2, 1, "threads", DEEP, "--shard-state 1 --bucket-cap-mb 0.01");
    kill_one(3, 0, "inline", SHALLOW, "--shard-state 2 --clip-norm 1");
    kill_one(3, 2, "threads", SHALLOW, "--shard-state 2 --bucket-cap-mb 0.01");
    kill_one(2, 0, "inline", DEEP, "--shard-state 3");
    kill_one(3, 1, "threads", "convnet", "--shard-state 3 --sync-bn --prefetch-blocks 0");
    kill_one(3, 2, "threads", DEEP, "--shard-state 3 --prefetch-blocks 2 --checkpoint-activations sqrt");
}

/* In a send, in a receive or in between; in a grid also while it waits for the other replica. */
TEST_IN(programs, test_a_stage_is_killed) {
    kill_one(3, 0, "inline", DEEP, "--pipeline 3 --accumulate 6");
    kill_one(3, 1, "threads", "convnet", "--pipeline 3 --accumulate 2 --schedule gpipe");
    kill_one(3, 2, "inline", "convnet", "--pipeline 3 --accumulate 4");
    kill_one(4, 1, "inline", SHALLOW, "--pipeline 2 --accumulate 3");
    kill_one(4, 2, "threads", SHALLOW, "--pipeline 2 --schedule gpipe --clip-norm 1");
    kill_one(4, 3, "inline", "convnet", "--pipeline 2 --accumulate 2 --shard-state 1");
}

/* In an all-reduce, a gather or a scatter of layers that ranks share, or of gradients: the others wait in one of the
 * groups. */
TEST_IN(programs, test_a_rank_with_a_part_of_the_layers_is_killed) {
    kill_one(2, 1, "inline", SHALLOW, "--tensor 2");
    kill_one(4, 2, "threads", "convnet", "--tensor 2");
    kill_one(2, 0, "inline", "gpt:2,2,32,16", "--data sums:1 --tensor 2 --sequence-parallel");
    kill_one(4, 3, "inline", "gpt:2,4,32,16", "--data sums:1 --tensor 4 --sequence-parallel");
    kill_one(4, 2, "inline", "gpt:2,2,32,16", "--data sums:1 --tensor 2 --pipeline 2 --accumulate 2");
    kill_one(4, 1, "threads", "gpt:2,2,32,16", "--data sums:1 --tensor 2 --sequence-parallel --shard-state 1");
    kill_one(8, 5, "inline", "gpt:2,2,32,16", "--data sums:1 --tensor 2 --pipeline 2 --sequence-parallel");
}

TEST_IN(programs, test_a_rank_is_stopped) {
    static const struct {
        int ranks, stopped;
        const char *streams, *how;
    } rows[] = {
        {2, 1, "inline", ""},
        {3, 0, "inline", ""},
        {2, 1, "threads", ""},
        {2, 1, "inline", "--pipeline 2 --accumulate 4"},
        {2, 0, "threads", "--pipeline 2 --schedule gpipe"},
        {2, 1, "threads", "--tensor 2"},
        {4, 2, "inline", "--model gpt:2,2,32,16 --data sums:1 --tensor 2 --sequence-parallel --pipeline 2"},
        {8, 3, "inline",
         "--model gpt:2,2,32,16 --data sums:1 --tensor 2 --sequence-parallel --pipeline 2 --shard-state 1"},
    };
    enum { JOBS = sizeof rows / sizeof *rows };
    static job jobs[JOBS];
    char options[256];
    for (int i = 0; i < JOBS; i++) { /* all jobs wait at the same time */
        jobs[i] = make_job(rows[i].ranks);
        jobs[i].streams = rows[i].streams;
        snprintf(options, sizeof options, "%s --timeout 2 %s", endless, rows[i].how);
        start_ranks(&jobs[i], -1, options);
        program_await(&jobs[i].ranks[0], "\n"); /* the line before the first step; an epoch of gpt takes seconds */
        usleep(INTO_TRAINING_US);
        kill(jobs[i].ranks[rows[i].stopped].pid, SIGSTOP);
    }
    for (int i = 0; i < JOBS; i++) {
        program *p = &jobs[i].ranks[rows[i].stopped];
        expect_survivors(&jobs[i], rows[i].stopped, " did not arrive within 2 s", 1);
        kill(p->pid, SIGCONT); /* when continued, it reports that the group is broken */
        assert_int_equal(program_finish(p), 3);
        assert_int_equal(count_lines(p->err_text), 1);
        if (!strstr(p->err_text, "has given up")) fail_msg("job %d: %s", i, p->err_text);
    }
}

/* Each rank ends with status 2 and `lines` lines, the first of which has the values of ranks 1 and 0. */
static void expect_refusal(job *j, int lines, const char *wanted) {
    for (int r = 0; r < j->world_size; r++) {
        const program *p = &j->ranks[r];
        program_finish(&j->ranks[r]);
        if (p->status != 2 || count_lines(p->err_text) != lines || !strstr(p->err_text, wanted))
            fail_msg("rank %d, which should say '%s', ended with %d: %s", r, wanted, p->status, p->err_text);
        assert_string_equal(p->out_text, ""); /* no step was taken */
    }
}

/* tests/ddp_procs/test_agree.c tests all options; these are the ones that a rank used to notice late or never. */
TEST_IN(programs, test_ranks_of_other_settings) {
    static const struct {
        int lines;
        const char *option, *first;
    } others[] = {
        {1, "--lr 0.1", "--lr: rank 1 has 0.1, but rank 0 has 0.001; expected the same on all ranks"},
        {1, "--epochs 1", "--epochs: rank 1 has 1, but rank 0 has 100000; "},
        {1, "--shard contiguous", "--shard: rank 1 has contiguous, but rank 0 has strided; "},
        {1, "--compress fp16", "--compress: rank 1 has fp16, but rank 0 has none; "},
        {1, "--sync-bn", "--sync-bn: rank 1 has on, but rank 0 has off; "},
        {1, "--shard-state 1", "--shard-state: rank 1 has 1, but rank 0 has 0; "},
        {1, "--drop-last --timeout 50 --save-module-prefix --save-weights weights",
         "--drop-last: rank 1 has on, but rank 0 has off; "},
        {1, "--data random:1", "training data: rank 1 has 60000 samples of 784 x 1 x 1 in 10 classes (sampled hash "},
    };
    enum { COUNT = sizeof others / sizeof *others };
    static job jobs[COUNT];
    char options[256];
    for (int i = 0; i < COUNT; i++) {
        jobs[i] = make_job(2);
        snprintf(options, sizeof options, "%s %s", endless, others[i].option);
        start_rank(&jobs[i], 0, endless);
        start_rank(&jobs[i], 1, options);
    }
    for (int i = 0; i < COUNT; i++) expect_refusal(&jobs[i], others[i].lines, others[i].first);
}

/* The rank reports the error; the other does not wait for it. */
TEST_IN(programs, test_a_rank_of_options_that_are_wrong_anyway) {
    static job jobs[2];
    char wrong[256];
    snprintf(wrong, sizeof wrong, "%s --batch-size 1", endless);
    for (int i = 0; i < 2; i++) { /* rank i has the wrong options */
        jobs[i] = make_job(2);
        for (int r = 0; r < 2; r++) start_rank(&jobs[i], r, r == i ? wrong : endless);
    }
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < 2; r++) {
            program *p = &jobs[i].ranks[r];
            const char *wanted = r == i   ? "2 devices cannot share a batch of 1 samples"
                                 : i == 1 ? "--batch-size: rank 1 has 1, but rank 0 has 60; "
                                          : "--batch-size: rank 1 has 60, but rank 0 has 1; ";
            program_finish(p);
            if (p->status != 2 || count_lines(p->err_text) != 1 || !strstr(p->err_text, wanted))
                fail_msg("rank %d, which should say '%s', ended with %d: %s", r, wanted, p->status, p->err_text);
        }
    }
}

/* The same program except for one byte of its build id. */
static void write_another_build(const char *name) {
    static const char note[] = "\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU";
    char path[4200];
    size_t nbytes;
    snprintf(path, sizeof path, "%s/ddp_train", build_folder());
    char *bytes = scratch_read(path, &nbytes), *id = memmem(bytes, nbytes, note, sizeof note);
    assert_non_null(id);
    id[sizeof note] ^= 1;
    scratch_write(name, bytes, nbytes);
    assert_int_equal(chmod(scratch_path(name), 0700), 0);
    free(bytes);
}

TEST_IN(programs, test_a_rank_of_another_build) {
    static job j;
    j = make_job(2);
    write_another_build("other");
    start_rank(&j, 0, endless);
    program_start(&j.ranks[1],
                  "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                  "LS_JOB_TOKEN=secret %s %s",
                  j.port, scratch_path("other"), endless);
    expect_refusal(&j, 1, "the program's build: rank 1 has ");
}

/* The ranks' common message is printed once, and the launcher has their status. */
TEST_IN(programs, test_ranks_of_a_launcher_with_other_settings) {
    static program p;
    char script[4600];
    int length = snprintf(script, sizeof script, "exec %s/ddp_train %s --seed $RANK\n", build_folder(), endless);
    scratch_write("script", script, (size_t)length);
    program_run(&p, "ddprun --nproc-per-node 3 /bin/sh %s", scratch_path("script"));
    assert_int_equal(p.status, 2);
    assert_int_equal(count_lines(p.err_text), 3);
    assert_non_null(
        strstr(p.err_text, "error: --seed: rank 1 has 1, but rank 0 has 0; expected the same on all ranks"));
    assert_non_null(
        strstr(p.err_text, "error: --seed: rank 2 has 2, but rank 0 has 0; expected the same on all ranks"));
    assert_non_null(strstr(p.err_text, "exited with status 2: --seed: rank "));
}

/* A launcher's script may train twice: the second run does not use the keys of the first. */
TEST_IN(programs, test_two_runs_of_a_launcher) {
    static program p;
    char script[9200];
    const char *train = "ddp_train --model mlp:784,32,10 --steps 2 --quiet --no-evaluate --timeout 20";
    int length =
        snprintf(script, sizeof script, "%s/%s && exec %s/%s --lr 0.1\n", build_folder(), train, build_folder(), train);
    scratch_write("script", script, (size_t)length);
    program_run(&p, "ddprun --nproc-per-node 2 /bin/sh %s", scratch_path("script"));
    assert_string_equal(p.err_text, "");
    assert_int_equal(p.status, 0);
}

TEST_IN(programs, test_a_rank_never_joins) {
    static job jobs[4];
    for (int missing = 0; missing < 3; missing++) { /* all jobs wait at the same time */
        jobs[missing] = make_job(3);
        start_ranks(&jobs[missing], missing, "--batch-size 6 --timeout 2");
    }
    jobs[3] = make_job(2); /* here, one fails before it joins */
    start_rank(&jobs[3], 0, "--batch-size 6");
    start_rank(&jobs[3], 1, "--batch-size 6 --data /no/such/folder");
    for (int missing = 0; missing < 3; missing++) expect_survivors(&jobs[missing], missing, "", 0);
    assert_int_equal(program_finish(&jobs[3].ranks[1]), 1);
    expect_survivors(&jobs[3], 1, " of 2 failed before the first step; see its error", 0);
}

/* --- ranks of a launcher ---------------------------------------------------------------------------------------------- */

static const char *const launchers[] = {"ddp_train --spawn 3", "ddprun --nproc-per-node 3 ddp_train"};

/* Starts the job and waits until it trains. Returns the process of rank 1. */
static pid_t start_job(program *p, const char *launcher) {
    program_start(p, "%s %s --save %s", launcher, endless, scratch_path("weights"));
    program_await(p, "\nepoch ");
    pid_t pid = program_rank(p, 1);
    assert_true(pid > 0);
    return pid;
}

TEST_IN(programs, test_a_rank_of_a_launcher_is_killed) {
    static program p;
    for (int i = 0; i < 2; i++) {
        char wanted[128];
        pid_t pid = start_job(&p, launchers[i]);
        snprintf(wanted, sizeof wanted, "%s: error: rank 1 (pid %d) was ended by signal 9 (Killed)\n",
                 i == 0 ? "ddp_train" : "ddprun", (int)pid);
        kill(pid, SIGKILL);
        assert_int_equal(program_finish(&p), 1);
        if (!strstr(p.err_text, wanted)) fail_msg("'%s' is not in: %s", wanted, p.err_text);
        char first[128];
        snprintf(first, sizeof first, ": rank 1 (pid %d) failed first, at ", (int)pid);
        assert_non_null(strstr(p.err_text, first));
        assert_in_range(program_take_failures(&p), 1, 3);
        /* those of the survivors, if they had time, and the launcher's */
        assert_true(count_text(p.err_text, ": error: ") <= 3);
        assert_int_equal(scratch_file_count(), 0);
    }
}

TEST_IN(programs, test_a_launcher_is_killed) {
    static program p;
    for (int i = 0; i < 2; i++) {
        start_job(&p, launchers[i]);
        kill(p.pid, SIGKILL);
        assert_int_equal(program_finish(&p), 128 + SIGKILL);
        programs_await_orphans();
        assert_int_equal(scratch_file_count(), 0);
    }
}

TEST_IN(programs, test_a_launcher_is_told_to_stop) {
    static const struct {
        int number;
        const char *text;
    } signals[] = {{SIGTERM, "15 (Terminated)"}, {SIGINT, "2 (Interrupt)"}, {SIGHUP, "1 (Hangup)"}};
    static program p;
    for (int i = 0; i < 3; i++) {
        char wanted[128];
        snprintf(wanted, sizeof wanted, "error: the job was ended by signal %s\n", signals[i].text);
        start_job(&p, launchers[i % 2]);
        kill(p.pid, signals[i].number);
        assert_int_equal(program_finish(&p), 1);
        if (!strstr(p.err_text, wanted)) fail_msg("'%s' is not in: %s", wanted, p.err_text);
        assert_int_equal(scratch_file_count(), 0);
    }
}

/* --- one process ------------------------------------------------------------------------------------------------------ */

TEST_IN(programs, test_dp_train_is_killed) {
    static const int signals[] = {SIGKILL, SIGTERM, SIGINT};
    static const char *const modes[] = {"threads", "inline", "threads"};
    static program p;
    for (int i = 0; i < 3; i++) {
        program_start(&p, "LS_CPU_STREAMS=%s dp_train --devices 3 %s --save %s --summary %s", modes[i], endless,
                      scratch_path("weights"), scratch_path("summary"));
        program_await(&p, "\nepoch ");
        program_expect_no_named_files(p.pid);
        kill(p.pid, signals[i]);
        assert_int_equal(program_finish(&p), 128 + signals[i]);
        assert_int_equal(scratch_file_count(), 0);
    }
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
