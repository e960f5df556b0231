/* Shared by writing and reading checkpoints. Private to common/checkpoint. */
#ifndef LS_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define LS_CHECKPOINT_CHECKPOINT_INTERNAL_H

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/state_dict.h"

/* Prefix of a tensor's name, before the name of its parameter. */
#define LS_RANK_STATE "mode.of_ranks."

/* The name of a checkpoint in an open file, in messages. */
#define LS_KEPT "the kept state"

/* Host copies of state that the file stores in another form than the device. */
struct ls_checkpoint_staging {
    size_t state_count;    /* of update states: 1, or one for each parameter */
    double *steps, *rates; /* state_count each */
    bool has_scaler;
    float scale;
    int64_t growth_tracker, skipped;
    bool has_rank_state;   /* in the file and here: tensors that are not staged */
    int64_t *resume_state; /* resume_count, 0: the mode has none */
    size_t resume_count;
};

/* Allocates the arrays. On failure there is nothing to free. */
ls_status ls_checkpoint_stage(struct ls_checkpoint_staging *staging, size_t state_count, size_t resume_count);
void ls_checkpoint_unstage(struct ls_checkpoint_staging *staging);

/* Lists the tensors of a checkpoint: first the *staged_count staged ones, then moments and model. On failure there is
 * nothing to close. */
ls_status ls_checkpoint_dict(ls_state_dict *dict, size_t *staged_count, const ls_parallel *parallel,
                             struct ls_checkpoint_staging *staging);

#endif
