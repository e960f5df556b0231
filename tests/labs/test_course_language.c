/* The course in Chinese (LS_LANG=zh): the grader and a lab's session, byte by byte and with LANG=C; files that programs
 * read stay English. The lab is the test's own; its probes are scripts with fixed output. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "labs/course/grade/phrases.h"
#include "labs/course/grade/words.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program p;

static void write_text(const char *name, const char *text) { scratch_write(name, text, strlen(text)); }

static void write_script(const char *name, const char *text) {
    write_text(name, text);
    assert_int_equal(chmod(scratch_path(name), 0755), 0);
}

static void make_folder(const char *name) { assert_int_equal(mkdir(scratch_path(name), 0777), 0); }

/* --- the grader ------------------------------------------------------------------------------------------------------ */

static const char conf[] = "title sums and more\n"
                           "check one 2 the first\n"
                           "hint one look at one\n"
                           "check two 3 the second\n"
                           "hint two look at two\n"
                           "hint two:the_product it is no product\n"
                           "hint two:got_5 four, not five\n"
                           "check three 4 the third\n"
                           "hint three look at three\n"
                           "check memory 1 no access outside\n";

/* Without a translation for the third check, which stays English. */
static const char chinese_conf[] = "# 说明\n"
                                   "title 求和及其他\n"
                                   "check one 第一项\n"
                                   "hint one 看第一项\n"
                                   "check two 第二项，带“引号”\n"
                                   "hint two 看第二项\n"
                                   "hint two:got_5 是四，不是五\n"
                                   "check memory 不越界\n";

/* The student's probe is right at check one, wrong at two, and three is unanswered. */
static const char student[] = "#!/bin/sh\n"
                              "seen=${3#--out=}\n"
                              "case $1 in\n"
                              "--check=one) printf 'case\\tN = 2\\nsee\\tthe sum\\t3\\nend\\tone\\n' >\"$seen\" ;;\n"
                              "--check=two) printf 'case\\tN = 2\\nsee\\tthe sum\\t4\\nend\\ttwo\\n' >\"$seen\" ;;\n"
                              "*) echo 'lab 90: add_up is not written yet (common/add.c)' >&2; exit 4 ;;\n"
                              "esac\n";
static const char reference[] =
    "#!/bin/sh\n"
    "printf 'case\\tN = 2\\nsee\\tthe sum\\t3\\nend\\t%s\\n' \"${1#--check=}\" >\"${3#--out=}\"\n";

static const char phrases_of_the_lab[] = "# a comment\n"
                                         "the {} | {1}\n"
                                         "sum | 和\n";

static void make_lab(void) {
    make_folder("90-sums");
    write_text("90-sums/cases.zh.txt", phrases_of_the_lab);
    write_text("90-sums/lab.conf", conf);
    write_text("90-sums/lab.zh.conf", chinese_conf);
    write_script("student", student);
    write_script("reference", reference);
}

static int grade(const char *language, const char *json) {
    return program_run(&p, "LANG=C LC_ALL=C LS_LANG=%s grade --lab=%s --student=%s --reference=%s --seed=7 --json=%s",
                       language, scratch_path("90-sums"), scratch_path("student"), scratch_path("reference"), json);
}

static const char english_verdicts[] = "lab 90, sums and more\n"
                                       "  one             2 of  2  the first\n"
                                       "  two             0 of  3  the second\n"
                                       "      broken: N = 2: the sum: expected 3, got 4\n"
                                       "      hint: look at two\n"
                                       "  three           0 of  4  the third\n"
                                       "      not written: lab 90: add_up is not written yet (common/add.c)\n"
                                       "  memory          0 of  1  no access outside\n"
                                       "      not run: it counts when another check holds\n"
                                       "lab 90: 2 of 10 points (seed 7)\n";

TEST_IN(programs, verdicts_and_totals_are_chinese) {
    make_lab();
    assert_int_equal(grade("zh_CN.UTF-8", scratch_path("zh.json")), 1);
    assert_string_equal(p.out_text, "实验 90，求和及其他\n"
                                    "  one             2/ 2 分  第一项\n"
                                    "  two             0/ 3 分  第二项，带“引号”\n"
                                    "      未通过：N = 2：和：应为 3，实为 4\n"
                                    "      提示：看第二项\n"
                                    "  three           0/ 4 分  the third\n"
                                    "      未写：实验 90：add_up 还没有写（common/add.c）\n"
                                    "  memory          0/ 1 分  不越界\n"
                                    "      未运行：至少通过另一项检查之后才计分\n"
                                    "实验 90：得 2 分，满分 10 分（SEED=7）\n");
    assert_string_equal(p.err_text, "");
}

