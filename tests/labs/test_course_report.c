/* The report on the course (labs/course/report.sh, labs/course/report): the page for a synthetic student's work
 * (tests/labs/submission.sh); nothing in it runs or fetches, and a page is written completely or not at all. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/programs/program.h"

static program run;
static char *page;

/* --- a whole report ------------------------------------------------------------------------------------------------- */

static int teardown(void **state) {
    free(page);
    page = NULL;
    return programs_teardown(state);
}

static void make_submission(void) {
    program_run(&run, "tests/labs/submission.sh %s %s", scratch_path("made"), build_folder());
    if (run.status != 0) fail_msg("submission.sh: %s", run.err_text);
}

/* Returns its status; the page, if any, is in `page`. */
static int report(const char *variables, const char *labs) {
    char code[4096], built[4096], to[4096];
    snprintf(code, sizeof code, "%s", scratch_path("made/code"));
    snprintf(built, sizeof built, "%s", scratch_path("made/labs"));
    snprintf(to, sizeof to, "%s", scratch_path("report.html"));
    program_run(&run, "BUILD=%s COURSE_REFERENCE= %s labs/course/report.sh %s %s %s %s", scratch_path("made/build"),
                variables, code, built, to, labs);
    free(page);
    page = access(to, F_OK) == 0 ? scratch_read_text("report.html") : NULL;
    return run.status;
}

static void expect(const char *text) {
    if (!page || !strstr(page, text)) fail_msg("the page has no '%s'", text);
}

static void expect_no(const char *text) {
    const char *found = page ? strcasestr(page, text) : NULL;
    if (found) fail_msg("the page has '%s': %.120s", text, found);
}

TEST_WITH(programs_setup, teardown, test_it_shows_what_was_done) {
    make_submission();
    if (report("STUDENT=Eve", "01 02 03 04") != 0) fail_msg("status %d: %s", run.status, run.err_text);
    program_expect_text(&run, "report.html");
    static const char *const texts[] = {
        "<title>lockstep: Course report, Eve</title>",
        "03 all-reduce: the ring, and the direct way</a></th><td class=\"number\" data-label=\"Points\">4 of 12</td>",
        "data-label=\"Predictions that were right\">2 of 3</td>",
        "data-label=\"Questions answered\">2 of 3</td>",
        "<td class=\"number missing\" data-label=\"Points\">not graded</td>", /* lab 02 */
        "3,670,016, since every rank sends 2 n (N-1)/N and receives as much",
        "<strong>3670016</strong> <span class=\"kind\">exact</span> <span class=\"true\">right</span>",
        "I had not thought of",
        "<dt>Processor</dt>",
        "<dt>Load</dt>",
        "4 of 12 points (seed 77)",
        "<code>ring-sum</code>: N = 3: rank 0&#39;s sum: expected 6, got",
        "<span class=\"kind\">measured</span> <code>bytes.svg</code>, drawn by gnuplot",
        "<code>half.svg</code>; not shown: it is not well-formed XML: no element found in line 1",
        "measured on this machine &amp; &lt;others&gt;</tspan>",
        "<span class=\"kind\">replayed</span> <code>speedup.svg</code>",
        "<pre class=\"diff\">\n--- handed out: common/comm/allreduce_ring.c\n+++ common/comm/allreduce_ring.c\n@@ ",
        "\n+/* --- looks like a head of a diff\n",
        "\n-    ls_todo(&quot;03&quot;);\n",
        "In step <strong>4</strong>, see <code>ls_comm_await_step</code>",
        "no answer yet",
        "环形 all-reduce",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) expect(texts[i]);
    expect_no("id=\"lab-01\""); /* not begun */
    expect_no("id=\"lab-04\"");
}

/* Everything hostile in the submission appears as text, and never as markup. */
TEST_WITH(programs_setup, teardown, test_it_runs_nothing) {
    make_submission();
    assert_int_equal(report("STUDENT=<script>hacked=0</script>", "02 03"), 0);
    static const char *const markup[] = {"<script",     "<img",    "<iframe",  "<foreignObject", "<image",
                                         "<a href=\"j", "<b ",     "@import",  "<style>body",    "\" on",
                                         "' on",        "=\"http", "url(http", "=\"//",          "\xE2\x80\xAE"};
    for (size_t i = 0; i < sizeof markup / sizeof *markup; i++) expect_no(markup[i]);
    for (int i = 0; i <= 7; i++) {
        if (i == 2 || i == 3 || i == 4) continue;
        char text[64];
        snprintf(text, sizeof text, i ? "&lt;script&gt;hacked = %d" : "&lt;script&gt;hacked=%d", i);
        expect(text);
    }
    expect("Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'");
    expect("tree; \xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD"
           "edoc"); /* two bytes that are not UTF-8, and a change of text direction */
    expect("&lt;b onclick=&quot;hacked = 3&quot;&gt;bold");
    for (int i = 1; i <= 12; i++) {
        char text[64];
        snprintf(text, sizeof text, "<code>attack-%d.svg</code>; not shown: ", i);
        expect(text);
    }
    expect_no("foreign words");
    expect_no("linked words");
}

