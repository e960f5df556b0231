/* What writing and reading a checkpoint share. Private to common/checkpoint. */
#ifndef LS_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define LS_CHECKPOINT_CHECKPOINT_INTERNAL_H

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/state_dict.h"

/* In front of the name of the parameter that it belongs to. */
#define LS_RANK_STATE "mode.of_ranks."

/* How messages call a checkpoint in an open file. */
#define LS_KEPT "the kept state"

/* Host copies of what the file holds in another form than the device. */
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

/* Memory for so much. On failure there is nothing to free. */
ls_status ls_checkpoint_stage(struct ls_checkpoint_staging *staging, size_t state_count, size_t resume_count);
void ls_checkpoint_unstage(struct ls_checkpoint_staging *staging);

/* The tensors of a checkpoint: what is staged, which comes first, *staged_count of them, then moments and model. On
 * failure there is nothing to close. */
ls_status ls_checkpoint_dict(ls_state_dict *dict, size_t *staged_count, const ls_parallel *parallel,
                             struct ls_checkpoint_staging *staging);

#endif
