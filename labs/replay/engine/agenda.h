/* agenda — the event queue of the simulation: the lane with the next event.
 *
 * A binary heap of lanes, with each lane's index in it, so that a lane's event can be moved. A lane runs one task at a
 * time, so it has at most one event. At the same moment, ends precede requests (so that a device that becomes free is
 * free for all that request it then), and lower lanes precede higher ones. */
#ifndef LABS_REPLAY_ENGINE_AGENDA_H
#define LABS_REPLAY_ENGINE_AGENDA_H

#include <stdbool.h>

#include "common/base/status.h"

typedef struct ls_agenda ls_agenda;

ls_status ls_agenda_create(ls_agenda **out, int lane_count); /* empty; LS_ERR_NO_MEMORY */
void ls_agenda_destroy(ls_agenda *agenda);                   /* NULL is a no-op */

/* Sets or moves the event of `lane` to `at_us`; `asks`: a request, not an end. O(log lanes). */
void ls_agenda_set(ls_agenda *agenda, int lane, double at_us, bool asks);

/* The lane with the first event, and its time; LS_NONE (-1): the agenda is empty. */
int ls_agenda_first(const ls_agenda *agenda, double *at_us);

/* Removes the first event. */
void ls_agenda_pop(ls_agenda *agenda);

#endif