TEST_WITH(programs_setup, teardown, test_in_chinese) {
    make_submission();
    assert_int_equal(report("LS_LANG=zh", "03"), 0);
    expect("<html lang=\"zh-CN\">");
    expect("预测与结果");
    expect("4 / 12 分");
    expect("前面有一项检查超时");
    expect_no("an earlier check hung");
    expect("N = 3: rank 0&#39;s sum"); /* from an older grader, without Chinese */
    expect_no("Predictions and results");
}

/* --- bad and outdated files ----------------------------------------------------------------------------------------- */

static void expect_one_line(int status, const char *text) {
    if (run.status != status || count_lines(run.err_text) != 1 || !strstr(run.err_text, text))
        fail_msg("status %d, and not %d; '%s' in: %s", run.status, status, text, run.err_text);
}

TEST_WITH(programs_setup, teardown, test_bad_input_leaves_the_good_page) {
    static const char half[] = "{\"points\": 4, \"of\"";
    make_submission();
    assert_int_equal(report("A=1", "03"), 0);
    char *good = strdup(page);
    report("A=1", "99");
    expect_one_line(2, "there is no lab '99'");
    report("A=1", "01");
    expect_one_line(1, "nothing to report: no lab is begun");
    scratch_write("made/labs/03/grade.json", half, strlen(half));
    report("A=1", "03");
    expect_one_line(1, "grade.json");
    assert_non_null(page);
    assert_string_equal(page, good);
    free(good);
    assert_int_equal(program_run(&run, "labs/course/report.sh %s x y 03", scratch_path("nowhere")), 2);
    assert_int_equal(program_run(&run, "%s/course_report --as=text", build_folder()), 2);
}

/* The page never replaces one of its inputs. */
TEST_WITH(programs_setup, teardown, test_places_of_the_page) {
    make_submission();
    static const char *const places[] = {"no/page.html", "made/code/labs/03-allreduce/answers.md", "link.html", "made"};
    char *before = scratch_read_text(places[1]);
    assert_int_equal(symlink(scratch_path(places[1]), scratch_path("link.html")), 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char code[4096], to[4096];
        snprintf(code, sizeof code, "%s", scratch_path("made/code"));
        snprintf(to, sizeof to, "%s", scratch_path(places[i]));
        program_run(&run, "BUILD=%s COURSE_REFERENCE= labs/course/report.sh %s %s %s 03", scratch_path("made/build"),
                    code, scratch_path("made/labs"), to);
        expect_one_line(2, "the page is a file NAME.html in a folder that is there");
    }
    char *after = scratch_read_text(places[1]);
    assert_string_equal(after, before);
    free(before);
    free(after);
}

TEST_WITH(programs_setup, teardown, test_verdicts_of_other_code_do_not_count) {
    make_submission();
    scratch_write("made/labs/03/graded", "1 2\n", 4);
    assert_int_equal(report("A=1", "03"), 0);
    expect("The code has changed since it was graded: make grade LAB=03");
    expect(">code changed since</td>");
    expect_no("4 of 12");
}

/* The grader fails, as with a full /tmp: there is no verdict, and earlier verdicts stay unchanged. */
TEST_WITH(programs_setup, teardown, test_what_cannot_be_graded_has_no_verdict) {
    static const char fails[] = "#!/bin/sh\nexit 1\n";
    char code[4096], built[4096];
    make_submission();
    scratch_write("made/build/grade", fails, strlen(fails));
    assert_int_equal(chmod(scratch_path("made/build/grade"), 0700), 0);
    assert_int_equal(mkdir(scratch_path("made/03"), 0700), 0);
    scratch_write("made/03/allowed", "", 0);
    scratch_write("made/labs/03/graded", "1 2\n", 4);
    char *before = scratch_read_text("made/labs/03/grade.json");
    snprintf(code, sizeof code, "%s", scratch_path("made/code"));
    snprintf(built, sizeof built, "%s", scratch_path("made/labs"));
    assert_int_equal(program_run(&run, "BUILD=%s COURSE_REFERENCE=%s labs/course/grade.sh %s %s 03",
                                 scratch_path("made/build"), scratch_path("made"), code, built),
                     2);
    char *json = scratch_read_text("made/labs/03/grade.json"), *graded = scratch_read_text("made/labs/03/graded");
    assert_string_equal(json, before);
    assert_string_equal(graded, "1 2\n");
    free(before);
    free(json);
    free(graded);
}

