/* The untrusted parts of a report: pictures, answers in Markdown, other text; the first byte of the input selects one.
 * For any input the page gets only elements of a short list, each with its end tag, and attributes that neither run nor
 * fetch anything: it is well-formed XML, which expat parses. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <expat.h>

#include "labs/course/report/html.h"
#include "labs/course/report/markdown.h"
#include "labs/course/report/svg.h"
#include "tests/fuzz/targets/targets.h"

enum { MOST_LEVELS = 70 };

static const char elements[] = " all svg g path circle ellipse rect line polyline polygon text tspan use defs filter "
                               "feFlood feComposite title desc p ul ol li pre code strong em h4 h5 h6 blockquote div "
                               "table thead tbody tr th td ";

static void require_element(void *to, const char *name, const char **list) {
    int *depth = to;
    char known[64];
    snprintf(known, sizeof known, " %.50s ", name);
    fuzz_require(strstr(elements, known) != NULL, "only elements of the list are written");
    fuzz_require(++*depth < MOST_LEVELS, "elements do not lie too deep in each other");
    for (; *list; list += 2) {
        fuzz_require(strncasecmp(list[0], "on", 2) != 0 && strncasecmp(list[0], "style", 5) != 0, "no attribute runs");
        bool is_link = strcmp(list[0], "href") == 0;
        const char *url = is_link ? list[1] : strstr(list[1], "url(");
        if (url && strcmp(list[0], "aria-label") != 0)
            fuzz_require(strncmp(url + (is_link ? 0 : 4), "#p-", 3) == 0, "what is referred to lies in the picture");
        fuzz_require(strcmp(list[0], "id") != 0 || strncmp(list[1], "p-", 2) == 0, "a name is the picture's own");
    }
}

static void end_element(void *to, const char *name) {
    (void)name;
    --*(int *)to;
}

static void require_whole(const char *page, size_t nbytes) {
    int depth = 0;
    XML_Parser parser = XML_ParserCreate("UTF-8");
    if (!parser) return;
    XML_SetUserData(parser, &depth);
    XML_SetElementHandler(parser, require_element, end_element);
    bool whole = XML_Parse(parser, "<all>", 5, false) && XML_Parse(parser, page, (int)nbytes, false) &&
                 XML_Parse(parser, "</all>", 6, true);
    fuzz_require(whole, "every element ends within the one around it, and nothing else looks like markup");
    XML_ParserFree(parser);
}

void fuzz_report(const uint8_t *data, size_t nbytes) {
    if (nbytes == 0) return;
    char *page = NULL, *text = malloc(nbytes > 1 ? nbytes - 1 : 1); /* of its exact size: sanitizers find overruns */
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
    if (page && !why[0]) require_whole(page, length);
    free(text);
    free(page);
}
