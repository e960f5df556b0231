/* The report's conversions of a student's files (labs/course/report): characters, Markdown and pictures become text and
 * shapes, and nothing in them runs, fetches or grows. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "labs/course/report/html.h"
#include "labs/course/report/markdown.h"
#include "labs/course/report/svg.h"
#include "tests/base/test.h"

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

TEST(test_characters) {
    expect_put(html_put, "a<b>&\"'`", 8, "a&lt;b&gt;&amp;&quot;&#39;&#96;");
    expect_put(html_put, "a\0b\x01\x7F\r\nc\td\re", 12, "a" NO "b" NO NO "\nc\td" NO "e");
    expect_put(html_put, "\xC3\xA4 \xE7\x8E\xAF \xF0\x9F\x98\x80", 11, "\xC3\xA4 \xE7\x8E\xAF \xF0\x9F\x98\x80");
    expect_put(html_put, "\xC0\xBC", 2, NO NO);        /* "<", too long */
    expect_put(html_put, "\xED\xA0\x80", 3, NO NO NO); /* half of a surrogate pair */
    expect_put(html_put, "\xF4\x90\x80\x80", 4, NO NO NO NO);
    expect_put(html_put, "\xE7\x8E", 2, NO NO);    /* cut */
    expect_put(html_put, "\xE7<b", 3, NO "&lt;b"); /* the bytes after it are not swallowed */
    expect_put(html_put, "\xE2\x80\xAE\xE2\x81\xA6", 6, NO NO);
}

static void put_markdown(FILE *file, const char *text, size_t nbytes) {
    char *copy = malloc(nbytes + 1);
    assert_non_null(copy);
    memcpy(copy, text, nbytes);
    markdown_put(file, copy, nbytes);
    free(copy);
}

static void expect_markdown(const char *text, const char *wanted) {
    expect_put(put_markdown, text, strlen(text), wanted);
}

TEST(test_markdown) {
    expect_markdown("# A *b*\ntwo\nlines\n\nthree", "<h4>A <em>b</em></h4>\n<p>two\nlines</p>\n<p>three</p>\n");
    expect_markdown("- a\n  more\n- b\n\n3. c",
                    "<ul><li>a\nmore</li>\n<li>b</li>\n</ul>\n<ol start=\"3\"><li>c</li>\n</ol>\n");
    expect_markdown("```\n# <x>\n```\nend", "<pre># &lt;x&gt;\n</pre>\n<p>end</p>\n");
    expect_markdown("~~~\nnever closed", "<pre>never closed\n</pre>\n");
    expect_markdown("`a*b*` **c *d* e** 2 * 3 * 4 \\*f\\*",
                    "<p><code>a*b*</code> <strong>c <em>d</em> e</strong> 2 * 3 * 4 *f*</p>\n");
    expect_markdown("2*3*4 *e* 2*n*(N-1) `2*3*4` _a_ __b__",
                    "<p>2*3*4 <em>e</em> 2*n*(N-1) <code>2*3*4</code> _a_ __b__</p>\n");
    expect_markdown("a|b\n---|---\n*c*|", "<table><thead><tr><th>a</th>\n<th>b</th>\n</tr>\n</thead>\n<tbody><tr><td>"
                                          "<em>c</em></td>\n<td></td>\n</tr>\n</tbody>\n</table>\n");
}

/* Links to other places, and HTML, appear as text. */
TEST(test_markdown_leads_nowhere) {
    expect_markdown("[a](javascript:b) ![c](data:d) <http://e>",
                    "<p>a (javascript:b) c (data:d) http://e (http://e)</p>\n");
    expect_markdown("[a](\"<script>b</script>) &lt;", "<p>a (&quot;&lt;script&gt;b&lt;/script&gt;) &amp;lt;</p>\n");
    expect_markdown("<b onclick='a'>b\n\n<script>c</script>",
                    "<p>&lt;b onclick=&#39;a&#39;&gt;b</p>\n<p>&lt;script&gt;c&lt;/script&gt;</p>\n");
    expect_markdown("```\" onclick=a\nb\n```", "<pre>b\n</pre>\n");
}

/* A text whose conversion would be far longer is shown unconverted: rows with more cells than letters, an address with
 * many references. Content that is nested too deeply is written without its elements. */
