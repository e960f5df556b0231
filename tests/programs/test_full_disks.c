/* Each of a run's outputs on a disk that is full, or beyond the limit on the size of files: one line names the file and
 * the reason, the status is 1, the old file stays or consists of whole lines, and no other file is left. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/disk.h"
#include "tests/programs/program.h"

#define FEW "--model mlp:784,32,10 --batch-size 60 --no-evaluate --quiet --steps 500"

static const struct output {
    const char *option;
    bool lines; /* written during the run; the others in one piece, at the end */
    const char *name;
} outputs[] = {{"--metrics", true, "file"},
               {"--dump-losses", true, "file"},
               {"--summary", false, "file"},
               {"--save", false, "file"},
               {"--save-weights", false, "file"},
               {"--trace", false, "trace"},
               {"--save-every 7 --save", false, "file"}};

static int count_files(const char *folder) {
    int count = 0;
    DIR *files = opendir(folder);
    assert_non_null(files);
    for (struct dirent *entry; (entry = readdir(files));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(files);
    return count;
}

/* Checks that `folder` has the old "file", an empty "trace", and `files` files in total. */
static void expect_kept(const char *folder, const struct output *output, int files) {
    char path[700];
    size_t nbytes;
    snprintf(path, sizeof path, "%s/file", folder);
    char *text = scratch_read(path, &nbytes);
    bool written = output->lines && strcmp(text, "old\n") != 0;
    if (!written && strcmp(text, "old\n") != 0) fail_msg("%s: what was there is gone", output->option);
    if (nbytes > 0 && text[nbytes - 1] != '\n') fail_msg("%s: half a line: %s", output->option, strrchr(text, '\n'));
    free(text);
    assert_int_equal(count_files(folder), files);
    snprintf(path, sizeof path, "%s/trace", folder);
    assert_int_equal(count_files(path), 0);
}

static void prepare(const char *folder) {
    char path[700];
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("old\n", file);
    fclose(file);
    snprintf(path, sizeof path, "%s/trace", folder);
    assert_int_equal(mkdir(path, 0755), 0);
}

static void expect_failure(const char *command, const char *folder, const struct output *output, int errors,
                           const char *why) {
    static program p;
    char named[700];
    snprintf(named, sizeof named, "%s/%s", folder, output->name);
    program_run(&p, "%s " FEW " %s %s", command, output->option, named);
    bool good =
        p.status == 1 && count_text(p.err_text, ": error: ") >= 1 && count_text(p.err_text, ": error: ") <= errors;
    for (const char *line = p.err_text; good && (line = strstr(line, ": error: ")); line++)
        good = strstr(line, named) && (strstr(line, why) || strstr(line, "this rank ends with rank 0"));
    if (!good) fail_msg("%s %s: status %d: %s", command, output->option, p.status, p.err_text);
}

/* Each of two ranks has a trace file, and the launcher names the cause. */
TEST_IN(programs, test_outputs_on_a_full_disk) {
    static const char *const commands[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        for (int c = 0; c < 2; c++) {
            char name[16];
            snprintf(name, sizeof name, "disk%zu-%d", i, c);
            const char *disk = disk_mount(name, "size=16k");
            prepare(disk);
            disk_fill(disk);
            expect_failure(commands[c], disk, &outputs[i], c == 0 ? 1 : 3, "No space left on device");
            expect_kept(disk, &outputs[i], 3);
            disk_unmount(disk);
        }
    }
}

/* These programs ignore SIGXFSZ, which would kill them. A summary is shorter than the limit. */
TEST_IN(programs, test_outputs_beyond_the_limit_on_files) {
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 4500, .rlim_max = before.rlim_max};
    prepare(scratch_folder());
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        if (strcmp(outputs[i].option, "--summary") == 0) continue;
        scratch_write("file", "old\n", 4);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        expect_failure("dp_train --devices 2", scratch_folder(), &outputs[i], 1,
                       "File too large for the limit on the size of files (ulimit -f)");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        expect_kept(scratch_folder(), &outputs[i], 2);
    }
}

/* The reason cannot be printed; the status still shows the failure. */
TEST_IN(programs, test_a_log_on_a_full_disk) {
    static const char *const commands[] = {"dp_train --devices 2", "ddp_train --spawn 2",
                                           "ddprun --nproc-per-node 2 ddp_train"};
    static program p;
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        assert_int_equal(program_run(&p, "STDERR=/dev/full %s " FEW " --lr 1e30", commands[i]), 1);
        assert_int_equal(program_run(&p, "STDERR=/dev/full %s " FEW, commands[i]), 0);
        assert_int_equal(program_run(&p, "STREAMS=full %s " FEW, commands[i]), 1);
        assert_non_null(
            strstr(p.err_text, "cannot write all of the results to standard output: No space left on device"));
    }
}

/* Groups, loaders and the launcher use no space in /dev/shm, which may be small in a container. */
TEST_IN(programs, test_no_room_in_shared_memory) {
    static program p;
    disk_mount("disk", "size=4k"); /* skips the test if that is not allowed */
    assert_int_equal(mount("none", "/dev/shm", "tmpfs", 0, "size=4k"), 0);
    disk_fill("/dev/shm");
    program_run(&p, "ddp_train --spawn 4 --shard-state 2 " FEW);
    assert_int_equal(umount("/dev/shm"), 0);
    disk_unmount(scratch_path("disk"));
    if (p.status != 0 || strstr(p.err_text, "error")) fail_msg("status %d: %s", p.status, p.err_text);
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
