/* The training loop: the same for every mode, on every rank. */
#ifndef LS_TRAIN_LOOP_H
#define LS_TRAIN_LOOP_H

#include "common/data/batches.h"
#include "common/report/result.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"
#include "common/train/evaluate.h"
#include "common/train/kept.h"

/* Checks in one process what ls_train checks on every rank before it begins: that batches can be divided among the
 * ranks, that the files named by the options can be written, and that the run can resume from the checkpoint they name.
 * The model (NULL: the checkpoint is not checked) keeps its weights. LS_OK, or the failure after its one line. */
ls_status ls_train_check(const ls_train_options *options, int world_size, ls_sharing sharing, const ls_dataset *train,
                         ls_model *model);

/* Describes a rank's training samples of the first epoch, for people: "450 of 1797 samples, the first 3 17 8 ...". */
ls_status ls_train_describe_share(const ls_train_options *options, int rank, int world_size, ls_sharing sharing,
                                  const ls_dataset *train, char *text, size_t capacity);

/* Trains according to the options; `train` and `test` are borrowed; `test` is NULL only with --no-evaluate. Rank 0
 * prints a line per epoch and writes the files that the options name; every rank takes part. */
static inline ls_status ls_train(ls_parallel *parallel, const ls_train_options *options, ls_sharing sharing,
                                 const ls_dataset *train, const ls_dataset *test, ls_train_result *result);

/* The same for an elastic run: begins with the state in `kept` instead of --resume's file, without printing anything;
 * ls_kept_save may follow, however it ends. Files of lines are continued, too. NULL: ls_train. */
ls_status ls_train_kept(ls_parallel *parallel, const ls_train_options *options, ls_sharing sharing,
                        const ls_dataset *train, const ls_dataset *test, ls_train_result *result, ls_kept *kept);

static inline ls_status ls_train(ls_parallel *parallel, const ls_train_options *options, ls_sharing sharing,
                                 const ls_dataset *train, const ls_dataset *test, ls_train_result *result) {
    return ls_train_kept(parallel, options, sharing, train, test, result, NULL);
}

#endif
