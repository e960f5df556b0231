/* Faults that a checkpoint survives: kills at any moment, full disks, removed folders. The earlier checkpoint stays
 * whole, and no other file is left. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/random.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/checkpoint/content.h"
#include "tests/programs/disk.h"
#include "tests/programs/program.h"
#include "tests/train/small_run.h"

#define ENDLESS "--model mlp:784,16,10 --batch-size 60 --steps 100000000 --no-evaluate --quiet"

enum { KILLS = 100, PROGRAM_KILLS = 8, LONGEST_WAIT_US = 8000 };

/* --- kills ------------------------------------------------------------------------------------------------------- */

/* Gives every number of the model the same value, and saves the model. */
static bool save_step(struct small_run *r, int64_t step) {
    float *state;
    size_t count;
    struct ls_position position = {.step = step};
    ls_model_state(r->model, &state, &count);
    for (size_t i = 0; i < count; i++) state[i] = (float)step;
    return ls_checkpoint_save(&r->checkpointed, &position, scratch_path("checkpoint")) == LS_OK;
}

/* The checkpoint's step, which is the value of all its numbers. */
static int64_t expect_whole(struct small_run *r) {
    struct ls_position position;
    stderr_begin();
    assert_int_equal(ls_checkpoint_load(&r->checkpointed, scratch_path("checkpoint"), &position), LS_OK);
    stderr_end();
    for (size_t p = 0; p < ls_model_parameter_count(r->model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(r->model, p);
        for (size_t i = 0; i < tensor->count; i++) assert_true(tensor->data[i] == (float)position.step);
    }
    return position.step;
}

/* A kill just before the rename leaves the new file's temporary name; the next save removes it. */
static int expect_little_else(void) {
    int left = access(scratch_path(".checkpoint.tmp"), F_OK) == 0;
    assert_int_equal(scratch_file_count(), 1 + left);
    return left;
}

static int64_t saved_step(void) {
    struct content c = content_open(scratch_path("checkpoint"));
    int64_t step = atoll(*content_line(&c, "lockstep.step"));
    ls_safetensors_close(c.file);
    return step;
}

static bool has_saved_beyond(int64_t step) {
    return access(scratch_path("checkpoint"), F_OK) == 0 && saved_step() > step;
}

TEST_IN(programs, test_a_hundred_kills_while_saving) {
    ls_train_options options = small_run_options();
    struct small_run r = small_run_open(&options); /* with streams without threads, which a fork would lose */
    r.checkpointed.options = &r.options;
    ls_generator random;
    ls_generator_seed(&random, 17);
    int64_t step = 1, last = 0;
    assert_true(save_step(&r, step));
    for (int i = 0; i < KILLS; i++, last = step) {
        pid_t child = fork();
        assert_true(child >= 0);
        while (child == 0) {
            if (!save_step(&r, ++step)) _exit(1);
        }
        while (i % 10 == 0 && !has_saved_beyond(last)) usleep(1000); /* the others are killed at any point */
        usleep(ls_random32(&random) % LONGEST_WAIT_US);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        step = expect_whole(&r);
        assert_true(step >= last);
        expect_little_else();
    }
    assert_true(step >= KILLS / 10); /* it saved in between */
    assert_true(save_step(&r, step));
    assert_int_equal(expect_little_else(), 0);
    unsetenv("LS_CPU_STREAMS");
    small_run_close(&r);
}

/* Each run resumes from the last checkpoint of the one that was killed before. */
TEST_IN(programs, test_runs_that_are_killed_get_on) {
    static program p;
    char resume[700] = "";
    int64_t step = 0;
    ls_generator random;
    ls_generator_seed(&random, 18);
    for (int i = 0; i < PROGRAM_KILLS; i++) {
        program_start(&p, "%s " ENDLESS " --save %s --save-every 1 %s",
                      i % 2 ? "dp_train --single" : "dp_train --devices 2", scratch_path("checkpoint"), resume);
        program_await(&p, "\n");
        while (i % 3 == 0 && !has_saved_beyond(step)) usleep(1000);
        usleep(ls_random32(&random) % (4 * LONGEST_WAIT_US));
        kill(p.pid, SIGKILL);
        assert_int_equal(program_finish(&p), 128 + SIGKILL);
        expect_little_else();
        assert_true(saved_step() >= step);
        step = saved_step();
        snprintf(resume, sizeof resume, "--resume %s", scratch_path("checkpoint"));
    }
    assert_true(step > 1);
    assert_int_equal(program_run(&p, "dp_train --single " ENDLESS " --steps %lld --resume %s --save %s",
                                 (long long)step + 2, scratch_path("checkpoint"), scratch_path("checkpoint")),
                     0);
    assert_int_equal(saved_step(), step + 2);
    assert_int_equal(expect_little_else(), 0);
}

/* --- full disks -------------------------------------------------------------------------------------------------- */

/* Saves a good checkpoint, and a copy of it. */
static void save_one(const char *name) {
    static program p;
    size_t nbytes;
    assert_int_equal(program_run(&p, "dp_train --single " ENDLESS " --steps 3 --save %s", scratch_path(name)), 0);
    char *bytes = scratch_read(scratch_path(name), &nbytes);
    assert_in_range(nbytes, 120000, 200000);
    scratch_write("copy", bytes, nbytes);
    free(bytes);
}

/* One line, status 1, at the first checkpoint; the old one is unchanged. */
static void expect_no_room(const char *name, const char *words) {
    static program p;
    int files = scratch_file_count();
    program_run(&p, "dp_train --single " ENDLESS " --resume %s --save %s --save-every 5", scratch_path(name),
                scratch_path(name));
    if (p.status != 1 || count_lines(p.err_text) != 1 || !strstr(p.err_text, words))
        fail_msg("status %d: %s", p.status, p.err_text);
    assert_null(strstr(p.out_text, "final"));
    assert_true(same_files(scratch_path(name), scratch_path("copy")));
    assert_int_equal(scratch_file_count(), files);
}

TEST_IN(programs, test_a_limit_on_files) {
    struct rlimit before, limit;
    save_one("checkpoint");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 100000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_no_room("checkpoint",
                   "File too large for the limit on the size of files (ulimit -f); what was there before is unchanged");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* One checkpoint takes more than half of it. */
TEST_IN(programs, test_a_full_disk) {
    disk_mount("disk", "size=248k");
    save_one("disk/checkpoint");
    expect_no_room("disk/checkpoint", "No space left on device; what was there before is unchanged");
    disk_unmount(scratch_path("disk"));
}

/* --- places ------------------------------------------------------------------------------------------------------ */

TEST_IN(programs, test_places_that_cannot_be_written_are_refused_first) {
    static const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    static const char *const places[] = {"--save %s/no/such/folder", "--save %s", "--save %s/x --save-weights %s/no/x"};
    static program p;
    for (int i = 0; i < 6; i++) {
        char options[2000];
        snprintf(options, sizeof options, places[i / 2], scratch_folder(), scratch_folder());
        program_run(&p, "%s " ENDLESS " %s", programs[i % 2], options);
        bool good = p.status == 1 && p.out_text[0] == '\0' && count_lines(p.err_text) == 1 &&
                    strstr(p.err_text, "error: cannot write ");
        if (!good) fail_msg("%s: status %d, %s%s", options, p.status, p.out_text, p.err_text);
        assert_int_equal(scratch_file_count(), 0);
    }
}

/* The folder is removed while the ranks train: rank 0 reports it, and the others end with it, long before their
 * deadline. */
TEST_IN(programs, test_ranks_end_together) {
    static program p;
    assert_int_equal(mkdir(scratch_path("folder"), 0755), 0);
    program_start(&p, "ddp_train --spawn 3 " ENDLESS " --timeout 50 --save %s --save-every 1",
                  scratch_path("folder/checkpoint"));
    while (access(scratch_path("folder/checkpoint"), F_OK) != 0) {
        assert_int_equal(waitpid(p.pid, NULL, WNOHANG), 0);
        usleep(1000);
    }
    assert_int_equal(rename(scratch_path("folder"), scratch_path("elsewhere")), 0);
    assert_int_equal(program_finish_within(&p, 25), 1);
    char line[900]; /* at any moment: tests/base/test_file_gone.c tests each */
    snprintf(line, sizeof line,
             "[rank 0]: error: cannot write %s: No such file or directory; its folder must exist and be writable\n",
             scratch_path("folder/checkpoint"));
    assert_true(program_take_failures(&p) > 0);
    if (!strstr(p.err_text, line) || count_lines(p.err_text) > 4) fail_msg("it said: %s", p.err_text);
    assert_null(strstr(p.err_text, "exited with status 3")); /* the launcher names the cause, not the consequences */
    assert_int_equal(unlink(scratch_path("elsewhere/checkpoint")), 0);
    assert_int_equal(rmdir(scratch_path("elsewhere")), 0); /* no other file is left */
}
