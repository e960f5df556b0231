/* A checkpoint's metadata: the saved run and its progress. Private to common/checkpoint. */
#ifndef LS_CHECKPOINT_CHECKPOINT_TEXT_H
#define LS_CHECKPOINT_CHECKPOINT_TEXT_H

#include "common/checkpoint/checkpoint.h"

/* X(name, key after "lockstep.", name in messages, rule for a run that resumes). SAME: a different value is refused;
 * SAME_WITHIN_EPOCH: unless an epoch is complete; NOTED: a difference is noted; NOTED_IF_THERE: the same, but files of
 * earlier versions lack the line (so will files written before any line added later); NOTED_OF_STREAMS: for --data
 * stream: only; SELF: not compared. */
#define LS_CHECKPOINT_TEXT_MAP(X)                                                                                      \
    X(FORMAT, "format", "format", SELF)                                                                                \
    X(MODEL, "model", "model", SAME)                                                                                   \
    X(OPTIMIZER, "optimizer", "optimizer", SAME)                                                                       \
    X(BATCH_SIZE, "batch_size", "batch size", SAME_WITHIN_EPOCH)                                                       \
    X(MODE, "mode", "mode", NOTED)                                                                                     \
    X(DEVICES, "devices", "number of devices", NOTED)                                                                  \
    X(PRECISION, "precision", "precision", NOTED)                                                                      \
    X(ACCUMULATE, "accumulate", "number of micro-batches", NOTED)                                                      \
    X(DATA, "data", "data", NOTED)                                                                                     \
    X(NORMALIZE, "normalize", "normalization", NOTED)                                                                  \
    X(SCHEDULE, "schedule", "learning rate schedule", NOTED)                                                           \
    X(RATE, "lr", "learning rate", NOTED_IF_THERE)                                                                     \
    X(RATE_SCALE, "lr_scale", "scaling of the learning rate", NOTED_IF_THERE)                                          \
    X(MOMENTUM, "momentum", "momentum", NOTED_IF_THERE)                                                                \
    X(NESTEROV, "nesterov", "Nesterov's momentum", NOTED_IF_THERE)                                                     \
    X(WEIGHT_DECAY, "weight_decay", "weight decay", NOTED_IF_THERE)                                                    \
    X(CLIP_NORM, "clip_norm", "clipping", NOTED_IF_THERE)                                                              \
    X(GROWTH_INTERVAL, "growth_interval", "growth interval of the loss scale", NOTED_IF_THERE)                         \
    X(SYNC_BN, "sync_bn", "synchronised batch norm", NOTED_IF_THERE)                                                   \
    X(COMPRESS, "compress", "compression of gradients", NOTED_IF_THERE)                                                \
    X(JOIN, "join", "joining of ranks", NOTED_IF_THERE)                                                                \
    X(TF32, "tf32", "TF32", NOTED_IF_THERE)                                                                            \
    X(SEED, "seed", "seed", NOTED)                                                                                     \
    X(SHUFFLE, "shuffle", "shuffling", NOTED)                                                                          \
    X(DROP_LAST, "drop_last", "dropping of the last batch", NOTED)                                                     \
    X(UNEVEN, "uneven", "uneven shards", NOTED)                                                                        \
    X(SHARD, "shard", "shard", NOTED)                                                                                  \
    X(WORKERS, "workers", "number of loader workers", NOTED_OF_STREAMS)                                                \
    X(STEP, "step", "step", SELF)                                                                                      \
    X(EPOCH, "epoch", "epoch", SELF)                                                                                   \
    X(EPOCH_STEPS, "epoch_steps", "step in the epoch", SELF)                                                           \
    X(LOSS_SUM, "loss_sum", "sum of losses", SELF)                                                                     \
    X(LOSSES, "losses", "number of losses", SELF)                                                                      \
    X(LAST_LOSS, "last_loss", "last loss", SELF)

#define LS_TEXT_ENUM(name, key, words, rule) LS_TEXT_##name,
typedef enum ls_checkpoint_text { LS_CHECKPOINT_TEXT_MAP(LS_TEXT_ENUM) LS_TEXT_COUNT } ls_checkpoint_text;
#undef LS_TEXT_ENUM

enum { LS_CHECKPOINT_TEXT_CAPACITY = 400 };

/* A value for each line, printable ASCII. */
struct ls_checkpoint_texts {
    char values[LS_TEXT_COUNT][LS_CHECKPOINT_TEXT_CAPACITY];
};

void ls_checkpoint_describe(struct ls_checkpoint_texts *texts, const struct ls_checkpointed *run,
                            const struct ls_position *position);

/* Converts them to metadata: LS_TEXT_COUNT lines, valid as long as `texts`. */
void ls_checkpoint_metadata(const struct ls_checkpoint_texts *texts, ls_safetensors_text *lines);

/* Reads them from a file. LS_ERR_FORMAT: a line is missing, or the file is not a checkpoint; LS_ERR_UNSUPPORTED:
 * unknown format version. */
ls_status ls_checkpoint_read_texts(struct ls_checkpoint_texts *texts, const ls_safetensors *file, const char *path);

/* Checks that the run can resume from a checkpoint with the metadata `there`, and fills in the position.
 * LS_ERR_INVALID: a value that must be the same differs; LS_ERR_FORMAT: a number is malformed. */
ls_status ls_checkpoint_check_texts(const struct ls_checkpoint_texts *there, const struct ls_checkpointed *run,
                                    const char *path, struct ls_position *position);

/* Whether line `which` is the same in the file and in this run. */
bool ls_checkpoint_same(const struct ls_checkpoint_texts *there, const struct ls_checkpointed *run,
                        ls_checkpoint_text which);

/* Prints the note of a run that resumes: its position, and its differences from the saved run. */
void ls_checkpoint_note(const struct ls_checkpoint_texts *there, const struct ls_checkpointed *run, const char *path,
                        const struct ls_position *position);

#endif