TEST(test_markdown_that_grows) {
    enum { MANY = 20000 };
    char *text = calloc(1, 4 * MANY), *out;
    assert_non_null(text);
    for (int i = 0; i < MANY; i++) memcpy(text + i, "|", 1), memcpy(text + MANY + 1 + 2 * i, "|-", 2);
    text[MANY] = '\n';
    for (int i = 3 * MANY; i < 4 * MANY - 1; i++) text[i] = i % 2 ? 'x' : '\n';
    out = text_of(put_markdown, text, 4 * MANY - 1);
    assert_true(strlen(out) < 10 * MANY);
    free(out);
    memset(text, 'u', 2 * MANY);
    memcpy(text, "[a]: ", 5);
    for (int i = 2 * MANY; i < 4 * MANY - 4; i += 4) memcpy(text + i, i == 2 * MANY ? "\n\n\n\n" : "[a] ", 4);
    out = text_of(put_markdown, text, 4 * MANY - 4);
    assert_true(strlen(out) < 10 * MANY);
    free(out);
    memset(text, '>', 1000);
    out = text_of(put_markdown, text, 1000);
    int quotes = 0;
    for (const char *at = out; (at = strstr(at, "<blockquote>")); at++) quotes++;
    assert_in_range(quotes, 1, 32);
    free(out);
    free(text);
}

#define QUESTION(number, words)                                                                                        \
    "<div class=\"question\">\n<blockquote><ol start=\"" number "\"><li>" words "</li>\n</ol>\n</blockquote>\n</"      \
    "div>\n"
#define MISSING "<p class=\"missing\"></p>\n"

TEST(test_questions) {
    expect_markdown("> 1. q\n\n> 2. r\nanswer", QUESTION("1", "q") MISSING QUESTION("2", "r") "<p>answer</p>\n");
    expect_markdown("> 1. q\n> more\n> 2. s\n\n## only a heading",
                    QUESTION("1", "q\nmore</li>\n<li>s") "<h4>only a heading</h4>\n" MISSING);
    expect_markdown("> 1. q\n\n## a heading\nand words\n\n> quoted",
                    QUESTION("1", "q") "<h4>a heading</h4>\n<p>and words</p>\n<blockquote><p>quoted</p>\n"
                                       "</blockquote>\n");
    expect_markdown("> 1. q\n\na\n\n> 2. r\n\n## h\n\n> 3. s\n\n- b\n\n> quoted",
                    QUESTION("1", "q") "<p>a</p>\n" QUESTION("2", "r") "<h4>h</h4>\n" MISSING QUESTION(
                        "3", "s") "<ul><li>b</li>\n</ul>\n<blockquote><p>quoted</p>\n</blockquote>\n");
    expect_markdown("> 1. q\n```\nnever closed\n> 2. r",
                    QUESTION("1", "q") "<pre>never closed\n</pre>\n" QUESTION("2", "r") MISSING);
}

static void expect_svg(const char *text, const char *wanted, const char *why) {
    char *out = NULL, said[SVG_WHY_CAPACITY];
    size_t length;
    FILE *file = open_memstream(&out, &length);
    assert_non_null(file);
    svg_put(file, said, text, strlen(text), "p-", "name");
    fclose(file);
    assert_string_equal(said, why);
    if (!why[0]) assert_string_equal(out, wanted);
    free(out);
}

#define HEAD "<svg role=\"img\" viewBox=\"0 0 9 9\" aria-label=\"name\">"
#define BEGIN "<svg viewBox='0 0 9 9'>"
#define NO_XML "it is not well-formed XML: "

