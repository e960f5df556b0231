/* svg — an SVG file as a part of an HTML page.
 *   idea  : the file is taken apart by XML's rules, and what is known to be harmless is written anew: elements that draw,
 *           attributes that say how, values of few characters. Nothing is copied, and what is not listed is left out
 *           with all that is in it: scripts, styles, links, foreign HTML, animations, pictures in the picture
 *   names : ids and what refers to them get the picture's prefix: all of gnuplot's pictures have a #gpPt0
 *   loops : only single shapes keep their ids, so that a <use> cannot stand for a group of further uses, and a file of
 *           a kilobyte cannot ask for a billion shapes
 *   fails : a file that is not well-formed is refused as a whole; so is one without a size */
#define _GNU_SOURCE
#include "labs/course/report/svg.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "labs/course/report/html.h"

enum { MOST_LEVELS = 64, MOST_ATTRIBUTES = 48, MOST_USES = 50000 };

typedef struct span {
    const char *text;
    size_t length;
} span;

typedef struct attribute {
    span name, value;
} attribute;

typedef struct reader {
    const char *at, *end;
    FILE *page;
    const char *prefix, *label;
    svg_said *said;
    span open[MOST_LEVELS];
    int depth, dropped_at; /* elements deeper than dropped_at are not written; 0: all are */
    int uses;
    bool done; /* the outermost element has ended */
    size_t word_count;
} reader;

/* What gnuplot writes, in all of its styles. */
static const char *const elements[] = {"svg",  "g",        "path",    "circle",      "ellipse", "rect",
                                       "line", "polyline", "polygon", "text",        "tspan",   "use",
                                       "defs", "filter",   "feFlood", "feComposite", NULL};
static const char *const shapes[] = {"path",    "circle", "ellipse", "rect",   "line", "polyline",
                                     "polygon", "text",   "use",     "filter", NULL};
static const char *const attributes[] = {"x",
                                         "y",
                                         "x1",
                                         "y1",
                                         "x2",
                                         "y2",
                                         "dx",
                                         "dy",
                                         "cx",
                                         "cy",
                                         "r",
                                         "rx",
                                         "ry",
                                         "d",
                                         "points",
                                         "transform",
                                         "width",
                                         "height",
                                         "fill",
                                         "fill-opacity",
                                         "fill-rule",
                                         "stroke",
                                         "stroke-width",
                                         "stroke-dasharray",
                                         "stroke-linecap",
                                         "stroke-linejoin",
                                         "stroke-miterlimit",
                                         "stroke-opacity",
                                         "color",
                                         "opacity",
                                         "font-family",
                                         "font-size",
                                         "font-weight",
                                         "font-style",
                                         "text-anchor",
                                         "text-decoration",
                                         "dominant-baseline",
                                         "baseline-shift",
                                         "letter-spacing",
                                         "shape-rendering",
                                         "filter",
                                         "filterUnits",
                                         "flood-color",
                                         "flood-opacity",
                                         "result",
                                         "in",
                                         "in2",
                                         "operator",
                                         "xml:space",
                                         NULL};

static bool is(span s, const char *word) { return s.length == strlen(word) && memcmp(s.text, word, s.length) == 0; }

static bool is_in(span s, const char *const *list) {
    while (*list && !is(s, *list)) list++;
    return *list != NULL;
}

static void refuse(reader *r, const char *why) {
    if (!r->said->why[0]) snprintf(r->said->why, sizeof r->said->why, "%s", why);
    r->at = r->end;
}

static bool begins(const reader *r, const char *word) {
    size_t length = strlen(word);
    return (size_t)(r->end - r->at) >= length && memcmp(r->at, word, length) == 0;
}

/* Behind the next `word`; what stood before it is returned. */
static span take_until(reader *r, const char *word) {
    const char *found = memmem(r->at, (size_t)(r->end - r->at), word, strlen(word));
    span passed = {r->at, found ? (size_t)(found - r->at) : 0};
    if (found) r->at = found + strlen(word);
    if (!found) refuse(r, "it ends in the middle");
    return passed;
}

