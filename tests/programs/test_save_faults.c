/* What a checkpoint survives: kills at any moment, full disks, folders that go. The one that was there before stays,
 * whole, and nothing lies beside it. */
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
#include "tests/base/text.h"
#include "tests/checkpoint/content.h"
#include "tests/programs/disk.h"
#include "tests/programs/program.h"
#include "tests/train/small_run.h"

#define ENDLESS "--model mlp:784,16,10 --batch-size 60 --steps 100000000 --no-evaluate --quiet"

enum { KILLS = 100, PROGRAM_KILLS = 8, LONGEST_WAIT_US = 8000 };

/* --- kills ------------------------------------------------------------------------------------------------------- */

/* Gives every number of the model the same value, and saves that. */
static bool save_step(struct small_run *r, int64_t step) {
    float *state;
    size_t count;
    struct ls_position position = {.step = step};
    ls_model_state(r->model, &state, &count);
    for (size_t i = 0; i < count; i++) state[i] = (float)step;
    return ls_checkpoint_save(&r->checkpointed, &position, scratch_path("checkpoint")) == LS_OK;
}

/* The checkpoint's step, which all its numbers are. */
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

/* In the instant before the rename a kill leaves the new file's short-lived name; whoever saves next removes it. */
static int expect_little_else(void) {
    int left = access(scratch_path(".checkpoint.tmp"), F_OK) == 0;
    assert_int_equal(scratch_file_count(), 1 + left);
    return left;
}

TEST_IN(programs, test_a_hundred_kills_while_saving) {
    ls_train_options options = small_run_options();
    struct small_run r = small_run_open(&options); /* whose streams have no threads, which a fork would not have */
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
        usleep(ls_random32(&random) % LONGEST_WAIT_US);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        step = expect_whole(&r);
        assert_true(step >= last);
        expect_little_else();
    }
    assert_true(step > KILLS / 10); /* it did save in between */
    assert_true(save_step(&r, step));
    assert_int_equal(expect_little_else(), 0);
    unsetenv("LS_CPU_STREAMS");
    small_run_close(&r);
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

/* Each run goes on from what the one before had saved when it was killed. */
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
        while (i % 3 == 0 && !has_saved_beyond(step)) usleep(1000); /* the others are killed wherever they are */
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

/* --- no room ----------------------------------------------------------------------------------------------------- */

/* A good checkpoint, and a copy of it. */
static void save_one(const char *name) {
    static program p;
    size_t nbytes;
    assert_int_equal(program_run(&p, "dp_train --single " ENDLESS " --steps 3 --save %s", scratch_path(name)), 0);
    char *bytes = scratch_read(scratch_path(name), &nbytes);
    assert_in_range(nbytes, 120000, 200000);
    scratch_write("copy", bytes, nbytes);
    free(bytes);
}

/* One line, status 1, at the first checkpoint; the old one is as it was. */
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

/* What becomes of the checkpoint's folder while the ranks train. */
static void move_folder(void) {
    assert_int_equal(rename(scratch_path("disk/folder"), scratch_path("disk/elsewhere")), 0);
}

static void put_file_in_its_place(void) {
    move_folder();
    scratch_write("disk/folder", "x", 1);
}

static void put_dead_link_in_its_place(void) {
    move_folder();
    assert_int_equal(symlink("nowhere", scratch_path("disk/folder")), 0);
}

static void remove_folder(void) { /* between two checkpoints */
    while (rmdir(scratch_path("disk/folder")) != 0) unlink(scratch_path("disk/folder/checkpoint"));
}

static void make_read_only(void) { disk_make_read_only(scratch_path("disk")); }

static void put_folder_in_the_files_place(void) {
    while (mkdir(scratch_path("disk/folder/checkpoint"), 0755) != 0) unlink(scratch_path("disk/folder/checkpoint"));
}

#define FOLDER_HINT "its folder must exist and be writable"

