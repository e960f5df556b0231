/* Flight records of programs: ddp_train --flight writes one if a rank is killed and none otherwise, build/flight shows
 * it again, and other files are refused in one line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"
#include "tests/programs/small_images.h"

static const char *const train = "ddp_train --spawn 3 --model mlp:784,32,10 --batch-size 60 --no-evaluate --quiet";

static const char *make_folder(void) {
    const char *folder = scratch_path("records");
    assert_int_equal(mkdir(folder, 0700), 0);
    return folder;
}

static int count_files(const char *folder, char *last, size_t capacity) {
    DIR *files = opendir(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(files));) {
        if (entry->d_name[0] == '.' && !strchr(entry->d_name, 'l')) continue;
        snprintf(last, capacity, "%s/%s", folder, entry->d_name);
        count++;
    }
    closedir(files);
    return count;
}

/* Kills rank 1 of a job that writes its record to the folder, by an option or by the environment. */
static void kill_a_rank(program *p, const char *how, const char *folder) {
    char line[700];
    snprintf(line, sizeof line, how, folder, train);
    program_start(p, "%s --epochs 100000", line);
    program_await(p, "\nepoch ");
    kill(program_rank(p, 1), SIGKILL);
    assert_int_equal(program_finish(p), 1);
}

TEST_IN(programs, a_killed_rank_leaves_one_record_that_can_be_shown) {
    static const char *const hows[] = {"LS_FLIGHT=%s %s", "LS_FLIGHT=/no/such/folder %2$s --flight %1$s"};
    static program job, shown;
    char path[600];
    const char *folder = make_folder();
    for (size_t i = 0; i < COUNT_OF(hows); i++) {
        kill_a_rank(&job, hows[i], folder);
        assert_int_equal(count_files(folder, path, sizeof path), 1);
        assert_int_equal(program_run(&shown, "flight --last 2 %s", path), 0);
        assert_string_equal(shown.err_text, "");
        program_expect_text(&shown, ": ddp_train, 3 ranks over shm; rank ");
        program_expect_text(&shown, "rank 1 died\nrank 1 is missing at #");
        program_expect_text(&shown, "\n  rank 1          died ");
        program_expect_text(&shown, " all_reduce of bucket 0 (25456 fp32, sum)");
        assert_int_equal(count_text(shown.out_text, ", the last of its operations, by when it called them:\n"), 3);
        int rows = count_lines(shown.out_text) - (1 + 1 + 3 * (1 + 2)); /* rows of ranks, which may share one */
        assert_true(rows == 2 || rows == 3);
        if (!strstr(job.err_text, path) || !strstr(job.err_text, ": rank 1 is missing at #"))
            fail_msg("the job said: %s", job.err_text);
        assert_int_equal(remove(path), 0);
    }
}

TEST_IN(programs, a_good_run_leaves_no_record) {
    static program p;
    char path[600];
    const char *folder = make_folder();
    assert_int_equal(program_run(&p, "%s --steps 3 --debug-collectives --flight %s", train, folder), 0);
    assert_string_equal(p.err_text, "");
    assert_int_equal(count_files(folder, path, sizeof path), 0);
    assert_int_equal(program_run(&p, "%s --steps 3 --flight %s/none", train, folder), 2);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "/none: No such file or directory; give a folder that can be written"));
}

/* A run with each of the options succeeds, with the bits of one without. The evaluation does not change them. */
static void expect_same_bits(const char *run, const char *option, const char *another) {
    static program p;
    const char *const options[] = {"--no-evaluate", option, another};
    char data[700] = "", plain[PROGRAM_HASH + 1], compared[PROGRAM_HASH + 1];
    if (strstr(run, "convnet")) snprintf(data, sizeof data, "--data %s", small_images("images", 120, 40));
    for (size_t i = 0; i < COUNT_OF(options) && options[i]; i++) {
        if (program_run(&p, "ddp_train %s %s --steps 3 --batch-size 24 --quiet %s", run, data, options[i]) != 0)
            fail_msg("%s %s: %s", run, options[i], p.err_text);
        program_read_hash(&p, i == 0 ? plain : compared);
        if (i > 0) assert_string_equal(plain, compared);
    }
}