static void skip_blanks(reader *r) {
    while (r->at < r->end && isspace((unsigned char)*r->at)) r->at++;
}

static bool is_of_name(char c) { return isalnum((unsigned char)c) || (c != '\0' && strchr("_:.-", c)) || (c & 0x80); }

static span take_name(reader *r) {
    span name = {r->at, 0};
    while (r->at < r->end && is_of_name(*r->at)) r->at++;
    name.length = (size_t)(r->at - name.text);
    if (name.length == 0) refuse(r, "it is not well-formed XML");
    return name;
}

/* --- words ---------------------------------------------------------------------------------------------------------- */

/* What is written in the picture, for those who ask whether it says "measured". */
static void keep_words(reader *r, span text) {
    while (text.length && isspace((unsigned char)*text.text)) text = (span){text.text + 1, text.length - 1};
    size_t room = sizeof r->said->words - 1 - r->word_count, length = text.length < room ? text.length : room;
    memcpy(r->said->words + r->word_count, text.text, length);
    r->word_count += length;
    r->said->words[r->word_count] = '\0';
}

/* The character that "&name;" at the text's begin stands for, 0: none; *length: how long it is. */
static uint32_t entity_at(const char *at, const char *end, size_t *length) {
    static const struct {
        const char *name;
        uint32_t character;
    } known[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        *length = strlen(known[i].name);
        if ((size_t)(end - at) >= *length && memcmp(at, known[i].name, *length) == 0) return known[i].character;
    }
    const char *semicolon = memchr(at, ';', (size_t)(end - at < 12 ? end - at : 12));
    if (!semicolon || semicolon - at < 3 || at[1] != '#') return 0;
    bool hexadecimal = at[2] == 'x';
    char *stop, digits[12] = "";
    memcpy(digits, at + 2 + hexadecimal, (size_t)(semicolon - at - 2 - hexadecimal));
    unsigned long number = isxdigit((unsigned char)digits[0]) ? strtoul(digits, &stop, hexadecimal ? 16 : 10) : 0;
    if (number == 0 || number > 0x10FFFF || *stop) return 0;
    *length = (size_t)(semicolon - at) + 1;
    return (uint32_t)number;
}

static void put_words(reader *r, span text, bool entities) {
    if (r->depth == 0) {
        for (size_t i = 0; i < text.length; i++)
            if (!isspace((unsigned char)text.text[i]) && (unsigned char)text.text[i] < 0x80)
                refuse(r, "it is not well-formed XML");
        return;
    }
    keep_words(r, text);
    if (r->dropped_at) return;
    for (const char *at = text.text, *end = at + text.length; at < end;) {
        size_t length = 0;
        uint32_t character = entities && *at == '&' ? entity_at(at, end, &length) : 0;
        if (!character) {
            html_put_character(r->page, html_next_character(&at, end));
            continue;
        }
        html_put_character(r->page, character);
        at += length;
    }
}

/* --- attributes ----------------------------------------------------------------------------------------------------- */

/* Letters, digits and the signs of numbers, colours, lists, paths and transforms: no quotes that end, no & and no \. */
static bool is_plain(span value) {
    for (size_t i = 0; i < value.length; i++) {
        unsigned char c = (unsigned char)value.text[i];
        if (!isalnum(c) && !isspace(c) && !(c && strchr("#.,%()+-_'", c))) return false;
    }
    return true;
}

static bool is_id(span value) {
    for (size_t i = 0; i < value.length; i++) {
        char c = value.text[i];
        if (!isalnum((unsigned char)c) && c != '_' && c != '.' && c != '-') return false;
    }
    return value.length > 0;
}

