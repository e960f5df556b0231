/* A stopped rank (SIGSTOP) is alive, but silent: during start-up, an evaluation, or the writing of a checkpoint. The
 * others name it at their deadline, the launcher ends it, and files are whole. For steps: test_faults.c. */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

#define RANKS 3
#define TRAINS "ddp_train --timeout 2 --batch-size 60 --epochs 100000 --quiet"
#define LAUNCH "ddprun --nproc-per-node 3 --grace 1 "
#define DEADLINE_S 60.0 /* the job itself takes 2 s, the launcher 3 more */

/* Status 3; the survivors' errors and the launcher's, all of which name the rank and the deadline. */
static void expect_named(program *p, int rank, const char *place) {
    char named[40];
    snprintf(named, sizeof named, "rank %d ", rank);
    if (program_finish_within(p, DEADLINE_S) != 3 || count_text(p->err_text, ": error: ") > RANKS)
        fail_msg("rank %d: status %d: %s", rank, p->status, p->err_text);
    char *end = NULL;
    for (char *line = strtok_r(p->err_text, "\n", &end); line; line = strtok_r(NULL, "\n", &end)) {
        if (!strstr(line, ": error: ")) continue; /* other facts about the failure */
        const char *at = strstr(line, named), *late = at ? strstr(at, " within 2 s") : NULL;
        while (at && (at = strstr(at + 1, named))) late = strstr(at, " within 2 s"); /* the last named is the suspect */
        if (!late || (place && !strstr(line, place))) fail_msg("rank %d, %s: %s", rank, place ? place : "", line);
    }
}

/* --- start-up ----------------------------------------------------------------------------------------------------- */

/* Before its program begins: the others have the store, and wait for the data that all ranks exchange. */
TEST_IN(programs, test_a_rank_is_stopped_before_its_program_begins) {
    static program jobs[RANKS];
    char script[4600];
    for (int victim = 0; victim < RANKS; victim++) {
        char name[16];
        int length = snprintf(script, sizeof script, "[ $RANK = %d ] && kill -STOP $$\nexec %s/" TRAINS "\n", victim,
                              build_folder());
        snprintf(name, sizeof name, "script%d", victim);
        scratch_write(name, script, (size_t)length);
        program_start(&jobs[victim], LAUNCH "/bin/sh %s", scratch_path(name));
    }
    for (int victim = 0; victim < RANKS; victim++)
        expect_named(&jobs[victim], victim, " of 3 did not arrive within 2 s to compare the ranks' settings");
}

/* At any moment of the start, or soon after: loading, in the store, forming the group, comparing options, before the
 * first step. */
