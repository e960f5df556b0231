/* markdown — blocks by lines, and within a block code and emphasis.
 *   idea  : a line's beginning says which block it belongs to; what opens a block closes the one before. Lists are flat, and
 *           a number is written as it was typed, so that nothing depends on lines further up
 *   limits: a closing sign is looked for within MOST_SPAN bytes, so that a megabyte of asterisks takes no longer than
 *           a megabyte of words */
#define _GNU_SOURCE
#include "labs/course/report/markdown.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "labs/course/report/html.h"

enum { MOST_SPAN = 2000, MOST_LEVELS = 3 };

enum block { NO_BLOCK, PARAGRAPH, QUOTE, BULLETS, NUMBERS, CODE, ROWS };

typedef struct writer {
    FILE *page;
    const char *unanswered;
    enum block block;
    bool asked; /* a question stands there without an answer; headings are none */
    markdown_said said;
} writer;

/* --- within a line -------------------------------------------------------------------------------------------------- */

/* Where `sign` closes what begins at `at`: not behind a blank, and not at once. NULL: nowhere near. */
static const char *find_close(const char *at, const char *end, const char *sign) {
    size_t length = strlen(sign);
    if (end - at > MOST_SPAN) end = at + MOST_SPAN;
    if (at >= end || isspace((unsigned char)*at)) return NULL;
    for (const char *close = at; (size_t)(end - close) >= length + 1;) {
        close = memmem(close + 1, (size_t)(end - close - 1), sign, length);
        if (!close) return NULL;
        if (*sign == '`' || !isspace((unsigned char)close[-1])) return close;
    }
    return NULL;
}

static void put_inline(FILE *page, const char *at, const char *end, int level);

/* Writes what stands between two signs, if they do so here; moves *at behind it. */
static bool put_between(FILE *page, const char **at, const char *end, int level) {
    static const struct {
        const char *sign, *element;
    } kinds[] = {{"``", "code"}, {"`", "code"}, {"**", "strong"}, {"*", "em"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].sign);
        if ((size_t)(end - *at) < length || memcmp(*at, kinds[i].sign, length) != 0) continue;
        const char *begin = *at + length, *close = find_close(begin, end, kinds[i].sign);
        if (!close) continue;
        fprintf(page, "<%s>", kinds[i].element);
        if (kinds[i].sign[0] == '`')
            html_put(page, begin, (size_t)(close - begin));
        else
            put_inline(page, begin, close, level + 1);
        fprintf(page, "</%s>", kinds[i].element);
        *at = close + length;
        return true;
    }
    return false;
}

static void put_inline(FILE *page, const char *at, const char *end, int level) {
    for (const char *begin = at; at < end;) {
        if (*at == '\\' && at + 1 < end && ispunct((unsigned char)at[1])) {
            html_put(page, at + 1, 1);
            at += 2;
            continue;
        }
        bool product = *at == '*' && at > begin && isdigit((unsigned char)at[-1]); /* 2*3*4 */
        if ((*at == '`' || *at == '*') && !product && level < MOST_LEVELS && put_between(page, &at, end, level))
            continue;
        const char *next = at + 1;
        while (next < end && *next != '`' && *next != '*' && *next != '\\') next++;
        html_put(page, at, (size_t)(next - at));
        at = next;
    }
}

void markdown_put_line(FILE *page, const char *text, size_t nbytes) { put_inline(page, text, text + nbytes, 0); }

/* --- blocks --------------------------------------------------------------------------------------------------------- */

static void close_block(writer *w) {
    static const char *const ends[] = {
        "", "</p>\n", "</p></blockquote>\n", "</li></ul>\n", "</li></ol>\n", "</code></pre>\n", "</code></pre>\n"};
    fputs(ends[w->block], w->page);
    w->block = NO_BLOCK;
}

static void close_question(writer *w) {
    if (w->asked && w->unanswered) {
        fputs("<p class=\"missing\">", w->page);
        html_put_text(w->page, w->unanswered);
        fputs("</p>\n", w->page);
    }
    w->asked = false;
}

/* Closes what is open and counts what comes. */
static void open_block(writer *w, enum block block, bool question, const char *markup) {
    close_block(w);
    if (question) {
        close_question(w);
        w->said.questions++;
        w->asked = true;
    } else {
        w->said.answered += w->asked;
        w->said.other_blocks += w->said.questions == 0;
        w->asked = false;
    }
    fputs(markup, w->page);
    w->block = block;
}

static size_t count_leading(const char *at, const char *end, char sign) {
    size_t count = 0;
    while (at + count < end && at[count] == sign) count++;
    return count;
}

