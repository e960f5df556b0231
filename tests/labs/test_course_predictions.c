/* Which predictions are right (labs/course/is_right.awk): a table for each kind of result, tried in each awk that is
 * installed here. */
#include <stdbool.h>
#include <stdlib.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program p;

struct prediction {
    const char *mine, *is;
    bool right;
};

/* The first is the one that the course's scripts use. */
static const char *const awks[] = {"awk", "mawk", "gawk", "busybox awk"};

static bool is_installed(const char *awk) {
    program_run(&p, "/usr/bin/env %s 1 /dev/null", awk);
    return p.status == 0;
}

static void try_all(const struct prediction *cases, size_t count) {
    assert_true(is_installed(awks[0]));
    for (size_t a = 0; a < sizeof awks / sizeof *awks; a++) {
        if (!is_installed(awks[a])) continue;
        for (size_t i = 0; i < count; i++) {
            setenv("MINE", cases[i].mine, 1);
            setenv("IS", cases[i].is, 1);
            program_run(&p, "/usr/bin/env LC_ALL=C %s -f labs/course/is_right.awk", awks[a]);
            if (p.status != !cases[i].right)
                fail_msg("%s: '%s' for '%s': status %d, %s", awks[a], cases[i].mine, cases[i].is, p.status, p.err_text);
        }
    }
}

TEST_IN(programs, a_number_is_right_to_its_digits_with_a_reason_behind_it) {
    static const struct prediction cases[] = {
        {"3", "3", true},
        {"3, because 1 + 2", "3", true},
        {"3，因为 1 + 2", "3", true},
        {"1,024 bytes", "1024", true},
        {"about 2.3", "2.30974", true},
        {"2", "2.30974", false},
        {"2.4", "2.30974", false},
        {"84 ms; nothing is free", "83.8", true},
        {"83", "83.8", false},
        {"83.79 ms", "83.8", false},
        {"1MiB", "1", true},
        {"约 90 %", "90", true},
        {"7", "6.7", false},
        {"1e3", "1000", true},
        {"1.2e3", "1234", true},
        {"0.5", "0.46", false},
        {"0.50", "0.497", true},
        {"-0.25.", "-0.25", true},
        {"19 or 20", "19", false},
        {"1-2", "1", false},
        {"20-ish", "20", false},
        {"nan", "3", false},
        {"", "3", false},
        {"", "", false},
        {"4, each rank sends once", "4", true},
        {"6 = 0+1+2+3", "6", true},
        {"0+1+2+3 = 6", "6", true},
        {"6 = 0 + 1 + 2 + 3, by all_reduce", "6", true},
        {"14 = 2 (8 - 1)", "14", true},
        {"14 = 15", "14", false},
        {"4，每个发一次", "4", true},
        {"4；每个发一次", "4", true},
        {"4：每个发一次", "4", true},
        {"4＝1+1+1+1", "4", true},
        {"19, 20", "19", false},
        {"19，20", "19", false},
        {"19、20", "19", false},
        {"4, 5", "4", false},
        {"5, 4", "4", false},
        {"4, maybe 5", "4", false},
        {"4 ms, 5 ms", "4", false},
        {"4; 5", "4", false},
        {"4 (or 5)", "4", false},
        {"4, 5, because nobody knows", "4", false},
        {"4 = 5", "4", false},
        {"4, 4 ranks send", "4", true},
        {"4, 1 each", "4", true},
        {"4, 1 message each", "4", true},
        {"4, not 5", "4", true},
        {"4 messages: 0 to 1, 1 to 2, 2 to 3, 3 to 0", "4", true},
        {"2.5, 15 - 12.5", "2.5", true},
    };
    try_all(cases, sizeof cases / sizeof *cases);
}

TEST_IN(programs, a_word_may_be_chinese_and_has_a_reason_behind_it) {
    static const struct prediction cases[] = {
        {"scatter", "scatter", true},
        {"Scatter (it is input)", "scatter", true},
        {"scatter, gather, replicate", "scatter", false},
        {"scatter，gather", "scatter", false},
        {"scattered", "scatter", false},
        {"memory? or all-reduce", "memory", false},
        {"the same.", "the same", true},
        {"the same because inline", "the same", true},
        {"no：反正不行", "no", true},
        {"the same, a lock changes no arithmetic", "the same", true},
        {"same", "the same", true},
        {"yes, no", "yes", false},
        {"no, yes", "yes", false},
        {"yes or no", "yes", false},
        {"yes/no", "yes", false},
        {"no, no wait is needed", "no", true},
        {"no, the same in all bits", "no", true},
        {"No.", "no", true},
        {"no idea", "no", false},
        {"不会，因为顺序执行", "no", true},
        {"会", "yes", true},
        {"不会", "yes", false},
        {"会，不会", "yes", false},
        {"是的，都一样", "yes", true},
        {"相同", "the same", true},
        {"一样，锁不改变运算", "the same", true},
        {"不同", "the same", false},
        {"不同", "others", true},
        {"different", "others", true},
        {"报错", "error", true},
        {"an error", "error", true},
        {"it hangs", "hang", true},
        {"hang, error", "error", false},
        {"error; elsewhere a hang", "error", true},
        {"下降，因为计算变快了", "falls", true},
        {"tree: 6 steps", "tree", true},
        {"ring, tree", "tree", false},
        {"without set_epoch: it knows them", "without", true},
        {"launch, each holds the lock", "launch", true},
        {"launch, memory", "launch", false},
        {"launch, memory is not the limit", "launch", true},
        {"both", "killed", false},
    };
    try_all(cases, sizeof cases / sizeof *cases);
}

/* "A and B" in any order, but numbers between blanks in the given order. */
TEST_IN(programs, several_answers_are_right_where_the_result_is_a_list) {
    static const struct prediction cases[] = {
        {"3 2", "3 2", true},
        {"gather and scatter", "scatter and gather", true},
        {"scatter and gather", "scatter and gather", true},
        {"gather, scatter", "scatter and gather", true},
        {"gather、scatter", "scatter and gather", true},
        {"gather 和 scatter：输入和输出", "scatter and gather", true},
        {"gather", "scatter and gather", false},
        {"gather, scatter, reduce", "scatter and gather", false},
        {"gather, replicate", "scatter and gather", false},
        {"3, 3, 3, 0", "3 3 3 0", true},
        {"3 3 3 0, ceil(9/4) is 3", "3 3 3 0", true},
        {"3 3 3 0 = 9", "3 3 3 0", true},
        {"3+3+3+0", "3 3 3 0", true},
        {"0 3 3 3", "3 3 3 0", false},
        {"3 3 3 0 0", "3 3 3 0", false},
        {"3 3 3", "3 3 3 0", false},
        {"3 2 2 2", "3 3 3 0", false},
        {"3, 2: rank 0 has one more", "3 2", true},
        {"2 3", "3 2", false},
        {"4 2", "2 and 4", true},
        {"2 和 4", "2 and 4", true},
        {"2, 4; with 8 it is 60 GiB", "2 and 4", true},
        {"2 4 8", "2 and 4", false},
        {"2", "2 and 4", false},
        {"2 and 4", "2 and 4", true},
    };
    try_all(cases, sizeof cases / sizeof *cases);
}