static const struct fate {
    void (*act)(void);
    const char *reasons[2];  /* NULL: one only */
    const char *hint, *kept; /* where the last checkpoint is; NULL: it is gone */
} fates[] = {
    {move_folder, {"No such file or directory"}, FOLDER_HINT, "disk/elsewhere/checkpoint"},
    /* in the instant between the two steps there is none */
    {put_file_in_its_place, {"Not a directory", "No such file or directory"}, FOLDER_HINT, "disk/elsewhere/checkpoint"},
    {put_dead_link_in_its_place, {"No such file or directory"}, FOLDER_HINT, "disk/elsewhere/checkpoint"},
    {remove_folder, {"No such file or directory"}, FOLDER_HINT, NULL},
    {put_folder_in_the_files_place, {"it is not a regular file", "Is a directory"}, "", NULL},
};

/* Rank 0 says so, whatever the moment (tests/base/test_file_gone.c meets each of them), and the others end with it, long
 * before their deadline. The last checkpoint, wherever it is now, is whole, and nothing lies beside it. */
static void expect_common_end(const char *command, const struct fate *fate, int errors) {
    static program p;
    assert_int_equal(mkdir(scratch_path("disk/folder"), 0755), 0);
    program_start(&p, "%s " ENDLESS " --timeout 50 --save %s --save-every 1", command,
                  scratch_path("disk/folder/checkpoint"));
    program_await(&p, "\n");
    while (access(scratch_path("disk/folder/checkpoint"), F_OK) != 0) usleep(1000);
    fate->act();
    program_finish_within(&p, 25);
    char said[2][900];
    for (int i = 0; i < 2; i++)
        snprintf(said[i], sizeof said[i], "error: cannot write %s: %s; %s", scratch_path("disk/folder/checkpoint"),
                 fate->reasons[i] ? fate->reasons[i] : fate->reasons[0], fate->hint);
    bool told = strstr(p.err_text, said[0]) || strstr(p.err_text, said[1]);
    if (p.status != 1 || !told || count_text(p.err_text, ": error: ") > errors)
        fail_msg("%s, %s: status %d: %s", command, fate->reasons[0], p.status, p.err_text);
    assert_null(strstr(p.err_text, "exited with status 3")); /* the launcher names the cause, not what follows */
    if (fate->kept) {
        struct content c = content_open(scratch_path(fate->kept));
        assert_true(atoll(*content_line(&c, "lockstep.step")) > 0);
        ls_safetensors_close(c.file);
    }
}

static const char *const commands[] = {"dp_train --devices 2", "ddp_train --spawn 3"};
static const int most_errors[] = {1, 4};

static void expect_no_temporary_file(void) {
    char command[700];
    snprintf(command, sizeof command, "find '%s' -name '.?*' | grep -q .", scratch_path("disk"));
    if (system(command) == 0) fail_msg("a temporary file is left");
}

TEST_IN(programs, test_ranks_end_together) {
    char clear[700];
    snprintf(clear, sizeof clear, "rm -r '%s'", scratch_path("disk"));
    for (size_t i = 0; i < 2 * COUNT_OF(fates); i++) {
        assert_int_equal(mkdir(scratch_path("disk"), 0755), 0);
        expect_common_end(commands[i % 2], &fates[i / 2], most_errors[i % 2]);
        expect_no_temporary_file();
        assert_int_equal(system(clear), 0);
    }
}

TEST_IN(programs, test_a_disk_that_becomes_read_only) {
    static const struct fate read_only = {
        make_read_only, {"Read-only file system"}, FOLDER_HINT, "disk/folder/checkpoint"};
    for (int i = 0; i < 2; i++) {
        disk_mount("disk", "size=4M");
        expect_common_end(commands[i], &read_only, most_errors[i]);
        expect_no_temporary_file();
        disk_unmount(scratch_path("disk"));
        assert_int_equal(rmdir(scratch_path("disk")), 0);
    }
}
