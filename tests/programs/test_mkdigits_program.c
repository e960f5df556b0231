/* The program mkdigits, and models trained on its data sets. */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static const char *set_path(void) {
    static char path[600];
    snprintf(path, sizeof path, "%s", scratch_path("set"));
    return path;
}

/* The number of visible files in the set's folder, -1 if it does not exist; removes them and it if `remove_them`. */
static int files_in_set(bool remove_them) {
    DIR *folder = opendir(set_path());
    if (!folder) return -1;
    int count = 0;
    char path[900];
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        count++;
        snprintf(path, sizeof path, "%s/%s", set_path(), entry->d_name);
        if (remove_them) remove(path);
    }
    closedir(folder);
    if (remove_them) rmdir(set_path());
    return count;
}

static int teardown(void **state) {
    files_in_set(true);
    return programs_teardown(state);
}

/* --- messages ------------------------------------------------------------------------------------------------------ */

TEST_WITH(programs_setup, teardown, it_says_what_it_made) {
    static const char *const lines[] = {
        "mkdigits %s --count 3100 --test-count 297",                   /* options after the folder, */
        "mkdigits --count=3100 --test-count=297 --force %s",           /* before it, */
        "mkdigits --force --count=3100 %s --seed 0 --test-count=297"}; /* and around it */
    static program p;
    char line[1000], first[PROGRAM_TEXT_CAPACITY] = "";
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        snprintf(line, sizeof line, lines[i], set_path());
        if (program_run(&p, "%s", line) != 0 || p.err_text[0] != '\0')
            fail_msg("%s: %d %s", line, p.status, p.err_text);
        assert_non_null(strstr(p.out_text, "3100 training samples: warps of 1500 real digits, 2 or 3 of each;"));
        assert_non_null(strstr(p.out_text, "\n297 test samples: warps of 297 real digits, 1 of each;"));
        const char *hash = strstr(p.out_text, "hash ");
        assert_non_null(hash);
        assert_int_equal(count_lines(p.out_text), 3);
        if (i == 0) snprintf(first, sizeof first, "%s", hash);
        assert_string_equal(hash, first);
    }
    program_run(&p, "mkdigits --help");
    assert_int_equal(p.status, 0);
    assert_non_null(strstr(p.out_text, "(default: 60000)"));
    program_run(&p, "mkdigits %s --help", set_path());
    assert_int_equal(p.status, 0);
    assert_non_null(strstr(p.out_text, "--test-count=N"));
}

TEST_WITH(programs_setup, teardown, mistakes_get_one_line) {
    static const struct {
        const char *arguments; /* SET stands for a path that does not exist yet */
        int status;
        const char *text;
    } cases[] = {
        {"", 2, "mkdigits needs the folder to write to"},
        {"SET more", 2, "mkdigits takes one folder only, but 'more' follows"},
        {"SET --count 5 more", 2, "mkdigits takes one folder only, but 'more' follows"},
        {"SET --count 0", 2, "--count: 0 is out of range"},
        {"SET --test-count -1", 2, "--test-count: -1 is out of range"},
        {"SET --count 1e6", 2, "--count: '1e6'"},
        {"SET --rotation 46", 2, "--rotation: 46 is out of range"},
        {"SET --scale 1", 2, "--scale: 1 is out of range"},
        {"SET --noise nan", 2, "--noise: 'nan' is not a number"},
        {"SET --bogus", 2, "unknown option --bogus"},
        {"SET --source /no/such/folder", 1, "there is no data folder /no/such/folder"},
        {"/proc/set", 1, "cannot make the folder /proc/set"},
        {"/proc/self", 1, "cannot write /proc/self/"},
        {"data/digits", 2, "--source and FOLDER name the same file"},
        {"data/digits --force", 2, "--source and FOLDER name the same file"},
        {"/dev/full", 1, "/dev/full is not a folder"},
        {"SET --list /dev/full", 1, "cannot write /dev/full: not a regular file"},
    };
    static program p;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool in_set = strncmp(cases[i].arguments, "SET", 3) == 0;
        program_run(&p, "mkdigits %s%s", in_set ? set_path() : "", cases[i].arguments + (in_set ? 3 : 0));
        bool good = p.status == cases[i].status && p.out_text[0] == '\0' && count_lines(p.err_text) == 1 &&
                    strncmp(p.err_text, "mkdigits: error: ", 17) == 0 && strstr(p.err_text, cases[i].text);
        if (!good)
            fail_msg("%s: status %d, stdout '%s', stderr '%s'", cases[i].arguments, p.status, p.out_text, p.err_text);
        assert_int_equal(files_in_set(false), -1);
    }
    const char *other = scratch_path("other");
    assert_int_equal(program_run(&p, "mkdigits %s --count 10 --test-count 10 --source data/digits", other), 0);
    program_run(&p, "mkdigits data/digits --source %s", other);
    assert_int_equal(p.status, 1);
    assert_non_null(strstr(p.err_text, "data/digits holds another data set (train-labels-idx1-ubyte.gz)"));
    program_run(&p, "STREAMS=full mkdigits %s --count 10 --test-count 10", set_path());
    assert_int_equal(p.status, 1);
    assert_non_null(strstr(p.err_text, "cannot write all of the results to standard output"));
    assert_int_equal(files_in_set(false), 5);
}

