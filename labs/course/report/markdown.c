/* markdown — md4c finds blocks and spans; elements are written from the lists below, and all text by html_put.
 *   idea   : the text is cut at the questions, and each part is parsed separately: an answer directly below its
 *            question is not part of it, and an unclosed fence or link ends with the answer
 *   as meant: "2*n*(N-1)" is a product. A star between letters or digits is not markup, nor is any "_" */
#include "labs/course/report/markdown.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <md4c.h>

#include "labs/course/report/html.h"

enum { MOST_LEVELS = 32, TIMES = 1 }; /* TIMES stands for a "*" that is not markup */

typedef struct writer {
    FILE *page;
    const char *open[MOST_LEVELS]; /* deeper elements are not written, but their content is */
    int depth;
    size_t left; /* limit for this text's output: rows of a table can have more cells than letters */
    bool words;  /* text outside headings was written */
} writer;

static int take(writer *w, size_t amount) {
    bool enough = w->left > amount;
    w->left -= enough ? amount : w->left;
    return enough ? 0 : -1;
}

/* `element` NULL: none is written. */
static int begin(writer *w, const char *element, unsigned first) {
    if (element && w->depth < MOST_LEVELS) {
        fprintf(w->page, "<%s", element);
        if (first) fprintf(w->page, " start=\"%u\"", first);
        fputc('>', w->page);
        w->open[w->depth++] = element;
    }
    return take(w, 1);
}

/* Also ends elements begun within it. md4c 0.4.8 may end an element that it has not begun: a code span that begins in
 * an address. */
static int end(writer *w, const char *element) {
    int at = w->depth - 1;
    while (at >= 0 && element != w->open[at]) at--;
    while (at >= 0 && w->depth > at) fprintf(w->page, "</%s>", w->open[--w->depth]);
    return 0;
}

static const char *block_element(MD_BLOCKTYPE type, const void *detail) {
    static const char *const headings[] = {"h4", "h4", "h4", "h5", "h6", "h6", "h6"};
    static const char *const elements[MD_BLOCK_TD + 1] = {
        [MD_BLOCK_QUOTE] = "blockquote", [MD_BLOCK_UL] = "ul", [MD_BLOCK_OL] = "ol",       [MD_BLOCK_LI] = "li",
        [MD_BLOCK_CODE] = "pre",         [MD_BLOCK_P] = "p",   [MD_BLOCK_TABLE] = "table", [MD_BLOCK_THEAD] = "thead",
        [MD_BLOCK_TBODY] = "tbody",      [MD_BLOCK_TR] = "tr", [MD_BLOCK_TH] = "th",       [MD_BLOCK_TD] = "td"};
    return type == MD_BLOCK_H ? headings[((const MD_BLOCK_H_DETAIL *)detail)->level] : elements[type];
}

static int begin_block(MD_BLOCKTYPE type, void *detail, void *to) {
    writer *w = to;
    const char *element = block_element(type, detail);
    w->words = w->words || (element && type != MD_BLOCK_H);
    return begin(w, element, type == MD_BLOCK_OL ? ((const MD_BLOCK_OL_DETAIL *)detail)->start : 0);
}

static int end_block(MD_BLOCKTYPE type, void *detail, void *to) {
    writer *w = to;
    const char *element = block_element(type, detail);
    end(w, element);
    return element ? fputc('\n', w->page), 0 : 0;
}

static int put_text(MD_TEXTTYPE type, const char *text, MD_SIZE nbytes, void *to) {
    writer *w = to;
    if (type == MD_TEXT_SOFTBR || type == MD_TEXT_BR) text = "\n", nbytes = 1;
    for (const char *all = text + nbytes, *star; text < all; text = star + 1) {
        star = memchr(text, TIMES, (size_t)(all - text));
        if (!star) star = all;
        html_put(w->page, text, (size_t)(star - text));
        if (star < all) fputc('*', w->page);
    }
    return take(w, nbytes);
}

