/* The training loop: the same for every way to train in parallel, on every rank. */
#ifndef LS_TRAIN_LOOP_H
#define LS_TRAIN_LOOP_H

#include "common/data/batches.h"
#include "common/report/result.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"
#include "common/train/evaluate.h"
#include "common/train/kept.h"

/* What ls_train would refuse on every rank before it begins, asked by one process: whether the ranks can share the
 * batches, whether the files that the options name can be written, and whether the run can go on from the checkpoint
 * that they name. The model (NULL: no checkpoint is looked at) keeps its weights. LS_OK, or the failure after its one
 * line. */
ls_status ls_train_check(const ls_train_options *options, int world_size, ls_sharing sharing, const ls_dataset *train,
                         ls_model *model);

/* What a rank's share of the training samples is in the first epoch, for people: "450 of 1797 samples, the first 3 17 8
 * ...". */
ls_status ls_train_describe_share(const ls_train_options *options, int rank, int world_size, ls_sharing sharing,
                                  const ls_dataset *train, char *text, size_t capacity);

/* Trains as the options say; `train` and `test` are borrowed; `test` is NULL only with --no-evaluate. Rank 0 prints a
 * line per epoch and writes the files that the options name; every rank takes part. */
static inline ls_status ls_train(ls_parallel *parallel, const ls_train_options *options, ls_sharing sharing,
                                 const ls_dataset *train, const ls_dataset *test, ls_train_result *result);

/* The same, of ranks that may part and go on with others: begins with what `kept` holds, in place of --resume's file, and
 * without a word; however it ends, ls_kept_save may follow. Files of lines go on, too. NULL: ls_train. */
ls_status ls_train_kept(ls_parallel *parallel, const ls_train_options *options, ls_sharing sharing,
                        const ls_dataset *train, const ls_dataset *test, ls_train_result *result, ls_kept *kept);

static inline ls_status ls_train(ls_parallel *parallel, const ls_train_options *options, ls_sharing sharing,
                                 const ls_dataset *train, const ls_dataset *test, ls_train_result *result) {
    return ls_train_kept(parallel, options, sharing, train, test, result, NULL);
}

#endif
