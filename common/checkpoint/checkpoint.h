/* Checkpoints: everything a run needs to continue as if it had never stopped, in one safetensors file.
 *
 *     fc1.weight, bn1.running_mean, bn1.num_batches_tracked, ...    the model, under PyTorch's names (weights.h)
 *     optimizer.<moment>.<parameter>                                momentum_buffer, or exp_avg and exp_avg_sq
 *     optimizer.step, optimizer.lr                                  F64, one for all parameters, or one per parameter
 *     scaler.scale, scaler.growth_tracker, scaler.skipped           with loss scaling
 *     mode.memory                                                   the mode's own part (mode.h, get_resume_state)
 *     mode.of_ranks.NAME                     [ranks, n]             state that differs between ranks (mode.h, rank_state)
 *     "__metadata__"                                                format "pt"; what was trained and how far
 *
 * No random generator's state is saved: the order of the samples follows from seed and epoch, and the position in that
 * order is saved. A run that resumes with the same options, mode and number of devices has bit-identical weights and
 * losses from there on. The recipe (learning rate, momentum, weight decay, clipping, schedule), seed, data, order,
 * precision, mode and devices may differ from the saved run: the options take precedence over the file, and a note
 * lists the differences. Within an epoch the batch size may not change, since the position is a number of batches. (DDP
 * with --join and batch norm: in the last, uneven steps of an epoch the running statistics are those of the last rank
 * that had samples, which may be another rank after a resume.) */
#ifndef LS_CHECKPOINT_CHECKPOINT_H
#define LS_CHECKPOINT_CHECKPOINT_H

#include "common/checkpoint/safetensors.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

/* The progress of a run. */
struct ls_position {
    int64_t step;        /* optimizer steps so far */
    int64_t epoch;       /* in progress */
    int64_t epoch_steps; /* steps of this epoch so far */
    double loss_sum;     /* of these steps, for the epoch's mean loss */
    int64_t losses;
    double last_loss; /* of the previous step; NaN: none */
};

/* The run that is saved or resumed. */
struct ls_checkpointed {
    ls_parallel *parallel;
    const ls_train_options *options;
    ls_sharing sharing;
    int64_t steps_per_epoch; /* 0: not known (a stream) */
};

/* Writes the checkpoint, between steps. Call on every rank: rank 0 writes the file, after gathering the optimizer state
 * that is sharded over a group (if no state is sharded, the other ranks do nothing). The file is replaced as a whole or
 * not at all: once a complete checkpoint has this name, there is always one. Host-blocking. */
ls_status ls_checkpoint_save(const struct ls_checkpointed *run, const struct ls_position *position, const char *path);

/* Writes the same bytes to an open file, on this rank only. For modes in which each rank has the whole state. */
ls_status ls_checkpoint_keep(const struct ls_checkpointed *run, const struct ls_position *position, int fd);

/* Sets *path to the checkpoint to resume from; NULL: none is named, or --resume-if-present names one that does not
 * exist yet (rank 0 notes that). Collective: unless the file exists on all ranks or on none, all ranks fail. */
ls_status ls_checkpoint_find(const struct ls_checkpointed *run, const char **path);

/* Reads the checkpoint on every rank: model, optimizer, scaler, mode and position. Nothing is changed unless the whole
 * file fits; LS_ERR_INVALID, LS_ERR_FORMAT or LS_ERR_IO name the file, the tensor and the reason. Rank 0 notes the
 * position and the allowed differences from the saved run. Collective: ranks that have read different files (one was
 * replaced in between) all fail. Host-blocking. */
ls_status ls_checkpoint_load(const struct ls_checkpointed *run, const char *path, struct ls_position *position);

/* ls_checkpoint_load from an open file, without notes. */
ls_status ls_checkpoint_load_kept(const struct ls_checkpointed *run, int fd, struct ls_position *position);

/* Checks that ls_checkpoint_load would accept the file, except for the mode's own part (set_resume_state). Changes
 * neither model nor optimizer. Not collective. */
ls_status ls_checkpoint_check(const struct ls_checkpointed *run, const char *path);

/* Verifies a checkpoint's checksum: LS_ERR_FORMAT if it does not match or is missing. Files of earlier versions have
 * none. */
ls_status ls_checkpoint_verify(const ls_safetensors *file, const char *path);

/* Whether the file's metadata marks it as a checkpoint. ls_checkpoint_tensors: the name prefixes of its tensors that
 * are not weights, ended by NULL. */
bool ls_is_checkpoint(const ls_safetensors *file);
extern const char *const ls_checkpoint_tensors[];

#endif
