/* Checkpoints: all that a run needs to go on as if it had never stopped, in one safetensors file.
 *
 *     fc1.weight, bn1.running_mean, bn1.num_batches_tracked, ...    the model, under PyTorch's names (weights.h)
 *     optimizer.<moment>.<parameter>                                momentum_buffer, or exp_avg and exp_avg_sq
 *     optimizer.step, optimizer.lr                                  one of each for all parameters, or for each
 *     scaler.scale, scaler.growth_tracker, scaler.skipped           with loss scaling
 *     mode.memory                                                   what the mode keeps (parallel.h, get_memory)
 *     "__metadata__"                                                format "pt"; what was trained and how far ("lockstep.*")
 *
 * There is nothing random to save but the order of the samples, which follows from seed and epoch, and the place in it.
 * A run that resumes with the same options, mode and number of devices has the same bits, from there on, in every weight
 * and every loss; another number of devices is allowed, with a note. */
#ifndef LS_TRAIN_CHECKPOINT_H
#define LS_TRAIN_CHECKPOINT_H

#include "common/train/options.h"
#include "common/train/parallel.h"

/* How far a run is. */
struct ls_position {
    int64_t step;        /* optimizer steps so far */
    int64_t epoch;       /* the one in progress */
    int64_t epoch_steps; /* steps of it so far */
    double loss_sum;     /* of them: what the epoch's mean loss is made of */
    int64_t losses;
};

/* Writes the checkpoint; called on one rank, between steps. The file is replaced as a whole or not at all: whatever
 * happens, a complete checkpoint stays under this name once there was one. Host-blocking. */
ls_status ls_checkpoint_save(ls_parallel *parallel, const ls_train_options *options, const struct ls_position *position,
                             const char *path);

/* Reads it, on every rank: model, optimizer, scaler and mode of `parallel`, and where to go on. Nothing is changed unless
 * all of the file fits; LS_ERR_INVALID, LS_ERR_FORMAT or LS_ERR_IO name the file, the tensor and the reason. What differs
 * from the saved run without being wrong (seed, data, devices, ...) is noted once, by rank 0. Host-blocking. */
ls_status ls_checkpoint_load(ls_parallel *parallel, const ls_train_options *options, const char *path,
                             struct ls_position *position);

#endif