/* Labels of operations are the same on all ranks, whatever these share, and so are those of values
 * (tests/ddp_procs/test_debug_values.c). */
TEST_IN(programs, labels_have_nothing_against_good_runs) {
    static const char *const good_runs[] = {
        "--spawn 3 --model convnet --uneven --join",
        "--spawn 3 --model convnet --shard-state 3 --sync-bn",
        "--spawn 4 --model convnet --pipeline 2 --accumulate 2 --shard-state 1",
        "--spawn 4 --model gpt:2,2,32,16 --data sums:1 --tensor 2 --pipeline 2 --accumulate 2",
        "--spawn 3 --model branched --find-unused",
    };
    for (size_t i = 0; i < COUNT_OF(good_runs); i++)
        expect_same_bits(good_runs[i], "--debug-collectives", "--debug-values");
    expect_same_bits("--spawn 2 --model mlp:784,32,10 --compress topk:0.1 --clip-norm 1 --debug-ranks",
                     "--debug-collectives", NULL);
}

/* Including half precision and recomputed segments. */
TEST_IN(programs, labels_of_values_have_nothing_against_good_runs) {
    expect_same_bits("--spawn 2 --model gpt:2,2,32,16 --data sums:1 --tensor 2 --sequence-parallel --precision bf16 "
                     "--checkpoint-activations 1",
                     "--debug-values", NULL);
    expect_same_bits("--spawn 2 --model gpt:2,2,32,16 --data sums:1 --shard-state 3 --prefetch-blocks 1 "
                     "--checkpoint-activations 1",
                     "--debug-values --debug-collectives", NULL);
    expect_same_bits("--spawn 4 --model convnet --tensor 2 --pipeline 2 --precision fp16", "--debug-values", NULL);
}

/* The others wait for it before the operation, unless it died within one. */
TEST_IN(programs, debug_collectives_holds_operations_back) {
    static program job;
    char path[600];
    const char *folder = make_folder();
    bool held_back = false;
    for (int tries = 0; tries < 10 && !held_back; tries++) {
        kill_a_rank(&job, "LS_FLIGHT=%s %s --debug-collectives", folder);
        held_back = strstr(job.err_text, "  queued     #") != NULL;
        assert_int_equal(count_files(folder, path, sizeof path), 1);
        assert_int_equal(remove(path), 0);
    }
    if (!held_back) fail_msg("the job said: %s", job.err_text);
}

/* A folder that has vanished since, or a full disk: the original failure is still reported. */
TEST_IN(programs, a_record_that_cannot_be_written_is_said_so) {
    static program p;
    kill_a_rank(&p, "LS_FLIGHT=%s/none %s", scratch_folder());
    assert_int_equal(count_text(p.err_text, "error: cannot write "), 1);
    assert_non_null(strstr(p.err_text, "was ended by signal 9 (Killed)"));
    assert_int_equal(scratch_file_count(), 0);
}

TEST_IN(programs, what_is_no_record_is_refused_in_one_line) {
    static program p;
    scratch_write("text", "some text\n", 10);
    scratch_write("empty", "", 0);
    const char *const names[] = {"text", "empty", "none", "."};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        assert_int_equal(program_run(&p, "flight %s", scratch_path(names[i])), 1);
        if (count_lines(p.err_text) != 1 || p.out_text[0]) fail_msg("%s: %s%s", names[i], p.err_text, p.out_text);
    }
    assert_int_equal(program_run(&p, "flight"), 2);
    assert_non_null(strstr(p.err_text, "flight needs the files of a record"));
    assert_int_equal(program_run(&p, "flight --last 65 x"), 2);
}

int main(void) { return run_added_tests(); }