/* "#id", and "url(#id)" if it may: the id, or an empty span. */
static span reference_in(span value) {
    static const char url[] = "url(";
    if (value.length > 5 && memcmp(value.text, url, 4) == 0 && value.text[value.length - 1] == ')')
        value = (span){value.text + 4, value.length - 5};
    if (value.length < 2 || value.text[0] != '#') return (span){"", 0};
    value = (span){value.text + 1, value.length - 1};
    return is_id(value) ? value : (span){"", 0};
}

static bool has_url(span value) {
    for (size_t i = 0; i + 3 <= value.length; i++)
        if (strncasecmp(value.text + i, "url", 3) == 0) return true;
    return false;
}

static void put_attribute(reader *r, span element, const attribute *a) {
    bool is_link = is(a->name, "href") || is(a->name, "xlink:href");
    span id = reference_in(a->value);
    if (is(a->name, "id")) {
        if (is_in(element, shapes) && is_id(a->value))
            fprintf(r->page, " id=\"%s%.*s\"", r->prefix, (int)a->value.length, a->value.text);
    } else if (is_link || has_url(a->value)) {
        if (!id.length || (is_link && !is(element, "use")) || (!is_link && !is_in(a->name, attributes))) return;
        fprintf(r->page, is_link ? " %.*s=\"#%s%.*s\"" : " %.*s=\"url(#%s%.*s)\"", is_link ? 4 : (int)a->name.length,
                is_link ? "href" : a->name.text, r->prefix, (int)id.length, id.text);
    } else if (is_in(a->name, attributes) && is_plain(a->value)) {
        fprintf(r->page, " %.*s=\"", (int)a->name.length, a->name.text);
        html_put(r->page, a->value.text, a->value.length);
        fputc('"', r->page);
    }
}

/* Their number; -1: refused. */
static int take_attributes(reader *r, attribute *out) {
    int count = 0;
    for (skip_blanks(r); r->at < r->end && *r->at != '>' && *r->at != '/'; skip_blanks(r)) {
        attribute a = {.name = take_name(r)};
        skip_blanks(r);
        if (r->at < r->end && *r->at == '=') r->at++;
        skip_blanks(r);
        if (r->at == r->end || (*r->at != '"' && *r->at != '\'')) refuse(r, "it is not well-formed XML");
        if (r->said->why[0]) return -1;
        const char quote[] = {*r->at++, '\0'};
        a.value = take_until(r, quote);
        if (count == MOST_ATTRIBUTES) refuse(r, "an element has too many attributes");
        if (r->said->why[0]) return -1;
        out[count++] = a;
    }
    return count;
}

/* --- elements ------------------------------------------------------------------------------------------------------- */

static double number_of(const attribute *list, int count, const char *name) {
    for (int i = 0; i < count; i++) {
        char text[32];
        if (!is(list[i].name, name)) continue;
        snprintf(text, sizeof text, "%.*s", (int)(list[i].value.length < 31 ? list[i].value.length : 31),
                 list[i].value.text);
        return strtod(text, NULL);
    }
    return NAN;
}

/* The outermost element: it fills the width that the page gives it. */
static void put_picture(reader *r, const attribute *list, int count) {
    double box[4] = {0, 0, number_of(list, count, "width"), number_of(list, count, "height")};
    for (int i = 0; i < count; i++) {
        char text[128];
        if (!is(list[i].name, "viewBox")) continue;
        snprintf(text, sizeof text, "%.*s", (int)(list[i].value.length < 127 ? list[i].value.length : 127),
                 list[i].value.text);
        if (sscanf(text, "%lf%*[ ,]%lf%*[ ,]%lf%*[ ,]%lf", &box[0], &box[1], &box[2], &box[3]) != 4) box[2] = NAN;
    }
    bool sized = isfinite(box[0]) && isfinite(box[1]) && box[2] > 0 && box[3] > 0 && box[2] < 1e6 && box[3] < 1e6;
    if (!sized) refuse(r, "it has no size");
    fprintf(r->page, "<svg role=\"img\" viewBox=\"%g %g %g %g\" aria-label=\"", box[0], box[1], box[2], box[3]);
    html_put_text(r->page, r->label);
    fputs("\">", r->page);
}

