/* Evaluation: the test set's accuracy and loss, and the hash of a model's weights. */
#ifndef LS_TRAIN_EVALUATE_H
#define LS_TRAIN_EVALUATE_H

#include "common/report/result.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

/* Sums over some samples. */
struct ls_test_sums {
    int64_t right; /* labels whose output is the largest of their row */
    double loss;   /* summed over rows; 0 for images: not measured */
};

/* Evaluates samples begin .. end-1 of `dataset`, on the model's device, in evaluation mode, `chunk` samples at a time,
 * in at least `passes` forwards: ranks with common collectives take the same number. Sums are those of the chunks, in
 * order. Host-blocking. */
ls_status ls_evaluate(ls_model *model, const ls_dataset *dataset, size_t begin, size_t end, size_t chunk, size_t passes,
                      struct ls_test_sums *sums);

/* Sets the result's accuracy, and for texts its test loss and the answers to held-out sums. Collective: each rank
 * evaluates its share of the samples, and sums over ranks are taken in rank order. */
ls_status ls_measure(ls_parallel *parallel, const ls_train_options *options, const ls_dataset *test,
                     ls_train_result *result);

/* The hash of all parameters' bits (hash.h), tensor after tensor. Host-blocking. */
ls_status ls_model_hash(const ls_model *model, uint64_t *hash);

#endif
