/* The report on the course (labs/course/report.sh, labs/course/report): what a page shows of a made-up student's work
 * (tests/labs/submission.sh), that nothing of it runs or fetches, and that a page is written as a whole or not at all. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "labs/course/report/html.h"
#include "labs/course/report/markdown.h"
#include "labs/course/report/svg.h"
#include "tests/base/scratch.h"
#include "tests/programs/program.h"

static program run;
static char *page;

/* --- the whole way -------------------------------------------------------------------------------------------------- */

static int teardown(void **state) {
    free(page);
    page = NULL;
    return programs_teardown(state);
}

static void make_submission(void) {
    program_run(&run, "tests/labs/submission.sh %s %s", scratch_path("made"), build_folder());
    if (run.status != 0) fail_msg("submission.sh: %s", run.err_text);
}

/* Its status; the page, if there is one, in `page`. */
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

static void test_it_shows_what_was_done(void **state) {
    (void)state;
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
        "<code>half.svg</code>; not shown: it ends in the middle",
        "measured on this machine &amp; &lt;others&gt;</tspan>",
        "<span class=\"kind\">replayed</span> <code>speedup.svg</code>",
        "<h4><code>common/comm/allreduce_ring.c</code></h4>",
        "<span class=\"new\">+/* --- looks like a head of a diff\n</span>",
        "<span class=\"old\">-    ls_todo(&quot;03&quot;);\n</span>",
        "In step <strong>4</strong>, see <code>ls_comm_await_step</code>",
        "no answer yet",
        "环形 all-reduce",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) expect(texts[i]);
    expect_no("id=\"lab-01\""); /* not begun */
    expect_no("id=\"lab-04\"");
}

/* All that is hostile in the submission is there as text, and nowhere as markup. */
static void test_it_runs_nothing(void **state) {
    (void)state;
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
           "edoc"); /* two bytes that are no UTF-8, and a turn of direction */
    expect("&lt;b onclick=&quot;hacked = 3&quot;&gt;bold");
    expect_no("foreign words");
    expect_no("linked words");
}

static void test_in_chinese(void **state) {
    (void)state;
    make_submission();
    assert_int_equal(report("LS_LANG=zh", "03"), 0);
    expect("<html lang=\"zh-CN\">");
    expect("预测与结果");
    expect("4 / 12 分");
    expect_no("Predictions and results");
}

/* --- what is bad, and what is old ----------------------------------------------------------------------------------- */

static void expect_one_line(int status, const char *text) {
    if (run.status != status || count_lines(run.err_text) != 1 || !strstr(run.err_text, text))
        fail_msg("status %d, and not %d; '%s' in: %s", run.status, status, text, run.err_text);
}

static void test_bad_input_leaves_the_good_page(void **state) {
    (void)state;
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
    assert_int_equal(program_run(&run, "%s/course_report --out=%s 03", build_folder(), scratch_path("no/page.html")),
                     1);
    assert_int_equal(program_run(&run, "%s/course_report --out=%s", build_folder(), scratch_path("page.html")), 2);
    assert_int_equal(access(scratch_path("page.html"), F_OK), -1);
}

static void test_verdicts_of_other_code_do_not_count(void **state) {
    (void)state;
    make_submission();
    scratch_write("made/labs/03/graded", "1 2\n", 4);
    assert_int_equal(report("A=1", "03"), 0);
    expect("The code has changed since it was graded: make grade LAB=03");
    expect(">code changed since</td>");
    expect_no("4 of 12");
}

