/* The option --elastic: ranks are killed at random times, and return; the job continues with the others. Each sample is
 * trained on once per epoch, the weights have the bits of the same groups resumed from checkpoints, and nothing is
 * left. (Each moment of a step: tests/ddp_procs/test_elastic.c.)
 *
 * LS_ELASTIC_KILLS: the number of ranks that test_random_kills kills, instead of 6; LS_ELASTIC_SEED: seed for when, and
 *                   which. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "labs/25-missing/visits/counted.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

enum { SAMPLES = 600, EPOCHS = 200, STEPS = EPOCHS * SAMPLES / COUNTED_BATCH, LEGS = 64 };

/* A group of a run, and its first step. */
static struct leg {
    int ranks;
    long long step;
} legs[LEGS];
static int leg_count;

static program p, reference;
static char data[700]; /* options */

static void make_data(void) {
    char folder[300];
    snprintf(folder, sizeof folder, "%s", scratch_path("data"));
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_true(counted_write(folder, SAMPLES, scratch_path("zeros")));
    snprintf(data, sizeof data, COUNTED_OPTIONS "--data %s --save-weights %s", folder, scratch_path("weights"));
}

static void start_run(const char *launch) {
    program_start(&p, "%s --init %s --epochs %d %s", launch, scratch_path("zeros"), EPOCHS, data);
    program_await(&p, "\n");
}

/* --- a run's messages --------------------------------------------------------------------------------------------- */

/* "3 ranks go on from step 118", "1 rank goes on from step 9": reads the words before and the step after `at`. */
static bool read_leg(const char *text, const char *at, struct leg *leg) {
    const char *line = at;
    while (line > text && line[-1] != ';') line--;
    return sscanf(line, " %d rank", &leg->ranks) == 1 && sscanf(at, " on from step %lld", &leg->step) == 1;
}

static void read_legs(int ranks) {
    leg_count = 0;
    legs[leg_count++] = (struct leg){ranks, 0};
    for (const char *at = p.err_text; (at = strstr(at, " on from step ")); at++) {
        assert_true(leg_count < LEGS);
        assert_true(read_leg(p.err_text, at, &legs[leg_count++]));
    }
}

static void show_run(const char *what) { fail_msg("%s: status %d, %s%s", what, p.status, p.out_text, p.err_text); }

/* Kills that rank, or one that exists. */
static void kill_rank(int rank) {
    pid_t victim = program_rank(&p, rank);
    for (int r = 0; victim == 0 && r < 8; r++) victim = program_rank(&p, r);
    if (victim > 0) kill(victim, SIGKILL);
}

/* --- results ------------------------------------------------------------------------------------------------------- */

static void expect_counts(void) {
    int counts[SAMPLES];
    assert_true(counted_read(scratch_path("weights"), SAMPLES, counts));
    for (int i = 0; i < SAMPLES; i++)
        if (counts[i] != EPOCHS) {
            printf("sample %d was trained on %d times in %d epochs\n", i, counts[i], EPOCHS);
            show_run("samples are lost or repeated");
        }
}

/* Each group resumes from the checkpoint of the one before. */
static void expect_bits_of_checkpoints(const char *more) {
    char hash[PROGRAM_HASH + 1], there[PROGRAM_HASH + 1], begin[400], save[300];
    bool resumes = false;
    program_read_hash(&p, hash);
    for (int i = 0, used = 0; i < leg_count; i++) {
        long long end = i + 1 < leg_count ? legs[i + 1].step : STEPS;
        if (end <= legs[i].step) continue;
        snprintf(begin, sizeof begin, resumes ? "--resume %s" : "--init %s",
                 scratch_path(!resumes ? "zeros"
                              : used   ? "leg0"
                                       : "leg1"));
        snprintf(save, sizeof save, "%s", scratch_path(used ? "leg1" : "leg0"));
        program_run(&reference, "ddp_train --spawn %d --steps %lld --save %s %s %s %s", legs[i].ranks, end, save, begin,
                    data, more);
        if (reference.status != 0) fail_msg("%s", reference.err_text);
        resumes = true;
        used = 1 - used;
    }
    program_read_hash(&reference, there);
    if (strcmp(hash, there) != 0) show_run("other bits than by checkpoints");
}

/* Checks that the run, which began with `ranks` ranks, has succeeded. */
static void expect_good_run(int ranks, const char *more) {
    expect_counts();
    read_legs(ranks);
    expect_bits_of_checkpoints(more);
}

/* --- tests ---------------------------------------------------------------------------------------------------------- */

