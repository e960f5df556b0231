/* Finds the known name that a mistyped one probably means: offer all known names, then read `name`.
 *
 *     struct ls_nearest nearest = {.wrong = "learning-rat", .length = 12};
 *     ls_nearest_offer(&nearest, "lr");
 *     if (nearest.name) ...  did you mean lr? */
#ifndef LS_BASE_NEAREST_H
#define LS_BASE_NEAREST_H

#include <stddef.h>

struct ls_nearest {
    const char *wrong; /* borrowed; its first `length` characters are compared */
    size_t length;
    const char *name; /* the nearest name so far; NULL: none is near */
    size_t distance;  /* edits from `wrong` to it */
};

/* A name is near if at most a third of its characters are wrong, missing, extra or swapped with their neighbour; if one
 * of the two consists of the initials of the other's words (lr, learning-rate); or if its words are among the other's
 * (workers, num-workers). '_' equals '-', and case is ignored. Of several near names the first with the fewest edits
 * wins. `name` is borrowed. */
void ls_nearest_offer(struct ls_nearest *nearest, const char *name);

#endif
