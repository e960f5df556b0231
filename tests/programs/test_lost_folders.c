/* The folder of a checkpoint while the ranks train: removed, replaced by something else, on a disk that becomes read-only.
 * (test_save_faults.c tests a moved folder.) */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/checkpoint/content.h"
#include "tests/programs/disk.h"
#include "tests/programs/program.h"

#define ENDLESS "--model mlp:784,16,10 --batch-size 60 --steps 100000000 --no-evaluate --quiet"

/* The fate of the checkpoint's folder while the ranks train. */
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
    const char *reasons[2];  /* NULL: only one */
    const char *hint, *kept; /* where the last checkpoint is; NULL: it is lost */
} fates[] = {
    /* between the two steps it does not exist */
    {put_file_in_its_place, {"Not a directory", "No such file or directory"}, FOLDER_HINT, "disk/elsewhere/checkpoint"},
    {put_dead_link_in_its_place, {"No such file or directory"}, FOLDER_HINT, "disk/elsewhere/checkpoint"},
    {remove_folder, {"No such file or directory"}, FOLDER_HINT, NULL},
    {put_folder_in_the_files_place, {"not a regular file", "Is a directory"}, "", NULL},
};

/* Rank 0 reports it, whatever the moment (tests/base/test_file_gone.c tests each), and the others end with it, long
 * before their deadline. The last checkpoint, wherever it is now, is whole, and no other file is left. */
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
    assert_null(strstr(p.err_text, "exited with status 3")); /* the launcher names the cause, not the consequences */
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

TEST_IN(programs, test_a_lost_folder_ends_all_ranks) {
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