TEST_IN(programs, programs_read_the_same_in_any_language) {
    make_lab();
    assert_int_equal(grade("en", scratch_path("en.json")), 1);
    assert_string_equal(p.out_text, english_verdicts);
    assert_int_equal(grade("zh", scratch_path("zh.json")), 1);
    char *english = scratch_read_text("en.json"), *chinese = scratch_read_text("zh.json");
    assert_non_null(strstr(english, "\"N = 2: the sum: expected 3, got 4\""));
    assert_non_null(strstr(english, "\"N = 2：和：应为 3，实为 4\""));
    assert_string_equal(chinese, english);
    free(english);
    free(chinese);
}

TEST_IN(programs, a_hint_with_a_sign_is_for_those_failures_alone) {
    make_lab();
    write_script("student",
                 "#!/bin/sh\n"
                 "printf 'case\\tN = 2\\nsee\\tthe sum\\t5\\nend\\t%s\\n' \"${1#--check=}\" >\"${3#--out=}\"\n");
    assert_int_equal(grade("en", scratch_path("en.json")), 1);
    assert_non_null(strstr(p.out_text, "hint: look at one\n"));
    assert_non_null(strstr(p.out_text, "hint: four, not five\n"));
    assert_null(strstr(p.out_text, "look at two"));
    assert_int_equal(grade("zh", scratch_path("zh.json")), 1);
    assert_non_null(strstr(p.out_text, "提示：是四，不是五\n"));
}

TEST_IN(programs, another_language_is_told_once_and_is_english) {
    make_lab();
    assert_int_equal(grade("fr", scratch_path("fr.json")), 1);
    assert_string_equal(p.out_text, english_verdicts);
    const char *end = strchr(p.err_text, '\n');
    assert_non_null(strstr(p.err_text, "LS_LANG is 'fr'"));
    assert_true(end && end[1] == '\0');
}

TEST_IN(programs, what_is_refused_is_told_in_words_and_kept_in_english) {
    make_lab();
    assert_int_equal(program_run(&p,
                                 "LS_LANG=zh grade --lab=%s --refused=missing --refused-in-words=缺少文件 --json=%s",
                                 scratch_path("90-sums"), scratch_path("zh.json")),
                     1);
    assert_non_null(strstr(p.out_text, "  没有运行：缺少文件\n"));
    char *json = scratch_read_text("zh.json");
    assert_non_null(strstr(json, "\"missing\""));
    assert_null(strstr(json, "缺少"));
    free(json);
}

TEST_IN(programs, words_for_a_check_that_is_not_there_are_an_error) {
    make_lab();
    write_text("90-sums/lab.zh.conf", "title 求和\ncheck four 第四项\n");
    assert_int_not_equal(grade("zh", scratch_path("zh.json")), 0);
    assert_non_null(strstr(p.err_text, "lab.zh.conf:2: lab.conf has no check of that name"));
}

TEST_IN(programs, a_rule_that_cannot_be_read_is_an_error) {
    static const struct {
        const char *rules, *message;
    } wrong[] = {{"# first\nno bar\n", "cases.zh.txt:2: a rule is ENGLISH | CHINESE"},
                 {"a {} | {2}\n", "cases.zh.txt:1: the Chinese names a gap that the English does not have"},
                 {"a {} | {}\n", "cases.zh.txt:1: the Chinese names a gap that the English does not have"}};
    make_lab();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text("90-sums/cases.zh.txt", wrong[i].rules);
        assert_int_not_equal(grade("zh", scratch_path("zh.json")), 0);
        assert_non_null(strstr(p.err_text, wrong[i].message));
    }
}

static phrases *open_phrases(const char *rules) {
    phrases *opened;
    make_folder("91-rules");
    write_text("91-rules/cases.zh.txt", rules);
    assert_int_equal(phrases_open(&opened, scratch_path("91-rules")), LS_OK);
    return opened;
}

static void expect_chinese(const phrases *rules, const char *english, const char *chinese) {
    char text[128];
    assert_int_equal(phrases_translate(rules, text, sizeof text, english, strlen(english)),
                     strcmp(english, chinese) != 0);
    assert_string_equal(text, chinese);
}

/* The first matching rule applies; gaps in a different order, twice, not at all; the texts that fill them are
 * translated, too. */
TEST_IN(programs, rules_translate_whole_texts) {
    phrases *rules = open_phrases("{}, reversed | 逆序的{1}\n"
                                  "{} of {} | {2} 的 {1}\n"
                                  "twice {} | {1}{1}\n"
                                  "sum | 和\n"
                                  "said '{}' | 说 \"{1}\"\n"
                                  "3 of 4 of 5 | 太晚\n");
    expect_chinese(rules, "sum", "和");
    expect_chinese(rules, "sum of 3", "3 的 和");
    expect_chinese(rules, "twice sum", "和和");
    expect_chinese(rules, "said 'sum'", "说 \"sum\"");
    expect_chinese(rules, "3 of 4 of 5, reversed", "逆序的5 的 4 的 3");
    phrases_close(rules);
}

