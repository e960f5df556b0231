/* diff — a unified diff, coloured.
 *   idea  : a hunk's head says how many lines of either file follow. They are counted down, so that a line of code that
 *           looks like a head ("--- a") is taken for what it is */
#define _GNU_SOURCE
#include "labs/course/report/diff.h"

#include <stdbool.h>
#include <string.h>

#include "labs/course/report/html.h"

typedef struct writer {
    FILE *page;
    long old_left, new_left; /* lines of the hunk that are still to come */
    bool open;               /* a file's lines */
    int shown, left_out;
} writer;

static void close_file(writer *w) {
    if (w->open) fputs("</code></pre>\n", w->page);
    w->open = false;
}

static void put_line(writer *w, const char *class, const char *text, size_t length) {
    if (!w->open) fputs("<pre class=\"diff\"><code>", w->page);
    w->open = true;
    if (++w->shown > DIFF_MOST_LINES) {
        w->left_out++;
        return;
    }
    fprintf(w->page, "<span class=\"%s\">", class);
    html_put(w->page, text, length);
    fputs("\n</span>", w->page);
}

/* Outside of hunks: a file's name, or a hunk's head. */
static void take_head(writer *w, const char *line, size_t length) {
    char head[128];
    snprintf(head, sizeof head, "%.*s", (int)(length < 127 ? length : 127), line);
    if (strncmp(head, "+++ ", 4) == 0) {
        close_file(w);
        fputs("<h4><code>", w->page);
        html_put(w->page, line + 4, length - 4);
        fputs("</code></h4>\n", w->page);
    } else if (strncmp(head, "@@ -", 4) == 0) {
        w->old_left = w->new_left = 1;
        if (sscanf(head, "@@ -%*d,%ld", &w->old_left) != 1) w->old_left = 1;
        const char *plus = strchr(head, '+');
        if (!plus || sscanf(plus, "+%*d,%ld", &w->new_left) != 1) w->new_left = 1;
        put_line(w, "place", line, length);
    }
}

static void take_line(writer *w, const char *line, size_t length) {
    if (w->old_left <= 0 && w->new_left <= 0) {
        take_head(w, line, length);
        return;
    }
    char sign = length ? *line : ' ';
    w->old_left -= sign == '-' || sign == ' ';
    w->new_left -= sign == '+' || sign == ' ';
    put_line(w, sign == '+' ? "new" : sign == '-' ? "old" : "same", line, length);
}

void diff_put(FILE *page, language l, const char *text, size_t nbytes) {
    writer w = {.page = page};
    for (const char *line = text, *all = text + nbytes, *end; line < all; line = end + 1) {
        end = memchr(line, '\n', (size_t)(all - line));
        if (!end) end = all;
        take_line(&w, line, (size_t)(end - line));
    }
    close_file(&w);
    if (w.left_out) {
        fputs("<p class=\"missing\">", page);
        fprintf(page, words_of(l, WORD_MORE_LINES), w.left_out);
        fputs("</p>\n", page);
    }
}
