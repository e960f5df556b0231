/* What a report shows of others: pictures, answers in Markdown, other text; the first byte of the input says which. Whatever it
 * is, the page gets whole elements of a short list, each ended where it should be, and attributes that neither run nor
 * fetch anything. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "labs/course/report/html.h"
#include "labs/course/report/markdown.h"
#include "labs/course/report/svg.h"
#include "tests/fuzz/targets/targets.h"

enum { MOST_LEVELS = 128 };

static const char *const elements[] = {
    "svg",   "g",      "path", "circle", "ellipse", "rect",        "line", "polyline",  "polygon", "text",
    "tspan", "use",    "defs", "filter", "feFlood", "feComposite", "p",    "ul",        "ol",      "li",
    "title", "desc",   "div",  "table",  "thead",   "tbody",       "tr",   "th",        "td",      "pre",
    "code",  "strong", "em",   "span",   "h4",      "h5",          "h6",   "blockquote"};

static size_t name_length(const char *at) {
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || (length && at[length] && strchr(":-", at[length]))) length++;
    return length;
}

static void require_element(const char *name, size_t length) {
    bool known = false;
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        known = known || (strlen(elements[i]) == length && memcmp(elements[i], name, length) == 0);
    fuzz_require(known, "only elements of the list are written");
}

/* The attributes of a tag; returns where it ends. */
static const char *require_attributes(const char *at) {
    while (*at == ' ') {
        size_t length = name_length(++at);
        fuzz_require(length > 0 && strncmp(at + length, "=\"", 2) == 0,
                     "an attribute has a name and a value in quotes");
        fuzz_require(strncasecmp(at, "on", 2) != 0 && strncasecmp(at, "style", 5) != 0, "no attribute runs");
        const char *value = at + length + 2, *end = strchr(value, '"');
        fuzz_require(end != NULL, "a value ends");
        size_t nbytes = (size_t)(end - value);
        fuzz_require(!memchr(value, '<', nbytes) && !memchr(value, '>', nbytes), "a value has no markup");
        bool is_link = strncmp(at, "href=", 5) == 0;
        const char *url = is_link ? value : memmem(value, nbytes, "url(", 4);
        if (url && strncmp(at, "aria-label", 10) != 0)
            fuzz_require(strncmp(url + (is_link ? 0 : 4), "#p-", 3) == 0, "what is referred to lies in the picture");
        at = end + 1;
    }
    return at;
}

static void require_whole(const char *at) {
    const char *open[MOST_LEVELS];
    size_t lengths[MOST_LEVELS];
    int depth = 0;
    while ((at = strpbrk(at, "<>"))) {
        fuzz_require(*at == '<', "a > is no text");
        bool ends = at[1] == '/';
        const char *name = at + 1 + ends;
        size_t length = name_length(name);
        require_element(name, length);
        at = require_attributes(name + length);
        fuzz_require(*at++ == '>', "a tag ends");
        if (ends) {
            fuzz_require(depth > 0 && lengths[depth - 1] == length && memcmp(open[depth - 1], name, length) == 0,
                         "an element ends within the one around it");
            depth--;
        } else {
            fuzz_require(depth < MOST_LEVELS, "elements do not lie too deep in each other");
            open[depth] = name;
            lengths[depth++] = length;
        }
    }
    fuzz_require(depth == 0, "every element ends");
}

void fuzz_report(const uint8_t *data, size_t nbytes) {
    if (nbytes == 0) return;
    char *page = NULL, *text = malloc(nbytes > 1 ? nbytes - 1 : 1); /* of its exact size: reading beyond it is found */
    size_t length;
    FILE *file = open_memstream(&page, &length);
    char why[SVG_WHY_CAPACITY] = "";
    if (text && file) {
        memcpy(text, data + 1, nbytes - 1);
        if (data[0] % 3 == 0) svg_put(file, why, text, nbytes - 1, "p-", "name");
        if (data[0] % 3 == 1) markdown_put(file, text, nbytes - 1);
        if (data[0] % 3 == 2) html_put(file, text, nbytes - 1);
    }
    if (file) fclose(file);
    if (page && !why[0]) {
        fuzz_require(strlen(page) == length, "no zero byte is written");
        require_whole(page);
    }
    free(text);
    free(page);
}