/* Runs the command and kills the rank until the run reports it; repeats if the run ended before. */
static pid_t kill_in_run(const char *command, int rank, const char *words) {
    enum { TRIES = 20 };
    for (int i = 0; i < TRIES; i++) {
        start_run(command);
        pid_t victim = program_rank(&p, rank);
        kill_rank(rank);
        if (program_finish(&p) != 0) show_run("it failed");
        if (strstr(p.err_text, words)) return victim;
    }
    show_run(words);
    return 0;
}

static void kill_one(const char *launch, int rank, const char *more) {
    char command[300], line[64];
    make_data();
    snprintf(command, sizeof command, "%s %s", launch, more);
    pid_t victim = kill_in_run(command, rank, " go on from step ");
    expect_good_run(4, more);
    assert_int_equal(leg_count, 2);
    assert_int_equal(legs[1].ranks, 3);
    snprintf(line, sizeof line, "warning: rank %d (pid %d) died; 3 ranks go on from step ", rank, (int)victim);
    if (!strstr(p.err_text, line) || count_lines(p.err_text) != 1) show_run("it says something else");
}

TEST_IN(programs, test_a_rank_is_killed) { kill_one("ddp_train --spawn 4 --elastic 2:4", 2, "--quiet"); }

TEST_IN(programs, test_rank_0_is_killed) {
    kill_one("ddp_train --spawn 4 --elastic 1:4", 0, "--quiet --shard contiguous");
}

TEST_IN(programs, test_ddprun) {
    kill_one("ddprun --nproc-per-node 4 --elastic 3:5 ddp_train", 1, "--quiet --batch-size 60");
}

/* A killed rank is restarted, and joins. */
TEST_IN(programs, test_a_rank_comes_back) {
    make_data();
    kill_in_run("ddp_train --spawn 3 --elastic 2:3 --max-restarts 1", 1, " joins; 3 ranks go on from step ");
    expect_good_run(3, "--quiet");
    assert_non_null(strstr(p.err_text, " was ended by signal 9 (Killed); this rank starts again (restart 1 of 1)"));
    assert_int_equal(legs[leg_count - 1].ranks, 3);
}