TEST_IN(programs, a_text_without_a_rule_stays_as_it_is) {
    phrases *rules = open_phrases("sum | 和\nthe {}s of {} | {2}：{1}\n");
    expect_chinese(rules, "sums", "sums");
    expect_chinese(rules, "the s of x", "the s of x");
    expect_chinese(rules, "the sums of y", "y：和");
    expect_chinese(NULL, "sum", "sum");
    char small[4 + 1];
    assert_true(phrases_translate(rules, small, sizeof small, "the sums of y", 13));
    assert_string_equal(small, "y：");
    phrases_close(rules);
}

TEST(a_long_text_ends_with_a_whole_character) {
    for (int before = 0; before < 3; before++) {
        told why = {0};
        for (int i = 0; i < before; i++) words_add(&why, "x", "x");
        for (int i = 0; i < 400; i++) words_add(&why, "y", "字");
        const char *text = why.text[WORDS_CHINESE];
        assert_true(strlen(text) > 1000);
        assert_int_equal((strlen(text) - (size_t)before) % 3, 0);
        assert_int_equal(strlen(why.text[WORDS_ENGLISH]), 400 + before);
    }
}

/* --- the session ----------------------------------------------------------------------------------------------------- */

static void make_session(void) {
    static const char *const folders[] = {"labs", "labs/91-words", "build"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) make_folder(folders[i]);
    char *bench = realpath("labs/bench", NULL);
    assert_non_null(bench);
    assert_int_equal(symlink(bench, scratch_path("labs/bench")), 0);
    free(bench);
    assert_int_equal(program_run(&p, "/bin/cp -r labs/course %s", scratch_path("labs/course")), 0);
    write_text("add.c", "ls_todo(\"91\");\n");
    write_text("labs/91-words/lab.conf", "title words\ncut add.c add\n"
                                         "predict sum What is the sum?\npredict more And more?\npredict words Which?\n"
                                         "run echo 三\nrun false; test $? -eq 1\n"
                                         "figure sum = echo 3\nfigure more ~ echo yes\nfigure words = echo the same\n");
    write_text("labs/91-words/lab.zh.conf", "title 词句\npredict sum 和是多少？\npredict words 哪一个？\n");
    assert_int_equal(program_run(&p, "/usr/bin/env -C %s sh labs/course/originals.sh write", scratch_folder()), 0);
}

static int session(const char *language) {
    return program_run(&p,
                       "/usr/bin/env -C %s LANG=C LC_ALL=C LS_LANG=%s BUILD=build ORACLE=build COURSE_REFERENCE= "
                       "sh labs/course/lab.sh . build/labs 91",
                       scratch_folder(), language);
}

TEST_IN(programs, a_session_asks_in_chinese) {
    make_session();
    write_text("labs/91-words/predict.txt", "sum：3，因为 1 + 2\n");
    assert_int_equal(session("zh"), 1);
    assert_string_equal(p.out_text, "实验 91，词句（labs/91-words/README.zh.md）\n"
                                    "And more?\n    more: ?\n"
                                    "哪一个？\n    words: ?\n"
                                    "还没有预测： more words。请在 labs/91-words/predict.txt 里为每一项写一行"
                                    "“名字: 你的预测和理由”，然后再来；也可以用 PREDICT=skip 跳过。\n");
}

/* A line has 118 columns, 73 of which remain: 36 wide characters, and not half of one. */
TEST_IN(programs, predictions_stand_beside_what_came_out) {
    make_session();
    char notes[512] = "sum: 3，因为 1 + 2\nmore: no\nwords: ";
    for (int i = 0; i < 50; i++) strcat(notes, "长");
    strcat(notes, "\n");
    write_text("labs/91-words/predict.txt", notes);
    assert_int_equal(session("zh"), 0);
    char wanted[1024] = "实验 91，词句（labs/91-words/README.zh.md）\n"
                        "代码还没有写全：下面运行的是参考实现。\n"
                        "\n$ echo 三\n三\n"
                        "\n$ false   # 退出码 1\n"
                        "\n                   实际                     你的预测\n"
                        "sum                3                       = 3，因为 1 + 2\n"
                        "more               yes                    != no\n"
                        "words              the same               != ";
    for (int i = 0; i < 36; i++) strcat(wanted, "长");
    strcat(wanted, "\n");
    assert_string_equal(p.out_text, wanted);
    assert_int_equal(session("xx"), 0);
    assert_non_null(strstr(p.out_text, "\n                   it is                    you predicted\n"));
    assert_string_equal(p.err_text,
                        "LS_LANG is 'xx', which is unknown: the output is English; LS_LANG=zh is Chinese\n");
}

TEST_IN(programs, nothing_came_out_as_predicted_where_nothing_came_out) {
    make_session();
    write_text("labs/91-words/lab.conf", "title words\ncut add.c add\npredict sum What is the sum?\nrun true\n"
                                         "figure sum = false\n");
    write_text("labs/91-words/predict.txt", "sum: （3）\n");
    assert_int_equal(session("en"), 0);
    assert_non_null(strstr(p.out_text, "sum                                       != （3）\n"));
}