static bool is_let_through(reader *r, span name) {
    if (is(name, "use") && ++r->uses > MOST_USES) return false;
    return is_in(name, elements) && !(is(name, "svg") && r->depth > 1);
}

/* A picture's title and description are no loss: its caption says them. */
static bool is_missed(span name) { return !is(name, "title") && !is(name, "desc") && !is(name, "metadata"); }

static void end_element(reader *r) {
    span name = r->open[--r->depth];
    if (!r->dropped_at) fprintf(r->page, "</%.*s>", (int)name.length, name.text);
    if (r->dropped_at > r->depth) r->dropped_at = 0;
    r->done = r->depth == 0;
}

static void begin_element(reader *r) {
    attribute list[MOST_ATTRIBUTES];
    span name = take_name(r);
    int count = take_attributes(r, list);
    bool empty = begins(r, "/>");
    if (count < 0 || !(empty || begins(r, ">"))) {
        refuse(r, "it is not well-formed XML");
        return;
    }
    r->at += empty ? 2 : 1;
    if (r->done || (r->depth == 0 && !is(name, "svg")) || r->depth == MOST_LEVELS) {
        refuse(r, r->depth ? "its elements lie too deep in each other" : "it is no SVG picture");
        return;
    }
    r->open[r->depth++] = name;
    if (!r->dropped_at && !is_let_through(r, name)) {
        r->dropped_at = r->depth;
        r->said->left_out += is_missed(name);
    }
    if (!r->dropped_at && r->depth == 1) {
        put_picture(r, list, count);
    } else if (!r->dropped_at) {
        fprintf(r->page, "<%.*s", (int)name.length, name.text);
        for (int i = 0; i < count; i++) put_attribute(r, name, &list[i]);
        fputc('>', r->page);
    }
    if (empty && !r->said->why[0]) end_element(r);
}

static void close_element(reader *r) {
    span name = take_name(r);
    skip_blanks(r);
    bool same = r->depth > 0 && name.length == r->open[r->depth - 1].length &&
                memcmp(name.text, r->open[r->depth - 1].text, name.length) == 0;
    if (!same || !begins(r, ">")) {
        refuse(r, "it is not well-formed XML");
        return;
    }
    r->at++;
    end_element(r);
}

static void take_markup(reader *r) {
    if (begins(r, "<!--")) {
        take_until(r, "-->");
    } else if (begins(r, "<![CDATA[")) {
        r->at += strlen("<![CDATA[");
        put_words(r, take_until(r, "]]>"), false);
    } else if (begins(r, "<?")) {
        take_until(r, "?>");
    } else if (begins(r, "<!")) {
        span type = take_until(r, ">");
        if (memchr(type.text, '[', type.length)) refuse(r, "it defines entities of its own");
    } else if (begins(r, "</")) {
        r->at += 2;
        close_element(r);
    } else {
        r->at++;
        begin_element(r);
    }
}

void svg_put(FILE *page, svg_said *said, const char *text, size_t nbytes, const char *prefix, const char *label) {
    *said = (svg_said){.left_out = 0};
    reader r = {.at = text, .end = text + nbytes, .page = page, .prefix = prefix, .label = label, .said = said};
    while (r.at < r.end) {
        if (*r.at == '<') {
            take_markup(&r);
            continue;
        }
        const char *next = memchr(r.at, '<', (size_t)(r.end - r.at));
        span words = {r.at, (size_t)((next ? next : r.end) - r.at)};
        r.at = next ? next : r.end;
        put_words(&r, words, true);
    }
    if (!r.done) refuse(&r, nbytes ? "it ends in the middle" : "it is empty");
}
