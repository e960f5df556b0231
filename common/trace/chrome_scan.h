/* Splits the text of a trace file, which any JSON library may have written, into the array of events, event by event,
 * and the text around it. It only matches brackets and quotes; a JSON parser reads what they contain. Private to
 * common/trace. */
#ifndef LS_TRACE_CHROME_SCAN_H
#define LS_TRACE_CHROME_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* A position in a text, and its line number. */
struct ls_chrome_place {
    const char *at, *end;
    size_t line;
};

struct ls_chrome_text {
    struct ls_chrome_place events; /* after the [ of the root's "traceEvents"; .at is NULL if there is none */
    struct ls_chrome_place behind; /* at its ]; .at is NULL if there is none */
    const char *wrong;             /* what is wrong with the text around the events, or NULL */
    size_t wrong_line;
};

void ls_chrome_find_events(struct ls_chrome_text *found, const char *text, size_t nbytes);

/* Moves to the next character that is not white space, and returns it; '\0' at the end. */
char ls_chrome_skip_blanks(struct ls_chrome_place *place);

/* Moves past the value at `place`, without checking what its brackets or quotes contain; false if the text ends
 * first. */
bool ls_chrome_skip_value(struct ls_chrome_place *place);

#endif
