/* ls_kept: the state with which an elastic run continues after its group has changed: the content of a checkpoint, in
 * memory, on each rank. */
#ifndef LS_TRAIN_KEPT_H
#define LS_TRAIN_KEPT_H

#include "common/checkpoint/checkpoint.h"

typedef struct ls_kept {
    /* set by the caller; NULL: not called. Called before each step, on every rank: LS_OK, or the reason to end the run
     * here; reported or not, as for any other failure */
    ls_status (*may_step)(void *context);
    void *context;
    /* of the last ls_kept_save */
    int fd; /* the state, as an unlinked file; -1: none */
    struct ls_position position;
    /* of the ended run, written by the loop; valid as long as its parallel */
    struct ls_checkpointed run;
    struct ls_position reached; /* step 0: there is no state to keep */
    bool by_itself;             /* it ended by a failure of this rank's loader, with any status */
    /* the data that a forward changes before the step's update, as of the last update */
    float *buffers;
    int64_t *tracked;
} ls_kept;

/* Nothing is kept yet. */
void ls_kept_open(ls_kept *kept);

/* For the loop, before the first step and after each: saves the data that an incomplete step may change. With
 * ls_kept_ask, called before it, a no-op on NULL. */
ls_status ls_kept_note(ls_kept *kept, ls_parallel *p);
ls_status ls_kept_ask(const ls_kept *kept);

/* For the loop, at its end. `begun`: the loop reached its first step, or had nothing left to train. */
void ls_kept_end(ls_kept *kept, const struct ls_checkpointed *run, struct ls_position reached, bool begun);

/* Call after ls_train, also if it failed, before its parallel is destroyed: undoes the changes of an incomplete step,
 * and keeps the state instead of the previous one. A run without a state leaves the previous one. Not collective. On
 * failure the previous one is lost, too. */
ls_status ls_kept_save(ls_kept *kept);

void ls_kept_close(ls_kept *kept);

#endif