/* --- killed -------------------------------------------------------------------------------------------------------- */

/* Waits until the program has a million bytes in an unnamed file in the set's folder. */
static void await_work(const program *p) {
    char path[64], target[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)p->pid);
    for (double until_us = ls_now_us() + PROGRAM_DEADLINE_S * 1e6; ls_now_us() < until_us; usleep(1000)) {
        DIR *folder = opendir(path);
        bool found = false;
        for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
            struct stat file;
            ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
            target[length > 0 ? length : 0] = '\0';
            found = strncmp(target, set_path(), strlen(set_path())) == 0 &&
                    fstatat(dirfd(folder), entry->d_name, &file, 0) == 0 && file.st_size > 1000000;
        }
        if (folder) closedir(folder);
        if (found) return;
    }
    fail_msg("mkdigits does not begin to write");
}

TEST_WITH(programs_setup, teardown, a_kill_leaves_nothing_half_written) {
    static program p;
    program_start(&p, "mkdigits %s --count 5000000", set_path()); /* more than it can finish */
    await_work(&p);
    kill(p.pid, SIGKILL);
    assert_int_equal(program_finish(&p), 128 + SIGKILL);
    assert_int_equal(files_in_set(false), 0);

    assert_int_equal(program_run(&p, "mkdigits %s --count 100 --test-count 100", set_path()), 0);
    char images[700];
    snprintf(images, sizeof images, "%s/train-images-idx3-ubyte", set_path());
    struct stat old, now;
    assert_int_equal(stat(images, &old), 0);
    program_start(&p, "mkdigits %s --count 5000000 --force --seed 7", set_path());
    await_work(&p);
    kill(p.pid, SIGKILL);
    assert_int_equal(program_finish(&p), 128 + SIGKILL);
    assert_int_equal(files_in_set(false), 5);
    assert_int_equal(stat(images, &now), 0);
    assert_true(now.st_ino == old.st_ino && now.st_size == old.st_size);
}

/* --- accuracy ------------------------------------------------------------------------------------------------------ */

/* These take 1 s and 2 s on two free cores; the deadline is for a sanitizer on a busy machine. */
#define TRAINING_DEADLINE_S 220.0

static double final_accuracy(const program *p) {
    double loss = 0, accuracy = 0;
    const char *at = strstr(p->out_text, "final loss ");
    if (p->status != 0 || !at || sscanf(at, "final loss %lf, test accuracy %lf %%", &loss, &accuracy) != 2)
        fail_msg("status %d: %s%s", p->status, p->out_text, p->err_text);
    return accuracy;
}

/* The recipes of labs/bench/accuracy on less data, tested on the real digits that no training digit was made from. */
TEST_WITH(programs_setup, teardown, models_recognise_held_out_digits) {
    static program p;
    program_run(&p, "mkdigits %s --count 6000 --test-count 297 --no-warp-test", set_path());
    assert_int_equal(p.status, 0);
    program_start(&p, "dp_train --devices 2 --data %s --epochs 5 --quiet --timeout 200", set_path());
    program_finish_within(&p, TRAINING_DEADLINE_S);
    double mlp = final_accuracy(&p);
    program_start(&p, "ddp_train --spawn 2 --model convnet --data %s --epochs 3 --quiet --timeout 200", set_path());
    program_finish_within(&p, TRAINING_DEADLINE_S);
    double convnet = final_accuracy(&p);
    if (!(mlp >= 90 && convnet >= 93)) fail_msg("mlp %g %%, convnet %g %%", mlp, convnet);
}