static const char *span_element(MD_SPANTYPE type) {
    return type == MD_SPAN_EM ? "em" : type == MD_SPAN_STRONG ? "strong" : type == MD_SPAN_CODE ? "code" : NULL;
}

static int begin_span(MD_SPANTYPE type, void *detail, void *to) {
    (void)detail;
    if (type == MD_SPAN_U) put_text(MD_TEXT_NORMAL, "_", 1, to);
    return begin(to, span_element(type), 0);
}

static int end_span(MD_SPANTYPE type, void *detail, void *to) {
    const MD_ATTRIBUTE *address = type == MD_SPAN_A     ? &((const MD_SPAN_A_DETAIL *)detail)->href
                                  : type == MD_SPAN_IMG ? &((const MD_SPAN_IMG_DETAIL *)detail)->src
                                                        : NULL;
    if (type == MD_SPAN_U) put_text(MD_TEXT_NORMAL, "_", 1, to);
    if (address) {
        put_text(MD_TEXT_NORMAL, " (", 2, to);
        if (put_text(MD_TEXT_NORMAL, address->text, address->size, to) != 0) return -1;
        put_text(MD_TEXT_NORMAL, ")", 1, to);
    }
    return end(to, span_element(type));
}

/* Returns whether text outside headings was written. A text with too much output is written as it was typed. */
static bool put_part(FILE *page, const char *text, size_t nbytes) {
    char *drawn = NULL;
    size_t drawn_nbytes = 0;
    writer w = {.page = open_memstream(&drawn, &drawn_nbytes), .left = 4 * nbytes + 1000};
    const MD_PARSER parser = {.flags = MD_FLAG_NOHTML | MD_FLAG_TABLES | MD_FLAG_UNDERLINE,
                              .enter_block = begin_block,
                              .leave_block = end_block,
                              .enter_span = begin_span,
                              .leave_span = end_span,
                              .text = put_text};
    bool whole = w.page && md_parse(text, (MD_SIZE)nbytes, &parser, &w) == 0;
    if (w.depth > 0) end(&w, w.open[0]);
    if (w.page) whole = fclose(w.page) == 0 && whole;
    if (whole) {
        fwrite(drawn, 1, drawn_nbytes, page);
    } else {
        fputs("<pre>", page);
        html_put(page, text, nbytes);
        fputs("</pre>\n", page);
    }
    free(drawn);
    return w.words;
}

/* "> 12. " */
static bool begins_question(const char *line, const char *end) {
    if (line == end || *line++ != '>') return false;
    while (line < end && *line == ' ') line++;
    const char *digits = line;
    while (line < end && isdigit((unsigned char)*line)) line++;
    return line > digits && end - line > 1 && (*line == '.' || *line == ')') && line[1] == ' ';
}

/* The end of the part that begins at `text`: a question ends with its last quoted line, an answer before the next
 * question. */
static char *end_of_part(char *text, char *end, bool question) {
    char *line = text;
    while (line < end && (question ? *line == '>' : !begins_question(line, end))) {
        char *next = memchr(line, '\n', (size_t)(end - line));
        line = next ? next + 1 : end;
    }
    return line;
}

void markdown_put(FILE *page, char *text, size_t nbytes) {
    char *all = text + nbytes;
    for (char *at = text + 1; at + 1 < all; at++)
        if (*at == '*' && isalnum((unsigned char)at[-1]) && (isalnum((unsigned char)at[1]) || at[1] == '('))
            *at = TIMES;
    for (bool asked = false; text < all;) {
        bool question = begins_question(text, all);
        char *next = end_of_part(text, all, question);
        if (question) fputs("<div class=\"question\">\n", page);
        bool words = put_part(page, text, (size_t)(next - text));
        if (question) fputs("</div>\n", page);
        bool missing = question ? next == all || begins_question(next, all) : asked && !words;
        if (missing) fputs("<p class=\"missing\"></p>\n", page);
        asked = question;
        text = next;
    }
}