TEST_WITH(programs_setup, teardown, test_answers_too_large_are_an_error) {
    make_submission();
    char *many = malloc(2 << 20);
    assert_non_null(many);
    memset(many, '*', 2 << 20);
    scratch_write("made/code/labs/03-allreduce/answers.md", many, 2 << 20);
    report("A=1", "03");
    expect_one_line(1, "answers.md");
    scratch_write("made/code/labs/03-allreduce/answers.md", many, 999000); /* the maximum number is fast */
    assert_int_equal(report("A=1", "03"), 0);
    free(many);
}

/* Symbolic links to another user's file in place of answers, predictions, code, or a folder above them. */
TEST_WITH(programs_setup, teardown, test_links_out_of_the_submission) {
    static const char *const places[] = {"labs/03-allreduce/answers.md", "labs/03-allreduce/predict.txt",
                                         "common/comm/allreduce_ring.c", "labs/03-allreduce"};
    scratch_write("secret", "ring-bytes: a secret of somebody else\n", 38);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char place[128];
        snprintf(place, sizeof place, "made/code/%s", places[i]);
        make_submission();
        assert_int_equal(rename(scratch_path(place), scratch_path("elsewhere")), 0);
        assert_int_equal(symlink(scratch_path(strstr(place, ".") ? "secret" : "elsewhere"), scratch_path(place)), 0);
        report("STUDENT=Eve", "03");
        expect_one_line(1, places[i]);
        assert_null(page);
        assert_int_equal(unlink(scratch_path(place)), 0);
        assert_int_equal(rename(scratch_path("elsewhere"), scratch_path(place)), 0);
    }
}

/* A pipe without a writer must not be waited for. */
TEST_WITH(programs_setup, teardown, test_what_is_no_file) {
    make_submission();
    assert_int_equal(mkfifo(scratch_path("made/code/labs/02-samples/answers.md"), 0600), 0);
    report("A=1", "02");
    expect_one_line(1, "answers.md");
    assert_int_equal(unlink(scratch_path("made/code/labs/02-samples/predict.txt")), 0);
    assert_int_equal(mkfifo(scratch_path("made/code/labs/02-samples/predict.txt"), 0600), 0);
    report("A=1", "02");
    expect_one_line(1, "predict.txt");
}

/* In a handout the first report creates room for answers, and a report never removes any. */
TEST_WITH(programs_setup, teardown, test_room_for_answers) {
    static const char prediction[] = "ring-bytes: 7\n", own[] = "mine\n";
    static const char line[] =
        "/usr/bin/env -C %s BUILD=%s ORACLE=%s COURSE_REFERENCE=reference labs/course/report.sh . built "
        "report.html 03";
    assert_int_equal(program_run(&run, "/bin/cp -r labs %s", scratch_folder()), 0);
    assert_int_equal(program_run(&run, "/bin/mkdir -p %s", scratch_path("reference/handed-out/common/comm")), 0);
    assert_int_equal(program_run(&run, "/bin/cp -r common/comm %s", scratch_path("reference/handed-out/common")), 0);
    scratch_write("labs/03-allreduce/predict.txt", prediction, strlen(prediction));
    program_run(&run, line, scratch_folder(), scratch_folder(), build_folder());
    if (run.status != 0) fail_msg("status %d: %s", run.status, run.err_text);
    program_expect_text(&run, "labs/03-allreduce/answers.md is new");
    char *questions = scratch_read_text("labs/03-allreduce/answers.md");
    assert_memory_equal(questions, "> 1. Rank 1 of 4", 16);
    assert_non_null(strstr(questions, "\n> 4. With N = 2"));
    assert_null(strstr(questions, "Common problems"));
    free(questions);
    scratch_write("labs/03-allreduce/answers.md", own, strlen(own));
    program_run(&run, line, scratch_folder(), scratch_folder(), build_folder());
    questions = scratch_read_text("labs/03-allreduce/answers.md");
    assert_string_equal(questions, own);
    free(questions);
}
