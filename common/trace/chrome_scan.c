/* chrome_scan — finds the events of a trace file, one after another.
 *   idea  : a scan of the text that recognises only strings, brackets and lines, so that of a long file only one event
 *           at a time becomes a tree, in any layout of the file
 *   cost  : one pass over the text to find the array, one over the events
 *   fails : reports what is wrong and where; the text before that can be read */
#include "common/trace/chrome_scan.h"

#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

char ls_chrome_skip_blanks(struct ls_chrome_place *place) {
    for (; place->at < place->end && is_blank(*place->at); place->at++) place->line += *place->at == '\n';
    return place->at < place->end ? *place->at : '\0';
}

/* Moves past the string that begins at `place`. */
static bool skip_string(struct ls_chrome_place *place) {
    for (place->at++; place->at < place->end && *place->at != '"'; place->at++) {
        place->line += *place->at == '\n';
        if (*place->at == '\\' && place->at + 1 < place->end) place->at++;
    }
    return place->at < place->end && *place->at++ == '"';
}

static bool skip_brackets(struct ls_chrome_place *place) {
    int depth = 0;
    while (place->at < place->end) {
        char c = *place->at;
        if (c == '"') {
            if (!skip_string(place)) return false;
            continue;
        }
        place->at++;
        place->line += c == '\n';
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && --depth == 0) return true;
    }
    return false;
}

bool ls_chrome_skip_value(struct ls_chrome_place *place) {
    char first = ls_chrome_skip_blanks(place);
    if (first == '"') return skip_string(place);
    if (first == '{' || first == '[') return skip_brackets(place);
    const char *begin = place->at;
    while (place->at < place->end && !is_blank(*place->at) && !strchr(",:]}[{\"", *place->at)) place->at++;
    return place->at > begin;
}

/* Moves past a member of the root, and records the events if it has them. Returns what is wrong, or NULL. */
static const char *skip_member(struct ls_chrome_text *found, struct ls_chrome_place *place) {
    static const char name[] = "\"traceEvents\"";
    bool is_events =
        (size_t)(place->end - place->at) >= sizeof name - 1 && memcmp(place->at, name, sizeof name - 1) == 0;
    if (*place->at != '"' || !skip_string(place)) return "expected the name of the root's next member";
    if (ls_chrome_skip_blanks(place) != ':') return "expected a colon";
    place->at++;
    bool is_first = is_events && ls_chrome_skip_blanks(place) == '[' && !found->events.at;
    if (is_first) {
        found->events = *place;
        found->events.at++;
    }
    if (!ls_chrome_skip_value(place)) return is_first ? "the file ends within its events" : "the file ends too early";
    if (is_first) {
        found->behind = *place;
        found->behind.at--;
    }
    return NULL;
}

static const char *skip_root(struct ls_chrome_text *found, struct ls_chrome_place *place) {
    if (ls_chrome_skip_blanks(place) != '{') return "expected a JSON object";
    place->at++;
    for (char next = ls_chrome_skip_blanks(place); next != '}'; next = ls_chrome_skip_blanks(place)) {
        const char *wrong = next ? skip_member(found, place) : "the file ends too early";
        if (wrong) return wrong;
        next = ls_chrome_skip_blanks(place);
        if (next == ',')
            place->at++;
        else if (next != '}')
            return next ? "a comma is expected here" : "the file ends too early";
    }
    place->at++;
    return ls_chrome_skip_blanks(place) ? "nothing but the trace may be in its file" : NULL;
}

void ls_chrome_find_events(struct ls_chrome_text *found, const char *text, size_t nbytes) {
    static const char mark[] = "\xef\xbb\xbf"; /* UTF-8's byte order mark */
    size_t before = nbytes >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
    struct ls_chrome_place place = {text + before, text + nbytes, 1};
    *found = (struct ls_chrome_text){.wrong = NULL};
    found->wrong = skip_root(found, &place);
    found->wrong_line = place.line;
}
