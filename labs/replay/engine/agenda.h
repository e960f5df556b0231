/* agenda — the event queue of the simulation: which of many lanes does something next.
 *
 * A binary heap of lanes, with each lane's place in it, so that a lane's moment can be moved. A lane does one task at a
 * time, so it has one moment at most. At the same moment, ends come before requests (so that a device that becomes free
 * is free for all that request it then), and then the lower lane comes first. */
#ifndef LABS_REPLAY_ENGINE_AGENDA_H
#define LABS_REPLAY_ENGINE_AGENDA_H

#include <stdbool.h>

#include "common/base/status.h"

typedef struct ls_agenda ls_agenda;

ls_status ls_agenda_create(ls_agenda **out, int lane_count); /* empty; LS_ERR_NO_MEMORY */
void ls_agenda_destroy(ls_agenda *agenda);                   /* NULL is a no-op */

/* `lane` is due at `at_us`, whatever moment it had before; `asks`: with a request, not an end. O(log lanes). */
void ls_agenda_set(ls_agenda *agenda, int lane, double at_us, bool asks);

/* The lane that is due first, and when; LS_NONE (-1): the agenda is empty. */
int ls_agenda_first(const ls_agenda *agenda, double *at_us);

/* Takes the first one out. */
void ls_agenda_pop(ls_agenda *agenda);

#endif
