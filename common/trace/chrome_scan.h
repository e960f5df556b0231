/* The parts of a trace file's text, which any JSON library may have written: the array of events, event by event, and
 * what is around it. Brackets and strings are looked at only; what is within them is for a JSON parser. Private to
 * common/trace. */
#ifndef LS_TRACE_CHROME_SCAN_H
#define LS_TRACE_CHROME_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* A place in a text, and its line there. */
struct ls_chrome_place {
    const char *at, *end;
    size_t line;
};

struct ls_chrome_text {
    struct ls_chrome_place events; /* behind the [ of the root's "traceEvents"; at NULL: there is none */
    struct ls_chrome_place behind; /* at its ]; at NULL: there is none */
    const char *wrong;             /* what is wrong with the rest of the text, or NULL */
    size_t wrong_line;
};

void ls_chrome_find_events(struct ls_chrome_text *found, const char *text, size_t nbytes);

/* Moves to the next thing that is no blank; '\0' at the end. */
char ls_chrome_skip_blanks(struct ls_chrome_place *place);

/* Moves behind the value there, whatever is within its brackets or quotes; false if the text ends first. */
bool ls_chrome_skip_value(struct ls_chrome_place *place);

#endif
