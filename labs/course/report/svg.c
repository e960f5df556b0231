/* svg — an SVG file as a part of an HTML page.
 *   idea  : expat reads the file, and only harmless content is written again: drawing elements, their attributes,
 *           values of few characters. Nothing is copied. A picture with anything else is refused: scripts, styles,
 *           links, foreign HTML, animations, embedded pictures, entity declarations
 *   names : ids and references to them get the picture's prefix: all of gnuplot's pictures have a #gpPt0
 *   loops : only single shapes keep their ids, so that a <use> cannot refer to a group of further uses, and a file of a
 *           kilobyte cannot draw a billion shapes */
#include "labs/course/report/svg.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include <expat.h>

#include "common/base/log.h"
#include "labs/course/report/html.h"

/* Expat 2.9 (Debian 13) calls the older function deprecated; 2.5 (Debian 12) has only the older one. */
#if XML_MAJOR_VERSION * 100 + XML_MINOR_VERSION >= 209
#define LINE_NUMBER_OF XML_GetCurrentLineNumber64
#else
#define LINE_NUMBER_OF XML_GetCurrentLineNumber
#endif

enum { MOST_LEVELS = 64, MOST_USES = 50000 };

typedef struct reader {
    XML_Parser parser;
    FILE *page;
    const char *prefix, *label;
    char *why;
    int depth, uses;
} reader;

/* The elements that gnuplot writes, in all of its styles, each between blanks. `ignored` elements are read and not
 * written. */
static const char elements[] = " g path circle ellipse rect line polyline polygon text tspan use defs filter feFlood "
                               "feComposite title desc ",
                  shapes[] = " path circle ellipse rect line polyline polygon text use filter ",
                  attributes[] = " x y x1 y1 x2 y2 dx dy cx cy r rx ry d points transform width height fill "
                                 "fill-opacity fill-rule stroke stroke-width stroke-dasharray stroke-linecap "
                                 "stroke-linejoin stroke-miterlimit stroke-opacity color opacity font-family font-size "
                                 "font-weight font-style text-anchor text-decoration dominant-baseline baseline-shift "
                                 "letter-spacing shape-rendering filter filterUnits flood-color flood-opacity result "
                                 "in in2 operator xml:space ",
                  ignored[] = " class style ", of_picture[] = " width height viewBox version xmlns xmlns:xlink ";

static bool is(const char *name, const char *word) { return strcmp(name, word) == 0; }

static bool is_in(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = strstr(list, name); at && length; at = strstr(at + 1, name))
        if (at[-1] == ' ' && at[length] == ' ') return true;
    return false;
}

LS_PRINTF(2, 3) static void refuse(reader *r, const char *format, ...) {
    va_list arguments;
    if (r->why[0]) return;
    va_start(arguments, format);
    vsnprintf(r->why, SVG_WHY_CAPACITY, format, arguments);
    va_end(arguments);
    XML_StopParser(r->parser, XML_FALSE);
}

/* Letters, digits and the signs of numbers, colours, lists, paths and transforms, or those of `more`: no < and no &, no \ and
 * no ", and no url(...). */
static bool is_plain(const char *value, const char *more) {
    for (const char *at = value; *at; at++) {
        bool known = isalnum((unsigned char)*at) || isspace((unsigned char)*at) || strchr("#.,%()+-_'", *at);
        if (!(known || strchr(more, *at)) || strncasecmp(at, "url", 3) == 0) return false;
    }
    return true;
}

/* The id in the value, without `before` and `behind`; "" if there is none. */
static void take_id(char id[64], const char *value, const char *before, const char *behind) {
    int length = 0;
    bool begins = strncmp(value, before, strlen(before)) == 0;
    if (!begins || sscanf(value + strlen(before), "%63[A-Za-z0-9_.-]%n", id, &length) != 1 ||
        !is(value + strlen(before) + length, behind))
        id[0] = '\0';
}