TEST(test_pictures) {
    expect_svg(BEGIN "<g fill=\"red\"><path id='a' d='M0,0 L1,-1.5e3'/></g></svg>",
               HEAD "<g fill=\"red\"><path id=\"p-a\" d=\"M0,0 L1,-1.5e3\"></path></g></svg>", "");
    expect_svg("<svg width='9' height='9'><use xlink:href='#a'/><rect filter='url(#t)'/></svg>",
               HEAD "<use href=\"#p-a\"></use><rect filter=\"url(#p-t)\"></rect></svg>", "");
    expect_svg(BEGIN "<g id='a' class='c' style='filter:url(#t)'>&lt;&#60;</g></svg>", HEAD "<g>&lt;&lt;</g></svg>",
               "");
    expect_svg("<?xml-stylesheet href='http://x'?><!DOCTYPE svg>" BEGIN "<![CDATA[<script>]]><!-- <x> --></svg>",
               HEAD "&lt;script&gt;</svg>", "");
    expect_svg("", "", "it is empty");
    expect_svg("<html></html>", "", "the picture is not SVG");
    expect_svg("<svg></svg>", "", "the picture has no size");
    expect_svg(BEGIN "<g></svg>", "", NO_XML "mismatched tag in line 1");
    expect_svg(BEGIN "<g a=b></g></svg>", "", NO_XML "not well-formed (invalid token) in line 1");
    expect_svg(BEGIN "</svg><svg>", "", NO_XML "junk after document element in line 1");
    expect_svg(BEGIN "</svg> more", "", NO_XML "junk after document element in line 1");
    expect_svg(BEGIN "<!-- ", "", NO_XML "unclosed token in line 1");
    expect_svg(BEGIN "&nbsp;</svg>", "", NO_XML "undefined entity in line 1");
    expect_svg("<!DOCTYPE svg [<!ENTITY a 'b'>]>" BEGIN "</svg>", "", "the picture defines entities of its own");
}

/* A picture with an element or attribute that could run or fetch is refused completely. */
TEST(test_pictures_that_attack) {
    static const char *const elements[] = {"script", "style",   "foreignObject", "image",   "a",
                                           "iframe", "animate", "set",           "svg",     "s:script",
                                           "SCRIPT", "pattern", "mask",          "feImage", "handler"};
    static const char *const attributes[][3] = {
        {"g", "onclick", "a()"},
        {"g", "ONLOAD", "a()"},
        {"g", "xml:base", "http://x/"},
        {"use", "href", "http://x/#a"},
        {"use", "href", "data:image/svg+xml;base64,PHN2Zy8+"},
        {"use", "xlink:href", "x#a"},
        {"use", "href", "javascript:a()"},
        {"use", "href", "url(#a)"},
        {"rect", "href", "#a"},
        {"rect", "style", "background:url(http://x)"},
        {"rect", "style", "fill:u\\72l(x)"},
        {"rect", "style", "filter:url(#a) url(x)"},
        {"rect", "fill", "url(x)"},
        {"rect", "fill", "URL(#a)"},
        {"rect", "fill", "url(#a) url(x)"},
        {"rect", "fill", "url(#a"},
        {"rect", "fill", "&#106;avascript:a()"},
        {"path", "d", "&quot; onload=&quot;a()"},
        {"path", "d", "&lt;script>"},
        {"path", "id", "a b"},
        {"path", "id", "a&quot;"},
    };
    char text[200], why[SVG_WHY_CAPACITY];
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        snprintf(text, sizeof text, BEGIN "<g><%s/></g></svg>", elements[i]);
        snprintf(why, sizeof why, "the picture has a forbidden element <%s>", elements[i]);
        expect_svg(text, "", why);
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        const char *const *a = attributes[i];
        snprintf(text, sizeof text, BEGIN "<%s %s=\"%s\"/></svg>", a[0], a[1], a[2]);
        snprintf(why, sizeof why, "the attribute %s of its <%s>, or the value, is not permitted", a[1], a[0]);
        expect_svg(text, "", why);
    }
    expect_svg("<svg viewBox='0 0 9 9' onload='a()'></svg>", "", "the attribute onload of its <svg> is not permitted");
}

TEST(test_pictures_too_large) {
    enum { USES = 50001 };
    char *text = malloc(USES * 8 + 100), *at = text + sprintf(text, BEGIN);
    assert_non_null(text);
    for (int i = 0; i < 200; i++) at = stpcpy(at, "<g>");
    expect_svg(text, "", "its elements are nested too deep");
    at = text + strlen(BEGIN);
    for (int i = 0; i < USES; i++) at = stpcpy(at, "<use/>");
    expect_svg(text, "", "the picture uses shapes more than 50000 times");
    free(text);
}