TEST_IN(programs, test_a_rank_is_stopped_while_it_starts) {
    enum { JOBS = 8, APART_US = 7000 };
    static program jobs[JOBS];
    for (int i = 0; i < JOBS; i++) {
        int victim = i % RANKS;
        pid_t pid = 0;
        program_start(&jobs[i], LAUNCH TRAINS " --no-evaluate");
        double until_us = ls_now_us() + DEADLINE_S * 1e6;
        while ((pid = program_rank(&jobs[i], victim)) == 0 && ls_now_us() < until_us) usleep(100);
        assert_true(pid > 0);
        usleep((useconds_t)(i * APART_US));
        kill(pid, SIGSTOP);
    }
    for (int i = 0; i < JOBS; i++) expect_named(&jobs[i], i % RANKS, NULL);
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

static void write_split(const char *split, int count) {
    enum { PIXELS = 784 };
    char name[40];
    size_t nbytes = 16 + (size_t)count * PIXELS;
    unsigned char *bytes = calloc(nbytes, 1);
    assert_non_null(bytes);
    for (int labels = 0; labels < 2; labels++) {
        unsigned char header[16] = {
            0, 0, 8, labels ? 1 : 3, 0, 0, (unsigned char)(count >> 8), (unsigned char)count, 0, 0, 0, 28, 0, 0, 0, 28};
        memcpy(bytes, header, labels ? 8 : 16);
        snprintf(name, sizeof name, "%s-%s-ubyte", split, labels ? "labels-idx1" : "images-idx3");
        scratch_write(name, bytes, labels ? 8 + (size_t)count : nbytes);
        memset(bytes, 0, 16);
    }
    free(bytes);
}

/* Nearly all of an epoch's time is the evaluation of 10,000 samples: when the rank is stopped, the others wait in the
 * all-reduce of three sums. In the few cases in which it was in the epoch's only step, it is also named. */
TEST_IN(programs, test_a_rank_is_stopped_in_an_evaluation) {
    enum { TRIES = 8 };
    static program jobs[2];
    write_split("train", 60);
    write_split("t10k", 10000);
    bool met[2] = {false, false};
    for (int try = 0; try < TRIES && !(met[0] && met[1]); try++) {
        for (int victim = 0; victim < 2; victim++) {
            program_start(&jobs[victim], LAUNCH TRAINS " --model mlp:784,32,10 --data %s", scratch_folder());
            program_await(&jobs[victim], "\nepoch ");
            usleep(20000);
            kill(program_rank(&jobs[victim], victim), SIGSTOP);
        }
        for (int victim = 0; victim < 2; victim++) {
            expect_named(&jobs[victim], victim, NULL);
            met[victim] = met[victim] || strstr(jobs[victim].err_text, "all_gather of 3 int64 elements ");
        }
    }
    assert_true(met[0] && met[1]);
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* Whether the process has an unnamed file in the test's folder, which is the next checkpoint. */
static bool is_saving(pid_t pid) {
    char path[64], target[PATH_MAX];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = found || (strstr(target, scratch_folder()) == target && strstr(target, " (deleted)"));
    }
    closedir(folder);
    return found;
}

static void await_stop(pid_t pid) {
    char path[64], stat[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    while (!strstr(stat, ") T ")) {
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_non_null(fgets(stat, sizeof stat, file));
        fclose(file);
    }
}

/* Rank 0 writes a checkpoint of 2 MB after each step, so that it is often writing. Stopped there, it leaves the last
 * one unchanged; if another rank is stopped meanwhile, the new one is in place. Either can be resumed, and no other
 * file is left. */
TEST_IN(programs, test_a_rank_is_stopped_while_a_checkpoint_is_written) {
    static program jobs[2], after;
    pid_t writer, stopped;
    for (int victim = 0; victim < 2; victim++) {
        char name[16];
        snprintf(name, sizeof name, "saved%d", victim);
        program *p = &jobs[victim];
        program_start(p, LAUNCH TRAINS " --model mlp:784,600,10 --optimizer sgd --no-evaluate --save %s --save-every 1",
                      scratch_path(name));
        program_await(p, "\n");
        while (access(scratch_path(name), F_OK) != 0) usleep(1000);
        writer = program_rank(p, 0);
        stopped = program_rank(p, victim);
        assert_true(writer > 0 && stopped > 0);
        double until_us = ls_now_us() + DEADLINE_S * 1e6;
        for (;;) {
            kill(stopped, SIGSTOP);
            await_stop(stopped);
            if (is_saving(writer)) break;
            kill(stopped, SIGCONT);
            if (ls_now_us() > until_us) fail_msg("rank 0 never writes");
            usleep(1500);
        }
        expect_named(p, victim, victim == 0 ? "all_gather of 1 int64 elements " : NULL);
        assert_int_equal(scratch_file_count(), victim + 1);
        if (program_run(&after,
                        "dp_train --single --batch-size 60 --model mlp:784,600,10 --optimizer sgd --no-evaluate "
                        "--quiet --steps 1 --init %s",
                        scratch_path(name)) != 0)
            fail_msg("the checkpoint is not whole: %s", after.err_text);
    }
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