/* The grader fails, as with a full /tmp: that is no verdict, and what was known of other code stays what it was. */
static void test_what_cannot_be_graded_has_no_verdict(void **state) {
    (void)state;
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

static void test_answers_too_large_are_an_error(void **state) {
    (void)state;
    make_submission();
    char *many = malloc(2 << 20);
    assert_non_null(many);
    memset(many, '*', 2 << 20);
    scratch_write("made/code/labs/03-allreduce/answers.md", many, 2 << 20);
    report("A=1", "03");
    expect_one_line(1, "answers.md");
    scratch_write("made/code/labs/03-allreduce/answers.md", many, 1 << 20); /* and as many as may be take no time */
    assert_int_equal(report("A=1", "03"), 0);
    free(many);
}

/* A link in the place of answers, predictions or code, or of a folder above them, to somebody else's file. */
static void test_links_out_of_the_submission(void **state) {
    (void)state;
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

/* A pipe that nobody writes to is waited for by nobody. */
static void test_what_is_no_file(void **state) {
    (void)state;
    make_submission();
    assert_int_equal(mkfifo(scratch_path("made/code/labs/02-samples/answers.md"), 0600), 0);
    report("A=1", "02");
    expect_one_line(1, "answers.md");
    assert_int_equal(unlink(scratch_path("made/code/labs/02-samples/predict.txt")), 0);
    assert_int_equal(mkfifo(scratch_path("made/code/labs/02-samples/predict.txt"), 0600), 0);
    report("A=1", "02");
    expect_one_line(1, "predict.txt");
}

/* In a handout the first report makes a place for answers, and never takes one away. */
static void test_room_for_answers(void **state) {
    (void)state;
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

/* --- parts ---------------------------------------------------------------------------------------------------------- */

static char *text_of(void (*put)(FILE *, const char *, size_t), const char *text, size_t nbytes) {
    char *out = NULL;
    size_t length;
    FILE *file = open_memstream(&out, &length);
    assert_non_null(file);
    put(file, text, nbytes);
    fclose(file);
    return out;
}

static void expect_put(void (*put)(FILE *, const char *, size_t), const char *text, size_t nbytes, const char *wanted) {
    char *out = text_of(put, text, nbytes);
    assert_string_equal(out, wanted);
    free(out);
}

#define NO "\xEF\xBF\xBD"

static void test_characters(void **state) {
    (void)state;
    expect_put(html_put, "a<b>&\"'`", 8, "a&lt;b&gt;&amp;&quot;&#39;&#96;");
    expect_put(html_put, "a\0b\x01\x7F\r\nc\td\re", 12, "a" NO "b" NO NO "\nc\td" NO "e");
    expect_put(html_put, "\xC3\xA4 \xE7\x8E\xAF \xF0\x9F\x98\x80", 11, "\xC3\xA4 \xE7\x8E\xAF \xF0\x9F\x98\x80");
    expect_put(html_put, "\xC0\xBC", 2, NO NO);        /* "<", too long */
    expect_put(html_put, "\xED\xA0\x80", 3, NO NO NO); /* half of a pair */
    expect_put(html_put, "\xF4\x90\x80\x80", 4, NO NO NO NO);
    expect_put(html_put, "\xE7\x8E", 2, NO NO);    /* cut */
    expect_put(html_put, "\xE7<b", 3, NO "&lt;b"); /* what follows is not swallowed */
    expect_put(html_put, "\xE2\x80\xAE\xE2\x81\xA6", 6, NO NO);
}

static void put_markdown(FILE *file, const char *text, size_t nbytes) { markdown_put(file, text, nbytes, "none"); }

static void expect_markdown(const char *text, const char *wanted) {
    expect_put(put_markdown, text, strlen(text), wanted);
}

static void test_markdown(void **state) {
    (void)state;
    expect_markdown("# A *b*\ntwo\nlines\n\nthree", "<h4>A <em>b</em></h4>\n<p>two\nlines</p>\n<p>three</p>\n");
    expect_markdown("- a\n  more\n- b\n\n3. c\n4) d",
                    "<ul><li>a\nmore</li><li>b</li></ul>\n<ol><li value=\"3\">c</li><li value=\"4\">d</li></ol>\n");
    expect_markdown("```\n# <x>\n```\nend", "<pre><code># &lt;x&gt;\n</code></pre>\n<p>end</p>\n");
    expect_markdown("~~~\nnever closed", "<pre><code>never closed\n</code></pre>\n");
    expect_markdown("`a*b*` **c *d* e** 2 * 3 * 4 \\*f\\*",
                    "<p><code>a*b*</code> <strong>c <em>d</em> e</strong> 2 * 3 * 4 *f*</p>\n");
    expect_markdown("2*3*4 *e* 2*a*", "<p>2*3*4 <em>e</em> 2*a*</p>\n");
}

static void test_questions(void **state) {
    (void)state;
    expect_markdown("> 1. q\n\n> 2. r\nanswer",
                    "<blockquote><p>1. q</p></blockquote>\n<p "
                    "class=\"missing\">none</p>\n<blockquote><p>2. r</p></blockquote>\n<p>answer</p>\n");
    expect_markdown("> 1. q\n\n## only a heading",
                    "<blockquote><p>1. q</p></blockquote>\n<h4>only a heading</h4>\n<p class=\"missing\">none</p>\n");
    expect_markdown("> 1. q\n\n## a heading\nand words\n\n> quoted",
                    "<blockquote><p>1. q</p></blockquote>\n<h4>a heading</h4>\n<p>and words</p>\n"
                    "<blockquote><p>quoted</p></blockquote>\n");
    static const char text[] = "> 1. q\n\na\n\n> 2. r\n\n## h\n\n> 3. s\n\n- b\n\n> quoted";
    markdown_said said = markdown_put(NULL, text, strlen(text), NULL);
    assert_int_equal(said.questions, 3);
    assert_int_equal(said.answered, 2);
}

static void expect_svg(const char *text, const char *wanted, const char *why) {
    char *out = NULL;
    size_t length;
    svg_said said;
    FILE *file = open_memstream(&out, &length);
    assert_non_null(file);
    svg_put(file, &said, text, strlen(text), "p-", "name");
    fclose(file);
    assert_string_equal(said.why, why);
    if (!why[0]) assert_string_equal(out, wanted);
    free(out);
}

#define HEAD "<svg role=\"img\" viewBox=\"0 0 9 9\" aria-label=\"name\">"
#define BEGIN "<svg viewBox='0 0 9 9'>"

static void test_pictures(void **state) {
    (void)state;
    expect_svg(BEGIN "<g fill=\"red\"><path id='a' d='M0,0 L1,-1.5e3'/></g></svg>",
               HEAD "<g fill=\"red\"><path id=\"p-a\" d=\"M0,0 L1,-1.5e3\"></path></g></svg>", "");
    expect_svg(
        "<svg width='9' height='9'><use xlink:href='#a'/><use href='x#a'/><rect filter='url(#t)' fill='url(x)'/></svg>",
        HEAD "<use href=\"#p-a\"></use><use></use><rect filter=\"url(#p-t)\"></rect></svg>", "");
    expect_svg(BEGIN "<x><g/><path/></x><g id='a' onclick='b()' class='c' style='d'>&lt;&#60;&nbsp;</g></svg>",
               HEAD "<g>&lt;&lt;&amp;nbsp;</g></svg>", "");
    expect_svg(BEGIN "<![CDATA[<script>]]><!-- <x> --><svg></svg></svg>", HEAD "&lt;script&gt;</svg>", "");
    expect_svg(BEGIN "<path d='\"&quot;<'/></svg>", HEAD "<path></path></svg>", "");
    expect_svg("", "", "it is empty");
    expect_svg("<html></html>", "", "it is no SVG picture");
    expect_svg("<svg></svg>", "", "it has no size");
    expect_svg(BEGIN "<g></svg>", "", "it is not well-formed XML");
    expect_svg(BEGIN "<g a=b></g></svg>", "", "it is not well-formed XML");
    expect_svg(BEGIN "</svg><svg>", "", "it is no SVG picture");
    expect_svg(BEGIN "</svg> more", "", "it is not well-formed XML");
    expect_svg(BEGIN "<!-- ", "", "it ends in the middle");
    expect_svg("<!DOCTYPE svg [<!ENTITY a 'b'>]>" BEGIN "</svg>", "", "it defines entities of its own");
}

static void test_pictures_too_deep(void **state) {
    (void)state;
    char text[2000] = BEGIN;
    for (int i = 0; i < 200; i++) strcat(text, "<g>");
    expect_svg(text, "", "its elements lie too deep in each other");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_shows_what_was_done, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_runs_nothing, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_chinese, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_input_leaves_the_good_page, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_verdicts_of_other_code_do_not_count, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_graded_has_no_verdict, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_answers_too_large_are_an_error, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_links_out_of_the_submission, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_file, programs_setup, teardown),
        cmocka_unit_test_setup_teardown(test_room_for_answers, programs_setup, teardown),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_markdown),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_pictures_too_deep),
    };
    return cmocka_run_group_tests_name("course_report", tests, NULL, NULL);
}