static int number_of(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

/* Repeats until that many have been killed; a run with too few ranks left must end as specified. */
TEST_IN(programs, test_random_kills) {
    static const char *const recipes[] = {"--accumulate 1", "--shard contiguous --allreduce ring --bucket-cap-mb 0.001",
                                          "--accumulate 2"};
    enum { A_RUN = 5 };
    int kills = number_of("LS_ELASTIC_KILLS", 6), made = 0;
    unsigned seed = (unsigned)number_of("LS_ELASTIC_SEED", 1);
    make_data();
    for (int run = 0; made < kills; run++) {
        const char *more = recipes[run % 3];
        char command[200];
        snprintf(command, sizeof command, "ddp_train --spawn 4 --elastic 1:4 --max-restarts %d %s", run % 4, more);
        srand(seed + (unsigned)run);
        start_run(command);
        for (int k = 0; k < A_RUN - 2 + run % 3; k++, made++) {
            usleep((useconds_t)(rand() % 200000));
            kill_rank(rand() % 4);
        }
        program_finish(&p);
        bool all_died = p.status == 1 && strstr(p.err_text, " was ended by signal 9 (Killed)");
        if (p.status != 0 && !all_died) show_run("it failed");
        if (p.status != 0) continue;
        expect_counts();
        read_legs(4);
        expect_bits_of_checkpoints(more);
    }
}

/* --- ends ----------------------------------------------------------------------------------------------------------- */

static void await_lines(int count) {
    double until_us = ls_now_us() + PROGRAM_DEADLINE_S * 1e6;
    while (pread(p.err, p.err_text, sizeof p.err_text - 1, 0) >= 0 && count_lines(p.err_text) < count) {
        if (ls_now_us() > until_us) fail_msg("it says no more than: %s", p.err_text);
        usleep(2000);
    }
}

/* The rank that died first is named. */
TEST_IN(programs, test_too_few_are_left) {
    char line[100];
    program_start(
        &p, "ddp_train --spawn 3 --elastic 2:3 --model mlp:784,16,10 --batch-size 60 --epochs 100000 --no-evaluate "
            "--quiet");
    program_await(&p, "\n");
    pid_t first = program_rank(&p, 1);
    kill(first, SIGKILL);
    await_lines(1);
    kill_rank(0);
    assert_int_equal(program_finish_within(&p, 30), 1);
    snprintf(line, sizeof line, "error: rank 1 (pid %d) was ended by signal 9 (Killed); too few ranks were left for ",
             (int)first);
    if (!strstr(p.err_text, line)) show_run("the first is not named");
}

/* A stopped rank is left out at the deadline, and ended with the job. */
TEST_IN(programs, test_a_rank_is_stopped) {
    program_start(&p,
                  "ddp_train --spawn 3 --elastic 2:3 --model mlp:784,16,10 --batch-size 60 --steps 6000 --no-evaluate "
                  "--timeout 3 --quiet");
    program_await(&p, "\n");
    kill(program_rank(&p, 1), SIGSTOP);
    if (program_finish(&p) != 0) show_run("it failed");
    if (!strstr(p.err_text, ") does not come; 2 ranks go on from step ")) show_run("nobody is left out");
}

TEST_IN(programs, test_a_loss_that_is_not_finite) {
    program_run(&p,
                "ddp_train --spawn 3 --elastic 1:3 --max-restarts 3 --model mlp:784,16,10 --batch-size 60 --steps 100 "
                "--no-evaluate --lr 1e30");
    assert_int_equal(p.status, 1);
    assert_null(strstr(p.err_text, "starts again"));
    const char *last = strstr(p.err_text, "ddp_train: error: ");
    if (!last || !strstr(last, "exited with status 1: step 1 (epoch 0): the loss is nan")) show_run("no cause");
}

/* Files of lines continue, whichever process is rank 0. */
TEST_IN(programs, test_lines) {
    make_data();
    char lines[300];
    snprintf(lines, sizeof lines, "ddp_train --spawn 3 --elastic 1:3 --dump-losses %s", scratch_path("losses"));
    kill_in_run(lines, 0, " go on from step ");
    expect_good_run(3, "--quiet");
    char *text = scratch_read_text("losses");
    int count = count_lines(text);
    if (count <= STEPS - 300 || count > STEPS) fail_msg("%d lines of %d steps", count, STEPS);
    free(text);
}

/* --- incompatible options -------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_refusals) {
    static const struct {
        const char *command, *words;
    } refused[] = {
        {"ddp_train --spawn 2 --elastic 1:2 --shard-state 1", "--elastic cannot be combined with --shard-state"},
        {"ddp_train --spawn 2 --elastic 1:2 --pipeline 2", "--elastic cannot be combined with --pipeline"},
        {"ddp_train --spawn 2 --elastic 1:2 --tensor 2", "--elastic cannot be combined with --tensor"},
        {"ddp_train --spawn 2 --elastic 1:2 --compress topk:0.1", "--elastic cannot be combined with --compress topk"},
        {"ddp_train --spawn 2 --elastic 1:2 --join", "--elastic cannot be combined with --uneven and --join"},
        {"ddp_train --spawn 2 --elastic 1:2 --uneven", "--elastic cannot be combined with --uneven and --join"},
        {"ddp_train --spawn 2 --elastic 1:2 --debug-ranks", "--elastic cannot be combined with --debug-ranks"},
        {"ddp_train --spawn 2 --elastic 1:2 --backend nccl", "--elastic cannot be combined with --backend nccl"},
        {"ddp_train --spawn 2 --elastic 1:2 --device-kind meta",
         "--elastic cannot be combined with --device-kind meta"},
        {"ddp_train --spawn 2 --elastic 1:2 --resident-batches 2",
         "--elastic cannot be combined with --resident-batches"},
        {"ddp_train --spawn 2 --elastic 1:2 --trace traces", "--elastic cannot be combined with --trace"},
        {"ddp_train --spawn 4 --elastic 2:4 --batch-size 64",
         "a batch of 64 samples cannot be shared equally by 3 ranks"},
        {"ddp_train --spawn 4 --elastic 5:6", "--elastic 5:6 does not allow the 4 ranks to be started"},
        {"ddp_train --spawn 4 --elastic 4", "--elastic is '4'; expected MIN:MAX"},
        {"ddp_train --spawn 4 --elastic 4:2", "--elastic is '4:2'; expected MIN:MAX"},
        {"ddp_train --spawn 2 --elastic 0:2", "--elastic is '0:2'; expected MIN:MAX"},
        {"ddp_train --elastic 1:2", "--elastic needs a launcher that outlives its ranks"},
        {"ddprun --nproc-per-node 2 ddp_train --elastic 1:2", "--elastic needs a launcher that outlives its ranks"},
        {"ddprun --nproc-per-node 2 --elastic 3:4 ddp_train", "--elastic 3:4 does not allow the 2 ranks"},
        {"dp_train --devices 2 --elastic 1:2", "--elastic"},
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        program_run(&p, "%s --model mlp:784,16,10 --steps 2 --no-evaluate", refused[i].command);
        if (p.status != 2 || !strstr(p.err_text, refused[i].words))
            fail_msg("%s: status %d, %s", refused[i].command, p.status, p.err_text);
    }
}
