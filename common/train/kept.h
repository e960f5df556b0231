/* ls_kept: the state with which an elastic run continues after its group has changed: the content of a checkpoint, in
 * memory, on each rank. */
#ifndef LS_TRAIN_KEPT_H
#define LS_TRAIN_KEPT_H

#include "common/checkpoint/checkpoint.h"

typedef struct ls_kept {
    /* the caller's; NULL: nothing. Asked before each step, on every rank: LS_OK, or why the run is to end here; reported
     * or not, as for any other failure */
    ls_status (*may_step)(void *context);
    void *context;
    /* of the last ls_kept_save */
    int fd; /* the state, as a file without a name; -1: there is none */
    struct ls_position position;
    /* of the run that has ended, written by the loop; valid while its parallel is */
    struct ls_checkpointed run;
    struct ls_position reached; /* step 0: it has nothing that is worth keeping */
    bool by_itself;             /* it has ended by a failure of this rank's loader, whatever its status */
    /* what a forward changes before the step's update, as it was behind the last update */
    float *buffers;
    int64_t *tracked;
} ls_kept;

/* Nothing is kept yet. */
void ls_kept_open(ls_kept *kept);

/* For the loop, before the first step and behind each: remembers what the next one may leave half done. With ls_kept_ask,
 * before it, both do nothing on NULL. */
ls_status ls_kept_note(ls_kept *kept, ls_parallel *p);
ls_status ls_kept_ask(const ls_kept *kept);

/* For the loop, at its end. `begun`: the loop reached its first step, or had nothing left to train. */
void ls_kept_end(ls_kept *kept, const struct ls_checkpointed *run, struct ls_position reached, bool begun);

/* After ls_train, whether or not it failed, before its parallel is destroyed: undoes what an unfinished step has changed, and
 * keeps the state instead of the previous one. A run without a state leaves the previous one. Not collective. On
 * failure the previous one is lost, too. */
ls_status ls_kept_save(ls_kept *kept);

void ls_kept_close(ls_kept *kept);

#endif