static void put_attribute(reader *r, const char *element, const char *name, const char *value) {
    char own[64], linked[64], used[64], styled[64];
    take_id(own, value, "", "");
    take_id(linked, value, "#", "");
    take_id(used, value, "url(#", ")");
    take_id(styled, value, "filter:url(#", ")");
    if (is(name, "id") && own[0]) {
        if (is_in(shapes, element)) fprintf(r->page, " id=\"%s%s\"", r->prefix, own);
    } else if ((is(name, "href") || is(name, "xlink:href")) && is(element, "use") && linked[0]) {
        fprintf(r->page, " href=\"#%s%s\"", r->prefix, linked);
    } else if (is_in(attributes, name) && used[0]) {
        fprintf(r->page, " %s=\"url(#%s%s)\"", name, r->prefix, used);
    } else if (is_in(attributes, name) && is_plain(value, "")) {
        fprintf(r->page, " %s=\"%s\"", name, value);
    } else if (!is_in(ignored, name) || !(styled[0] || is_plain(value, ":;"))) {
        refuse(r, "the attribute %.30s of its <%.20s>, or the value, is not permitted", name, element);
    }
}

/* The outermost element, which fills the width available on the page. */
static void put_picture(reader *r, const char **list) {
    double box[4] = {0, 0, NAN, NAN};
    for (bool boxed = false; *list; list += 2) {
        if (is(list[0], "viewBox"))
            boxed = sscanf(list[1], "%lf%*[ ,]%lf%*[ ,]%lf%*[ ,]%lf", &box[0], &box[1], &box[2], &box[3]) == 4;
        else if (!boxed && (is(list[0], "width") || is(list[0], "height")))
            sscanf(list[1], "%lf", &box[is(list[0], "width") ? 2 : 3]);
        else if (!is_in(of_picture, list[0]))
            refuse(r, "the attribute %.30s of its <svg> is not permitted", list[0]);
    }
    bool sized = isfinite(box[0]) && isfinite(box[1]) && box[2] > 0 && box[3] > 0 && box[2] < 1e6 && box[3] < 1e6;
    if (!sized) refuse(r, "the picture has no size");
    fprintf(r->page, "<svg role=\"img\" viewBox=\"%g %g %g %g\" aria-label=\"", box[0], box[1], box[2], box[3]);
    html_put_text(r->page, r->label);
    fputs("\">", r->page);
}

/* --- callbacks of expat, which may be called again after a refusal ------------------------------------------------ */

static void begin_element(void *to, const char *name, const char **list) {
    reader *r = to;
    if (r->why[0]) return;
    r->uses += is(name, "use");
    if (r->depth == 0 && !is(name, "svg"))
        refuse(r, "the picture is not SVG");
    else if (r->depth > 0 && !is_in(elements, name))
        refuse(r, "the picture has a forbidden element <%.40s>", name);
    else if (r->depth++ == MOST_LEVELS)
        refuse(r, "its elements are nested too deep");
    else if (r->uses > MOST_USES)
        refuse(r, "the picture uses shapes more than %d times", MOST_USES);
    else if (r->depth == 1)
        put_picture(r, list);
    else
        fprintf(r->page, "<%s", name);
    if (r->depth == 1) return;
    for (; *list && !r->why[0]; list += 2) put_attribute(r, name, list[0], list[1]);
    fputc('>', r->page);
}

static void end_element(void *to, const char *name) {
    reader *r = to;
    r->depth--;
    fprintf(r->page, "</%s>", name);
}

static void put_words(void *to, const char *text, int nbytes) { html_put(((reader *)to)->page, text, (size_t)nbytes); }

static void begin_type(void *to, const char *name, const char *file, const char *public_id, int has_own) {
    (void)name, (void)file, (void)public_id;
    if (has_own) refuse(to, "the picture defines entities of its own");
}

void svg_put(FILE *page, char why[SVG_WHY_CAPACITY], const char *text, size_t nbytes, const char *prefix,
             const char *label) {
    reader r = {.parser = XML_ParserCreate(NULL), .page = page, .prefix = prefix, .label = label, .why = why};
    snprintf(why, SVG_WHY_CAPACITY, "%s", r.parser ? nbytes ? "" : "it is empty" : "no memory");
    if (!why[0]) {
        XML_SetUserData(r.parser, &r);
        XML_SetElementHandler(r.parser, begin_element, end_element);
        XML_SetCharacterDataHandler(r.parser, put_words);
        XML_SetStartDoctypeDeclHandler(r.parser, begin_type);
        if (XML_Parse(r.parser, text, (int)nbytes, true) != XML_STATUS_OK && !why[0])
            snprintf(why, SVG_WHY_CAPACITY, "it is not well-formed XML: %s in line %lu",
                     XML_ErrorString(XML_GetErrorCode(r.parser)), (unsigned long)LINE_NUMBER_OF(r.parser));
    }
    XML_ParserFree(r.parser);
}
