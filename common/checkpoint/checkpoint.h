/* Checkpoints: all that a run needs to go on as if it had never stopped, in one safetensors file.
 *
 *     fc1.weight, bn1.running_mean, bn1.num_batches_tracked, ...    the model, under PyTorch's names (weights.h)
 *     optimizer.<moment>.<parameter>                                momentum_buffer, or exp_avg and exp_avg_sq
 *     optimizer.step, optimizer.lr                                  F64, one of each for all parameters, or for each
 *     scaler.scale, scaler.growth_tracker, scaler.skipped           with loss scaling
 *     mode.memory                                                   the mode's own part (mode.h, get_resume_state)
 *     mode.of_ranks.NAME                     [ranks, n]             what each rank has of its own (mode.h, rank_state)
 *     "__metadata__"                                                format "pt"; what was trained and how far
 *
 * No state of a random generator is saved: the order of the samples follows from seed and epoch, and the position in it
 * is saved. A run that resumes with the same options, mode and number of devices has the same bits, from there on, in
 * every weight and every loss. These may change, with a note that says what they were: the recipe (learning rate,
 * momentum, weight decay, clipping, schedule), seed, data, order, precision, mode and devices. The options count, not
 * the file. Within an epoch the batch size may not change, since the position is a number of batches. (DDP with --join
 * and batch norm: within the last, uneven steps of an epoch the running statistics are those of the last rank that had
 * samples, and which rank that is may change there.) */
#ifndef LS_CHECKPOINT_CHECKPOINT_H
#define LS_CHECKPOINT_CHECKPOINT_H

#include "common/checkpoint/safetensors.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

/* How far a run is. */
struct ls_position {
    int64_t step;        /* optimizer steps so far */
    int64_t epoch;       /* the one in progress */
    int64_t epoch_steps; /* steps of it so far */
    double loss_sum;     /* of them: what the epoch's mean loss is made of */
    int64_t losses;
    double last_loss; /* of the step before; NaN: there was none */
};

/* The run that is saved, or that goes on. */
struct ls_checkpointed {
    ls_parallel *parallel;
    const ls_train_options *options;
    ls_sharing sharing;
    int64_t steps_per_epoch; /* 0: not known (a stream) */
};

/* Writes the checkpoint, between steps. Called on every rank: rank 0 writes, and has what the ranks of the optimizer's
 * group share out brought to it (with other optimizers the other ranks have nothing to do). The file is replaced as a
 * whole or not at all: whatever happens, a complete checkpoint stays under this name once there was one.
 * Host-blocking. */
ls_status ls_checkpoint_save(const struct ls_checkpointed *run, const struct ls_position *position, const char *path);

/* The same bytes to an open file, by this rank and for itself: of modes under which each rank has all of the state. */
ls_status ls_checkpoint_keep(const struct ls_checkpointed *run, const struct ls_position *position, int fd);

/* *path: the checkpoint to resume from. NULL: none is named, or --resume-if-present names one that is not there yet
 * (rank 0 notes that). Collective: it is there on all ranks, or on none, or all fail. */
ls_status ls_checkpoint_find(const struct ls_checkpointed *run, const char **path);

/* Reads it, on every rank: model, optimizer, scaler and mode, and where to go on. Nothing is changed unless all of the
 * file fits; LS_ERR_INVALID, LS_ERR_FORMAT or LS_ERR_IO name the file, the tensor and the reason. Rank 0 notes where
 * the run goes on, and what differs from the one that was saved without being wrong. Collective: ranks that have read
 * different files (one was replaced in between) all fail. Host-blocking. */
ls_status ls_checkpoint_load(const struct ls_checkpointed *run, const char *path, struct ls_position *position);

/* ls_checkpoint_load from an open file, in silence. */
ls_status ls_checkpoint_load_kept(const struct ls_checkpointed *run, int fd, struct ls_position *position);

/* Whether ls_checkpoint_load would take the file; only the mode's own part of it (set_resume_state) is not checked. Changes
 * neither model nor optimizer. One process may call it alone. */
ls_status ls_checkpoint_check(const struct ls_checkpointed *run, const char *path);

/* Whether a checkpoint's bytes are those that were written: LS_ERR_FORMAT if its checksum is another or missing. Files
 * of earlier versions have none. */
ls_status ls_checkpoint_verify(const ls_safetensors *file, const char *path);

/* Whether the file's metadata say that it is a checkpoint. ls_checkpoint_tensors: how the names of its tensors begin
 * that are no weights, up to a NULL. */
bool ls_is_checkpoint(const ls_safetensors *file);
extern const char *const ls_checkpoint_tensors[];

#endif