/* Bytes of "- ", "* " or "+ "; of "12. " or "12) ", with the number in *number. 0: neither. */
static size_t item_at(const char *at, const char *end, int *number) {
    *number = -1;
    if (end - at > 1 && strchr("-*+", *at) && at[1] == ' ') return 2;
    size_t digits = 0;
    for (*number = 0; at + digits < end && digits < 6 && isdigit((unsigned char)at[digits]); digits++)
        *number = *number * 10 + (at[digits] - '0');
    bool is_item = digits && at + digits + 1 < end && (at[digits] == '.' || at[digits] == ')') && at[digits + 1] == ' ';
    return is_item ? digits + 2 : 0;
}

static void put_item(writer *w, const char *at, const char *end, int number) {
    enum block block = number < 0 ? BULLETS : NUMBERS;
    if (w->block == block)
        fputs("</li>", w->page);
    else
        open_block(w, block, false, block == BULLETS ? "<ul>" : "<ol>");
    if (number < 0) {
        fputs("<li>", w->page);
    } else {
        fprintf(w->page, "<li value=\"%d\">", number);
    }
    markdown_put_line(w->page, at, (size_t)(end - at));
}

static void put_heading(writer *w, const char *at, const char *end, size_t level) {
    size_t shown = level < 3 ? 4 : level < 4 ? 5 : 6;
    while (at < end && *at == ' ') at++;
    close_block(w);
    fprintf(w->page, "<h%zu>", shown);
    markdown_put_line(w->page, at, (size_t)(end - at));
    fprintf(w->page, "</h%zu>\n", shown);
}

/* A question has a number; any other quote is part of an answer. */
static void put_quoted(writer *w, const char *at, const char *end) {
    int number;
    at += at < end && *at == ' ';
    if (w->block == QUOTE)
        fputs(at == end ? "</p><p>" : "\n", w->page);
    else
        open_block(w, QUOTE, item_at(at, end, &number) > 0 && number >= 0, "<blockquote><p>");
    markdown_put_line(w->page, at, (size_t)(end - at));
}

/* A line of a paragraph, or of the item above it. */
static void put_plain(writer *w, const char *at, const char *end) {
    if (w->block == PARAGRAPH || w->block == BULLETS || w->block == NUMBERS)
        fputc('\n', w->page);
    else
        open_block(w, PARAGRAPH, false, "<p>");
    markdown_put_line(w->page, at, (size_t)(end - at));
}

static void put_verbatim(writer *w, enum block block, const char *at, const char *end) {
    if (w->block != block) open_block(w, block, false, "<pre><code>");
    html_put(w->page, at, (size_t)(end - at));
    fputc('\n', w->page);
}

static void take_line(writer *w, const char *line, const char *end) {
    const char *at = line + count_leading(line, end, ' ');
    int number;
    size_t hashes = count_leading(at, end, '#'), item = item_at(at, end, &number);
    if (at == end || (at + 1 == end && *at == '\r')) {
        close_block(w);
    } else if (*at == '>') {
        put_quoted(w, at + 1, end);
    } else if (hashes > 0 && hashes < 7 && at + hashes < end && at[hashes] == ' ') {
        put_heading(w, at + hashes, end, hashes);
    } else if (item) {
        put_item(w, at + item, end, number);
    } else if (*at == '|' || (at - line >= 4 && w->block != BULLETS && w->block != NUMBERS && w->block != PARAGRAPH)) {
        put_verbatim(w, ROWS, *at == '|' ? at : line + 4, end);
    } else {
        put_plain(w, at, end);
    }
}

static void put_lines(writer *w, const char *text, size_t nbytes) {
    size_t fence = 0; /* signs of the fence that is open */
    char sign = '`';
    for (const char *line = text, *all = text + nbytes, *end; line < all; line = end + 1) {
        end = memchr(line, '\n', (size_t)(all - line));
        if (!end) end = all;
        const char *at = line + count_leading(line, end, ' ');
        size_t signs = at < end && (*at == '`' || *at == '~') ? count_leading(at, end, *at) : 0;
        if (fence && signs >= fence && *at == sign) {
            close_block(w);
            fence = 0;
        } else if (fence) {
            put_verbatim(w, CODE, line, end);
        } else if (signs >= 3) {
            fence = signs;
            sign = *at;
            open_block(w, CODE, false, "<pre><code>");
        } else {
            take_line(w, line, end);
        }
    }
}

markdown_said markdown_put(FILE *page, const char *text, size_t nbytes, const char *unanswered) {
    writer w = {.page = page ? page : fopen("/dev/null", "w"), .unanswered = unanswered};
    if (!w.page) return w.said;
    put_lines(&w, text, nbytes);
    close_block(&w);
    close_question(&w);
    if (!page) fclose(w.page);
    return w.said;
}
